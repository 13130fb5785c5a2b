"""Messages that end their worker: who is a suspect, who is dead, and that nobody else ever is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.poison import MAX_CRASHES, Crashes, Judgement, Mark, Standing, Turns, judge, reason_of


def _lives(run: str) -> bool:
    return run == "alive"


@pytest.mark.parametrize(
    ("mark", "judgement"),
    [
        (None, Judgement(Standing.CLEAR)),
        (Mark("alive"), Judgement(Standing.ELSEWHERE)),
        (Mark("alive", alone=True, crashes=2), Judgement(Standing.ELSEWHERE, 2)),
        (Mark("gone"), Judgement(Standing.SUSPECT, 0)),
        (Mark("gone", crashes=2), Judgement(Standing.SUSPECT, 2)),
        (Mark("gone", alone=True), Judgement(Standing.SUSPECT, 1)),
        (Mark("gone", alone=True, crashes=1), Judgement(Standing.SUSPECT, 2)),
        (Mark("gone", alone=True, crashes=2), Judgement(Standing.POISON, 3)),
        (Mark("gone", crashes=3), Judgement(Standing.POISON, 3)),
    ],
)
def test_only_a_crash_while_alone_counts_and_the_third_one_kills(mark: Mark | None, judgement: Judgement) -> None:
    assert judge(mark, _lives) == judgement


def test_the_reason_says_how_often() -> None:
    assert reason_of(3) == "ended its worker 3 times while it ran alone"


def test_a_pool_counts_crashes_until_the_handler_comes_to_an_end() -> None:
    crashes = Crashes()
    assert crashes.standing("a") is Standing.CLEAR
    found = [crashes.crashed("a", alone=alone).standing for alone in (False, True, True)]
    assert found == [Standing.SUSPECT] * 3
    assert crashes.standing("a") is Standing.SUSPECT
    assert crashes.crashed("a", alone=True) == Judgement(Standing.POISON, 3)
    crashes.ended("a")
    crashes.ended("a")
    assert crashes.standing("a") is Standing.CLEAR
    assert crashes.crashed("a", alone=True) == Judgement(Standing.SUSPECT, 1)


def test_of_very_many_the_oldest_are_forgotten() -> None:
    crashes = Crashes()
    for number in range(10_001):
        crashes.crashed(str(number), alone=True)
    assert crashes.standing("0") is Standing.CLEAR
    assert crashes.standing("1") is Standing.SUSPECT


def test_a_suspect_waits_until_nothing_runs_and_nothing_starts_beside_it() -> None:
    turns: Turns[str] = Turns()
    turns.add("a", suspect=False)
    assert turns.next() == "a"
    turns.add("s", suspect=True)
    turns.add("b", suspect=False)
    assert (len(turns), turns.solitary) == (2, True)
    assert (turns.next(), turns.suspect()) == (None, None)
    turns.ended()
    assert turns.suspect() == "s"
    turns.start_suspect()
    assert (turns.next(), turns.suspect(), turns.solitary) == (None, None, True)
    turns.ended()
    assert turns.next() == "b"
    assert not turns.solitary


def test_a_suspect_that_does_not_start_holds_nobody_up() -> None:
    turns: Turns[str] = Turns()
    turns.add("s", suspect=True)
    turns.add("a", suspect=False)
    turns.drop_suspect()
    assert turns.next() == "a"


@given(st.lists(st.sampled_from(["clear", "suspect", "start", "end"]), max_size=60))
def test_whatever_happens_a_suspect_is_alone(steps: list[str]) -> None:
    turns: Turns[bool] = Turns()
    running: list[bool] = []
    for step in steps:
        if step in {"clear", "suspect"}:
            turns.add(step == "suspect", suspect=step == "suspect")
        elif step == "end" and running:
            running.pop(0)
            turns.ended()
        elif step == "start":
            if turns.suspect() is not None:
                turns.start_suspect()
                running.append(True)
            elif (item := turns.next()) is not None:
                running.append(item)
        assert turns.running == len(running)
        assert not any(running) or len(running) == 1


@given(st.lists(st.booleans(), max_size=12))
def test_a_neighbour_never_dies(alone: list[bool]) -> None:
    """Crash after crash: a message is poison only when it was alone in three of them."""
    mark: Mark | None = None
    for number, was_alone in enumerate(alone):
        judgement = judge(mark, _lives)
        if judgement.standing is Standing.POISON:
            assert sum(alone[:number]) >= MAX_CRASHES
            return
        mark = Mark(f"run{number}", was_alone, judgement.crashes)
    assert sum(alone[:-1]) < MAX_CRASHES
