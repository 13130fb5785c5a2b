"""Rows that another writer made: whatever stands in them, they fail by themselves, the others are sent, once, and every
command shows them. In SQLite, which keeps any type in any column, and in PostgreSQL.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer.outbox.outbox_row import RowResult
from kodo_consumer.outbox.outbox_store import OutboxStore, open_store
from kodo_consumer.outbox.row_filter import RowFilter, RowStatus
from kodo_consumer.outbox.table import MAX_COUNT, TABLE
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.unit.consumer.outbox.conftest import Run
from tests.unit.consumer.outbox_setting import Setting, claimed

NUL, SURROGATE, HUGE = "n\x00l", "s\ud83d", "x" * 1_000_000
INSERT = text(
    'INSERT INTO kodo_outbox (id, topic, "key", body, properties, next_push_at, created_at)'
    " VALUES (:id, :topic, :key, :body, :properties, :time, :now)"
)
FAILED, SENT, HELD, REFUSED = "failed", "sent", "to_send", "refused by the database"


@pytest.fixture
def setting(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    found = Setting(database_url, tmp_path)
    (tmp_path / "kodo-consumer.toml").write_text(f'outbox_url = "{database_url}"\n', encoding="utf-8")
    monkeypatch.setattr("kodo_consumer.outbox.outbox_store.database_now", found.database_now)
    yield found
    found.engine.dispose()


def _row(setting: Setting, **changes: Any) -> dict[str, Any]:
    properties = {"uid": "u", **changes.pop("more", {})}
    return {
        "id": "0-odd", "topic": "orders", "key": "k", "body": b'{"amount": 1}', "properties": json.dumps(properties),
        "time": setting.clock.wall(), "now": setting.clock.wall(), **changes,
    }  # fmt: skip


def _body(name: Any, value: Any = 1) -> bytes:
    return json.dumps({"amount": 1, name: value}).encode()


ROWS: dict[str, dict[str, Any]] = {
    "name, NUL": {"more": {NUL: "v"}}, "name, surrogate": {"more": {SURROGATE: "v"}}, "name, huge": {"more": {HUGE: "v"}},
    "value, NUL": {"more": {"uid": NUL}}, "value, surrogate": {"more": {"uid": SURROGATE}},
    "value, huge": {"more": {"uid": HUGE}}, "value, null": {"more": {"uid": None}},
    "value, map": {"more": {"uid": {"a": [1]}}}, "value, number": {"more": {"uid": 17}},
    "value, not finite": {"properties": '{"uid": NaN}'},
    "payload key, NUL": {"body": _body(NUL, "x")}, "payload key, surrogate": {"body": _body(SURROGATE, "x")},
    "payload key, huge": {"body": _body(HUGE, "x")}, "payload, no UTF-8": {"body": b'{"amount": 1, "\xff": 1}'},
    "payload, text": {"body": '{"amount": 1}'}, "payload, number": {"body": 17},
    "topic, NUL": {"topic": NUL}, "topic, surrogate": {"topic": SURROGATE}, "topic, huge": {"topic": HUGE},
    "topic, bytes": {"topic": b"orders"}, "topic, number": {"topic": 17},
    "key, NUL": {"key": NUL}, "key, huge": {"key": HUGE}, "key, bytes": {"key": b"k"}, "key, number": {"key": 17},
    "id, NUL": {"id": NUL}, "id, huge": {"id": HUGE}, "id, bytes": {"id": b"0-odd"}, "id, number": {"id": 17},
    "time, text": {"time": "2026-11-28T00:00:00Z"}, "time, bytes": {"time": b"1"}, "time, huge": {"time": (1 << 63) - 1},
    "time, long ago": {"time": -(1 << 62)}, "time, part of a ms": {"time": 1.5},
    "properties, bytes": {"properties": b"{}"}, "properties, number": {"properties": 17},
    "properties, no JSON": {"properties": "{"}, "properties, 5,000 digits": {"properties": '{"uid": ' + "9" * 5_000 + "}"},
}  # fmt: skip
SENT_ROWS = {
    "value, NUL", "value, huge", "value, number", "payload, text", "key, NUL", "key, huge", "key, number", "id, NUL",
    "id, huge", "id, number", "time, long ago", "time, part of a ms",
}  # fmt: skip
"""All others fail. What SQLite makes text of, by the type of the column, is text."""
POSTGRESQL = {
    **dict.fromkeys(
        ["payload, number", "topic, NUL", "topic, huge", "key, NUL", "key, huge", "id, NUL", "id, huge", "time, text"],
        REFUSED,
    ),
    "time, bytes": REFUSED, "key, bytes": SENT, "id, bytes": SENT,
}  # fmt: skip
"""What is another way in PostgreSQL, which makes text of bytes, and no more than a column holds."""


def _expected(case: str, *, sqlite: bool) -> str:
    """Status that the row ends with. A text with half of a surrogate pair cannot be bound at all."""
    if not sqlite and case in POSTGRESQL:
        return POSTGRESQL[case]
    if case == "topic, surrogate":
        return REFUSED
    if case == "time, huge":
        return HELD
    return SENT if case in SENT_ROWS else FAILED


@pytest.mark.parametrize("case", ROWS)
def test_an_odd_row_fails_by_itself_and_holds_up_nobody(
    setting: Setting,
    run: Run,
    case: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_sqlite = setting.engine.dialect.name == "sqlite"
    status = REFUSED
    try:
        with setting.engine.begin() as connection:
            connection.execute(INSERT, _row(setting, **ROWS[case]))
        status = ""
    except (DBAPIError, UnicodeEncodeError):
        pass
    good = [setting.add("orders", b'{"amount": 1}', key="k", properties={"uid": "u"}) for _ in range(3)]
    ordered = [setting.add(key="k") for _ in range(3)]
    relay = setting.relay()
    with caplog.at_level(logging.WARNING):
        setting.turn(relay)
    assert relay.trouble == ""
    assert not relay.busy
    assert "does not answer" not in caplog.text
    assert [one for one in setting.ids("orders") if one in good] == good
    assert setting.ids() == ordered
    with setting.engine.connect() as connection:
        found = {row.id: row for row in connection.execute(text("SELECT id, status, last_error FROM kodo_outbox"))}
    assert all(found.pop(name).status == SENT for name in (*good, *ordered))
    if not status:
        [odd] = found.values()
        status = odd.status
        assert (status == FAILED) == bool(odd.last_error)
        if odd.last_error:
            assert odd.last_error.isprintable()
            assert len(odd.last_error) <= 500
            odd.last_error.encode()
    assert status == _expected(case, sqlite=is_sqlite)
    for command in (["list"], ["list", "--format", "json"], ["list", "--status", "failed"]):
        code, out, _ = run(*command)
        assert code == 0
        out.encode()
    assert run("hold", "--all")[0] == 0
    assert run("push", "--all")[0] == 0
    setting.turn(setting.relay())
    assert sorted(setting.ids()) == sorted(ordered), "once"


def test_a_row_whose_version_is_used_up_is_claimed_all_the_same(setting: Setting) -> None:
    """In PostgreSQL one more would be out of range, and every claim of a batch with it failed."""
    odd, good = setting.add(), setting.add()
    with setting.engine.begin() as connection:
        change = "UPDATE kodo_outbox SET version = :most, retry_count = :most WHERE id = :id"
        connection.execute(text(change), {"most": MAX_COUNT, "id": odd})
    setting.turn(setting.relay())
    assert setting.ids() == [odd, good]


def test_a_count_of_tries_that_is_used_up_or_below_none_counts_on(setting: Setting) -> None:
    from kodo_consumer.core.values.broker import Unconfirmed

    odd = [setting.add(), setting.add()]
    with setting.engine.begin() as connection:
        for name, tries in zip(odd, (MAX_COUNT, -MAX_COUNT), strict=True):
            connection.execute(TABLE.update().where(TABLE.c.id == name).values(retry_count=tries))
    setting.broker.fail_sends(setting.full("ledger"), Unconfirmed("Timeout"), Unconfirmed("Timeout"))
    setting.turn(setting.relay())
    assert [row["retry_count"] for row in setting.rows().values()] == [MAX_COUNT, 1]


def test_where_results_cannot_be_written_together_each_is_written_by_itself(setting: Setting) -> None:
    ids = [setting.add() for _ in range(3)]
    store = setting.store()
    first, second, third = claimed(store, 10, 60_000)
    found = store.settle([
        RowResult(first, RowStatus.SENT, 0, 0),
        RowResult(second, RowStatus.FAILED, 0, 1 << 80, "a\ud83d\x00"),
        RowResult(third, RowStatus.SENT, 0, 0),
    ])  # fmt: skip
    assert found == 0
    rows = setting.rows()
    assert [rows[name]["status"] for name in ids] == [SENT, FAILED, SENT]
    assert rows[ids[1]]["last_error"] == "(the reason cannot be stored)"


def test_text_of_sqlite_that_is_no_utf_8_is_one_rows_fault(tmp_path: Path) -> None:
    """The driver refuses to read it: every claim with this row failed, and the relay said that the database was away."""
    setting = Setting(f"sqlite:///{tmp_path}/app.db", tmp_path)
    odd, good = setting.add(), setting.add()
    with setting.engine.begin() as connection:
        connection.execute(text("UPDATE kodo_outbox SET \"key\" = CAST(x'ff' AS TEXT) WHERE id = :id"), {"id": odd})
    opened = open_store(f"sqlite:///{tmp_path}/app.db")
    store = OutboxStore(opened._engine, None, setting.database_now)
    problems = {row.id: row.problem for row in claimed(store, 10, 60_000)}
    assert problems == {odd: "key is no Unicode text: it has half of a surrogate pair", good: ""}
    assert len(opened.rows(RowFilter(), 10)) == 2
    opened.close()
    setting.engine.dispose()


def test_a_database_that_refuses_is_not_told_as_one_that_is_away(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting.add()
    relay = setting.relay()
    with setting.engine.begin() as connection:
        connection.execute(text("ALTER TABLE kodo_outbox RENAME TO gone"))
    assert relay.turn() == 0.5
    assert relay.trouble.startswith("the database lacks a table or a right: ")
    assert "kodo_outbox" in relay.trouble
    assert "does not answer" not in caplog.text
    with setting.engine.begin() as connection:
        connection.execute(text("ALTER TABLE gone RENAME TO kodo_outbox"))
    setting.turn(relay)
    assert relay.trouble == ""
    assert len(setting.ids()) == 1
