"""Errors of public calls, as the program that made the call reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kodoctl.errors import KodoctlError

_COMMAND: Final = "kodoctl apply "


def readable(problem: KodoctlError, file: str | Path | None) -> KodoctlError:
    """The same error without the frames of our own modules, and with the topology file in the commands that it advises
    (None: not known). To be raised by a public call, `from None`.
    """
    if file is not None:
        named = (
            replace(one, detail=one.detail.replace(f"`{_COMMAND}FILE`", f"`{_COMMAND}{file}`"))
            for one in problem.diagnostics
        )
        problem = type(problem)(*named)
    return problem.with_traceback(None)
