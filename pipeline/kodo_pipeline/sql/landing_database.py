"""SQL database over the tables of a landing as of one commit: DuckDB reads them as Arrow datasets, and writes nothing.

DuckDB itself ensures that nothing is written: its parser says which statements only read, each runs in a read-only
transaction, and EXPLAIN, which could run a statement by ANALYZE, uses a connection that can open no file.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.landing.landing_commits import read_at
from kodo_pipeline.landing.landing_dataset import dataset_of
from kodo_pipeline.landing.recorded_tables import RECORDED
from kodo_pipeline.landing.tables import COMMITS, COUNTED, TABLES
from kodoctl.errors import KodoctlError, UsageError, error
from kodoctl.host.extras import needs_extra

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from kodo_pipeline.landing.landing_commits import LandingCommit
    from kodo_pipeline.landing.landing_store import Landing

_READ: Final = (*TABLES, *COUNTED, *RECORDED)
NAMES: Final = tuple(table.name for table in (*_READ, COMMITS))
"""Names of the tables that statements can read."""
_ROWS: Final = 2_000  # of a batch of an answer
_EXTERNAL: Final = "SET enable_external_access = false"
_LOCKED: Final = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",  # else a table may be any variable of this program
    _EXTERNAL,
    "SET lock_configuration = true",
)
_EXPLAIN: Final = "EXPLAIN"
_QUESTIONS: Final = frozenset({"SELECT", _EXPLAIN})  # SHOW, DESCRIBE, SUMMARIZE and VALUES are kinds of SELECT
_NO_FILES: Final = {
    False: "\n--other-files allows statements to read them",
    True: "\nwhat is explained may run: it reads the landing's tables, and no other file",
}
"""Hint in the error if a statement opens another file, by whether the statement is EXPLAIN."""
_FILE_GONE: Final = re.compile(r"Object at location (\S+) not found|local file '([^'\n]+)'\. Detail: \[errno 2\]")
_PART: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Result of one statement. `columns`: names; `rows`: iterator that reads rows on demand, and raises the errors of
    LandingDatabase. Maps become dictionaries, or lists of pairs if keys are lists or maps.
    """

    columns: Sequence[str]
    rows: Iterator[tuple[Any, ...]]


class LandingDatabase:
    """Tables of a landing as of its newest commit, by name. `number`: number of that commit; `read_at`: start of the
    last completed ingest, ms since the epoch, 0 if there is none. Methods raise KodoctlError; UsageError for a
    statement that cannot be answered.

    `explaining`: connection for EXPLAIN, which can open no file.
    """

    def __init__(
        self, landing: Landing, connection: duckdb.DuckDBPyConnection, explaining: duckdb.DuckDBPyConnection
    ) -> None:
        snapshot = landing.snapshot(*_READ)
        self.number, self.read_at = snapshot.commits[-1].number, read_at(snapshot.commits)
        self._connection, self._explaining = connection, explaining
        for one in {connection, explaining}:
            for table in _READ:
                folder = landing.root / table.name
                one.register(table.name, dataset_of(folder, table, snapshot.files[table.name]))
            one.register(COMMITS.name, _commits(snapshot.commits))

    def answers(self, text: str) -> Iterator[QueryResult]:
        """Yields the result of each statement of a text, in order. All statements are parsed before the first one runs;
        if one is not a SELECT, SHOW, DESCRIBE, SUMMARIZE, VALUES or EXPLAIN, UsageError (K814) is raised, and none
        runs. A text without a statement raises UsageError (K813). Read the rows of a result before you ask for the next
        one.
        """
        statements = self._statements(text)
        if wrong := [one.type.name for one in statements if one.type.name not in _QUESTIONS]:
            detail = f"{', '.join(dict.fromkeys(wrong))}: tables can be asked (SELECT, SHOW, DESCRIBE, SUMMARIZE, EXPLAIN), nothing else"
            raise UsageError(error("K814", "the statement is no question", detail))
        if not statements:
            raise UsageError(error("K813", "the statement cannot be answered", "there is none"))
        for one in statements:
            is_explain = one.type.name == _EXPLAIN
            connection = self._explaining if is_explain else self._connection
            with _report_errors(is_explain=is_explain):
                _begin_to_read(connection)
                found: duckdb.DuckDBPyRelation | None = connection.sql(one)
                assert found is not None
                reader = found.to_arrow_reader(_ROWS)
            yield QueryResult(reader.schema.names, _rows(reader))

    def _statements(self, text: str) -> list[duckdb.Statement]:
        with _report_errors():
            return self._connection.extract_statements(text.encode().decode())

    def interrupt(self) -> None:
        """Ends the running statement; does nothing if there is none. Any thread may call it."""
        self._connection.interrupt()
        self._explaining.interrupt()


