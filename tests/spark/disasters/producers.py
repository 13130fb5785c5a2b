"""What producers' own numbers tell."""

from __future__ import annotations

from dataclasses import replace

from kodoctl.protocol.sequence_numbers import MAX_RANGES
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
    w.parts = [replace(w.parts[0], from_creation=False)]
    w.number(2)
    w.mark(2, end=True)


OURS, THEIRS = "the key of the platform", "a key that a stranger made up"


@case(
    "producers sign: a number is stored nowhere, and its signed mark says it was sent",
    LOSS,
    "sent and stored nowhere",
    done=3,
)
def signed_gap(w):
    w.keys = f"{OURS},an older key of the platform"
    w.number(1)
    w.number(3)
    w.mark(3, end=True, by="an older key of the platform")


@case(
    "producers sign: somebody else's mark of a run that never was",
    DOUBT,
    "9 numbers missing, by marks whose signature",
    done=1,
)
def signed_not(w):
    w.keys = OURS
    w.mark(9, end=True, run="f00")


@case(
    "producers sign: somebody else's mark goes on where a producer's ended",
    DOUBT,
    "7 numbers missing, by marks whose signature",
    done=3,
)
def signed_not_further(w):
    w.keys = OURS
    w.number(1)
    w.number(2)
    w.mark(2, end=True, by=OURS)
    w.mark(9, end=True, by=THEIRS)


@case(
    "producers sign: a mark carried over from another topic, or with a payload",
    DOUBT,
    "9 numbers missing, by marks whose signature",
    done=1,
)
def signed_elsewhere(w):
    w.keys = OURS
    w.mark(9, end=True, by=OURS, of="retrying", run="f01")
    w.mark(9, end=True, by=OURS, run="f01", size=1)


@case("producers sign: a mark is stored again, so that what is on the way looks lost", DOUBT, "died over", done=2)
def signed_again(w):
    w.keys = OURS
    w.number(1)
    w.mark(3, by=OURS)
    w.mark(3, by=OURS)


@case("producers sign: somebody else gives up a number that is lost", LOSS, "sent and stored nowhere", done=3)
def signed_void(w):
    w.keys = OURS
    w.number(1)
    w.number(3)
    w.mark(3, [(2, 2)], end=True)
    w.mark(3, end=True, by=OURS)
