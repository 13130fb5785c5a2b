"""SQL on a landing: all tables as of one commit, on a folder and on a store; nothing is written, nothing else is read."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from kodo_pipeline.audit.report import sql
from kodo_pipeline.landing.delta_tables import LandingTable
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.recorded_tables import ERASURES
from kodo_pipeline.landing.tables import EVENTS, TRANSITIONS
from kodo_pipeline.sql.landing_database import NAMES, LandingDatabase, is_complete, open_database

from kodoctl.errors import KodoctlError, UsageError
from tests.services.object_stores import BUCKET, object_store, refusing_store
from tests.spark.other_readers import COUNTS
from tests.unit.pipeline.landings import anew

COUNTED = "SELECT date, topic, count(*)::int, sum(size)::int FROM events GROUP BY ALL ORDER BY ALL"


def _rows(database: LandingDatabase, text: str) -> list[tuple[Any, ...]]:
    (found,) = database.answers(text)
    return list(found.rows)


def test_all_tables_can_be_asked_and_partition_columns_are_there(landing: Landing) -> None:
    with open_database(landing) as database:
        assert (database.number, database.read_at) == (3, 0)
        assert _rows(database, COUNTED) == COUNTS
        assert _rows(database, "SELECT arrivals FROM rollup") == [(7,)]
        assert _rows(database, "SELECT count(*) FROM cursors") == [(0,)]
        assert sorted(name for (name,) in _rows(database, "SHOW TABLES")) == sorted(NAMES)
        assert _rows(database, "SELECT number, run FROM commits ORDER BY 1 LIMIT 1") == [(0, "r1")]
        nested = "SELECT properties, attempts['retrying'], seq_void[1].\"last\" FROM events LIMIT 1"
        assert _rows(database, nested) == [({"n": "1"}, 2, 2)]


def test_several_statements_are_answered_in_order(landing: Landing) -> None:
    with open_database(landing) as database:
        assert [list(one.rows) for one in database.answers("SELECT 1; SELECT 2 AS a;")] == [[(1,)], [(2,)]]
        with pytest.raises(UsageError, match=r"K813.*there is none"):
            list(database.answers(" -- nothing"))


def test_rows_that_are_committed_count_before_their_table_has_them(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = landing.write_rows(EVENTS, "000000002-r2", [{"id": "9:0:0:-1", "topic": "orders", "size": 1}])
    records = landing.write_rows(TRANSITIONS, "000000002-r2", [{"worker_run": "w", "number": 7, "topic": "orders"}])

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    commit = LandingCommit("r2", 2, 2, {EVENTS.name: made, TRANSITIONS.name: records})
    with monkeypatch.context() as patch:
        patch.setattr(LandingTable, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            landing.commit(commit)
    with open_database(anew(landing)) as database:
        assert database.number == 4
        assert _rows(database, "SELECT topic, date FROM events WHERE id = '9:0:0:-1'") == [("orders", None)]
        assert _rows(database, "SELECT count(*) FROM transitions") == [(3,)]


def test_all_statements_of_a_database_are_as_of_one_commit(landing: Landing) -> None:
    with open_database(landing) as database:
        made = landing.write_rows(EVENTS, "000000002-r2", [{"id": "9:0:0:-1", "topic": "orders"}])
        landing.commit(LandingCommit("r2", 2, 2, {EVENTS.name: made}))
        assert _rows(database, "SELECT count(*) FROM events") == [(6,)]
        assert _rows(database, "SELECT max(number) FROM commits") == [(3,)]
    with open_database(landing) as database:
        assert _rows(database, "SELECT count(*) FROM events") == [(7,)]


@pytest.mark.parametrize(
    "text",
    ["CREATE TABLE t (a int)", "COPY events TO '/tmp/x'", "INSERT INTO events SELECT * FROM events", "SET threads = 1",
     "ATTACH '/tmp/x.db'", "SELECT 1; DROP VIEW events", "PRAGMA version", "INSTALL httpfs", "DELETE FROM events",
     "CALL enable_logging(storage='file', storage_path='/tmp/x')", "WITH x AS (SELECT 1) INSERT INTO events SELECT * FROM x",
     "EXPORT DATABASE '/tmp/x'", "CHECKPOINT", "LOAD httpfs", "SET VARIABLE a = 1"],
)  # fmt: skip
def test_what_is_no_question_is_refused_before_anything_runs(landing: Landing, text: str) -> None:
    with open_database(landing) as database, pytest.raises(UsageError, match="K814"):
        list(database.answers(text))


WRITES = (
    "COPY (SELECT 42) TO '{}'", "COPY events TO '{}'", "CREATE TABLE t AS SELECT 1", "CREATE VIEW v AS SELECT 1",
    "CREATE TEMP TABLE events2 AS SELECT 1", "ATTACH '{}'", "EXPORT DATABASE '{}'", "DROP VIEW events",
)  # fmt: skip
"""Statements that write, or make what later statements would see."""
EXPLAINED = (
    "EXPLAIN {}", "EXPLAIN ANALYZE {}", "EXPLAIN (ANALYZE) {}", "SELECT 1; /* x */ EXPLAIN -- y\n (ANALYZE, FORMAT json) {}",
    "EXPLAIN (ANALYZE ') SELECT 1 --') {}", "EXPLAIN (ANALYZE, FORMAT ') SELECT 1 --') {}",
    'EXPLAIN (ANALYZE ") SELECT 1 --") {}', "EXPLAIN ANALYZE /* /* */ SELECT 1 -- */ {}",
    "EXPLAIN ANALYZE /* /* */ SELECT 1; */ */ {}", "EXPLAIN ANALYZE $$ ) SELECT 1 -- $$ {}",
    "SELECT * FROM query('{}')", "SELECT * FROM enable_logging(storage = 'file', storage_path = '{}')",
)  # fmt: skip
"""Questions with a place for another statement, most of which a reader of text takes for harmless ones."""


OBJECTS = "SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views()"


def _within(question: str, statement: str) -> str:
    """A statement in its place, which may be a text."""
    return statement.replace("'", "''") if "'{}'" in question else statement


@pytest.mark.parametrize("other_files", [False, True])
@pytest.mark.parametrize("question", EXPLAINED)
def test_nothing_is_written_whatever_a_question_looks_like(
    landing: Landing, question: str, other_files: bool, tmp_path: Path
) -> None:
    """EXPLAIN ANALYZE runs what it explains; an option with a value hid that from our reading of the statement."""
    place = tmp_path / "written"
    before = sorted(one.name for one in tmp_path.iterdir())
    with open_database(landing, other_files=other_files) as database:
        objects = _rows(database, OBJECTS)
        for inner in WRITES:
            with suppress(UsageError):
                for answer in database.answers(question.format(_within(question, inner.format(place)))):
                    list(answer.rows)
            assert sorted(one.name for one in tmp_path.iterdir()) == before, inner
            assert _rows(database, "SELECT 1") == [(1,)], "and the next question is answered"
        assert sorted(_rows(database, OBJECTS)) == sorted(objects)


def test_what_is_explained_has_the_tables_and_no_other_file(landing: Landing, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a\n1\n")
    with open_database(landing, other_files=True) as database:
        assert _rows(database, "EXPLAIN ANALYZE SELECT count(*) FROM events")
        assert _rows(database, "EXPLAIN (FORMAT json) SELECT ')' FROM commits")
        with pytest.raises(UsageError, match=r"K813(.|\n)*what is explained may run"):
            _rows(database, f"EXPLAIN SELECT * FROM read_csv('{file}')")
        with pytest.raises(UsageError, match="read-only mode"):
            _rows(database, "EXPLAIN ANALYZE CREATE TABLE t (a int)")


def test_a_mistake_between_two_questions_leaves_the_second_one_its_answer(landing: Landing) -> None:
    with open_database(landing) as database:
        with pytest.raises(UsageError, match="K813"):
            _rows(database, "SELECT nope FROM events")
        assert _rows(database, "SELECT count(*) FROM commits") == [(3,)]


def test_what_an_erasure_records_can_be_asked(landing: Landing) -> None:
    made = landing.write_rows(ERASURES, "erase-e1-begin", [{"run": "e1", "event": "begin", "tenant": "u1"}])
    landing.commit(LandingCommit("erase-e1-begin", 1, tables={ERASURES.name: made}))
    with open_database(landing) as database:
        assert _rows(database, "SELECT run, tenant FROM erasures") == [("e1", "u1")]


def test_other_files_are_read_only_where_that_is_asked(landing: Landing, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a\n1\n")
    with open_database(landing) as database, pytest.raises(UsageError, match=r"K813(.|\n)*--other-files allows"):
        _rows(database, f"SELECT * FROM read_csv('{file}')")
    with open_database(landing, other_files=True) as database:
        assert _rows(database, f"SELECT * FROM read_csv('{file}')") == [(1,)]


def test_no_variable_of_the_program_is_a_table(landing: Landing) -> None:
    with open_database(landing) as database, pytest.raises(UsageError, match="with name landing does not exist"):
        _rows(database, "SELECT * FROM landing")


@pytest.mark.parametrize("text", ["SELEC 1", "SELECT nope FROM events", "SELECT 'x'::int", "SELECT error('no')",
                                  "SELECT 'infinity'::timestamp", "SELECT '\udc80'"])  # fmt: skip
def test_a_wrong_statement_is_told_in_the_words_of_duckdb(landing: Landing, text: str) -> None:
    with open_database(landing) as database, pytest.raises(UsageError, match="K813"):
        _rows(database, text)


def test_a_data_file_that_is_gone_is_named(landing: Landing) -> None:
    for file in Path(landing.root.uri, "events").rglob("000000000-*/**/*.parquet"):
        file.unlink()
    with open_database(landing) as database, pytest.raises(KodoctlError, match=r"K573.*\.parquet is gone"):
        _rows(database, "SELECT count(size) FROM events")


def test_files_of_partitions_that_a_filter_excludes_are_not_opened(landing: Landing) -> None:
    for file in Path(landing.root.uri, "events").rglob("date=2026-01-01/**/*.parquet"):
        file.unlink()
    with open_database(landing) as database:
        assert _rows(database, "SELECT count(size) FROM events WHERE date = '2026-01-02' AND topic = 'orders'") == [
            (2,)
        ]


def test_queries_that_an_audit_shows_can_be_asked(landing: Landing) -> None:
    topics = ("persistent://t/n/o'rders", "persistent://t/n/a\\b")
    rows = [{"id": "9:0:0:-1", "msg_topic": topic, "topic": "orders"} for topic in topics]
    records = [{"worker_run": "w", "number": 9, "target_topic": topic, "target_id": "9:0:0:-1"} for topic in topics]
    tables = {
        table.name: landing.write_rows(table, "000000002-r2", some)
        for table, some in ((EVENTS, rows), (TRANSITIONS, records))
    }
    landing.commit(LandingCommit("r2", 2, 2, tables))
    findings: Any = [{"msg_topic": topic, "id": "9:0:0:-1"} for topic in topics]
    with open_database(landing) as database:
        assert [len(_rows(database, query)) for query in sql(findings)] == [1, 1, 1, 1]


@pytest.mark.full
def test_a_store_is_asked_as_a_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.spark.other_readers import fill

    with object_store(tmp_path / "log") as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        landing = Landing(f"s3a://{BUCKET}/land", "trade", None)
        fill(landing)
        with open_database(landing) as database:
            assert _rows(database, COUNTED) == COUNTS
            found = "SELECT count(*) FROM events WHERE date = DATE '2026-01-02'"
            assert _rows(database, found) == [(2,)]
            few = "SELECT count(ingest_run) FROM events"  # some bytes of each file
            counted = _rows(database, few)
        with refusing_store(store, often=0.3) as (busy, refused), monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", busy.url)
            for _ in range(4):
                with open_database(Landing(f"s3a://{BUCKET}/land", "trade", None)) as database:
                    assert _rows(database, few) == counted
            assert refused.undone
        with open_database(landing) as database:
            for gone in (one for one in store.names("land/trade") if "/events/000000000-" in one):
                store.opened().delete_file(f"{BUCKET}/{gone}")
            with pytest.raises(KodoctlError, match=r"K573.*\.parquet is gone"):
                _rows(database, "SELECT count(size) FROM events")


def test_a_time_that_python_lacks_is_told() -> None:
    """Nanoseconds, which only pandas has; the extra `sql` does not include it."""
    program = (
        "import sys, importlib.abc\n"
        "class Without(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'pandas': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "import pyarrow as pa; from kodo_pipeline.sql import landing_database\n"
        "reader = pa.table({'a': pa.array([1], pa.timestamp('ns'))}).to_reader(); list(landing_database._rows(reader))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "UsageError: K813" in ended.stderr


def test_maps_are_dictionaries_wherever_they_are(landing: Landing) -> None:
    with open_database(landing) as database:
        nested = "SELECT [MAP {'a': 1}, NULL], {'m': MAP {'b': NULL}}, MAP {[1]: MAP {'a': 1}}, NULL::MAP(int, int)"
        assert _rows(database, nested) == [([{"a": 1}, None], {"m": {"b": None}}, [([1], [("a", 1)])], None)]


def test_times_are_in_utc_and_an_interrupt_without_a_statement_does_nothing(landing: Landing) -> None:
    with open_database(landing) as database:
        database.interrupt()
        (found,) = _rows(database, "SELECT publish_ts::varchar, date FROM events ORDER BY ALL LIMIT 1")
        assert found == ("2026-01-01 12:00:00+00", date(2026, 1, 1))


def test_without_the_extra_a_statement_says_how_to_install_it(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UsageError, match=r"K812.*duckdb is missing: pip install '\.\[sql\]'"), open_database(landing):
        pass


@pytest.mark.parametrize(
    ("text", "complete"),
    [("SELECT 1;", True), ("SELECT 1", False), ("SELECT ';'", False), ("SELECT ';", False), ("SELECT 1 -- ;", False),
     ("SELECT 1; -- yes", True), ('SELECT ";" FROM x;\n', True), ("SELECT /* ; */ 1", False), ("SELECT $$;$$", False),
     ("SELECT 'it''s';", True), ("", False), ('SELECT ";', False), ("SELECT 1 /* ;", False), ("SELECT $$;", False)],
)  # fmt: skip
def test_a_statement_ends_with_a_semicolon_of_its_own(text: str, complete: bool) -> None:
    assert is_complete(text) is complete
