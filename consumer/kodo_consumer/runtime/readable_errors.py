"""Errors of public calls, as the program that made the call reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from kodoctl.errors import KodoctlError

if TYPE_CHECKING:
    from types import TracebackType

_COMMAND: Final = "kodoctl apply "


class ReadableErrors:
    """Context around the body of a public call. A KodoctlError leaves the context without the frames that it has
    passed, and with the topology file in place of FILE in the `kodoctl apply FILE` that it advises. `file`: the
    topology file; None: not known, and FILE stays.

    Its traceback then ends at the line of the caller. An exception that it was raised from is still shown, with the
    frames of our own modules; one that was only being handled is not. Thread-safe.
    """

    __slots__ = ("_file",)

    def __init__(self, file: str | Path | None = None) -> None:
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(problem, KodoctlError):
            return
        if self._file is not None:
            named = (
                replace(one, detail=one.detail.replace(f"`{_COMMAND}FILE`", f"`{_COMMAND}{self._file}`"))
                for one in problem.diagnostics
            )
            KodoctlError.__init__(problem, *named)  # of the same object: subclasses have more than their findings
        problem.__traceback__, problem.__suppress_context__ = None, True
