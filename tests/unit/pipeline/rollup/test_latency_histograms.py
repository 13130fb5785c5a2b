"""Histograms of latencies that were added up, and their percentiles."""

from __future__ import annotations

import pytest
from kodo_pipeline.rollup.latency_histograms import Histograms, bucket_of, percentiles_of

SHARES = {"p50": 0.5, "p95": 0.95, "most": 1.0}


def test_a_percentile_is_off_by_one_in_a_hundred_at_most() -> None:
    ages = [3 + 7 * number for number in range(200)]
    histogram: dict[int, int] = {}
    for age in ages:
        histogram[bucket_of(age)] = histogram.get(bucket_of(age), 0) + 1
    found = percentiles_of(histogram, SHARES)
    assert found == {
        "p50": pytest.approx(ages[99], rel=0.0101),
        "p95": pytest.approx(ages[189], rel=0.0101),
        "most": pytest.approx(ages[-1], rel=0.0101),
    }
    assert percentiles_of({}, SHARES) == {}


def test_what_took_no_time_or_less_is_nothing() -> None:
    assert [bucket_of(age) for age in (-1, 0, 1)] == [-2, -1, 0]
    assert percentiles_of({-2: 1, -1: 1, 100: 1}, SHARES)["p50"] == 0.0


def test_histograms_of_lanes_and_tenants_add_up() -> None:
    ready, late = ("orders", "s", "L1", "ready"), ("orders", "s", "L1", "retrying")
    rows = [(ready, 5, 3), (ready, 5, 1), (late, 900, 2), (("other", "s", "L1", "ready"), 7, 8), (ready, None, 1)]
    of = Histograms.of(rows, [(("orders", "a"), 5, 1), (("orders", "b"), 900, 2), (("other", "a"), 7, 8)])
    assert of.messages == 14
    assert of.lanes[ready] == {5: 4}
    assert of.of_tenants("orders", ["a", "b", "nobody"]) == {5: 1, 900: 2}
    assert of.of_others("orders", ["b"]) == {5: 4}
    assert of.of_others("orders", []) == {5: 4, 900: 2}
    possible = of.possible(899)
    assert (possible.messages, set(possible.lanes), set(possible.tenants)) == (
        12, {ready, ("other", "s", "L1", "ready")}, {("orders", "a"), ("other", "a")},
    )  # fmt: skip
