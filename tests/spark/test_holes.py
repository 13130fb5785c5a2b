"""Holes in numbers, against a set that knows them all."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from kodo_pipeline.audit.completeness import (
    contradictions,
    gaps_of,
    incomplete_producers,
    incomplete_runs,
    missing_of,
    overview,
    producer_marks,
    producer_ranges,
    record_ranges,
)
from kodo_pipeline.audit.sequence_gaps import holes, merge_ranges, number_ranges
from kodo_pipeline.landing.state_tables import MARKS
from pyspark.sql import functions as F

CASES = {
    "none": [1, 2, 3],
    "first": [2, 3],
    "middle": [1, 2, 5, 9],
    "words": [*range(1, 65), *range(70, 400), 1000],
    "a word without its neighbour": [*range(1, 64), *range(64, 128), *range(192, 256)],
    "doubled": [1, 1, 3, 3, 3],
    "far away": [1, 10**14],
    "no numbers of ours": [0, -5, 1],
}


def missing(numbers):
    known, found, at = set(numbers), [], 1
    for number in sorted(one for one in known if one >= 1):
        if number > at:
            found.append((at, number - 1))
        at = number + 1
    return found


def islands(numbers):
    """(first, last) of neighbouring numbers."""
    found = []
    for number in sorted({number for number in numbers if number >= 1}):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def test_holes_are_those_of_a_set(spark):
    chosen = random.Random(7)
    some = [number for number in range(1, 2_000) if chosen.random() < 0.9]
    cases = {**CASES, "random": some * 2}
    rows = [(name, number) for name, numbers in cases.items() for number in numbers]
    chosen.shuffle(rows)
    told = spark.createDataFrame(rows, "run string, number bigint").withColumn("of", F.col("number") % 2)
    ranges = number_ranges(told, ["run"], "number")
    found = {name: [] for name in cases}
    for row in holes(ranges, ["run"]).where("`from` IS NOT NULL").collect():
        found[row.run].append((row["from"], row["to"]))
    assert {name: sorted(one) for name, one in found.items()} == {name: missing(one) for name, one in cases.items()}
    seen = {row.run: row.seen for row in ranges.groupBy("run").agg({"rows": "sum"}).toDF("run", "seen").collect()}
    assert seen == {name: sum(number >= 1 for number in numbers) for name, numbers in cases.items()}
    both = number_ranges(told, ["run", "of"], "number").drop("of").unionByName(ranges)
    found, count = {name: [] for name in cases}, Counter()
    for row in merge_ranges(both, ["run"]).collect():
        found[row.run].append((row["first"], row["last"]))
        count[row.run] += row["rows"]  # those of 64 numbers stand at the first of them
    assert {name: sorted(one) for name, one in found.items()} == {name: islands(one) for name, one in cases.items()}
    assert count == {name: 2 * seen[name] for name in cases}


def test_a_range_that_only_says_how_far_it_went(spark):
    rows = [("r", 1, 3), ("r", 11, 10), ("s", 1, 0), ("t", 5, 4), ("t", 2, 3)]
    ranges = spark.createDataFrame(rows, "run string, first bigint, last bigint")
    found = sorted((row.run, row["from"], row["to"]) for row in holes(ranges, ["run"]).collect() if row["from"])
    assert found == [("r", 4, 10), ("t", 1, 1), ("t", 4, 4)]


def test_nothing_leaves_the_jvm(spark):
    ranges = number_ranges(spark.createDataFrame([("r", 1)], "run string, number bigint"), ["run"], "number")
    plan = holes(ranges, ["run"])._jdf.queryExecution().toString()
    assert not [node for node in ("PythonUDF", "ArrowEvalPython", "CartesianProduct") if node in plan]


COMPLETE = {
    "one range": [(0, 1, 3, 3)],
    "three": [(0, 1, 64, 64), (0, 65, 65, 1), (0, 66, 200, 135)],
}
INCOMPLETE = {
    "begins late": [(0, 2, 3, 2)],
    "a hole": [(0, 1, 3, 3), (0, 5, 5, 1)],
    "numbers that came repeatedly": [(0, 1, 3, 4)],
    "as many as there are numbers": [(0, 1, 2, 2), (0, 4, 4, 2)],
    "two subscriptions whose numbers overlap": [(0, 1, 3, 3), (1, 3, 3, 1), (1, 5, 5, 1)],
    "a subscription of no file": [(0, 1, 2, 2), (None, 3, 3, 1)],
}


@pytest.mark.full
def test_every_run_that_may_lack_a_record_is_searched(spark):
    def found(cases):
        rows = [(name, *one) for name, ranges in cases.items() for one in ranges]
        ranges = spark.createDataFrame(rows, "run string, family int, first bigint, last bigint, rows bigint")
        return incomplete_runs(ranges).collect()[0].runs, missing_of(ranges).collect()

    assert found(COMPLETE) == (0, [])
    assert found({}) == (0, [])
    assert found(COMPLETE | INCOMPLETE)[0] == len(INCOMPLETE)
    for name in ("begins late", "a hole", "numbers that came repeatedly", "as many as there are numbers"):
        assert [len(one) if isinstance(one, list) else one for one in found({name: INCOMPLETE[name]})] == [1, 1]


def test_every_producer_that_may_lack_a_message_is_searched(spark):
    keys = "msg_topic string, seq_partition int, seq_run string"

    def found(cases, high=None, void=None):
        rows = [("t", 0, name, *one[1:]) for name, ranges in cases.items() for one in ranges]
        ranges = spark.createDataFrame(rows, f"{keys}, first bigint, last bigint, rows bigint")
        told = [
            {"msg_topic": "t", "seq_partition": 0, "seq_run": name, "seq_high": high, "seq_void": void, "seq_end": True, "ledger": 1,
             "entry": 1, "batch_index": -1} for name in cases if high
        ]  # fmt: skip
        marks = spark.createDataFrame([tuple(one.get(name) for name in MARKS.names) for one in told], MARKS.spark())
        return incomplete_producers(ranges, marks).collect()[0].runs, gaps_of(ranges, marks, signed=False).collect()

    ranges = {"p": [(0, 1, 3, 3)]}
    assert found(COMPLETE) == (0, [])
    assert found(ranges, high=3) == (0, [])
    for cases, high in ((INCOMPLETE, None), (ranges, 5)):
        some = {name: of for name, of in cases.items() if "subscription" not in name}
        count, rows = found(some, high)
        assert (count, {row.seq_run for row in rows}) == (len(some), set(some))
    assert found(ranges, high=5, void=[(4, 5)]) == (1, []), "given up, as the search finds"
    assert found(ranges, high=3, void=[(6, 7)]) == (0, []), "above its highest number: of no producer"


def test_numbers_up_to_a_written_off_one_are_not_missing_and_later_ones_are(spark):
    keys = "msg_topic string, seq_partition int, seq_run string"
    seen = [(1, 7), (11, 19), (23, 25)]
    runs = [("t", 0, "p"), ("t", 1, "p"), ("t", 0, "q"), ("plain", 0, "p")]
    ranges = spark.createDataFrame(
        [(*run, first, last, last - first + 1) for run in runs for first, last in seen],
        f"{keys}, first bigint, last bigint, rows bigint",
    )
    marks = spark.createDataFrame([], MARKS.spark())
    settled = spark.createDataFrame(
        [("t", 0, "p", 10), ("t", 0, "p", 8), ("t", 1, "p", 22), ("plain", -1, "p", 21), ("t", 0, "gone", 5)],
        "msg_topic string, partition int, seq_run string, last bigint",
    )
    found = gaps_of(ranges, marks, signed=False, settled=settled).collect()
    assert {
        (row.msg_topic, row.seq_partition, row.seq_run): (row.missing, row.highest, row.repeats) for row in found
    } == {
        ("t", 0, "p"): (3, 22, 0),
        ("t", 0, "q"): (6, 22, 0),
        ("plain", 0, "p"): (1, 22, 0),
    }


LARGEST = 2**63 - 1


def test_no_number_that_a_stranger_writes_ends_an_audit(spark):
    """Two forged records, or one mark, had every later audit fail: a sum overflowed."""
    numbers = [
        ("a", LARGEST, "t"),
        ("a", LARGEST, "of no file"),
        ("a", LARGEST - 2, "t"),
        ("b", LARGEST, "t"),
        ("c", 2, "t"),
    ]
    told = spark.createDataFrame(
        [(*one, "s") for one in numbers], "worker_run string, number bigint, topic string, subscription string"
    )
    lanes = spark.createDataFrame([("t", "s", 1)], "topic string, subscription string, family bigint")
    (found,) = missing_of(record_ranges(told, lanes)).collect()
    assert (found.family, found.missing, found.runs) == (1, LARGEST, ["a", "b", "c"])
    alone = missing_of(record_ranges(told.where("worker_run = 'c'"), lanes)).collect()
    assert [(row.missing, row.repeats) for row in alone] == [(1, 0)]
    ranges = spark.createDataFrame(
        [(one, LARGEST - 1, LARGEST, 2) for one in "ab"], "run string, first bigint, last bigint, rows bigint"
    )
    assert (
        sorted((row["first"], row["last"]) for row in merge_ranges(ranges, ["run"]).collect())
        == [(LARGEST - 1, LARGEST)] * 2
    )


def test_numbers_of_a_partition_that_no_topic_has_count_as_none(spark):
    """Any sender could write them: every later audit ended with a TypeError."""
    columns = "state string, hop int, recall string, seq_number bigint, seq_high bigint"
    more = "seq_void array<struct<first: bigint, last: bigint>>, seq_end boolean, ledger bigint, entry bigint, batch_index int"
    meant = "for_subscription string, publish_ts timestamp"
    events = spark.createDataFrame(
        [("t", number, "p", "ready", 0, None, 1, 1, [], True, 1, 1, -1, None, None) for number in (None, 0)],
        f"msg_topic string, seq_partition int, seq_run string, {columns}, {more}, {meant}",
    )
    assert [row.seq_partition for row in producer_ranges(events).collect()] == [0]
    assert [row.seq_partition for row in producer_marks(events).collect()] == [0]
    assert overview(events).collect()[0].unnumbered == 1


def test_records_without_a_number_of_ours_do_not_contradict_each_other(spark):
    """An audit of all rows compared forged records that two incremental audits see one at a time."""
    columns = ("msg_topic", "id", "identity", "hop", "event", "rule", "target_topic", "target_id")
    rows = [("a", number, "t", "s", *[text] * 8) for number in (None, 0, -1, 7) for text in ("one", "other")]
    schema = ", ".join(f"{name} string" for name in columns)
    told = spark.createDataFrame(rows, f"worker_run string, number bigint, topic string, subscription string, {schema}")
    lanes = spark.createDataFrame([("t", "s", 1)], "topic string, subscription string, family bigint")
    assert [tuple(row) for row in contradictions(told, lanes).collect()] == [(1, 1)], "the records with number 7"


def test_numbers_that_no_mark_can_give_up_count_for_nothing(spark):
    high = 10**15 - 1
    void = [(10**18 - 2, 0)] * 30 + [(None, 3), (0, 2), (4, None), (high, high + 1), (4, 4)]
    mark = {"msg_topic": "t", "seq_partition": 0, "seq_run": "p", "seq_high": high, "seq_end": True, "ledger": 1, "entry": 1,
            "batch_index": -1, "seq_void": [{"first": first, "last": last} for first, last in void]}  # fmt: skip
    marks = spark.createDataFrame([tuple(mark.get(name) for name in MARKS.names)], MARKS.spark())
    keys = "msg_topic string, seq_partition int, seq_run string"
    ranges = spark.createDataFrame([("t", 0, "p", 1, 3, 3)], f"{keys}, first bigint, last bigint, rows bigint")
    (found,) = gaps_of(ranges, marks, signed=False).collect()
    assert (found.missing, found.overdue, found.repeats) == (high - 4, high - 4, 0)
