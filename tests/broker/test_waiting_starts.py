"""A worker that starts while `waiting apply` has a lane alone: it works on all others, says so, and joins once that is free."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from dataclasses import replace
from urllib.error import HTTPError
from urllib.request import urlopen

import pulsar
import pytest
from kodo_consumer import Consumer, Message, Producer

from tests.broker.waiting_messages import TOPIC_OF, Waits
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.broker


def readiness(address: str) -> tuple[int, list[str]]:
    try:
        with urlopen(f"http://{address}/readyz", timeout=5) as answer:
            code, body = answer.status, json.load(answer)
    except HTTPError as problem:
        code, body = problem.code, json.load(problem)
    return code, [text for one in body["workers"] for text in one["problems"]]


@pytest.mark.parametrize("freed", [True, False])
def test_a_worker_starts_while_a_lane_is_held_and_reads_it_once_it_is_free(
    workspace: Workspace, caplog: pytest.LogCaptureFixture, freed: bool
) -> None:
    waits, place = Waits(workspace), workspace.broker
    file = str(workspace.folder / "topologies/trade.yaml")
    connection = place.client_options
    waits.put("L1/retrying", range(5), delay=0)
    handled: Counter[int] = Counter()
    caplog.set_level(logging.WARNING, "kodo.consumer")
    with workspace.client() as client:
        topic = workspace.full(TOPIC_OF["L1/retrying"])
        held = client.subscribe(topic, "billing", pulsar.ConsumerType.Exclusive)
        consumer = Consumer.load(file, topic="orders", subscription="billing", **connection)
        consumer.settings = replace(consumer.settings, port=0)

        @consumer.handler
        def handle(message: Message) -> None:
            handled[message.json()["n"]] += 1

        consumer.start()
        try:
            with Producer.load(file, topic="orders", **connection) as producer:
                producer.post(b'{"n": 100}', properties={"uid": "u"})
            eventually(lambda: handled == {100: 1}, within=20)
            address = consumer.address
            assert address
            code, problems = readiness(address)
            assert code == 503
            assert [text for text in problems if "another reader has it alone" in text], problems
            assert "K713" not in caplog.text
            if freed:
                time.sleep(3)
                held.close()
                eventually(lambda: set(handled) == {100, *range(5)}, within=30)
                eventually(lambda: readiness(address) == (200, []), within=20)
        finally:
            began = time.monotonic()
            consumer.stop()
            assert time.monotonic() - began < 15, "a stop signal ends the wait"
    said = [one.getMessage() for one in caplog.records if "it is read as soon as it is free" in one.getMessage()]
    assert len(said) == len(set(said)), "once for each partition"
    assert said
    assert set(handled.values()) == {1}
