"""Days on which something can happen, and their neighbours."""

from __future__ import annotations

from kodo_pipeline.rollup.landed_days import day_of, with_neighbours

from kodoctl.topology.units import LATEST


def test_each_day_has_a_neighbour_on_both_sides_within_the_time_that_anything_can_be_of() -> None:
    assert with_neighbours([]) == []
    assert with_neighbours(["2026-03-01", "2026-01-01", "2026-01-02"]) == [
        "2025-12-31", "2026-01-01", "2026-01-02", "2026-01-03", "2026-02-28", "2026-03-01", "2026-03-02",
    ]  # fmt: skip
    assert with_neighbours(["1970-01-01", day_of(LATEST)]) == ["1970-01-01", "1970-01-02", "9999-12-29", "9999-12-30"]
