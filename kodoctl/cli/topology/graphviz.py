"""Graphviz: DOT text drawn as SVG or PNG by the program `dot`."""

from __future__ import annotations

import os
import subprocess
from typing import Final

from kodoctl.errors import UsageError, error
from kodoctl.host.programs import find_program

TIMEOUT: Final = 60  # seconds; a graph of a hundred topics takes few
_PNG_DPI: Final = 160


def draw(text: str, kind: str) -> bytes:
    """Draws a DOT graph as a picture. `kind`: `svg` or `png`.

    Raises UsageError if the program `dot` is not installed, fails, or takes longer than TIMEOUT seconds.
    """
    program = find_program("dot", os.environ)
    if program is None:
        detail = (
            "pictures are drawn by its program `dot`, which is not on PATH\n"
            "install the package graphviz (apt-get install graphviz, brew install graphviz)\n"
            "Mermaid and DOT need nothing: --format mermaid"
        )
        raise UsageError(error("K027", "Graphviz is missing", detail))
    options = [f"-T{kind}", *([f"-Gdpi={_PNG_DPI}"] if kind == "png" else [])]
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Graphviz
            [program, *options], input=text.encode(), capture_output=True, check=False, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        raise _drawing_error(f"{program} took longer than {TIMEOUT} s: draw one topic with --topic") from None
    except OSError as problem:
        raise _drawing_error(f"{program}: {problem.strerror}") from None
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip()[:500]
        raise _drawing_error(f"{program} ended with {done.returncode}: {message or 'it printed no reason'}")
    return done.stdout


def _drawing_error(detail: str) -> UsageError:
    return UsageError(
        error("K027", "Graphviz cannot draw this", f"{detail}\nMermaid and DOT need no Graphviz: --format mermaid")
    )
