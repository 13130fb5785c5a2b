"""Console that both command lines share: output, its streams, and the exit codes of commands."""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Annotated, Any, Final, NoReturn, TypeVar

import typer

from kodoctl.errors import Diagnostic, ExitCode, KodoctlError, Severity, UsageError, Where, error
from kodoctl.host.host_facts import working_folder
from kodoctl.host.private_files import write_whole

C = TypeVar("C", bound=Callable[..., Any])
_JSON_WORDS: Final = frozenset({
    "--format json", "--output json", "-o json", "--format=json", "--output=json", "-ojson",
})  # fmt: skip
_CALLERS: Final = ("kodoctl.pulsar.binary.deadlines", "kodo_consumer.runtime.threads")
"""Modules that call the client library and can abandon a call."""

Paths = Annotated[
    list[str] | None,
    typer.Argument(help="Topology files, or folders of them.", show_default="topologies/", metavar="PATH"),
]
Environment = Annotated[
    str | None,
    typer.Option("--env", help="Environment of the files; `base` is the file without overlay.", metavar="NAME"),
]

RuleFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--rules",
        help="A rules file for all topologies, beside each kodoctl-rules.yaml above them (repeatable).",
        metavar="FILE",
    ),
]


def paths_or_default(paths: list[str] | None) -> list[str]:
    """The paths as given, or the folder `topologies`."""
    return paths or ["topologies"]


class _Streams:
    """Standard output and error of the running command, and the loss of one of them, because its reader left or its
    disk is full.

    A command that only reads ends then. A command that changes something continues without the stream: a reader must
    not stop unfinished changes.
    """

    def __init__(self) -> None:
        self.only_reads = self.reader_may_leave = self.printed = False
        self.problem: OSError | None = None  # why one was lost, the first

    def begin(self, *, only_reads: bool, reader_may_leave: bool) -> None:
        """Resets the state for a new command."""
        self.only_reads, self.reader_may_leave = only_reads, reader_may_leave
        self.problem, self.printed = None, False

    def lost(self, problem: OSError, stream: IO[Any]) -> None:
        """Records the loss of a stream, and discards everything that is written there later. Raises OutputLostError in
        a command that only reads.
        """
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        self.problem = self.problem or problem
        if self.only_reads:
            raise OutputLostError


class OutputLostError(Exception):
    """Output of a command is lost, and printing is all that the command does, so that it should end."""


_streams = _Streams()


@contextlib.contextmanager
def printing(stream: IO[Any]) -> Iterator[None]:
    """Context for code that prints to `stream`: an OSError in it means that the stream is lost. A command that only
    reads then ends by OutputLostError; in any other, later output is discarded, and the error is reported at its end.
    """
    try:
        yield
    except OSError as problem:
        _streams.lost(problem, stream)


def say(text: str = "", *, newline: bool = True, styled: bool = False) -> None:
    """Prints a text on standard output, with a line end unless `newline` is False. `styled`: colours and other codes
    for terminals are kept, also if standard output is no terminal.
    """
    _streams.printed = True
    with printing(sys.stdout):
        typer.echo(text, nl=newline, color=styled or None)


def say_json(document: object) -> None:
    """Prints a document as indented JSON on standard output, by parts: as one text, the plan of 20,000 topics would take
    more memory than the plan itself.
    """
    import json

    chunks = json.JSONEncoder(indent=2).iterencode(document)
    while part := "".join(islice(chunks, 10_000)):
        say(part, newline=False)
    say()


def tell(text: str) -> None:
    """Prints a line for people on standard error: progress, notes, errors. Never data."""
    with printing(sys.stderr):
        typer.echo(text, err=True)


def tell_wait(what: str, seconds: float, limit: float) -> None:
    """Prints a line about a long wait for the cluster (kodoctl.pulsar.connection.wait_monitor). `what`: the awaited
    thing; `seconds`: waited so far; `limit`: seconds at most.
    """
    if seconds < limit:
        tell(f"Waiting for the cluster, {seconds:.0f} s of at most {limit:.0f} s: {one_line(what, 300)}")
    else:
        tell(
            f"Waiting for the cluster, {seconds:.0f} s (limit {limit:.0f} s), last try, then giving up: {one_line(what, 300)}"
        )


def one_line(value: object, limit: int) -> str:
    """A value from outside as harmless text on one line, cut to `limit` characters before characters are escaped."""
    from kodoctl.text import escaping

    return escaping.one_line(value, limit)


