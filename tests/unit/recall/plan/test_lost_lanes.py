"""Lanes that lost messages: where each message should be now, and under which name the ledger knows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kodoctl.errors import UsageError
from kodoctl.protocol import properties as control
from kodoctl.recall.message.recall_headers import resent_properties
from kodoctl.recall.plan.destinations import fits
from kodoctl.recall.plan.lost_lanes import LostLane, lost_lane, lost_lanes
from kodoctl.recall.plan.recall_plan import LOST, lost_key
from kodoctl.topology.load import load_topology
from kodoctl.topology.names import HOLDER, Level
from tests.unit.recall.letters import NOW, letter

FILE = """version: 1
name: trade
tenant: kodo
namespace: trade
topics:
  orders:
    levels: [L1, L2]
    backup: true
    draining: [L3]
    subscriptions:
      billing: {states: [retrying, blocking], draining: [pending]}
      shipping: {states: [], dead_letter: false}
"""
ORDERS = "persistent://kodo/trade/orders"
RETRYING = f"{ORDERS}-billing-RETRYING"


def topology(tmp_path: Path):
    file = tmp_path / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    return load_topology(str(file))


def lane(tmp_path: Path, name: str, of: str = "billing", exact: bool = True) -> LostLane:
    return lost_lane(topology(tmp_path), "orders", of, name, lambda _: exact)


def test_every_topic_of_a_subscription_can_lose_messages(tmp_path: Path) -> None:
    found = lost_lanes(topology(tmp_path), "orders", "billing")
    states = ("ready", "retrying", "pending", "blocking")
    expected = [f"{level}/{state}" for level in ("L3", "L2", "L1") for state in states] + ["B1/ready", "dead"]
    assert [one.lane for one in found] == expected
    of_shipping = [one.lane for one in lost_lanes(topology(tmp_path), "orders", "shipping")]
    assert of_shipping == ["L3/ready", "L2/ready", "L1/ready", "B1/ready"]


def test_a_message_goes_back_to_the_topic_that_lost_it(tmp_path: Path) -> None:
    topics = {"L1/ready": ORDERS, "L1/retrying": RETRYING, "dead": f"{ORDERS}-billing-DLQ"}
    for name, topic in topics.items():
        found = lane(tmp_path, name)
        target = found.lane_of(None, None)
        assert target is not None
        assert target.topic == found.source_topic == topic
        assert target.ready == name.endswith("ready")
    assert lane(tmp_path, "dead").reader_of(f"{ORDERS}-billing-DLQ") == HOLDER
    assert lane(tmp_path, "dead").reader_of(RETRYING) == "billing"


def test_where_that_takes_nothing_or_nothing_exact_it_is_tried_again_on_its_level(tmp_path: Path) -> None:
    for name, exact in (("L1/ready", False), ("L3/ready", True), ("L1/pending", True), ("dead", False)):
        target = lane(tmp_path, name, exact=exact).lane_of(None, None)
        assert target is not None
        assert target.topic == RETRYING, name
    of_level = lane(tmp_path, "L2/ready", exact=False).lane_of("L1", None)
    assert of_level is not None
    assert of_level.level is Level.L2
    died = lane(tmp_path, "dead", exact=False).lane_of("L2", None)
    assert died is not None
    assert died.level is Level.L2, "a dead letter goes to the level it died in"
    only = lane(tmp_path, "L1/ready", of="shipping", exact=False).lane_of(None, None)
    assert only is not None
    assert only.topic == ORDERS, "a recall refuses it, with the line that makes it exact"
    assert lane(tmp_path, "L3/ready", of="shipping").lane_of(None, None) is None


def test_a_plan_fits_the_file_while_its_lane_does(tmp_path: Path) -> None:
    found = lane(tmp_path, "L1/ready")
    parts = found.source_partitions
    assert found.ledger_key == lost_key(ORDERS, "billing") == f"{ORDERS}/billing/lost"
    assert found.landing == ""
    assert fits(found, "trade", ORDERS, "billing", [(ORDERS, True, parts), (RETRYING, False, parts)]) == []
    assert fits(found, "trade", ORDERS, "billing", [(f"{ORDERS}-L2", True, parts)])


def test_an_unknown_lane_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no lane L9/ready; lanes are L3/ready, L3/retrying"):
        lane(tmp_path, "L9/ready")


def test_headers_are_those_it_had_and_name_who_lost_it() -> None:
    had = {control.HOP: "4", control.ATTEMPTS_RETRYING: "3", control.REASON: "boom", control.DUE: "9", "uid": "u"}
    found = resent_properties(letter(properties=had), "x", "billing", due=0, ready=False, revived=False)
    kept = {name: value for name, value in had.items() if name != control.DUE}
    assert {name: found[name] for name in kept} == kept
    assert found[control.RELEASE] == "x"
    assert control.DUE not in found
    assert resent_properties(letter(), "x", "billing", due=NOW, ready=False, revived=False)[control.DUE] == str(NOW)


def test_on_a_first_topic_it_is_a_new_message_elsewhere_one_that_moved() -> None:
    first = resent_properties(letter(), "x", "billing", due=0, ready=True, revived=False)
    assert control.HOP not in first, "routes see it"
    assert first[control.FOR] == "billing"
    moved = resent_properties(letter(), "x", "billing", due=0, ready=False, revived=False)
    assert (moved[control.HOP], control.FOR in moved) == ("1", False)


def test_a_dead_letter_that_is_tried_again_begins_anew() -> None:
    had = {control.HOP: "4", control.ATTEMPTS_RETRYING: "3", control.REASON: "boom", "uid": "u"}
    found = resent_properties(letter(properties=had), "x", "billing", due=0, ready=False, revived=True)
    assert (control.HOP in found, found["uid"]) == (False, "u")
    assert control.ATTEMPTS_RETRYING not in found
    assert control.REASON not in found


def test_a_lane_that_lost_messages_is_a_source_of_lost_ones(tmp_path: Path) -> None:
    lanes = lost_lanes(topology(tmp_path), "orders", "billing")
    assert {lane.kind for lane in lanes} == {LOST}
