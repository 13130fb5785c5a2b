"""Harness: identities of its messages, and its clock where nothing is due."""

from __future__ import annotations

from pathlib import Path

import pytest
from kodo_consumer import Consumer, Message
from kodo_consumer.testing import Harness

from tests.unit.consumer.topologies import write


@pytest.fixture
def consumer(tmp_path: Path) -> Consumer:
    path = write(tmp_path, "  orders: {subscriptions: {billing: {}}}\n")
    made = Consumer.load(path, topic="orders", subscription="billing", environ={})

    @made.handler
    def handle(message: Message) -> None: ...

    return made


def test_messages_of_several_harnesses_on_one_broker_have_identities_of_their_own(consumer: Consumer) -> None:
    first = Harness(consumer)
    second = Harness(consumer, broker=first.broker, clock=first.clock)
    sent = [harness.send(b"x").properties["kodo-id"] for harness in (first, second, first)]
    first.close()
    sent.append(Harness(consumer, broker=first.broker, clock=first.clock).send(b"x").properties["kodo-id"])
    assert len(set(sent)) == 4
    anew = Harness(consumer)
    assert [anew.send(b"x").properties["kodo-id"] for _ in range(4)] == sent, "the same in every run of a test"


def test_a_leap_without_anything_due_leaves_the_clock_as_it_is(consumer: Consumer) -> None:
    harness = Harness(consumer)
    harness.leap()
    assert harness.clock.now() == 0
    harness.leap(2.0)
    assert harness.clock.now() == 2
    harness.send(b"x", delay="3s")
    harness.leap()
    assert harness.clock.now() == 5
