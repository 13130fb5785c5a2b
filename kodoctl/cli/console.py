"""The edge of both command lines: what is printed, where, and which exit code a command answers."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from kodoctl.errors import Diagnostic, ExitCode, KodoctlError, Severity, UsageError, error

C = TypeVar("C", bound=Callable[..., Any])

Paths = Annotated[
    list[str] | None,
    typer.Argument(help="Topology files, or folders of them.", show_default="topologies/", metavar="PATH"),
]
Environment = Annotated[
    str | None,
    typer.Option("--env", help="Environment of the files; `base` is the file without overlay.", metavar="NAME"),
]


def paths_or_default(paths: list[str] | None) -> list[str]:
    """The files named, or the folder `topologies/`."""
    return paths or ["topologies"]


def say(text: str = "") -> None:
    """A line for people or machines on standard output."""
    typer.echo(text)


def tell(text: str) -> None:
    """A line for people on standard error: progress, notes, errors. Never data."""
    typer.echo(text, err=True)


def one_line(value: object, limit: int) -> str:
    """A value from elsewhere, harmless and on one line, of at most `limit` of its characters."""
    from kodoctl.render import safe

    return safe.one_line(value, limit)


def is_terminal() -> bool:
    """Whether a person can be asked: standard input and error are a terminal, and this is no CI."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not os.environ.get("CI")


def columns() -> int:
    """Width of the screen: COLUMNS, the terminal's, or 80 where there is none."""
    return shutil.get_terminal_size().columns


def report(diagnostics: Iterable[Diagnostic]) -> None:
    """Findings, one block each, on standard error."""
    from kodoctl.render.fold import fold
    from kodoctl.render.safe import printable

    width = columns()
    marks = {Severity.ERROR: "Error", Severity.WARNING: "Warning", Severity.NOTE: "Note"}
    for finding in diagnostics:
        lines = fold(printable(f"{marks[finding.severity]}: {finding.summary} [{finding.code}]"), width)
        place = [printable(f"  at {finding.where}")] if finding.where else []  # whole: it is copied, and clicked on
        details = [f"  {line}" for line in finding.detail.split("\n") if line]
        for line in (*lines, *place, *(part for one in details for part in fold(printable(one), width))):
            tell(line)


def finish(code: int) -> NoReturn:
    """Ends the command with an exit code."""
    raise typer.Exit(code)


def command(function: C) -> C:
    """Turns every error of ours into its report and exit code; nothing a user can cause shows a traceback."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except KodoctlError as problem:
            report(problem.diagnostics)
            raise typer.Exit(problem.exit_code) from None
        except KeyboardInterrupt:
            tell("Interrupted.")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except BrokenPipeError:  # the reader of a pipe went away: nobody is left to tell
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.OK) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as problem:
            if hasattr(problem, "show"):  # typer's own usage errors know how to tell themselves
                raise
            report([_defect(problem)])
            raise typer.Exit(ExitCode.ERROR) from None

    return run  # type: ignore[return-value]


def _defect(problem: Exception) -> Diagnostic:
    """What nobody foresaw, without a traceback on the screen: that goes to a file, for whoever mends it."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="kodoctl-", suffix=".txt", delete=False, encoding="utf-8") as file:
        file.writelines(traceback.format_exception(problem))
    said = f"{type(problem).__name__}: {problem}"[:500]
    detail = f"{said}\nplease report it with the command you typed and {file.name}"
    return error("K599", "a defect of kodoctl", detail)


def run_application(app: typer.Typer) -> NoReturn:
    """A whole command line, to its exit code: usage errors exit 64, as CI scripts expect."""
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
    sys.exit(code if isinstance(code, int) else ExitCode.OK)


def write_output(text: str, file: str | None) -> None:
    """Text to a file, or to standard output."""
    if file is None:
        say(text)
    else:
        write_file(file, f"{text}\n".encode())


def write_file(file: str, data: bytes) -> None:
    """Bytes to a file. Raises UsageError with the system's reason."""
    try:
        Path(file).write_bytes(data)
    except OSError as problem:
        raise UsageError(error("K020", "cannot write file", f"{file}: {problem.strerror}")) from None