def is_terminal() -> bool:
    """True if a person can answer questions: standard input and error are a terminal, and CI is not set."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not os.environ.get("CI")


def is_screen() -> bool:
    """True if standard output is for the eyes of a person: a terminal, or a pipe with FORCE_COLOR (neither empty nor
    0), such as a CI log.
    """
    return sys.stdout.isatty() or os.environ.get("FORCE_COLOR", "") not in ("", "0")


def columns() -> int:
    """Width of the screen in columns: the variable COLUMNS, else the terminal's width, else 80."""
    return shutil.get_terminal_size().columns


def report(diagnostics: Iterable[Diagnostic]) -> None:
    """Prints findings on standard error, one block each."""
    from kodoctl.text.escaping import printable
    from kodoctl.text.wrap import fold

    width = columns()
    marks = {Severity.ERROR: "Error", Severity.WARNING: "Warning", Severity.NOTE: "Note"}
    for finding in diagnostics:
        lines = fold(printable(f"{marks[finding.severity]}: {finding.summary} [{finding.code}]"), width)
        place = [printable(f"  at {finding.where}")] if finding.where else []  # whole: it is copied, and clicked on
        details = [f"  {line}" for line in finding.detail.split("\n") if line]
        for line in (*lines, *place, *(part for one in details for part in fold(printable(one), width))):
            tell(line)


def finish(code: int) -> NoReturn:
    """Ends the command with an exit code, by raising typer.Exit."""
    raise typer.Exit(code)


def command(function: C) -> C:
    """Decorator of a command: prints a KodoctlError as findings, with JSON output also as a line of JSON if nothing was
    printed before, and ends with its exit code. An interrupt ends it with 130. A PermissionError that names a file is
    an error of usage; any other exception is a defect, with exit code 1, whose traceback is written to a file, and
    printed only if no file can be written.

    If the reader of the output leaves, the command continues to its end and then fails. For commands that change
    nothing there are `reading`, which ends them with exit code 0 then, and `judging`, which lets them continue and
    keeps their exit code.
    """
    return _command(function)


def reading(function: C) -> C:
    """Decorator like `command`, for a command that changes nothing: ends the command with exit code 0 as soon as the
    reader of its output leaves, as filters do.
    """
    return _command(function, only_reads=True)


def judging(function: C) -> C:
    """Decorator like `command`, for a command that changes nothing and whose exit code is its result: if the reader of
    the output leaves early, the command continues, and its exit code is the same.
    """
    return _command(function, reader_may_leave=True)


def judge_only() -> None:
    """Makes the running command a `judging` one from now on, as an option such as --dry-run does."""
    _streams.reader_may_leave = True


def _command(function: C, *, only_reads: bool = False, reader_may_leave: bool = False) -> C:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        _streams.begin(only_reads=only_reads, reader_may_leave=reader_may_leave)
        try:
            code = _run_command(function, *args, **kwargs)
        except OutputLostError:
            code = ExitCode.OK
        problem = _streams.problem
        left = isinstance(problem, BrokenPipeError) and (only_reads or _streams.reader_may_leave)
        if problem is not None and not left and code == ExitCode.OK:
            code = _told_lost(problem)
        if code != ExitCode.OK:
            raise typer.Exit(code)

    return run  # type: ignore[return-value]


