"""The time that a report draws: what the cluster and this machine say, and never a sender."""

from __future__ import annotations

from kodo_pipeline.rollup.time_bounds import CLOCKS, LONGEST, TimeBounds

from kodoctl.topology.units import LATEST
from tests.samples.reports import AT, HOUR


def test_it_begins_with_the_oldest_partition_and_ends_with_the_newest_reading():
    found = TimeBounds.of([AT, AT - HOUR], [AT + HOUR, AT])
    assert found == (AT - HOUR - CLOCKS, AT + HOUR + CLOCKS)


def test_where_the_broker_tells_nothing_it_is_as_long_as_a_chart_may_be():
    until = AT + CLOCKS
    assert TimeBounds.of([], [AT]) == TimeBounds.of([0], [AT]) == (until - LONGEST, until)
    assert TimeBounds.of([], []) == (0, CLOCKS)


def test_a_span_is_of_what_is_within():
    found = TimeBounds.of([AT], [AT + HOUR])
    assert found.span(0, LATEST) == found.until - found.since
    assert found.span(AT, AT + 5) == 5
    assert found.span(0, 1) == found.span(LATEST, LATEST) == 0


def test_a_window_that_has_any_of_it_is_drawn():
    found = TimeBounds(1_500, 4_000)
    assert found.windows(1_000) == (1_000, 4_000)
