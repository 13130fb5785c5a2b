"""The INSERT of the outbox for cursors that are not SQLAlchemy's."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kodo_consumer.outbox import Outbox
from kodo_consumer.outbox.outbox_store import OutboxStore
from kodo_consumer.outbox.table import TABLE
from sqlalchemy import create_engine

from kodoctl.errors import UsageError
from tests.unit.consumer.outbox_setting import claimed


def test_a_plain_cursor_writes_the_row_that_add_would_write(database_url: str) -> None:
    engine = create_engine(database_url)
    TABLE.create(engine)
    outbox = Outbox(app="shop")
    message: dict[str, Any] = {"topic": "orders", "payload": {"amount": "100 %"}, "key": "k"}
    with engine.begin() as connection:
        sql, parameters = outbox.statement(engine.dialect.name, **message, properties={"a": 1})
        if engine.dialect.name == "sqlite":
            sql = re.sub(r"%\((\w+)\)s", r":\1", sql)  # as Django does
        cursor = connection.connection.cursor()
        cursor.execute(sql, parameters)
        [row] = cursor.fetchall()
        names = [row[0], outbox.add(connection, **message)]
    first, second = claimed(OutboxStore(engine), 10, 10_000)
    assert [first.id, second.id] == names == sorted(names)
    assert (first.topic, first.key, first.body) == (second.topic, second.key, second.body)
    assert first.message_properties() == {"a": "1"}
    assert json.loads(first.body or b"") == {"amount": "100 %"}
    engine.dispose()


def test_a_delay_and_a_rollback_hold_for_it_as_well(database_url: str) -> None:
    engine = create_engine(database_url)
    TABLE.create(engine)
    sql, parameters = Outbox().statement(engine.dialect.name, topic="orders", payload=b"x", delay="1h")
    if engine.dialect.name == "sqlite":
        sql = re.sub(r"%\((\w+)\)s", r":\1", sql)
    store = OutboxStore(engine)
    for end, count in (("rollback", 0), ("commit", 1)):
        with engine.connect() as connection:
            connection.connection.cursor().execute(sql, parameters)
            getattr(connection.connection, end)()
        assert store.waiting() == (count, 0)
    assert claimed(store, 10, 10_000) == []
    engine.dispose()


def test_what_add_refuses_is_refused_and_so_are_another_dialect_and_an_id() -> None:
    with pytest.raises(UsageError, match="K724"):
        Outbox().statement("postgresql", topic="orders", payload=b"x", delay="-1s")
    with pytest.raises(UsageError, match=r"K730.*mysql is none of postgresql, sqlite"):
        Outbox().statement("mysql", topic="orders", payload=b"x")
    with pytest.raises(UsageError, match=r"K730.*id: `statement` takes none"):
        Outbox().statement("sqlite", topic="orders", payload=b"x", id="order-9")  # type: ignore[call-arg]
