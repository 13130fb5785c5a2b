"""explain: the meaning of a code, or of a key of the topology file."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common.console import reading, say
from kodoctl.cli.common.options import Format
from kodoctl.cli.common.terminal import show_lines
from kodoctl.errors import UsageError, error

if TYPE_CHECKING:
    from kodoctl.render.explanation_text import CodeHelp
    from kodoctl.topology.json_schema.field_help import KeyHelp

_CODE = re.compile(r"[Kk]\d+")


@reading
def explain(
    name: Annotated[
        str,
        typer.Argument(
            help="A code, or a key of the topology file with its path.", metavar="CODE|PATH", show_default=False
        ),
    ],
    output: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
) -> None:
    """Explain a code such as K410, or a key of the topology file.

    A path names topics and subscriptions as you like, and leaves out the numbers of list items.

    Example: kodoctl explain topics.orders.policies.retention
    """
    from dataclasses import asdict

    from kodoctl.render.explanation_text import code_lines, key_lines

    if _CODE.fullmatch(name):
        code = _code_help(name.upper())
        document, lines = asdict(code), code_lines(code)
    else:
        key = _key_help(name)
        document, lines = asdict(key), key_lines(key)
    if output is Format.JSON:
        say(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        show_lines(lines)


def _code_help(number: str) -> CodeHelp:
    """Help about a code. Raises UsageError (K032) for a code that does not exist."""
    from difflib import get_close_matches

    from kodoctl.errors.codes import CODES
    from kodoctl.render.explanation_text import code_help
    from kodoctl.topology.lint.linter import rules_of

    if number not in CODES:
        near = ", ".join(get_close_matches(number, CODES, 3))
        detail = f"no code {number}{near and f'; codes that look alike: {near}'}"
        raise UsageError(error("K032", "nothing to explain", detail))
    return code_help(number, rules_of(number))


def _key_help(path: str) -> KeyHelp:
    """Help about a key. Raises UsageError (K032) for a path that no key has."""
    from kodoctl.topology.json_schema.field_help import UnknownKeyError, key_help

    try:
        return key_help(path)
    except UnknownKeyError as problem:
        raise UsageError(error("K032", "nothing to explain", str(problem))) from None
