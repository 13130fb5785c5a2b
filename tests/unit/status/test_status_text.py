"""Status of lanes that no live worker reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.status.lane_status import (
    LaneStatus,
    OtherReaders,
    Replication,
    StatusReading,
    TopologyStatus,
    UnreadTopic,
)
from kodoctl.status.status_text import status_json, status_lines


def _status(**consumers: int) -> TopologyStatus:
    lanes = [
        LaneStatus(
            "orders", "billing", "" if state == "dead" else "L1", state, f"orders-{state}", there=True, consumers=count
        )
        for state, count in consumers.items()
    ]
    other = LaneStatus("orders", "search", "L1", "ready", "orders", there=True)
    missing = LaneStatus("orders", "billing", "L2", "ready", "orders-L2", there=False)
    return TopologyStatus("shop", "t/n", (*lanes, other, missing), ())


def test_a_lane_without_workers_beside_lanes_that_have_some_is_told() -> None:
    reading = StatusReading(0, (_status(ready=2, retrying=0, pending=1, dead=0),))
    rows = {
        (lane["subscription"], lane["level"], lane["state"]): lane["unread"]
        for lane in status_json(reading)["topologies"][0]["lanes"]
    }
    assert [lane for lane, unread in rows.items() if unread] == [("billing", "L1", "retrying")]
    lines = [line for line in status_lines(reading) if "NO LIVE WORKER" in line.text]
    assert [(line.text, line.style) for line in lines] == [
        ("  L1 retrying: NO LIVE WORKER READS IT, only other lanes", "bold red")
    ]


def test_where_no_worker_lives_at_all_or_each_lane_has_one_nothing_is_told() -> None:
    for status in (_status(ready=0, retrying=0, dead=1), _status(ready=1, retrying=1)):
        reading = StatusReading(0, (status,))
        assert not any(lane["unread"] for lane in status_json(reading)["topologies"][0]["lanes"])
        assert not [line for line in status_lines(reading) if "NO LIVE WORKER" in line.text]


@pytest.mark.parametrize(
    ("idle", "says"),
    [
        (0, ""),
        (1, "L1 ready: 1 of 4 consumers has no partition; where order is kept, only more partitions help"),
        (2, "L1 ready: 2 of 4 consumers have no partition; where order is kept, only more partitions help"),
    ],
)
def test_consumers_beyond_the_partitions_of_an_ordered_topic_are_named(idle: int, says: str) -> None:
    lane = LaneStatus("o", "s", "L1", "ready", "o", there=True, consumers=4, idle=idle)
    lines = [
        line.text.strip() for line in status_lines(StatusReading(0, (TopologyStatus("shop", "t/n", (lane,), ()),)))
    ]
    assert ([line for line in lines if "no partition" in line] or [""]) == [says]


@pytest.mark.parametrize(("entries", "consumers", "rate_in", "is_told"), [
    (3, 0, 0.0, True), (3, 1, 0.0, False), (0, 0, 0.0, False), (900, 0, 9.0, False),
])  # fmt: skip
def test_messages_that_wait_for_the_first_worker_are_told(
    entries: int, consumers: int, rate_in: float, *, is_told: bool
) -> None:
    lane = LaneStatus("o", "s", "L1", "ready", "o", there=True, entries=entries, consumers=consumers, rate_in=rate_in)
    dead = replace(lane, level="", state="dead", entries=7, consumers=1)
    reading = StatusReading(0, (TopologyStatus("shop", "t/n", (lane, dead), ()),))
    text = "  no worker is connected: messages wait until one starts"
    assert (text in [line.text for line in status_lines(reading)]) == is_told


def test_the_reasons_of_a_growing_backlog_stand_below_it() -> None:
    lane = LaneStatus("o", "s", "L1", "ready", "o", there=True, entries=900, rate_in=30.0)
    reading = StatusReading(0, (TopologyStatus("shop", "t/n", (lane, replace(lane, subscription="t", rate_in=0)), ()),))
    [backlog] = status_json(reading)["topologies"][0]["backlogs"]
    assert (backlog["ground"], backlog["subscription"]) == ("o", "s")
    assert backlog["reasons"] == ["no worker is connected: messages wait until one starts"]
    lines = [line.text for line in status_lines(reading)]
    at = lines.index("  ready lanes: 30/s more come than are handled")
    assert lines[at + 1] == "    no worker is connected: messages wait until one starts"


def test_a_count_that_the_broker_ended_early_is_shown_as_at_least() -> None:
    lane = LaneStatus("o", "s", "L1", "ready", "o", there=True, entries=900, messages=6_000, rate_acked=10.0)
    for at_least in (False, True):
        topology = TopologyStatus("shop", "t/n", (replace(lane, messages_at_least=at_least),), ())
        text = "\n".join(line.text for line in status_lines(StatusReading(0, (topology,))))
        assert ("≥ 6,000" in text) == at_least
        assert ("≥: at least as many; the broker stopped counting" in text) == at_least
        assert f"empty in {'at least' if at_least else 'about'} 10 min" in text
        [row] = status_json(StatusReading(0, (topology,)))["topologies"][0]["lanes"]
        assert row["messages_at_least"] == at_least


@pytest.mark.parametrize(("count", "shown"), [(None, "-"), (0, "0"), (1_200, "1,200")])
def test_messages_that_the_broker_does_not_count_are_shown_as_unknown(count: int | None, shown: str) -> None:
    lane = LaneStatus("o", "s", "L1", "ready", "o", there=True, unacknowledged=count)
    lines = [line.text for line in status_lines(StatusReading(0, (TopologyStatus("shop", "t/n", (lane,), ()),)))]
    assert next(line.split()[4] for line in lines if line.startswith("  L1 ready")) == shown


def _crowd(count: int) -> TopologyStatus:
    lanes = [
        LaneStatus(f"t{number:04}", "s", "L1", "ready", "t", there=number != 77, entries=number // 1000, consumers=1)
        for number in range(count)
    ]
    others = tuple(OtherReaders(f"t{number:04}", ("x",), number) for number in range(40))
    copies = tuple(Replication(f"t{number:04}", "west", 0, connected=number != 13) for number in range(27))
    return TopologyStatus("shop", "t/n", tuple(lanes), others, copies)


def test_of_many_subscriptions_those_that_need_a_person_are_shown_and_the_others_counted() -> None:
    reading = StatusReading(0, (_crowd(3000),))
    lines = [line.text for line in status_lines(reading)]
    assert len(lines) < 250
    assert next(line for line in lines if " / s" in line) == "t0077 / s", (
        "missing: before all backlogs, in the file's order"
    )
    assert "2,975 more subscriptions: 1,976 with a backlog, 2 entries at most. --all shows them." in lines
    assert "t0039: read by x too, unmanaged (39 entries)" in lines
    assert "15 more topics are read by unmanaged subscriptions. --all shows them." in lines
    assert "t0013: replicated to west, up to date, NOT CONNECTED" in lines
    assert "2 more replications are no worse. --all shows them." in lines
    assert sum(" / s" in line.text for line in status_lines(reading, everything=True)) == 3000


def test_few_quiet_subscriptions_that_are_left_out_have_no_backlog() -> None:
    lanes = [LaneStatus(f"t{number:02}", "s", "L1", "ready", "t", there=True) for number in range(26)]
    [rest] = [
        line.text
        for line in status_lines(StatusReading(0, (TopologyStatus("shop", "t/n", (*lanes,), ()),)))
        if "more" in line.text
    ]
    assert rest == "1 more subscription: none with a backlog, 1 without a worker. --all shows them."


def test_many_topics_that_cannot_be_read_for_one_reason_are_one_finding() -> None:
    unread = tuple(UnreadTopic("t/n", f"t{number:02}", f"t{number:02}", "no owner") for number in range(30))
    lines = [line.text for line in status_lines(StatusReading(0, (), unread))]
    assert lines[0] == "30 topics of t/n: NOT READ"
    assert lines[1].startswith("  t00, t01, ")
    assert lines[1].endswith(" and 5 more")
    assert lines[2] == "  no owner"
