"""What producers' own numbers tell."""

from __future__ import annotations

from dataclasses import replace

from kodoctl.topology.numbering import MAX_RANGES
from tests.spark.disasters.planting import CLEAN, DOUBT, LOSS, case

MANY = [(number, number) for number in range(2, 2 + MAX_RANGES)]


@case(
    "a number of a producer is stored nowhere, and its mark says it was sent", LOSS, "sent and stored nowhere", done=3
)
def producer_gap(w):
    w.number(1)
    w.number(3)
    w.mark(3, end=True)


@case("the end of a producer's run is stored nowhere", LOSS, "2 messages sent and stored nowhere", done=2)
def producer_tail(w):
    w.number(1)
    w.mark(3, end=True)


@case("a number that its producer gave up", CLEAN, done=3)
def producer_void(w):
    w.number(1)
    w.number(3)
    w.mark(3, [(2, 2)], end=True)


@case("a producer killed before it told what it gave up", DOUBT, "died over", done=3)
def producer_killed(w):
    w.number(1)
    w.number(3)
    w.mark(3)


@case("more numbers given up than a mark holds, and others still on the way", DOUBT, "98 numbers", done=2)
def producer_marks(w):
    w.number(1)
    w.mark(600, MANY)
    w.mark(600, [(502, 502)])


@case("the same, and the reading ends between its marks", DOUBT, "99 numbers", done=2)
def producer_marks_apart(w):
    w.number(1)
    w.mark(502)
    w.mark(600, MANY)


@case("the same, and a later mark says that the others were sent", LOSS, "98 messages sent and stored nowhere", done=2)
def producer_marks_followed(w):
    w.number(1)
    w.mark(600, MANY)
    w.mark(600, [(502, 502)])
    w.mark(700)


@case("a producer's gap in a partition that was not read from its creation", DOUBT, "before the first reading", done=2)
def producer_gap_before(w):
    w.firm = False
    w.parts = [replace(w.parts[0], whole=False)]
    w.number(2)
    w.mark(2, end=True)
