"""An outbox for tests: its table in a database, a broker in memory, relays to be turned by hand or by themselves."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from kodo_consumer.core.checks.message_validation import MessageValidator
from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.core.values.clock import Clock
from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.core.values.send_target import SendTarget
from kodo_consumer.outbox import TABLE, Outbox
from kodo_consumer.outbox.outbox_row import Row
from kodo_consumer.outbox.outbox_store import OutboxScope, OutboxStore
from kodo_consumer.outbox.producers import Senders
from kodo_consumer.outbox.relay import Relay, RelayOptions
from kodo_consumer.outbox.target_topics import OutboxTopics
from kodo_consumer.policy_builder import load
from kodo_consumer.producer import Producer
from kodo_consumer.testing import ManualClock, MemoryBroker
from sqlalchemy import BigInteger, ColumnElement, create_engine, literal, select

from tests.unit.consumer.topologies import write

SCHEMA = {"type": "object", "required": ["amount"], "additionalProperties": {"type": "integer"}}
TOPICS = """
  orders:
    levels: double
    message_properties: {uid: required}
    payload: {type: json, schema: order.json}
    subscriptions:
      billing: {states: [retrying], in_place: []}
  ledger:
    subscriptions:
      booking: {type: key_shared, states: [], in_place: [], on_failure: block}
"""


def claimed(store: OutboxStore, limit: int, lasts: int, *, ordered: Collection[str] = ()) -> list[Row]:
    """Rows of one claim."""
    return [row for some in store.claim(limit, lasts, ordered=ordered) for row in some]


class Setting:
    """A database with the table, a broker with the topics, and what an application and a relay need."""

    def __init__(self, url: str, folder: Path) -> None:
        self.clock = ManualClock()
        (folder / "order.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
        self.topology = load(write(folder, TOPICS), None)
        self.send_targets = OutboxTopics(self.topology)
        self.engine = create_engine(url)
        TABLE.create(self.engine)
        self.broker = MemoryBroker(self.clock)
        for name in self.send_targets.names:
            self.broker.create(self.full(name))
        self.outbox = Outbox(clock=self.clock, send_targets=self.send_targets)
        self.unchecked = Outbox(clock=self.clock)

    def full(self, topic: str) -> str:
        return self.send_targets.send_target(topic).topic

    def add(self, topic: str = "ledger", payload: Any = b"x", **more: Any) -> str:
        with self.engine.begin() as connection:
            return self.unchecked.add(connection, topic=topic, payload=payload, **more)

    def database_now(self) -> ColumnElement[int]:
        """The clock of the database, as the test has set it."""
        return literal(self.clock.wall(), BigInteger)

    def store(self, scope: OutboxScope | None = None) -> OutboxStore:
        return OutboxStore(self.engine, scope, self.database_now)

    def relay(self, scope: OutboxScope | None = None, clock: Clock | None = None, **options: Any) -> Relay:
        """A relay; `clock`: of its own machine."""
        senders = Senders(self.send_targets, self._producer)
        return Relay(self.store(scope), senders, clock or self.clock, Random(1), replace(RelayOptions(), **options))

    def _producer(self, send_target: SendTarget) -> Producer:
        check = None if send_target.schema is None else Payloads("json", send_target.schema)
        return Producer(send_target.topic, self.broker, form=MessageValidator(check, send_target.properties))

    def turn(self, *relays: Relay, times: int = 6) -> None:
        """Turns of each relay, and what the broker has to say in between."""
        for _ in range(times):
            for relay in relays:
                relay.turn()
            while self.broker.step():
                pass

    def rows(self) -> dict[str, dict[str, Any]]:
        with self.engine.connect() as connection:
            return {row.id: dict(row._mapping) for row in connection.execute(select(TABLE).order_by(TABLE.c.id))}

    def sent(self, topic: str = "ledger") -> list[Outgoing]:
        """Messages stored in a topic, without the producer's own marks."""
        return [one.message for one in self.broker.messages(self.full(topic)) if "kodo-id" in one.properties]

    def ids(self, topic: str = "ledger") -> list[str]:
        return [message.properties["kodo-id"] for message in self.sent(topic)]
