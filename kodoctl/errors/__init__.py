"""Diagnostics: one form for all findings and errors of kodoctl. Load, lint, plan and apply report in this form.

A diagnostic's summary never contains a user's names, so that it can be recognised and searched for; the detail
names the object, the reason and the action to take. Errors carry *all* findings, not the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Severity of a finding. `ERROR` stops a command. `WARNING` stops none, but makes `kodoctl lint --strict` fail.
    `NOTE` does neither.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, order=True)
class Where:
    """A place in a file. Lines and columns count from 1; 0 means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Remedy:
    """The flag and its value that allow an operation which a finding refuses. The value is None if the flag
    takes none.
    """

    flag: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `code` is public API and never changes its meaning; `where` is None for a finding about no file;
    `allowed_because`: reason in the comment that allows it, None: not allowed. `detail` mentions the `remedy` too.
    """

    severity: Severity
    code: str
    summary: str
    detail: str = ""
    where: Where | None = None
    allowed_because: str | None = None
    remedy: Remedy | None = None

    def __str__(self) -> str:
        place = f"{self.where} " if self.where else ""
        detail = f": {self.detail}" if self.detail else ""
        return f"{place}{self.code} {self.severity} {self.summary}{detail}"


def error(
    code: str, summary: str, detail: str = "", where: Where | None = None, remedy: Remedy | None = None
) -> Diagnostic:
    """Makes a finding that stops the command; the caller raises or reports it."""
    return Diagnostic(Severity.ERROR, code, summary, detail, where, remedy=remedy)


def error_with_remedy(code: str, summary: str, detail: str, remedy: Remedy, advice: str) -> Diagnostic:
    """Makes a finding that stops the command unless a flag allows it. `advice` for people is appended to `detail`, on a
    line of its own after "if that is meant:".
    """
    return error(code, summary, f"{detail}\nif that is meant: {advice}", remedy=remedy)


def warning(code: str, summary: str, detail: str = "", where: Where | None = None) -> Diagnostic:
    """Makes a finding that stops no command; it makes only `kodoctl lint --strict` fail."""
    return Diagnostic(Severity.WARNING, code, summary, detail, where)


def note(code: str, summary: str, detail: str = "", where: Where | None = None) -> Diagnostic:
    """Makes a finding for information, which never stops a command."""
    return Diagnostic(Severity.NOTE, code, summary, detail, where)


def has_errors(findings: Iterable[Diagnostic]) -> bool:
    """True if any finding is an error and no comment of the file allows it."""
    return any(f.severity is Severity.ERROR and f.allowed_because is None for f in findings)


class ExitCode:
    """Exit codes of every command; an audit has two more, 5 for a loss and 6 for inconclusive. CHANGES: a plan has
    changes, only with --detailed-exitcode (else OK); DRIFT: drift was found; REFUSED: the command refuses to write,
    because of a loss of data, a stale plan, a conflict, or a declined confirmation; LOCKED: another command has the
    lock or the lease that this one needs. The codes are public API, because CI scripts depend on them.
    """

    OK = 0
    ERROR = 1
    CHANGES = 2
    DRIFT = 3
    REFUSED = 4
    LOCKED = 7
    USAGE = 64
    INTERRUPTED = 130


class KodoctlError(Exception):
    """Base of every error that a user can cause or meet. `diagnostics` has all findings; `exit_code` is the exit code
    of the process when the error ends it.
    """

    exit_code = ExitCode.ERROR

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("\n".join(str(d) for d in diagnostics))
        self.diagnostics = diagnostics


class InvalidFileError(KodoctlError):
    """A file of the user is invalid (exit 1). `diagnostics` has all findings with their places."""


class UsageError(KodoctlError):
    """The command line or its environment asks for something impossible (exit 64)."""

    exit_code = ExitCode.USAGE


class RefusedError(KodoctlError):
    """The command refuses to write: data loss, a stale plan, a conflict or a declined confirmation (exit 4)."""

    exit_code = ExitCode.REFUSED


class LockedError(KodoctlError):
    """The command does not have, or has lost, a lock, a lease or a free place that it needs, or another command
    committed before it (exit 7). UnconfirmedError, a subclass, has exit 1: the broker did not confirm the lease.
    """

    exit_code = ExitCode.LOCKED


class StoppedError(KodoctlError):
    """The user, or a signal, stopped the command while it waited, before it wrote anything of its plan (exit 130). A
    command that is stopped later ends with the same exit code, and with a report in place of this error.
    """

    exit_code = ExitCode.INTERRUPTED


class ClusterError(KodoctlError):
    """A cluster or a server could not be reached, or its answer makes it impossible to continue (exit 1)."""
