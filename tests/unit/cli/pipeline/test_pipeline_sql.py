"""`kodoctl pipeline sql` as it is typed: a statement, a file, a pipe, and the prompt."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import CURSORS
from kodo_pipeline.sql.landing_database import LandingDatabase

from tests.brokers.workspace import isolated, run_main
from tests.spark.other_readers import fill

FILE = "topologies/trade.yaml"
SQL = ("pipeline", "sql", FILE)
TOPOLOGY = (
    "version: 1\nname: trade\ntenant: kodo\nnamespace: trade\ntopics:\n  orders: {subscriptions: {billing: {}}}\n"
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A landing after an ingest that ended, which each test has a copy of."""
    folder = tmp_path_factory.mktemp("filled") / "landing"
    landing = Landing(str(folder), "trade", None)
    fill(landing)
    cursors = landing.write_rows(CURSORS, "r1", [{"ingest_run": "r1"}])
    landing.commit(LandingCommit("r1", 1, tables={CURSORS.name: cursors}))
    landing.commit(LandingCommit("r1-end", 1, facts={"complete": True}))
    return folder


@pytest.fixture(autouse=True)
def folder(filled: Path, tmp_path: Path) -> Iterator[Path]:
    with isolated(tmp_path):
        path = tmp_path / FILE
        path.parent.mkdir()
        path.write_text(TOPOLOGY, encoding="utf-8")
        shutil.copytree(filled, tmp_path / ".kodoctl/landing")
        yield tmp_path


def _typed(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]) -> None:
    """A terminal at which somebody types, and then ends the input."""
    waiting = iter(lines)

    def ask(prompt: str) -> str:
        line = next(waiting, EOFError)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", ask)
    monkeypatch.setattr(sys, "stdin", type("Terminal", (io.StringIO,), {"isatty": lambda _: True})())


def test_a_statement_is_answered_in_each_format(folder: Path) -> None:
    asked = "SELECT topic, count(*) AS messages FROM events GROUP BY 1 ORDER BY 1"
    found = run_main(*SQL, asked)
    assert found.out.splitlines() == [
        "topic   messages",
        "------  --------",
        "a:b            2",
        "orders         4",
        "(2 rows)",
    ]
    assert found.err == ""
    assert run_main(*SQL, asked, "--format", "csv").out.splitlines() == ["topic,messages", "a:b,2", "orders,4"]
    told = json.loads(run_main(*SQL, asked, "--format", "json").out)
    assert told == [{"topic": "a:b", "messages": 2}, {"topic": "orders", "messages": 4}]
    assert json.loads(run_main(*SQL, "SELECT * FROM cursors WHERE false", "--format", "json").out) == []


def test_statements_come_from_a_file_or_a_pipe(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "q.sql").write_text("SELECT 1 AS a;\nSELECT 2 AS b;\n")
    two = ["a", "-", "1", "(1 row)", "", "b", "-", "2", "(1 row)"]
    assert run_main(*SQL, "--file", "q.sql").out.splitlines() == two
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 1 AS a; SELECT 2 AS b"))
    assert run_main(*SQL).out.splitlines() == two


def test_a_pipe_that_is_no_text_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SELECT '\xff'"), encoding="utf-8"))
    found = run_main(*SQL)
    assert (found.code, "K813" in found.err) == (64, True)
    assert "standard input: 'utf-8' codec can't decode" in " ".join(found.err.split())


def test_a_plan_is_printed_as_duckdb_draws_it(folder: Path) -> None:
    found = run_main(*SQL, "EXPLAIN SELECT count(*) FROM events WHERE date = DATE '2026-01-02'")
    assert "ARROW_SCAN" in found.out


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("SELEC 1",), 64, "K813"),
        (("DROP TABLE events",), 64, "K814"),
        (("SELECT 1", "--file", "q.sql"), 64, "name a statement or a --file, not both"),
        (("--file", "nope.sql"), 64, "nope.sql: No such file or directory"),
        (("--file", "bytes.sql"), 64, "bytes.sql: 'utf-8' codec can't decode"),
        (("SELECT 1", "--landing", "nowhere"), 64, "K801"),
    ],
)
def test_what_cannot_be_answered_is_told(folder: Path, options: tuple[str, ...], code: int, told: str) -> None:
    (folder / "bytes.sql").write_bytes(b"\xff")
    found = run_main(*SQL, *options)
    assert found.code == code
    assert told in " ".join(found.err.split())
    assert "Traceback" not in found.text


def test_the_prompt_answers_goes_on_behind_errors_and_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _typed(
        monkeypatch, "", ".tables", "SELECT 1", "+ 1 AS two;", "SELEC 1;", "SELECT", KeyboardInterrupt,
        ".what", ".refresh", "SELECT 'x' AS refreshed;", ".quit", "SELECT 'y';",
    )  # fmt: skip
    found = run_main(*SQL)
    assert found.code == 0
    assert "events transitions coverage cursors rollup latencies sent failures erasures write_offs commits" in found.out
    assert "two" in found.out
    assert "refreshed" in found.out
    assert "y" not in found.out.splitlines()
    assert found.err.count("as of commit") == 2
    assert "K813" in found.err
    _typed(monkeypatch, "SELECT 7 AS last;")
    assert "7" in run_main(*SQL).out, "the end of input ends it"


def test_ctrl_c_ends_the_statement_and_not_the_prompt(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LandingDatabase, "answers", interrupted)
    monkeypatch.setattr(LandingDatabase, "interrupt", lambda _: ended.append(True))
    _typed(monkeypatch, "SELECT 1;")
    found = run_main(*SQL)
    assert (found.code, ended) == (0, [True])
    assert "Interrupted." in found.err


def test_without_the_extra_it_says_how_to_install_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    found = run_main(*SQL, "SELECT 1")
    assert (found.code, "DuckDB is not installed [K812]" in found.err) == (64, True)
    monkeypatch.delitem(sys.modules, "duckdb")
    assert run_main(*SQL, "SELECT 1 AS a").code == 0, "Spark is not needed"
