"""Topology files that a standing command follows: it reads them again while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kodoctl.cli.common.command_target import load_desired
from kodoctl.cli.common.console import paths_or_default
from kodoctl.errors import Diagnostic, KodoctlError

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired


class FollowedFiles:
    """The topology files of a command that runs for long. `warn`: takes the list of warnings of a valid reading, if
    there are any and the reading before had others. `problem`: error of the last call of `latest`, None if the files
    were valid. For one thread.
    """

    def __init__(
        self, paths: list[str] | None, environment: str | None, warn: Callable[[Sequence[Diagnostic]], None]
    ) -> None:
        self._paths, self._environment, self._warn = paths, environment, warn
        self._warned: tuple[str, ...] = ()
        self._texts: dict[str, bytes] = {}
        self._valid: Desired | None = None
        self.problem: KodoctlError | None = None

    def read(self) -> Desired:
        """Returns the objects that the files declare now. Raises InvalidFileError, UsageError."""
        return load_desired(self._paths, self._environment, self._warn_of_changes)

    def latest(self) -> Desired:
        """Returns the objects that the files declare now; if the files are invalid now, sets `problem` and returns the
        objects of the last valid reading. Files without a change since the last call are not parsed again, unless they
        were invalid; a change only of a payload schema file is not noticed. Raises InvalidFileError, UsageError if they
        were never valid.
        """
        try:
            texts = self._contents()
            if self._valid is None or self.problem is not None or texts != self._texts:
                self._valid, self._texts = self.read(), texts
            self.problem = None
        except KodoctlError as problem:
            if self._valid is None:
                raise
            self.problem = problem
        return self._valid

    def _contents(self) -> dict[str, bytes]:
        from kodoctl.topology.load import find_files

        try:
            return {str(path): path.read_bytes() for path in find_files(paths_or_default(self._paths))}
        except OSError:  # the reading says what is wrong
            return {}

    def _warn_of_changes(self, warnings: Sequence[Diagnostic]) -> None:
        before, self._warned = self._warned, tuple(map(str, warnings))
        if self._warned not in (before, ()):
            self._warn(warnings)
