"""Lanes of a file that messages wait in, where their messages may go, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kodoctl.errors import UsageError
from kodoctl.recall.plan.destinations import fits
from kodoctl.recall.plan.waiting_lanes import WaitingLane, waiting_lanes, with_target
from kodoctl.topology.load import load_topology

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
      shipping: {states: [], type: key_shared}
  bills:
    subscriptions: {ledger: {states: []}}
"""


def lanes(tmp_path: Path, *named: str, topic: str | None = "orders", of: str | None = "billing") -> list[WaitingLane]:
    file = tmp_path / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    return waiting_lanes(load_topology(str(file)), topic, of, named)


def one(tmp_path: Path, name: str, of: str = "billing") -> WaitingLane:
    (found,) = lanes(tmp_path, name, of=of)
    return found


def test_waiting_states_and_backup_levels_are_lanes_also_those_on_their_way_out(tmp_path: Path) -> None:
    found = lanes(tmp_path)
    assert [lane.lane for lane in found] == [
        f"{level}/{state}" for level in ("L3", "L2", "L1") for state in ("retrying", "pending", "blocking")
    ] + ["B1/ready"]  # fmt: skip
    assert found[6].source_topic == "persistent://kodo/trade/orders-billing-RETRYING"
    assert {lane.holder for lane in found} == {"billing"}
    assert set(found[0].writable) == {
        "L2/ready", "L2/retrying", "L2/blocking", "L1/ready", "L1/retrying", "L1/blocking", "B1/ready",
    }  # fmt: skip
    assert len(lanes(tmp_path, topic=None, of=None)) == 11
    assert [lane.subscription for lane in lanes(tmp_path, "B1/ready", of=None)] == ["billing", "shipping"]


def test_entries_of_a_lane_have_their_own_place_in_the_ledger_also_where_subscriptions_share_a_topic(
    tmp_path: Path,
) -> None:
    backup, other, waiting = (
        one(tmp_path, "B1/ready"),
        one(tmp_path, "B1/ready", "shipping"),
        one(tmp_path, "L1/retrying"),
    )
    assert backup.source_topic == other.source_topic
    assert (backup.ledger_key, other.ledger_key) == (
        f"{backup.source_topic}/billing",
        f"{backup.source_topic}/shipping",
    )
    assert (waiting.ledger_key, waiting.kind.mark) == (waiting.source_topic, "kodo-release")


def test_a_message_for_another_subscription_is_not_for_this_one(tmp_path: Path) -> None:
    lane = one(tmp_path, "B1/ready")
    assert lane.is_for({})
    assert lane.is_for({"kodo-for": "billing"})
    assert not lane.is_for({"kodo-for": "shipping"})


def test_a_release_goes_to_its_own_lane_and_a_move_to_the_lane_named(tmp_path: Path) -> None:
    lane = one(tmp_path, "L1/retrying")
    assert lane.lane_of("L2", None) is None
    released = with_target(lane, None)
    assert released.target is not None
    assert (released.target.topic, released.target.ready, released.target_name) == (lane.source_topic, False, None)
    moved = with_target(lane, "L2")
    assert moved.target is not None
    assert (moved.target.topic, moved.target.ready, moved.target_name) == (
        "persistent://kodo/trade/orders-L2",
        True,
        "L2/ready",
    )
    waits = with_target(lane, "L1/blocking")
    assert waits.lane_of(None, None) == waits.target
    assert waits.target_name == "L1/blocking"
    planned = [(target.topic, target.ready, target.partitions) for target in lane.targets]
    assert fits(lane, "trade", lane.source_topic, "billing", planned) == []


@pytest.mark.parametrize(
    ("name", "of", "to", "said"),
    [
        ("L3/retrying", "billing", None, "on its way out and takes no messages; move them: --to L2/ready,"),
        ("L1/retrying", "billing", "L3", "no lane L3/ready that takes messages: --to L2/ready,"),
        ("L1/retrying", "billing", "L1/pending", "no lane L1/pending"),
        ("L1/retrying", "billing", "L1/retrying", "leave out --to to release them"),
    ],
)
def test_where_messages_cannot_go_is_said_with_what_is_possible(
    tmp_path: Path, name: str, of: str, to: str | None, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        with_target(one(tmp_path, name, of), to)
    assert said in caught.value.diagnostics[0].detail


def test_whole_keys_of_an_ordered_lane_go_to_their_own_lane_and_to_ready_topics(tmp_path: Path) -> None:
    lane = one(tmp_path, "B1/ready", "shipping")
    assert lane.ordered
    assert with_target(lane, None).target == lane.writable["B1/ready"]
    assert with_target(lane, "L1").target == lane.writable["L1/ready"]
    with pytest.raises(UsageError) as caught:
        with_target(replace(one(tmp_path, "B1/ready"), ordered=True), "L1/blocking")
    said = "keeps the order of its keys, and L1/blocking does not: move whole keys to the ready topic of a level, such as --to L"
    assert said in caught.value.diagnostics[0].detail


def test_messages_do_not_go_to_a_ready_topic_that_checks_avro(tmp_path: Path) -> None:
    lane = replace(one(tmp_path, "L1/retrying"), payload_type="avro")
    with pytest.raises(UsageError, match="nowhere to send to"):
        with_target(lane, "L2")
    assert with_target(lane, None).target is not None


def test_unknown_names_are_said_with_those_there_are(tmp_path: Path) -> None:
    for named, topic, of, said in (
        (("L9/pending", "x"), "orders", "billing", "in L9/pending, x; lanes are L3/retrying,"),
        ((), "order", None, "has orders, bills, not 'order'"),
        ((), "orders", "bill", "has billing, shipping, not 'bill'"),
        ((), "bills", "ledger", "trade.yaml: no subscription ledger has a waiting state"),
        ((), "bills", None, "trade.yaml: no subscription has a waiting state"),
    ):
        with pytest.raises(UsageError) as caught:
            lanes(tmp_path, *named, topic=topic, of=of)
        assert said in caught.value.diagnostics[0].detail
