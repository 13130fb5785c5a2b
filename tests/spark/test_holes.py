"""Holes in numbers, against a set that knows them all."""

from __future__ import annotations

import random
from collections import Counter

from pyspark.sql import functions as F

from kodoctl.pipeline.audit.sequence_gaps import counted, holes, merged

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
    ranges = counted(told, ["run"], "number")
    found = {name: [] for name in cases}
    for row in holes(ranges, ["run"]).where("`from` IS NOT NULL").collect():
        found[row.run].append((row["from"], row["to"]))
    assert {name: sorted(one) for name, one in found.items()} == {name: missing(one) for name, one in cases.items()}
    seen = {row.run: row.seen for row in ranges.groupBy("run").agg({"rows": "sum"}).toDF("run", "seen").collect()}
    assert seen == {name: sum(number >= 1 for number in numbers) for name, numbers in cases.items()}
    both = counted(told, ["run", "of"], "number").drop("of").unionByName(ranges)
    found, rows = {name: [] for name in cases}, Counter()
    for row in merged(both, ["run"]).collect():
        found[row.run].append((row["first"], row["last"]))
        rows[row.run] += row["rows"]  # those of 64 numbers stand at the first of them
    assert {name: sorted(one) for name, one in found.items()} == {name: islands(one) for name, one in cases.items()}
    assert rows == {name: 2 * seen[name] for name in cases}


def test_a_range_that_only_says_how_far_it_went(spark):
    rows = [("r", 1, 3), ("r", 11, 10), ("s", 1, 0), ("t", 5, 4), ("t", 2, 3)]
    ranges = spark.createDataFrame(rows, "run string, first bigint, last bigint")
    found = sorted((row.run, row["from"], row["to"]) for row in holes(ranges, ["run"]).collect() if row["from"])
    assert found == [("r", 4, 10), ("t", 1, 1), ("t", 4, 4)]


def test_nothing_leaves_the_jvm(spark):
    ranges = counted(spark.createDataFrame([("r", 1)], "run string, number bigint"), ["run"], "number")
    plan = holes(ranges, ["run"])._jdf.queryExecution().toString()
    assert not [node for node in ("PythonUDF", "ArrowEvalPython", "CartesianProduct") if node in plan]
