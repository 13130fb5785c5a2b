"""A pooler such as PgBouncer gives a connection to another program with the next transaction: stores and relays leave it as it was."""

from __future__ import annotations

from typing import Any

from kodo_consumer.adapters.stores.sql_store import SqlStore
from kodo_consumer.core.values.lease_protocol import ConcurrencySpec, LeaseRequest
from kodo_consumer.core.values.store import Exchange
from kodo_consumer.outbox.outbox_store import OutboxStore, engine_of
from kodo_consumer.outbox.table import TABLE
from sqlalchemy import Engine, make_url

_SETTINGS = ("synchronous_commit", "statement_timeout", "lock_timeout")
_OFTEN = 12  # drivers prepare what is executed more often than a few times


def _left(engine: Engine) -> dict[str, Any]:
    """Settings of the connection that was used, and the number of statements that the server has prepared for it."""
    assert engine.pool.checkedin() == 1  # type: ignore[attr-defined]  # a pool that counts
    connection: Any = engine.raw_connection()
    cursor = connection.cursor()
    found: dict[str, Any] = {}
    for name in _SETTINGS:
        cursor.execute(f"SHOW {name}")
        found[name] = cursor.fetchone()[0]
    cursor.execute("SELECT count(*) FROM pg_prepared_statements")
    found["prepared"] = cursor.fetchone()[0]
    connection.rollback()
    connection.close()
    return found


UNTOUCHED = {"synchronous_commit": "on", "statement_timeout": "0", "lock_timeout": "0", "prepared": 0}


def test_a_store_leaves_a_connection_as_it_was(postgres_url: str) -> None:
    """Commits of applications behind the same pooler were no longer on the disk when they returned."""
    store = SqlStore(make_url(postgres_url), "p/n/t:s", "a")
    store.create()
    for number in range(_OFTEN):
        store.exchange(Exchange(done=[f"d{number}"], starting=[f"s{number}"]))
        store.beat()
        store.grant([LeaseRequest("gate", ConcurrencySpec(1), wanted=1)])
    store.prune(1, 0)
    assert _left(store._engine) == UNTOUCHED
    with store._transaction() as connection:
        found = [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in _SETTINGS]
    assert found == ["off", "2s", "2s"], "in the worker's own transactions they hold"
    store.close()


def test_a_relay_leaves_a_connection_as_it_was(postgres_url: str) -> None:
    store = OutboxStore(engine := engine_of(postgres_url))
    TABLE.metadata.create_all(engine)
    for _ in range(_OFTEN):
        list(store.claim(10, 1_000, ordered=["orders"]))
        store.next_due()
        store.waiting()
        store.forget_sent(0, 10)
    assert _left(engine) == UNTOUCHED
    store.close()
