# adapter: a command line
"""Command `pipeline sql`: runs SQL statements on the landing's tables by DuckDB. Starts no Spark, writes nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kodo_pipeline.landing.command_line import command_line
from kodo_pipeline.landing.command_options import File, LandingOption, landed_place, one_expansion
from kodo_pipeline.spark.spark_progress import tell_folded
from kodoctl.cli.common.console import Environment, columns, reading, report, say, tell
from kodoctl.errors import KodoctlError, UsageError, error
from kodoctl.host.private_files import LANDING
from kodoctl.text.formatting import time_text

if TYPE_CHECKING:
    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.sql.landing_database import LandingDatabase, QueryResult

_PROMPT, _MORE = "sql> ", "...> "
_HELP = ".tables  .refresh (as of the newest commit)  .help  .quit; a statement ends with ;"


class QueryFormat(StrEnum):
    """Formats in which the result of a SQL statement is printed."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


Statement = Annotated[
    str | None,
    typer.Argument(
        help="SQL; without it statements are read from standard input, or asked for on a terminal.",
        metavar="[STATEMENT]",
    ),
]
StatementFile = Annotated[str | None, typer.Option("--file", help="File of statements.", metavar="FILE")]
OtherFiles = Annotated[
    bool, typer.Option("--other-files", help="Let statements read other files, by read_csv and the like.")
]
OutputFormat = Annotated[
    QueryFormat, typer.Option("--format", help="How answers are printed; json is an array of objects for each.")
]


@reading
def sql(
    topology: File,
    statement: Statement = None,
    file: StatementFile = None,
    landing: LandingOption = LANDING,
    env: Environment = None,
    other_files: OtherFiles = False,
    output: OutputFormat = QueryFormat.TEXT,
) -> None:
    """Ask the landing's tables in SQL, without Spark.

    Answers at once, as of the newest commit.

    Tables: events, transitions, coverage, cursors, rollup, latencies, sent, failures, erasures, write_offs, commits.
    Nothing is written. Needs the extra `sql`: pip install '.[sql]' in a clone of kodoctl.

    Example: kodoctl pipeline sql topologies/trade.yaml "SELECT tenant, count(*) FROM events GROUP BY 1 ORDER BY 2
    DESC"
    """
    from kodo_pipeline.sql.landing_database import check_installed, open_database

    check_installed()

    text = _statements(statement, file)
    expansion = one_expansion(topology, env)
    place = landed_place(expansion, landing, command_line(topology, env, landing))
    if text is None:
        _ask_again_and_again(place, output, other_files=other_files)
        return
    with open_database(place, other_files=other_files) as database:
        _answer(database, text, output)


def _statements(statement: str | None, file: str | None) -> str | None:
    """Returns the statements to answer, from the argument, the file or standard input. None: a person types
    them. Raises UsageError.
    """
    if statement is not None and file is not None:
        raise UsageError(error("K813", "the statement cannot be answered", "name a statement or a --file, not both"))
    try:
        if file is not None:
            return Path(file).read_text(encoding="utf-8")
        return sys.stdin.read() if statement is None and not sys.stdin.isatty() else statement
    except (OSError, UnicodeDecodeError) as problem:
        detail = f"{file or 'standard input'}: {getattr(problem, 'strerror', None) or problem}"
        raise UsageError(error("K813", "the statement cannot be answered", detail)) from None


def _answer(database: LandingDatabase, text: str, output: QueryFormat) -> None:
    from kodo_pipeline.sql import query_text

    for number, found in enumerate(database.answers(text)):
        if output is QueryFormat.JSON:
            _say_json(found)
        elif output is QueryFormat.CSV:
            for row in chain([found.columns], found.rows):
                say(query_text.csv_line(row))
        else:
            if number:
                say()
            if found.columns == ["explain_key", "explain_value"]:
                say("\n".join(value.rstrip() for _, value in found.rows))
                continue
            rows = list(islice(found.rows, query_text.SHOWN))
            more = next(found.rows, None) is not None
            for line in query_text.text_lines(found.columns, rows, columns(), more=more):
                say(line)


def _say_json(found: QueryResult) -> None:
    """Prints the rows as a JSON array while they are read."""
    from kodo_pipeline.sql.query_text import to_json, unique_names

    names, separator = unique_names(found.columns), "["
    for row in found.rows:
        one = json.dumps({name: to_json(value) for name, value in zip(names, row, strict=True)}, ensure_ascii=False)
        say(f"{separator}{one}", newline=False)
        separator = ",\n "
    say("[]" if separator == "[" else "]")


def _ask_again_and_again(place: Landing, output: QueryFormat, *, other_files: bool) -> None:
    """Prompts for statements and answers them until the end of input or `.quit`. `.refresh` opens the tables anew."""
    from kodo_pipeline.sql.landing_database import NAMES, open_database

    with suppress(ImportError):
        import readline  # noqa: F401 - lines can be edited, and found again
    texts = _typed_statements()
    again = True
    while again:
        again = False
        with open_database(place, other_files=other_files) as database:
            tell_folded(
                f"{place.root.uri} as of commit {database.number}, read at {time_text(database.read_at)}. {_HELP}"
            )
            for text in texts:
                match text.split():
                    case [".quit" | ".exit"]:
                        return
                    case [".refresh"]:
                        again = True
                        break
                    case [".tables"]:
                        say(" ".join(NAMES))
                    case [word, *_] if word.startswith("."):
                        tell_folded(_HELP)
                    case _:
                        _try(database, text, output)


def _try(database: LandingDatabase, text: str, output: QueryFormat) -> None:
    """Prints an answer, or the error; Ctrl-C interrupts the statement only."""
    try:
        _answer(database, text, output)
    except KodoctlError as problem:
        report(problem.diagnostics)
    except KeyboardInterrupt:
        database.interrupt()
        tell("Interrupted.")


def _typed_statements() -> Iterator[str]:
    """Yields statements and commands as a person types them. Ctrl-C discards an incomplete statement; the end
    of input ends the iteration.
    """
    from kodo_pipeline.sql.landing_database import is_complete

    text = ""
    while True:
        try:
            text += input(_MORE if text else _PROMPT) + "\n"
        except EOFError:
            say()
            return
        except KeyboardInterrupt:
            say()
            text = ""
            continue
        if not text.strip():
            text = ""
        elif text.lstrip().startswith(".") or is_complete(text):
            yield text
            text = ""
