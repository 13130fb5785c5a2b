"""The ready lanes of a subscription, and where else its messages may be."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kodoctl.errors import RefusedError, UsageError
from kodoctl.pulsar.binary.message_reader import Cursor, PartitionFacts
from kodoctl.recall.plan.ready_lanes import ReadyLane, ReplaySource, replay_source
from kodoctl.recall.plan.replay_counts import PublishTimes
from kodoctl.recall.replay_planner import ReplayRequest, prepare_replay
from kodoctl.topology.load import load_topology
from tests.unit.recall.letters import NOW
from tests.unit.recall.plan.test_waiting_lanes import FILE


def source(tmp_path: Path, topic: str, subscription: str) -> ReplaySource:
    file = tmp_path / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    return replay_source(load_topology(str(file)), topic, subscription)


def test_levels_are_replayed_and_backup_levels_are_not(tmp_path: Path) -> None:
    found = source(tmp_path, "orders", "billing")
    assert [one.lane for one in found.lanes] == ["L3/ready", "L2/ready", "L1/ready"]
    assert found.lanes[2] == ReadyLane("L1/ready", "persistent://kodo/trade/orders", 1)
    assert {one.lane for one in found.elsewhere} >= {"L1/retrying", "B1/ready", ""}
    assert (found.named_in_full, found.ordered) == ("kodo/trade/orders:billing", False)
    assert source(tmp_path, "orders", "shipping").ordered


def test_a_subscription_without_waiting_lanes_has_dead_letters_alone(tmp_path: Path) -> None:
    assert [one.lane for one in source(tmp_path, "bills", "ledger").elsewhere] == [""]


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="K703"):
        source(tmp_path, "orders", "nobody")


@pytest.mark.parametrize("raised", ["orders", "orders-L2", "orders-billing-RETRYING", "orders-billing-DLQ"])
def test_no_replay_is_planned_where_a_lane_has_other_partitions_than_the_file(tmp_path: Path, raised: str) -> None:
    request = ReplayRequest(
        source=source(tmp_path, "orders", "billing"), span=PublishTimes(NOW - 1, None), message=None, rate=None, done=None,
        now=NOW, run="r", path="t.yaml", environment=None, because="",
    )  # fmt: skip
    cursors = dict.fromkeys(("billing", "kodo-hold"), Cursor((-1, -1), ()))
    cluster: Any = SimpleNamespace(
        partitions=lambda topic: 2 if topic.rpartition("/")[2] == raised else 1,
        facts=lambda part: PartitionFacts(part, 0, -1, (-1, -1), True, cursors),
        read_all=lambda *_: iter(()),
        unread=SimpleNamespace(leave_out=lambda *_: None, lines=list, runs={}),
    )
    with pytest.raises(RefusedError, match=f"{raised} has 2 partitions, 1 in the file"):
        prepare_replay(request, cast("Any", None), cluster)
