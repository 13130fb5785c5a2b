"""What a handler asks for and cannot have is a failed run: counted, with a reason in words, and nothing is published of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Blocking, Consumer, Message, MoveTo, Pending, Retry, Transfer
from kodo_consumer.policy_builder import load, policy_of
from kodo_consumer.testing import Harness

from tests.unit.consumer.topologies import write

SHIPMENTS = "persistent://p/n/shipments"
TOPICS = """
  orders:
    levels: single
    backup: true
    draining: [L2]
    fair_by: uid
    subscriptions:
      billing:
        in_place: []
        retrying: {attempts: 3, delays: [10s, 1m]}
        produces: [shipments, "persistent://p/n/elsewhere"]
        routes:
          - {when: {property: size, equals: large}, to: L2}  # kodoctl: allow K103 because it is what is tried here
          - {when: {property: size, exists: true}, to: B1}
  shipments:
    message_properties: {uid: required, from: required}
    payload: {type: json, schema: shipment.json}
    subscriptions:
      tracking: {type: key_shared}
"""
SCHEMA = {"type": "object", "required": ["id"]}


def _harness(folder: Path, raised: Any, **shared: Any) -> Harness:
    (folder / "shipment.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    consumer = Consumer.load(write(folder, TOPICS), topic="orders", subscription="billing", environ={})

    @consumer.handler
    def handle(message: Message) -> None:
        raise raised

    return Harness(consumer, **shared)


@pytest.mark.parametrize(
    ("raised", "counted", "reason"),
    [
        (MoveTo("L1"), "MoveTo", "MoveTo: it is on L1"),
        (MoveTo("S1"), "MoveTo", "MoveTo: S1 takes no messages"),
        (MoveTo("nowhere"), "MoveTo", "MoveTo: no level nowhere"),
        (Transfer("orders"), "Transfer", "Transfer: orders is not in produces"),
        (
            Transfer("shipments", properties={"from": "x", "kodo-for": "other", "kodo-hop": "3"}),
            "Transfer", "Transfer: properties that are the platform's own: kodo-for, kodo-hop",
        ),
        (Transfer("shipments", b'{"id":1}'), "Transfer", "Transfer: shipments requires the properties from"),
        (
            Transfer("shipments", b"{}", properties={"from": "x"}),
            "Transfer", "Transfer: shipments: payload breaks its schema at $: required",
        ),
        (Retry("1m", "later"), "Retry", "later"),
        (Pending("later"), "Pending", "later"),
        (Blocking("later"), "Blocking", "later"),
    ],
)  # fmt: skip
def test_it_is_counted_in_few_words_and_says_why(tmp_path: Path, raised: Exception, counted: str, reason: str) -> None:
    harness = _harness(tmp_path, raised)
    harness.send({}, properties={"uid": "u"})
    harness.run()
    assert harness.counts.failed == {counted: 1}
    (waiting,) = [
        stored for state in ("RETRYING", "PENDING", "BLOCKING")
        for stored in harness.broker.messages(f"persistent://p/n/orders-billing-{state}")
    ]  # fmt: skip
    assert waiting.properties["kodo-reason"] == reason
    assert harness.broker.messages(SHIPMENTS) == []


def test_a_transfer_that_fits_is_sent_and_comes_with_the_same_identity_again(tmp_path: Path) -> None:
    asked = Transfer("shipments", b'{"id":1}', key="k", properties={"from": "x"})
    harness = _harness(tmp_path, asked)
    harness.send({}, properties={"uid": "u"})
    harness.broker.hold_receipts = True
    harness.run()
    harness.broker.lose_connections()  # a crash between the receipt and the acknowledgement
    harness.broker.hold_receipts = False
    _harness(tmp_path, asked, broker=harness.broker, clock=harness.clock).run()
    first, second = harness.broker.messages(SHIPMENTS)
    assert first.properties == second.properties
    assert {name for name in first.properties if name.startswith("kodo-")} == {"kodo-id", "kodo-parent"}


def test_what_is_not_in_the_file_is_not_looked_at(tmp_path: Path) -> None:
    harness = _harness(tmp_path, Transfer("persistent://p/n/elsewhere", b"anything"))
    harness.send({}, properties={"uid": "u"})
    harness.run()
    assert len(harness.broker.messages("persistent://p/n/elsewhere")) == 1


def test_topics_shared_by_key_are_known_as_such(tmp_path: Path) -> None:
    assert _harness(tmp_path, Retry()).policy.by_key == {SHIPMENTS}
    shared = policy_of(load(write(tmp_path, TOPICS), None), "shipments", "tracking")
    assert shared.by_key == {SHIPMENTS}


def test_a_route_to_a_draining_level_wins_and_leaves_the_message_where_it_is(tmp_path: Path) -> None:
    harness = _harness(tmp_path, Retry())
    harness.send({}, properties={"uid": "u", "size": "large"})
    harness.send({}, properties={"uid": "u", "size": "small"})
    harness.run()
    assert (harness.counts.finished["routed"], harness.counts.finished["retrying"]) == (1, 1)
    assert {stored.properties["size"] for stored in harness.broker.messages("persistent://p/n/orders-B1")} == {"small"}


def test_a_message_without_a_waiting_state_is_not_postponed(tmp_path: Path) -> None:
    topics = "  orders: {subscriptions: {billing: {states: [], in_place: []}}}\n"
    consumer = Consumer.load(write(tmp_path, topics), topic="orders", subscription="billing", environ={})

    @consumer.handler
    def handle(message: Message) -> None:
        message.postpone("1m")

    harness = Harness(consumer)
    harness.send("x")
    harness.run()
    assert harness.counts.failed == {"Postpone": 1}
    assert [letter.properties["kodo-reason"] for letter in harness.dead_letters] == [
        "Postpone: L1 has no waiting state that takes messages"
    ]
