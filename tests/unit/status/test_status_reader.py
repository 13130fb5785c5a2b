"""Lanes as a reading takes them: a topic that gives no answer is unread, with the reason, and hides none of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.admin.admin import Reply
from kodoctl.status.lane_status import UnreadTopic
from kodoctl.status.status_reader import read_lanes, read_status
from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.load import load_topology

FILE = """
version: 1
name: t
tenant: kodo
namespace: ns
topics:
  orders: {subscriptions: {billing: {states: [pending]}}}
"""


class Answers:
    """An admin API that has messages in each topic, and gives no answer for one."""

    def __init__(self, silent: str = "") -> None:
        self.silent, self.asked, self.looked_at = silent, 0, set[str]()

    def call(self, _method: str, path: str, **_: Any) -> Reply:
        name = path.split("/")[3]
        if "/position/" in path:
            self.looked_at.add(name)
            return Reply("GET", path, 404, reason="Message not found")
        if path.endswith("/analyzeBacklog"):
            return Reply("POST", path, 200, {"messages": 50, "aborted": "PENDING" in name})
        self.asked += 1
        if name == self.silent:
            raise ClusterError(error("K510", "no broker answers", "nobody is there"))
        sub = {"msgBacklog": 2, "earliestMsgPublishTimeInBacklog": 1_000, "consumers": []}
        part = {"subscriptions": {"billing": sub, "kodoctl-hold": sub}}
        return Reply("GET", path, 200, {"metadata": {"partitions": 1}, "partitions": {f"{name}-partition-0": part}})


@pytest.fixture
def expansion(tmp_path: Path) -> Expansion:
    file = tmp_path / "t.yaml"
    file.write_text(FILE, encoding="utf-8")
    return expand(load_topology(str(file), None))


def _read(admin: Answers, expansion: Expansion, *, over: bool = False) -> tuple[dict[str, int], list[UnreadTopic]]:
    (status,), unread = read_lanes(admin, [expansion], lambda: over)  # type: ignore[arg-type]
    return {lane.state: lane.entries for lane in status.lanes if lane.there}, list(unread)


def test_each_topic_is_asked_once_and_those_that_may_have_marks_for_entries(expansion: Expansion) -> None:
    admin = Answers()
    lanes, unread = _read(admin, expansion)
    assert {"ready", "pending"} <= lanes.keys()
    assert (unread, admin.asked, admin.looked_at) == ([], len(expansion.topics), {"orders-partition-0"})


def test_what_each_worker_has_alone_by_its_file_has_no_counts(tmp_path: Path) -> None:
    """Also of lanes whose readers are all away: zero, beside lanes without any count, would look as if it grew."""
    file = tmp_path / "f.yaml"
    file.write_text(FILE.replace("{states: [pending]}", "{type: failover, states: [retrying]}"), encoding="utf-8")
    (status,), _ = read_lanes(Answers(), [expand(load_topology(str(file), None))], lambda: False)  # type: ignore[arg-type]
    rates = {lane.state: lane.rate_acked for lane in status.lanes}
    assert {lane.delivered for lane in status.lanes if lane.there} == {None}, "this broker does not count"
    assert rates["ready"] is None
    assert rates["retrying"] == 0.0
    assert {lane.state: lane.unacknowledged for lane in status.lanes} == {"ready": None, "retrying": 0, "dead": 0}


def test_one_that_gives_no_answer_is_unread_and_the_others_are_read(expansion: Expansion) -> None:
    lanes, unread = _read(Answers("orders-billing-PENDING"), expansion)
    assert "pending" not in lanes
    assert lanes["ready"] == 2
    assert unread == [UnreadTopic("kodo/ns", "orders", "orders-billing-PENDING", "nobody is there")]


def test_what_is_not_asked_in_time_is_unread_too(expansion: Expansion) -> None:
    admin = Answers()
    lanes, unread = _read(admin, expansion, over=True)
    assert (lanes, admin.asked, len(unread)) == ({}, 0, len(expansion.topics))
    assert {topic.reason for topic in unread} == {"its turn did not come in time"}


def test_exact_counts_that_the_broker_ended_early_are_marked(expansion: Expansion) -> None:
    status, _ = read_status(Answers(), expansion, exact=True)  # type: ignore[arg-type]
    found = {lane.state: (lane.messages, lane.messages_at_least) for lane in status.lanes if lane.there}
    assert (found["ready"], found["pending"]) == ((50, False), (50, True))
