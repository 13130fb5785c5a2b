"""The rows of a key are sent in the order in which they were written, also where their ids are the application's own."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kodo_consumer.outbox import Outbox
from kodo_consumer.outbox.outbox import CreationOrder
from kodo_consumer.outbox.outbox_row import Row, RowResult
from kodo_consumer.outbox.outbox_store import OutboxStore
from kodo_consumer.outbox.row_filter import RowStatus
from kodo_consumer.outbox.table import TABLE
from sqlalchemy import Engine, create_engine, text

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