@contextmanager
def open_database(landing: Landing, *, other_files: bool = False) -> Iterator[LandingDatabase]:
    """Context with the newest commit of a landing, which must have one, as a DuckDB database. `other_files`: statements
    may also read files outside of the landing. Raises UsageError (K812) if the extra `sql` is not installed,
    KodoctlError if the landing cannot be read.
    """
    check_installed()
    import duckdb

    with tempfile.TemporaryDirectory(prefix="kodoctl-sql-") as scratch, ExitStack() as stack:
        explaining = connection = _lock_connection(stack.enter_context(duckdb.connect()), scratch)
        if other_files:
            connection = _lock_connection(stack.enter_context(duckdb.connect()), scratch, but=_EXTERNAL)
        yield LandingDatabase(landing, connection, explaining)


def _lock_connection(connection: duckdb.DuckDBPyConnection, scratch: str, but: str = "") -> duckdb.DuckDBPyConnection:
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET temp_directory = '{scratch.replace(chr(39), chr(39) * 2)}'")
    for setting in _LOCKED:
        if setting != but:
            connection.execute(setting)
    return connection


def _begin_to_read(connection: duckdb.DuckDBPyConnection) -> None:
    """Begins a read-only transaction, after ending the one before."""
    import duckdb

    with suppress(duckdb.TransactionException):  # there is none
        connection.rollback()
    connection.execute("BEGIN TRANSACTION READ ONLY")


def check_installed() -> None:
    """Raises UsageError (K812) if the extra `sql` is not installed."""
    with needs_extra("sql"):
        import deltalake  # noqa: F401
        import duckdb  # noqa: F401
        import pyarrow as pa  # noqa: F401


def is_complete(text: str) -> bool:
    """True if the text ends with the semicolon of a statement, that is, one outside of strings and comments."""
    rest = _PART.sub(lambda found: "" if found[0].startswith(("--", "/*")) else "x", text).rstrip()
    return rest.endswith(";") and not any(sign in rest for sign in ("'", '"', "/*", "$$"))


def _commits(commits: Sequence[LandingCommit]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist([one.to_row(files=False) for one in commits], schema=COMMITS.delta())


def _rows(reader: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    while True:
        with _report_errors():
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            columns = [_values(column) for column in batch.columns]
        yield from zip(*columns, strict=True)


def _values(column: pa.Array) -> list[Any]:
    """Values of a column. Maps, which Arrow has as pairs, become dictionaries, those in lists and structures as well;
    if a key is a list or a map, which no dictionary can have, all maps of the column stay lists of pairs.
    """
    found: list[Any]
    try:
        found = column.to_pylist(maps_as_pydicts="lossy")
    except TypeError:
        found = column.to_pylist()
    return found


@contextmanager
def _report_errors(*, is_explain: bool = False) -> Iterator[None]:
    """Context that turns errors of DuckDB and Arrow into KodoctlError if a file of the landing is missing, else into
    UsageError. `is_explain`: the statement is EXPLAIN, for the hint in the error.
    """
    import duckdb
    import pyarrow as pa

    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError, OverflowError, ValueError) as problem:  # of values Python lacks
        text = str(problem)
        if gone := _FILE_GONE.search(text):
            detail = (
                f"{gone[1] or gone[2]} is gone, and its table names it: bring it back, or land elsewhere with --landing"
            )
            raise KodoctlError(error("K573", "the landing cannot be used", detail)) from None
        hint = _NO_FILES[is_explain] if "disabled by configuration" in text else ""
        raise UsageError(error("K813", "the statement cannot be answered", text + hint)) from None
