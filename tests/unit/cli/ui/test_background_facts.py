"""Facts beside the lanes: no screen waits for them, and they are read again only if figures changed."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace

import pytest

from kodoctl.cli.ui import background_facts
from kodoctl.cli.ui.background_facts import BackgroundFacts
from kodoctl.errors import ClusterError, error
from kodoctl.status.lane_status import StatusReading
from kodoctl.ui.first_screen import ScreenFacts, StoppedApply
from kodoctl.ui.letter_causes import CauseCount, LetterCauses
from kodoctl.ui.message_views import LaneQuestion
from tests.samples.consoles import FACTS, STOPPED, lane, reading
from tests.services.polling import eventually

KEY = ("trade", "orders-billing-DLQ", "orders", "billing")
CAUSES = LetterCauses(3, True, (CauseCount("a", 3),), entries=3)


class Cluster:
    """Counts what is read; `fails`: nothing can be."""

    def __init__(self) -> None:
        self.asked: list[LaneQuestion] = []
        self.journals, self.fails, self.may = 0, False, threading.Event()
        self.may.set()

    def causes(self, question: LaneQuestion) -> LetterCauses:
        self.may.wait(30)
        self.asked.append(question)
        if self.fails:
            raise ClusterError(error("K561", "messages cannot be read", "gone"))
        return CAUSES

    def stopped(self) -> tuple[StoppedApply, ...]:
        self.journals += 1
        if self.fails:
            raise ClusterError(error("K561", "messages cannot be read", "gone"))
        return (STOPPED,)

    def facts(self) -> BackgroundFacts:
        return BackgroundFacts(self.causes, self.stopped, lambda: FACTS.drift)


_times = itertools.count(1)


def letters(entries: int) -> StatusReading:
    """A new reading with dead letters."""
    return replace(reading(lane(), lane("dead", entries=entries)), at=next(_times))


def test_no_screen_waits_and_letters_are_read_once_until_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    facts = cluster.facts()
    cluster.may.clear()
    assert facts(letters(3)) == ScreenFacts({}, (), FACTS.drift)
    assert facts(letters(3)).causes == {}, "one thread at a time"
    cluster.may.set()
    eventually(lambda: facts(letters(3)) == ScreenFacts({KEY: CAUSES}, (STOPPED,), FACTS.drift))
    assert cluster.asked == [LaneQuestion("trade", "orders-billing-DLQ", "billing")]
    facts(letters(4))
    assert len(cluster.asked) == 1, "not more often than every 30 seconds"
    monkeypatch.setattr(background_facts, "_SOON_S", -1.0)
    eventually(lambda: facts(letters(4)) and len(cluster.asked) == 2)
    for _ in range(3):
        facts(letters(4))
        facts(letters(0))
    assert (len(cluster.asked), cluster.journals) == (2, 1)


def test_what_cannot_be_read_is_left_out_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_facts, "_AGAIN_S", -1.0)
    cluster = Cluster()
    cluster.fails = True
    facts = cluster.facts()
    eventually(lambda: facts(letters(3)) == ScreenFacts({}, (), FACTS.drift) and len(cluster.asked) > 1)
    cluster.fails = False
    eventually(lambda: facts(letters(3)).causes == {KEY: CAUSES})


def test_a_defect_of_one_lane_leaves_the_facts_of_the_others() -> None:
    cluster = Cluster()

    def causes(question: LaneQuestion) -> LetterCauses:
        if question.topology == "broken":
            raise ZeroDivisionError
        return cluster.causes(question)

    facts = BackgroundFacts(causes, cluster.stopped, lambda: FACTS.drift)
    (good,) = letters(3).topologies
    both = replace(letters(3), topologies=(replace(good, name="broken"), good))
    eventually(lambda: facts(both) == ScreenFacts({KEY: CAUSES}, (STOPPED,), FACTS.drift))


def test_lanes_are_read_with_no_more_requests_than_the_reading_has_topics() -> None:
    """Dead letters first, then waiting lanes in turn; ready lanes have no causes."""
    waiting = [
        lane(state, entries=5, topic=f"{state}{n}", partitions=2) for state in ("pending", "retrying") for n in range(3)
    ]
    lanes = (lane(entries=9), *waiting, lane("ready", "B1", entries=1, topic="b1"), lane("dead", entries=1))
    cluster = Cluster()
    facts = cluster.facts()
    status = reading(*lanes)
    facts(status)
    eventually(lambda: len(facts(status).causes) == 4)
    assert [one.topic for one in cluster.asked] == ["orders-billing-DLQ", "pending0", "pending1", "pending2"], (
        "of nine topics"
    )
    eventually(lambda: facts(replace(status, at=next(_times))) and len(cluster.asked) == 8)
    assert {one.topic for one in cluster.asked[4:]} == {"retrying0", "retrying1", "retrying2", "b1"}
