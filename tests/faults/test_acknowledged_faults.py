"""Hooks around acknowledged messages while confirmations are lost on their way: nothing is called on a guess."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Message, Producer

from tests.brokers.topics import backlog, create_topics
from tests.contract.worlds import NATIVE
from tests.faults.machine import Machine
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
TOPOLOGY = """
version: 1
name: hooks
tenant: public
namespace: default
topics:
  jobs:
    subscriptions:
      s: {states: [], in_place: [], dead_letter: false}
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "native",
    ["false", pytest.param("true", marks=[NATIVE, pytest.mark.full])],
    ids=["binding", "native"],
)
def test_a_connection_that_breaks_before_the_confirmation_leaves_it_unknown(tmp_path: Path, native: str) -> None:
    machine, file = Machine(tmp_path / "broker"), tmp_path / "t.yaml"
    file.write_text(TOPOLOGY, encoding="utf-8")
    handled, seen, has_receipt = list[bytes](), list[bytes](), threading.Event()
    try:
        machine.start(within=300.0)
        create_topics(machine.broker, str(file))
        at: dict[str, Any] = {"admin_url": machine.broker.admin_url, "broker_url": machine.broker.broker_url}
        at["environ"] = {"KODO_CONSUMER_NATIVE": native}
        consumer = Consumer.load(file, topic="jobs", subscription="s", **at)

        @consumer.handler
        def handle(message: Message) -> None:
            if message.data == b"cut":
                assert has_receipt.wait(60)  # the message can come before the receipt of its producer
                machine.wire.set(mute=True)  # what the broker answers is lost from here on
            handled.append(message.data)

        consumer.middleware("acknowledged")(lambda message, rule: seen.append(message.data))
        consumer.start()
        try:
            with Producer.load(file, topic="jobs", **at) as producer:
                producer.send(b"before")
                eventually(lambda: seen == [b"before"], within=30)
                producer.send(b"cut")
                has_receipt.set()
                eventually(lambda: b"cut" in handled, within=30)
                time.sleep(1.0)  # the acknowledgement goes out, and nothing comes back
                machine.wire.reset()
                machine.wire.set()
                eventually(lambda: not consumer.problems, within=60)
                producer.send(b"after")
                eventually(lambda: b"after" in seen, within=60)
            eventually(lambda: not backlog(machine.broker, "persistent://public/default/jobs", "s"), within=60)
        finally:
            consumer.stop()
        assert seen == [b"before", b"after"]
        assert handled == [b"before", b"cut", b"after"], "the broker had its acknowledgement"
    finally:
        machine.close()
