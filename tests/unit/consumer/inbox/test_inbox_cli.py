"""`kodo-consumer inbox`: what it prints and changes, what it says about a database that is not as it must be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kodo_consumer.inbox import TABLE, Inbox
from kodo_consumer.inbox.inbox_filter import InboxFilter, InboxStatus
from kodo_consumer.inbox.inbox_rows import InboxRows, lacking
from kodo_consumer.inbox.inbox_store import InboxStore
from kodo_consumer.outbox.table import schema_sql
from sqlalchemy import Engine, create_engine, inspect, select, text, update

from kodoctl.errors import KodoctlError
from kodoctl.protocol.audit_records import Event
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import delivery
from tests.unit.consumer.outbox.conftest import Run, runner

BILLING = "p/n/t:billing"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    return runner("inbox", monkeypatch, capsys, tmp_path)


@pytest.fixture
def engine(database_url: str, tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(database_url)
    (tmp_path / "kodo-consumer.toml").write_text(f'inbox_url = "{database_url}"\n', encoding="utf-8")
    yield made
    made.dispose()


def _tenant(properties: object, key: str) -> str:
    return key


def _fill(engine: Engine) -> InboxStore:
    """Six rows: one done, one dead, one claimed, three waiting."""
    Inbox(engine).create_table()
    store = InboxStore(engine, BILLING, 60_000)
    store.accept(
        "t",
        [delivery(number, b"secret", key="anna\x1b[31m\0" if number % 2 else "ben") for number in range(6)],
        _tenant,
    )
    done, dead, _ = (one.token for one in store.claim("t", "worker-7", 3))
    store.finish([done, dead.with_end(Event.DEAD, "ValueError: no\nprice")])
    with engine.begin() as connection:
        connection.execute(update(TABLE).values(received_at=TABLE.c.received_at - 3 * 60_000))
    return store


def test_depth_age_workers_and_causes_are_shown(engine: Engine, run: Run) -> None:
    _fill(engine)
    assert run("status")[1].splitlines() == [
        BILLING,
        "  waiting 3, claimed 1, discarding 0, done 1, dead 1; the oldest to do was received 3 min ago",
        "  claimed by worker-7: 1 row",
        "  dead: 1 row, tenant anna\\x1b[31m\\x00: ValueError: no\\nprice",
    ]
    (found,) = json.loads(run("status", "--subscription", BILLING, "--format", "json")[1])["subscriptions"]
    assert found.pop("oldest_seconds") in range(180, 240)
    assert found == {
        "subscription": BILLING,
        "counts": {"waiting": 3, "claimed": 1, "done": 1, "dead": 1},
        "workers": {"worker-7": 1},
        "dead": [{"cause": "ValueError: no\\nprice", "tenant": "anna\\x1b[31m\\x00", "rows": 1}],
    }
    assert run("status", "--subscription", "other")[:2] == (0, "no rows\n")


def test_rows_are_listed_retried_and_discarded(engine: Engine, run: Run) -> None:
    store = _fill(engine)
    first, *rows = run("list")[1].splitlines()
    assert first == "waiting 3, claimed 1, discarding 0, done 1, dead 1"
    assert [row.split("  ")[1] for row in rows] == ["done", "dead", "claimed", *["waiting"] * 3]
    assert rows[1].endswith("UTC  tenant anna\\x1b[31m\\x00  ValueError: no\\nprice")
    assert rows[2].endswith("tenant ben  claimed by worker-7")
    listed = json.loads(run("list", "--status", "dead", "--format", "json")[1])
    assert listed["counts"] == {"waiting": 0, "claimed": 0, "discarding": 0, "dead": len(listed["rows"])}
    assert run("list", "--subscription", "nope")[1] == "waiting 0, claimed 0, discarding 0\n", "of the chosen rows"
    assert "secret" not in json.dumps(listed)
    assert run("retry", "--cause", "no_such")[1] == "0 rows will be handled again\n"
    assert run("retry", "--cause", "ValueError")[1] == "1 row will be handled again\n"
    assert run("retry", "--all")[1] == "0 rows will be handled again\n", "what is done is not, unless it is named"
    assert "retries 1" in run("list", "--limit", "2")[1]
    assert run("discard", "--tenant", "ben", "--because", " a test ")[1].splitlines() == [
        "1 row will be discarded: `kodo-consumer inbox retry` takes that back",
        "1 row left out: claimed by a worker",
    ]
    assert run("list", "--status", "discarding")[1].splitlines()[1].endswith("tenant ben  a test")
    assert [one.token.discarded for one in store.claim("t", "other", 9)] == ["", "", "a test", ""]
    assert run("retry", "1", "--status", "done")[1] == "1 row will be handled again\n"
    with engine.connect() as connection:
        assert connection.execute(select(TABLE.c.done_at).where(TABLE.c.id == 1)).scalar_one() is None


def test_a_text_that_no_database_takes_is_no_defect(engine: Engine, run: Run) -> None:
    _fill(engine)
    code, _, said = run("list", "--cause", "\udcff")
    assert (code, "K721" in said, "defect" in said) == (1, True, False)


def test_a_discard_is_taken_back_and_a_row_has_its_latest_reason(engine: Engine, run: Run) -> None:
    _fill(engine)
    assert run("discard", "--all", "--because", "one", "--limit", "2")[1].startswith("2 rows will be discarded")
    assert (
        run("retry", "--status", "discarding", "--limit", "1")[1]
        == "1 row will be handled again (--limit: others may be left)\n"
    )
    assert run("discard", "--topic", "t", "--because", "two")[1].startswith("2 rows will be discarded")
    with engine.connect() as connection:
        reasons = connection.execute(select(TABLE.c.reason).where(TABLE.c.outcome == "discarded").order_by(TABLE.c.id))
        assert sorted(reasons.scalars()) == ["one", "two", "two"]


def test_a_row_whose_claim_lapsed_is_discarded_from_its_worker_too(engine: Engine) -> None:
    """A worker that came back after an outage renewed its claim, and handled what a person had discarded."""
    Inbox(engine).create_table()
    store = InboxStore(engine, BILLING, 0)
    store.accept("t", [delivery(1, b"x")])
    (row,) = store.claim("t", "late", 1)
    eventually(lambda: InboxRows(engine).discard(InboxFilter(), "not wanted", limit=9) == (1, 0))
    assert InboxStore(engine, BILLING, 60_000).renew(["late"]) == set()
    assert store.finish([row.token]) == [row.token]
    assert [one.token.discarded for one in store.claim("t", "other", 9)] == ["not wanted"]


def test_nothing_is_retried_or_discarded_by_accident(engine: Engine, run: Run) -> None:
    _fill(engine)
    for command in (["retry"], ["discard", "--because", "x"]):
        code, _, err = run(*command)
        assert (code, "no rows named [K725]" in err) == (64, True)
    assert run("discard", "--all", "--because", " ")[0] == 64
    assert run("discard", "--all")[0] == 64
    assert run("list", "--status", "nonsense")[0] == 64
    assert run("list", "x")[0] == run("list", str(2**63))[0] == 64
    assert InboxFilter().is_everything
    assert not InboxFilter(statuses=(InboxStatus.DEAD,)).is_everything


def test_the_table_is_made_from_what_schema_prints_and_lacking_columns_are_named(
    engine: Engine, run: Run, tmp_path: Path
) -> None:
    if engine.dialect.name == "sqlite":
        engine.connect().close()  # makes the file
    code, _, err = run("status")
    assert (code, "inbox cannot be used [K771]" in err, "inbox schema" in err) == (1, True, True)
    dialect = engine.dialect.name
    sql = run("schema", "--dialect", dialect)[1]
    assert sql.strip() == schema_sql(dialect, TABLE)
    with engine.begin() as connection:
        for statement in sql.split(";\n"):
            connection.execute(text(statement))
    assert {column["name"] for column in inspect(engine).get_columns("kodo_inbox")} == set(TABLE.columns.keys())
    assert run("list") == (0, "waiting 0, claimed 0, discarding 0\n", "")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE kodo_inbox DROP COLUMN tenant"))
        connection.execute(text("ALTER TABLE kodo_inbox DROP COLUMN retries"))
    assert "kodo_inbox lacks tenant, retries: run" in run("list")[2]
    with engine.begin() as connection:
        for statement in lacking(engine).splitlines()[1:]:
            connection.execute(text(statement))
    assert run("list")[0] == 0


def test_an_option_that_the_driver_does_not_know_is_an_error_for_people(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/app.db", connect_args={"colour": "red"})
    inbox = Inbox(engine)
    for call in (inbox.create_table, inbox.check, lambda: inbox.counts(BILLING)):
        with pytest.raises(KodoctlError, match=r"K721.*'colour' is an invalid keyword argument"):
            call()


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        ("", 64, "no database for the inbox [K773]"),
        ('inbox_url = "nonsense"', 1, "database cannot be used [K721]"),
        ('inbox_url = "sqlite:////nowhere/at/all.db"', 1, "there is no such file"),
        ('inbox_url = "sqlite:///empty.db?detect_types=99999999999"', 1, "Python int too large"),
        ('inbox_url = "postgresql+psycopg://u:hunter2@127.0.0.1:1/db"', 1, "database cannot be used [K721]"),
    ],
)
def test_what_is_wrong_with_the_database_is_said(run: Run, tmp_path: Path, settings: str, code: int, said: str) -> None:
    (tmp_path / "kodo-consumer.toml").write_text(settings, encoding="utf-8")
    (tmp_path / "empty.db").touch()
    for command in (["status"], ["list"], ["retry", "--all"], ["discard", "--all", "--because", "x"]):
        found, out, err = run(*command)
        assert (found, out) == (code, "")
        assert said in " ".join(err.split())
        assert "hunter2" not in err
