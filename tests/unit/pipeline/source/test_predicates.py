"""Bounds of a read by the filters of a query, without Spark's Java."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from kodo_pipeline.source.predicates import Pruning
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from kodoctl.topology.units import LATEST
from tests.samples.profiles import examples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@examples(200)
@given(at=st.integers(0, LATEST))
def test_a_time_is_its_millisecond_exactly(at: int) -> None:
    """By a float some were a millisecond less (of 2038, for one): without skew, messages of it were not read."""
    moment = EPOCH + timedelta(milliseconds=at)
    for one in (moment, moment.replace(tzinfo=None)):
        found = Pruning.of([LessThanOrEqual(("publish_ts",), one)])
        assert (found.until, found.moments(0)) == (at, (None, at + 1))
        assert Pruning.of([GreaterThanOrEqual(("publish_ts",), one)]).moments(5) == (max(0, at - 5), None)


def test_one_of_the_times_that_a_float_makes_less() -> None:
    at = 2_198_518_506_693
    assert Pruning.of([EqualTo(("publish_ts",), EPOCH + timedelta(milliseconds=at))]).since == at


def test_all_filters_bound_the_read_together() -> None:
    later = EPOCH + timedelta(seconds=9)
    filters: list[Filter] = [
        GreaterThan(("publish_ts",), EPOCH), LessThan(("publish_ts",), later), LessThan(("publish_ts",), EPOCH + timedelta(days=1)),
        In(("topic",), ("a", "b")), EqualTo(("topic",), "b"), In(("partition",), (0, 1)), EqualTo(("size",), 1),
        EqualTo(("publish_ts",), None), GreaterThan(("properties", "publish_ts"), later),
    ]  # fmt: skip
    found = Pruning.of(filters)
    assert (found.topics, found.partitions, found.since, found.until) == ({"b"}, {0, 1}, 0, 9_000)
    assert (found.has_topic("a"), found.has_topic("b"), found.has_partition(-1)) == (False, True, False)
    assert Pruning.of([EqualTo(("size",), 1)]) == Pruning()
    assert Pruning().has_topic("a")
    assert Pruning().has_partition(-1)
