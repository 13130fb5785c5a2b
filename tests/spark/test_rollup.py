"""Counts of windows, and percentiles from histograms against exact ones."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime

import pytest
from kodo_pipeline.rollup.histogram import bucket, percentiles
from kodo_pipeline.rollup.latency_histograms import BASE
from kodo_pipeline.rollup.transforms import latencies, rollup
from pyspark.sql import functions as F

pytestmark = pytest.mark.timeout(900)
SHARES = (0.5, 0.95, 0.99, 1.0)


def test_percentiles_are_off_by_at_most_one_percent_and_histograms_add_up(spark):
    chosen = random.Random(3)
    kinds = {
        "long tail": [chosen.lognormvariate(4, 2) + 1 for _ in range(3_000)],
        "even": [chosen.uniform(1, 100_000) for _ in range(2_000)],
        "one": [17.0],
        "ends of buckets": [math.pow(BASE, number) for number in range(500)],
    }
    rows = [(name, float(taken)) for name, all_of in kinds.items() for taken in all_of]
    chosen.shuffle(rows)
    made = spark.createDataFrame(rows, "kind string, taken double").select(
        "kind", bucket("taken").alias("bucket"), "taken"
    )
    halves = [
        made.where(half).groupBy("kind", "bucket").agg(F.count("*").alias("messages"))
        for half in ("taken < 90", "taken >= 90")
    ]
    found = percentiles(halves[0].unionByName(halves[1]), ["kind"], SHARES).collect()
    assert len(found) == len(kinds) * len(SHARES)
    for row in found:
        ordered = sorted(kinds[row.kind])
        exact = ordered[math.ceil(row.share * len(ordered)) - 1]
        assert abs(row.latency / exact - 1) <= 0.0104, (row.kind, row.share)


def test_what_took_no_time_or_less_is_told_as_nothing(spark):
    rows = [("k", -5, 1), ("k", 0, 2), ("k", 1, 1)]
    made = spark.createDataFrame(rows, "k string, taken bigint, messages bigint").select(
        "k", bucket("taken").alias("bucket"), "messages"
    )
    found = {row.share: row.latency for row in percentiles(made, ["k"], (0.75, 1.0)).collect()}
    assert found[0.75] == 0
    assert found[1.0] == pytest.approx(1.0, rel=0.0104)


EVENTS = """msg_topic string, topic string, subscription string, level string, state string, tenant string,
  attempts map<string,int>, seq_high bigint, publish_ts timestamp"""
TRANSITIONS = """msg_topic string, topic string, subscription string, tenant string, event string, rule string,
  age_ms bigint, at_ts timestamp"""


def at(minute):
    return datetime(2026, 1, 1, 12, minute, tzinfo=UTC)


def test_a_window_has_what_happened_in_it(spark):
    events = spark.createDataFrame(
        [
            ("o", "orders", None, "L1", "ready", "u1", {}, None, at(1)),
            ("o", "orders", None, "L1", "ready", "u1", {}, None, at(2)),
            ("o", "orders", None, "L1", "ready", "u1", {}, 2, at(2)),  # a producer's mark is no message
            ("o-r", "orders", "billing", "L1", "retrying", "u1", {"retrying": 1}, None, at(6)),
            ("o-a", "orders", "billing", None, "audit", None, {}, None, at(6)),
        ],
        EVENTS,
    )
    transitions = spark.createDataFrame(
        [
            ("o", "orders", "billing", "u1", "done", "done", 100, at(1)),
            ("o", "orders", "billing", "u1", "moved", "retrying", 5, at(4)),
            ("o-r", "orders", "billing", "u1", "moved", "pending", 50, at(7)),
            ("o", "orders", "billing", "u1", "dead", "dead", 9, at(7)),
            ("o", "orders", "billing", "u1", "discarded", "discarded", 9, at(7)),
            ("o", "orders", "billing", "u1", "repeated", "repeated", 9, at(7)),
            ("o", "orders", "billing", "(none)", "skipped", "skipped", 9, at(3)),  # a mark, or for another subscription
        ],
        TRANSITIONS,
    )
    rows = rollup(events, transitions, window="5 minutes").collect()
    found = {(row.window_ts.minute, row.state, row.subscription): row.asDict() for row in rows}
    expected = {
        (0, "ready", None): {"arrivals": 2},
        (0, "ready", "billing"): {"done": 1, "failed": 1, "rerouted": 1},
        (5, "retrying", "billing"): {"arrivals": 1, "retries": 1, "rerouted": 1, "over_limit": 1},
        (5, "ready", "billing"): {"failed": 1, "dead": 1, "discarded": 1, "repeated": 1},
    }
    assert len(rows) == len(expected), "no row is all 0"
    names = {"arrivals", "done", "failed", "rerouted", "over_limit", "retries", "dead", "discarded", "repeated"}
    assert {key: {name: row[name] for name in names if row[name]} for key, row in found.items()} == expected
    assert {row["level"] for row in found.values()} == {"L1"}
    histogram = latencies(events, transitions, window="5 minutes").collect()
    assert [(row.window_ts.minute, row.tenant, row.bucket, row.messages) for row in histogram] == [
        (0, "u1", math.floor(math.log(100, BASE)), 1)
    ]


def test_facts_are_added_up_where_they_are_and_the_topology_is_broadcast(spark):
    """What is shuffled of a tenant is a row a window, not its messages: a noisy one is no heavier than others."""
    events, transitions = spark.createDataFrame([], EVENTS), spark.createDataFrame([], TRANSITIONS)
    for made, added in ((rollup, "partial_sum"), (latencies, "partial_count")):
        plan = (
            made(events, transitions, window="5 minutes")._jdf.queryExecution().executedPlan().toString().splitlines()
        )
        below = [
            plan[at + 1] for at, node in enumerate(plan) if "Exchange hashpartitioning" in node and "tenant" in node
        ]
        assert len(below) == 1
        assert "HashAggregate" in below[0]
        assert added in below[0]
        assert [node for node in plan if "BroadcastHashJoin" in node]
        assert not [node for node in plan if "SortMergeJoin" in node or "ShuffledHashJoin" in node]
