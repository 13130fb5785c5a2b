"""Lanes of one worker: what users write, what it selects, and every mistake in one error."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kodo_consumer.core.sequences.gap_monitor import GapMonitor
from kodo_consumer.core.upkeep.broker_window import lane_request, unacked_limits
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.lane_selection import LaneSelection, given_selection, limit_warnings, select_lanes
from kodo_consumer.core.values.limit_policy import Concurrency, Pace, Rate
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.core.values.route_table import RouteRule
from kodo_consumer.runtime.active_consumer_poller import lanes_with_active_consumers

from kodoctl.errors import UsageError
from kodoctl.topology.names import RouteMoment
from tests.unit.consumer.engine_bench import B1, L1, L2, policy

LANES = [
    "L2/ready", "L2/retrying", "L2/pending", "L2/blocking", "L1/ready", "L1/retrying", "L1/pending", "L1/blocking", "B1/ready",
]  # fmt: skip


def _selected(text: str, of: Policy | None = None) -> Policy:
    return select_lanes(of or policy(), LaneSelection.parse(text))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("L2", LANES[:4]),
        ("retrying,pending", ["L2/retrying", "L2/pending", "L1/retrying", "L1/pending"]),
        ("!B1", LANES[:-1]),
        ("! B1 , !L2", LANES[4:-1]),
        ("L1/ready", ["L1/ready"]),
        ("L2, !L2/blocking, B1", [*LANES[:3], "B1/ready"]),
        ("L1,!pending,!blocking", ["L1/ready", "L1/retrying"]),
        ("all", LANES),
        ("all,!ready", [name for name in LANES if not name.endswith("ready")]),
        ("ready,L1/ready,ready", ["L2/ready", "L1/ready", "B1/ready"]),
    ],
)
def test_levels_states_and_lanes_are_selected_and_left_out(text: str, read: list[str]) -> None:
    found = _selected(text)
    assert [lane.name for lane in found.lanes] == read
    assert [lane.name for lane in found.unread] == [name for name in LANES if name not in read]
    assert [lane.index for lane in found.every_lane] == list(range(len(LANES)))
    assert sum(lane.share for lane in found.lanes) == pytest.approx(1)
    assert {(lane.weight, lane.share) for lane in found.unread} <= {(0, 0.0)}
    assert found.ground_lane.name == "L1/ready"
    assert (found.targets, found.written_topics) == (policy().targets, policy().written_topics), (
        "messages still go everywhere"
    )


@pytest.mark.parametrize("text", ["all", "ready", "retrying", "pending,blocking"])
def test_where_one_lane_keeps_an_order_no_worker_routes_whichever_lanes_it_reads(text: str) -> None:
    """A message of a waiting lane, routed to another level, would overtake those of its key."""
    of = policy(
        ordered=True,
        routes=(RouteRule(lambda _: True, L2, frozenset(RouteMoment)),),
        exclusive_levels={L2: frozenset({"a"})},
    )
    found = _selected(text, of)
    assert found.keeps_order
    assert not found.is_plain
    assert found.route_table.rules == ()
    assert not found.exclusive.tenants


def test_without_a_selection_nothing_changes() -> None:
    of = policy()
    assert select_lanes(of, None) is of
    assert of.unread == ()
    assert given_selection(None) is None
    assert given_selection("L2,!L2/ready") == LaneSelection(("L2",), ("L2/ready",))
    assert str(given_selection(" L2 ,! L2/ready")) == "L2,!L2/ready"


def test_the_lanes_of_a_worker_share_its_starts_and_its_look_ahead() -> None:
    of = policy(levels=(L1,), lookahead_messages=10_000)
    found = _selected("ready,pending", of)
    assert [(lane.weight, lane.share) for lane in found.lanes] == [(1, 0.5), (1, 0.5)]
    assert found.queue > of.queue
    assert found.max_held + (found.queue + found.batch) * 2 == 10_000


def test_weights_among_the_read_lanes_stay_as_they_are_to_each_other() -> None:
    of = policy(levels=(L2, L1, B1), states=())
    lanes = [replace(lane, weight=weight) for lane, weight in zip(of.lanes, (60, 20, 7), strict=True)]
    weighted = replace(of, lanes=tuple(lanes))
    assert [lane.weight for lane in _selected("!B1", weighted).lanes] == [3, 1]
    assert [lane.share for lane in _selected("!B1", weighted).lanes] == [0.75, 0.25]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("L9,foo,!bar", ["no level, state or lane is named 'L9', 'foo', 'bar'; its lanes are L2/ready, L2/retrying,"]),
        ("l1", ["'l1' of t s: no level, state or lane is named 'l1'"]),
        ("dead", ["is named 'dead'"]),
        ("B1/retrying", ["is named 'B1/retrying'"]),
        ("!L1,!L2,!B1", ["'!L1,!L2,!B1' of t s: no lane is left; its lanes are L2/ready"]),
        ("L1,!L1", ["no lane is left"]),
        ("!ready,!retrying,!pending,!blocking,!foo", ["is named 'foo'", "no lane is left"]),
    ],
)
def test_every_mistake_is_told_with_the_lanes_there_are(text: str, said: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        _selected(text)
    assert len(refused.value.diagnostics) == len(said)
    for finding, words in zip(refused.value.diagnostics, said, strict=True):
        assert finding.code == "K764"
        assert words in finding.detail


@pytest.mark.parametrize("text", ["", " ", "L1,,L2", "L1,", "!", "!all"])
def test_what_names_nothing_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(UsageError, match=r"K764.*write names with commas between them, such as L2, retrying,pending"):
        given_selection(text)


def test_order_is_kept_lane_by_lane_so_whoever_reads_a_lane_keeps_it() -> None:
    """A ready lane that keeps order is asked for as ever, whichever lanes its worker has beside it; active consumers and
    numbers are those of its own lanes.
    """
    of = policy(levels=(L2, L1), ordered=True, subscription_type="failover")
    ready, waiting = _selected("L1/ready", of), _selected("!ready", of)
    assert lane_request(ready, ready.lanes[0], "w", 0).type == "failover"
    assert ready.lanes[0].ordered
    assert [lane.name for lane in lanes_with_active_consumers(ready)] == ["L1/ready"]
    assert lanes_with_active_consumers(waiting) == []
    assert {lane_request(waiting, lane, "w", 0).type for lane in waiting.lanes} == {"shared"}
    assert GapMonitor.of(ready, 0, None) is not None  # type: ignore[arg-type]
    nobody: Any = SimpleNamespace(unacked_limits=pytest.fail)
    assert unacked_limits(ready, nobody) == {}, "no limit is read of lanes of others"


def test_limits_that_lanes_of_other_workers_loosen_are_warned_of() -> None:
    shared, own = Rate(None, Pace(5, 1_000, 5), shared=True), Concurrency("key", 1, shared=False)

    def said(lanes: str, **changes: Any) -> list[str]:
        return [finding.detail for finding in limit_warnings(_selected(lanes, policy(**changes)))]

    (text,) = said("!L2", limits=(shared,))
    assert text.startswith("t s expects 1 worker, and other workers have to read 4 lanes: until these are counted,")
    assert "write `expected_workers: 2` or more" in text
    assert said("!L2", limits=(shared,), expected_workers=2) == []
    assert said("all", limits=(shared, own)) == []
    (text,) = said("!B1", limits=(own,))
    assert text.startswith(
        "concurrency by key with `scope: worker` counts the handlers of this worker only, not those of 1 lane"
    )
    assert said("!B1", limits=(Concurrency(None, 1, shared=False),))[0].startswith("concurrency with")
    assert said("!B1", limits=(Rate(None, Pace(5, 1_000, 5), shared=False),)) == []


def test_only_lanes_that_are_read_are_targets_of_nothing_else() -> None:
    found = _selected("retrying")
    assert found.target(L1, State.PENDING) == policy().target(L1, State.PENDING)
    assert found.is_draining(L1) is False