def _run_command(function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Runs a command, prints its errors, and returns its exit code."""
    try:
        working_folder()
        function(*args, **kwargs)
    except typer.Exit as end:
        return end.exit_code
    except KodoctlError as problem:
        _report_failure(problem.diagnostics, problem.exit_code, kwargs)
        return problem.exit_code
    except KeyboardInterrupt:
        tell("Interrupted.")
        return ExitCode.INTERRUPTED
    except (typer.Abort, OutputLostError):
        raise
    except Exception as problem:
        if hasattr(problem, "show"):  # typer's own usage errors know how to tell themselves
            raise
        if isinstance(problem, PermissionError) and problem.filename is not None:  # the user's to repair
            found = error("K016", "cannot read file", problem.strerror or str(problem), Where(str(problem.filename)))
            _report_failure([found], ExitCode.USAGE, kwargs)
            return ExitCode.USAGE
        _report_failure([defect(problem)], ExitCode.ERROR, kwargs)
        return ExitCode.ERROR
    return ExitCode.OK


def _report_failure(problems: Sequence[Diagnostic], code: int, options: Mapping[str, Any]) -> None:
    """Prints the findings that end a command on standard error; also as a line of JSON on standard output, if the
    options of the command ask for JSON and nothing stands there yet. `code`: its exit code.
    """
    report(problems)
    if problems and not _streams.printed and "json" in (options.get("output"), options.get("format")):
        _say_problems(problems, code)


def _say_problems(problems: Sequence[Diagnostic], code: int) -> None:
    import json

    from kodoctl.plan.serialization import diagnostic_to_json

    found = [diagnostic_to_json(one) for one in problems]
    say(json.dumps({"type": "error", "exit_code": code, "problems": found}))


def _asks_for_json(words: Sequence[str]) -> bool:
    """True if a command line that could not be parsed asks for JSON."""
    return not _JSON_WORDS.isdisjoint([*words, *map(" ".join, pairwise(words))])


def _told_lost(problem: OSError) -> int:
    """Prints on standard error, if that still works, that not all was printed; returns the exit code."""
    rest = "" if _streams.only_reads else "; the command itself completed"
    _streams.only_reads = False
    report(
        [
            error(
                "K028", "not all was printed", f"output was cut off: {problem.strerror or type(problem).__name__}{rest}"
            )
        ]
    )
    return ExitCode.ERROR


def defect(problem: Exception) -> Diagnostic:
    """Makes a finding (K599) of an unexpected exception. The traceback is written to a temporary file for the
    developers; only if that fails, it is a part of the finding.
    """
    import tempfile
    import traceback

    lines = traceback.format_exception(problem)
    try:
        with tempfile.NamedTemporaryFile("w", prefix="kodoctl-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.writelines(lines)
        more = f" and {file.name}"
    except OSError:  # no folder can be written: then this is the only place
        more = f" and this:\n{''.join(lines)}"
    summary = f"{type(problem).__name__}: {problem}"[:500]
    detail = f"{summary}\nplease report it with the command you typed{more}"
    return error("K599", "a defect of kodoctl", detail)


def prepare_streams() -> None:
    """Prepares the standard streams. A stream that is closed is replaced by one whose writes fail with an error, so
    that no file or socket gets its number. Characters that the encoding of standard output lacks are escaped.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, os.O_RDONLY), mode, encoding="utf-8"))  # noqa: PTH123, SIM115  # for as long as the process lives
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def run_application(app: typer.Typer) -> NoReturn:
    """Runs a whole command line and ends the process with its exit code. Usage errors end with 64, as CI scripts
    expect.
    """
    prepare_streams()
    try:
        code = app(standalone_mode=False)
    except typer.Exit as end:
        code = end.exit_code
    except typer.Abort:
        code = ExitCode.INTERRUPTED
    except Exception as problem:
        if not hasattr(problem, "show") or not hasattr(problem, "exit_code"):
            raise
        problem.show()  # click's own usage errors
        if getattr(problem, "ctx", None) is None:  # those that do not know their command
            tell(f"Try '{app.info.name} -h' or the command's own -h for help.")
        code = ExitCode.USAGE
        if _asks_for_json(sys.argv[1:]):
            words = problem.format_message() if hasattr(problem, "format_message") else str(problem)
            _say_problems([error("K598", "an invalid command line", words)], code)
    end_process(code if isinstance(code, int) else ExitCode.OK)


def end_process(code: int, *, at_once: bool = False) -> NoReturn:
    """Ends the process with an exit code. If a call into the client library was abandoned, or with `at_once`, the
    normal end of the interpreter is skipped, because it would abort by SIGABRT; registered exit functions are still
    called, and streams flushed.
    """
    callers = [sys.modules.get(name) for name in _CALLERS]  # loaded by whoever made such a call
    if not at_once and not any(one is not None and one.any_left_behind() for one in callers):
        sys.exit(code)
    atexit._run_exitfuncs()  # noqa: SLF001  # nothing public does it; logging and users' own functions are among them
    for stream in (sys.stdout, sys.stderr):
        with printing(stream):
            stream.flush()
    os._exit(code)


def write_output(text: str, file: str | None) -> None:
    """Writes a text and a line end to a file, or prints them if `file` is None. Raises UsageError as `write_file` does."""
    if file is None:
        say(text)
    else:
        write_file(file, f"{text}\n".encode())


def write_file(file: str, data: bytes) -> None:
    """Writes bytes to a file, in place of its content. Not atomic, and creates no folder. Raises UsageError (K020) with
    the system's reason.
    """
    try:
        Path(file).write_bytes(data)
    except OSError as problem:
        raise UsageError(error("K020", "cannot write file", f"{file}: {problem.strerror}")) from None


def replace_file(file: Path, data: bytes) -> None:
    """Replaces a file atomically: readers see the old bytes or the new ones. Its mode is not kept, and a symbolic link
    is itself replaced. Raises UsageError (K020) with the system's reason.
    """
    try:
        write_whole(file, data)
    except OSError as problem:
        raise UsageError(error("K020", "cannot write file", f"{file}: {problem.strerror}")) from None
