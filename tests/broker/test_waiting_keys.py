"""Messages of a backup level whose subscription keeps the order of keys: whole keys are released and moved, in order, each once."""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest
from kodo_consumer import Consumer, Message

from tests.broker.test_recall_kills import attempt
from tests.broker.waiting_messages import Waits
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
TOPICS = """
orders:
  partitions: 1
  fair_by: uid
  levels: double
  backup: true
  policies: {deduplication: true}
  message_properties: {uid: required}
  subscriptions:
    billing: {type: key_shared, states: [], concurrency: 4}
    shipping: {states: [retrying]}
"""
LANE = "B1/ready"
NUMBERS = range(50)  # the key of a message is k0 to k4, by its number


@pytest.fixture
def waits(workspace: Workspace) -> Waits:
    found = Waits(workspace, TOPICS)
    found.put(LANE, NUMBERS)
    return found


def test_parts_of_keys_are_refused_with_the_keys_and_whole_keys_come_in_order(waits: Waits) -> None:
    named = ["topologies", "--topic", "orders", "--subscription", "billing", "--lane", LANE, "--where"]
    refused = waits.waiting("plan", *named, "payload.n < 20", code=4)
    assert "K555" in refused.err
    assert "k0: 4 of 10 messages" in " ".join(refused.err.split())
    assert "key IN (" in refused.err
    assert waits.plan(LANE, "key IN ('k1', 'k3')")["summary"]["chosen"] == 20
    waits.put(LANE, [101])  # of k1, since the plan
    late = waits.waiting("apply", "p.json", code=4)
    assert "messages of 1 key came since the plan (k1)" in " ".join(late.err.split())
    assert waits.orders() == ()
    assert waits.plan(LANE, "key IN ('k1', 'k3')")["summary"]["chosen"] == 21
    assert waits.apply()["complete"]
    released = [one for one in waits.stored(LANE) if "kodo-release" in one.properties]
    for key in ("k1", "k3"):
        times = [one.event_time for one in released if one.key == key]
        assert times == sorted(times)
    assert Counter(one.key for one in released) == {"k1": 11, "k3": 10}
    assert waits.left(LANE) == Counter([*NUMBERS, 101])


def test_a_whole_key_moves_to_a_level_and_is_handled_there_in_order(waits: Waits) -> None:
    waits.plan(LANE, "key = 'k2'", "--action", "move", "--to", "L2")
    assert attempt(waits.workspace, "first sent.", "waiting") == -signal.SIGKILL
    assert waits.apply()["complete"]
    broker, handled = waits.workspace.broker, list[int]()
    consumer = Consumer.load(
        str(waits.workspace.folder / "topologies/trade.yaml"), topic="orders", subscription="billing",
        admin_url=broker.admin_url, broker_url=broker.broker_url, environ={},
    )  # fmt: skip

    @consumer.handler
    def handle(message: Message) -> None:
        if message.key == "k2":
            handled.append(message.json()["n"])

    consumer.start()
    try:
        eventually(lambda: len(handled) == 10, within=60)
        time.sleep(1)
    finally:
        consumer.stop()
    assert handled == [n for n in NUMBERS if n % 5 == 2], "in order, each once"
