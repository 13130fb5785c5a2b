"""The rows of a key are sent in the order in which they were written, also where their ids are the application's own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kodo_consumer.outbox import Outbox
from kodo_consumer.outbox.outbox import CreationOrder
from kodo_consumer.outbox.outbox_row import Row, RowResult
from kodo_consumer.outbox.outbox_store import OutboxScope, OutboxStore
from kodo_consumer.outbox.row_filter import RowFilter, RowStatus
from kodo_consumer.outbox.table import HELD, TABLE
from sqlalchemy import Engine, create_engine, text, update

from tests.unit.consumer.outbox_setting import claimed

OWN = ["order-9", "order-10", None, "order-2", None, "a", "zz", None, "b"]
"""Ids in the order of the writing; None: made by the outbox."""


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = create_engine(database_url)
    TABLE.create(made)
    yield made
    made.dispose()


def _written(engine: Engine, *, each_alone: bool) -> list[str]:
    outbox = Outbox()
    if each_alone:
        written = []
        for name in OWN:
            with engine.begin() as connection:
                written.append(outbox.add(connection, topic="orders", payload=b"x", key="k", id=name))
        return written
    with engine.begin() as connection:
        return [outbox.add(connection, topic="orders", payload=b"x", key="k", id=name) for name in OWN]


def _sent(store: OutboxStore, limit: int) -> list[str]:
    """Ids of the rows of an ordered topic, claimed so many at a time and sent."""
    sent: list[str] = []
    while rows := claimed(store, limit, 10_000, ordered=["orders"]):
        sent += [row.id for row in rows]
        store.settle([RowResult(row, RowStatus.SENT, 0, 0) for row in rows])
    return sent


@pytest.mark.parametrize("each_alone", [False, True], ids=["one transaction", "a transaction each"])
@pytest.mark.parametrize("limit", [1, 2, 4, 100])
def test_ids_of_the_applications_own_keep_the_order(engine: Engine, each_alone: bool, limit: int) -> None:
    """`order-10` was sent before `order-9`."""
    written = _written(engine, each_alone=each_alone)
    assert [name for name in written if not name[0].isdigit()] == [name for name in OWN if name]
    assert _sent(OutboxStore(engine), limit) == written


def test_a_row_that_waits_for_its_next_try_holds_up_those_written_later(engine: Engine) -> None:
    first, *others = _written(engine, each_alone=False)
    store = OutboxStore(engine)
    [row] = claimed(store, 1, 10_000, ordered=["orders"])
    store.settle([RowResult(row, RowStatus.TO_SEND, 60_000, 1, "no receipt")])
    assert claimed(store, 100, 10_000, ordered=["orders"]) == []
    with engine.begin() as connection:
        connection.execute(text("UPDATE kodo_outbox SET next_push_at = 0 WHERE id = :id"), {"id": first})
    assert _sent(store, 100) == [first, *others]


def _add(engine: Engine, *names: str, app: str = "", env: str = "") -> None:
    """Writes rows with these ids for one key."""
    with engine.begin() as connection:
        for name in names:
            Outbox(app=app, env=env).add(connection, topic="orders", payload=b"x", key="k", id=name)
            time.sleep(0.002)  # only one and the same outbox sees to it that no two rows of a key share a millisecond


def _set(engine: Engine, *names: str, **values: Any) -> None:
    with engine.begin() as connection:
        connection.execute(update(TABLE).where(TABLE.c.id.in_(names)).values(values))


def test_rows_whose_claim_has_ended_are_not_overtaken_by_those_written_since(engine: Engine) -> None:
    """What a relay that died had not sent yet went out after a newer row of the key."""
    _add(engine, "r1", "r2")
    store = OutboxStore(engine)
    assert len(claimed(store, 10, 60_000, ordered=["orders"])) == 2
    _add(engine, "r3")
    _set(engine, "r1", "r2", next_push_at=0)
    assert _sent(store, 10) == ["r1", "r2", "r3"]


def test_rows_that_another_relay_has_claimed_are_not_overtaken(engine: Engine) -> None:
    """It had claimed them before the first one was due."""
    _add(engine, "r1", "r2", "r3")
    _set(engine, "r1", next_push_at=HELD - 1)
    store = OutboxStore(engine)
    first, second = claimed(store, 10, 60_000, ordered=["orders"])
    assert (first.id, second.id) == ("r2", "r3")
    _add(engine, "r4")
    _set(engine, "r1", next_push_at=0)
    assert _sent(store, 10) == ["r1"]
    store.settle([RowResult(row, RowStatus.SENT, 0, 0) for row in (first, second)])
    assert _sent(store, 10) == ["r4"]


def test_rows_of_another_application_keep_their_place(engine: Engine) -> None:
    """They go to the same topic, by a relay of their own."""
    _add(engine, "r1", app="shop")
    _add(engine, "r2", app="bank")
    _add(engine, "r3", app="shop")
    shop, bank = (OutboxStore(engine, OutboxScope(app=app)) for app in ("shop", "bank"))
    assert [_sent(store, 10) for store in (shop, bank, shop)] == [["r1"], ["r2"], ["r3"]]


def test_rows_that_no_relay_of_this_environment_sends_hold_up_nobody(engine: Engine) -> None:
    """Those of another environment, or of another protocol, held up later rows of the key for ever."""
    _add(engine, "r1", "r2", env="test")
    _add(engine, "r3", env="prod")
    _add(engine, "r4", "r5")
    _add(engine, "r6", env="prod")
    _set(engine, "r2", status=RowStatus.SENDING, next_push_at=HELD - 1)
    _set(engine, "r4", protocol="other", retry_count=1)
    assert _sent(OutboxStore(engine, OutboxScope("prod")), 10) == ["r3", "r5", "r6"]
    assert _sent(OutboxStore(engine, OutboxScope("test")), 10) == ["r1"]


def test_pushed_rows_are_due_in_the_order_of_their_creation(engine: Engine) -> None:
    """At a rate, `order-10` was sent before `order-9`, and a limit chose it alone."""
    names = _written(engine, each_alone=False)
    store = OutboxStore(engine)
    _set(engine, *names, status=RowStatus.FAILED)
    chosen = RowFilter(statuses=(RowStatus.FAILED,))
    assert [row["id"] for row in store.rows(chosen, 4)] == names[:4]
    assert store.push(chosen, limit=4, spacing=60_000) == 4
    assert [row["id"] for row in store.rows(chosen, 100)] == names[4:]
    assert _sent(store, 100) == names[:1]
    assert store.hold(RowFilter(), limit=1) == 1
    assert store.counts()["held"] == 1
    assert [row["id"] for row in store.rows(RowFilter(), 100) if row["next_push_at"] == HELD] == names[1:2]


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_row_that_another_transaction_has_locked_is_not_overtaken(postgres_url: str, is_changed: bool) -> None:
    """PostgreSQL passed over a row that `outbox push` was about to change, and the relay claimed the next one of the key."""
    engine = create_engine(postgres_url)
    TABLE.create(engine)
    _add(engine, "r1", "r2", "r3", "r4")
    store = OutboxStore(engine)
    claims = store.claim(10, 60_000, ordered=["orders"])
    with engine.connect() as other:
        other.execute(update(TABLE).where(TABLE.c.id == "r3").values(version=7))
        assert [[row.id for row in rows] for rows in claims] == [["r1"], ["r2"]]
        (other.commit if is_changed else other.rollback)()
    _set(engine, "r1", "r2", status=RowStatus.SENT)
    assert _sent(store, 10) == ["r3", "r4"]
    engine.dispose()


def test_a_time_of_another_type_ends_no_claim() -> None:
    engine = create_engine("sqlite://")
    TABLE.create(engine)
    with engine.begin() as connection:
        for name, at in (("b", "soon"), ("a", 2.5), ("c", 1)):
            statement = (
                "INSERT INTO kodo_outbox (id, topic, key, next_push_at, created_at) VALUES (:id, 'orders', 'k', 0, :at)"
            )
            connection.execute(text(statement), {"id": name, "at": at})
    assert _sent(OutboxStore(engine), 100) == ["c", "a", "b"]
    engine.dispose()


def test_only_rows_whose_ids_may_not_ascend_wait_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    clock = SimpleNamespace(sleep=naps.append, monotonic=lambda: 7.0)
    monkeypatch.setattr("kodo_consumer.outbox.outbox.time", clock)
    monkeypatch.setattr("kodo_consumer.outbox.outbox._MOST_KEYS", 3)
    order = CreationOrder()

    def write(key: str, *, own_id: bool) -> bool:
        """True if it waited."""
        before = len(naps)
        with order.writing("orders", key, own_id=own_id):
            return len(naps) > before

    made = [write("k", own_id=False), write("k", own_id=False), write("k", own_id=True), write("k", own_id=True)]
    assert made == [False, False, True, True]
    assert write("k", own_id=False), "the one before has an id of its own"
    assert not write("k", own_id=False)
    assert not write("other", own_id=True)
    assert not write("", own_id=True), "no key, no order"
    clock.monotonic = lambda: 8.0
    assert not write("k", own_id=True)
    for number in range(5):
        write(f"more {number}", own_id=True)
    assert len(order._last) <= 6
    assert naps == [pytest.approx(0.002)] * 3


def test_a_row_has_a_time_to_sort_by_whatever_made_it() -> None:
    row: Any = Row("i", 1, "orders", "", b"", "{}", "", 0)
    assert (row.created_at, row.problem) == (0, "")
