"""Lane status as metrics: depth and age of each lane, no sample for what nobody knows, failures counted."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kodoctl.status.lane_status import LaneStatus, StatusReading, TopologyStatus, UnreadTopic
from kodoctl.status.status_metrics import LANE_LABELS, STATUS_METRICS, StatusCollector

NOW = 1_700_000_100_000
EVERY = 30.0
LANE = LaneStatus(
    "orders", "billing", "L1", "retrying", "orders-billing-RETRYING", there=True, entries=7, delayed=3, unacknowledged=2,
    oldest=NOW - 60_000, consumers=1, rate_in=5.0, rate_acked=4.0,
)  # fmt: skip
DEAD = LaneStatus("orders", "billing", "", "dead", "orders-billing-DLQ", there=True)


class Exported:
    """A collector in a registry, with a clock of its own."""

    def __init__(self) -> None:
        self.now = NOW
        self.problem = ""
        self.collector = StatusCollector(EVERY, lambda: self.now, lambda: self.problem)
        self.registry = CollectorRegistry()
        self.registry.register(self.collector)

    def update(self, *lanes: LaneStatus, unread: tuple[UnreadTopic, ...] = ()) -> None:
        self.collector.update(StatusReading(self.now, (TopologyStatus("t", "kodo/ns", lanes, ()),), unread))

    def value(self, name: str, lane: LaneStatus = LANE) -> float | None:
        values = ("kodo/ns", lane.ground, lane.subscription, lane.level, lane.state)
        return self.registry.get_sample_value(name, dict(zip(LANE_LABELS, values, strict=True)))

    def failures(self, topic: str = "orders") -> float | None:
        return self.registry.get_sample_value("kodo_status_failures_total", {"namespace": "kodo/ns", "topic": topic})


def test_it_is_well_while_readings_go_on_and_ready_while_one_says_something_of_the_present() -> None:
    exported = Exported()
    collector = exported.collector
    assert (collector.health()[0], collector.readiness()[0]) == (True, False), "nothing was read yet"
    exported.now += int(3 * EVERY * 1000) + 1
    assert collector.health() == (False, {"ok": False, "problems": ["no reading ended for 90 s"]})
    exported.update(LANE, unread=(UnreadTopic("kodo/ns", "orders", "orders-B1", "gone"),))
    assert collector.health()[0]
    assert collector.readiness() == (True, {"ok": True, "problems": ["kodo/ns/orders-B1 cannot be read"]})
    exported.update(unread=(UnreadTopic("kodo/ns", "orders", "orders", "gone"),))
    assert not collector.readiness()[0], "nothing could be read"
    exported.update()
    assert collector.readiness()[0], "the files have no lanes"
    exported.now += int(3 * EVERY * 1000) + 1
    assert (collector.health()[0], collector.readiness()[0]) == (False, False)


def test_invalid_files_are_told_beside_the_lanes_that_they_declared_before() -> None:
    exported = Exported()
    exported.update(LANE)
    for problem, value in (("", 1), ("K001", 0), ("", 1)):
        exported.problem = problem
        assert exported.registry.get_sample_value("kodo_status_files_valid") == value
        problems = ["the topology files are invalid"] if problem else []
        assert exported.collector.readiness() == (True, {"ok": True, "problems": problems})
    assert exported.value("kodo_lane_entries") == 7


def test_depth_age_and_consumers_of_each_lane_and_of_dead_letters() -> None:
    exported = Exported()
    exported.update(LANE, DEAD)
    exported.now += 5_000
    expected = {
        "there": 1,
        "entries": 7,
        "oldest_seconds": 65,
        "delayed_messages": 3,
        "unacknowledged_messages": 2,
        "in_per_second": 5,
        "acked_per_second": 4,
        "consumers": 1,
    }
    assert {name: exported.value(f"kodo_lane_{name}") for name in expected} == expected
    assert exported.value("kodo_lane_entries", DEAD) == 0
    assert exported.value("kodo_lane_oldest_seconds", DEAD) == 0
    assert exported.failures() == 0, "a counter that is there before the first failure can be seen to grow"
    assert exported.registry.get_sample_value("kodo_status_last_read_timestamp_seconds") == NOW / 1000


def test_a_lane_that_is_not_there_says_so_and_nothing_else() -> None:
    exported = Exported()
    absent = replace(LANE, there=False, entries=0, oldest=None)
    exported.update(absent)
    assert exported.value("kodo_lane_there") == 0
    others = [
        metric.name for metric in STATUS_METRICS if metric.labels == LANE_LABELS and metric.name != "kodo_lane_there"
    ]
    assert {exported.value(name) for name in others} == {None}


def test_what_the_broker_does_not_know_has_no_sample() -> None:
    exported = Exported()
    exported.update(replace(LANE, unacknowledged=-3_199, oldest=None, rate_acked=None))
    assert exported.value("kodo_lane_acked_per_second") is None
    assert exported.value("kodo_lane_unacknowledged_messages") is None, "it lost count"
    exported.update(replace(LANE, unacknowledged=None))
    assert exported.value("kodo_lane_unacknowledged_messages") is None, "it does not count"
    exported.update(replace(LANE, oldest=None))
    assert exported.value("kodo_lane_oldest_seconds") is None, "7 entries, and no word of their age"
    assert exported.value("kodo_lane_entries") == 7


def test_a_topic_that_cannot_be_read_loses_its_samples_and_is_counted_each_time() -> None:
    exported = Exported()
    exported.update(LANE, DEAD)
    unread = UnreadTopic("kodo/ns", "orders", LANE.topic, "no answer")
    exported.update(DEAD, unread=(unread,))
    exported.update(DEAD, unread=(unread, replace(unread, ground="other")))
    assert exported.value("kodo_lane_entries") is None
    assert exported.value("kodo_lane_entries", DEAD) == 0
    assert (exported.failures(), exported.failures("other")) == (2, 1)
    exported.update(LANE, DEAD)
    assert exported.value("kodo_lane_entries") == 7
    assert exported.failures() == 2


def test_a_reading_that_is_too_old_says_nothing_of_the_present() -> None:
    exported = Exported()
    exported.update(LANE)
    exported.now += int(3 * EVERY * 1000) + 1
    assert exported.value("kodo_lane_entries") is None
    assert exported.failures() == 0
    assert exported.registry.get_sample_value("kodo_status_last_read_timestamp_seconds") == NOW / 1000


def test_before_the_first_reading_there_are_names_and_no_samples() -> None:
    exported = Exported()
    families = list(text_string_to_metric_families(generate_latest(exported.registry).decode()))
    assert [sample for family in families for sample in family.samples] == []
    assert len(families) == len(STATUS_METRICS)
    assert [metric.name for metric in exported.collector.describe()] == [
        metric.name.removesuffix("_total") for metric in STATUS_METRICS
    ]


def test_the_audit_topic_is_no_lane() -> None:
    exported = Exported()
    audit = replace(LANE, state="audit", level="")
    exported.update(audit)
    assert exported.value("kodo_lane_entries", audit) is None
