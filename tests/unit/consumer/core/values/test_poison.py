"""Messages that end their worker: who is a suspect, who is dead, and that nobody else ever is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.core.values.poison import (
    MAX_CRASHES,
    Crashes,
    CrashMark,
    Heartbeats,
    Judgement,
    PoisonState,
    SoloRun,
    judge,
    reason_of,
)


def _lives(run: str) -> bool:
    return run == "alive"


@pytest.mark.parametrize(
    ("mark", "judgement"),
    [
        (None, Judgement(PoisonState.CLEAR)),
        (CrashMark("alive"), Judgement(PoisonState.ELSEWHERE)),
        (CrashMark("alive", alone=True, crashes=2), Judgement(PoisonState.ELSEWHERE, 2)),
        (CrashMark("gone"), Judgement(PoisonState.SUSPECT, 0)),
        (CrashMark("gone", crashes=2), Judgement(PoisonState.SUSPECT, 2)),
        (CrashMark("gone", alone=True), Judgement(PoisonState.SUSPECT, 1)),
        (CrashMark("gone", alone=True, crashes=1), Judgement(PoisonState.SUSPECT, 2)),
        (CrashMark("gone", alone=True, crashes=2), Judgement(PoisonState.POISON, 3)),
        (CrashMark("gone", crashes=3), Judgement(PoisonState.POISON, 3)),
    ],
)
def test_only_a_crash_while_alone_counts_and_the_third_one_kills(mark: CrashMark | None, judgement: Judgement) -> None:
    assert judge(mark, _lives) == judgement


def test_the_reason_says_how_often() -> None:
    assert reason_of(3) == "ended its worker 3 times while it ran alone"


def test_a_pool_counts_crashes_until_the_handler_comes_to_an_end() -> None:
    crashes = Crashes()
    assert crashes.standing("a") is PoisonState.CLEAR
    assert [crashes.on_crash("a").standing for _ in range(2)] == [PoisonState.SUSPECT] * 2
    assert crashes.standing("a") is PoisonState.SUSPECT
    assert crashes.on_crash("a") == Judgement(PoisonState.POISON, 3)
    crashes.on_end("a")
    crashes.on_end("a")
    assert crashes.standing("a") is PoisonState.CLEAR
    assert crashes.on_crash("a") == Judgement(PoisonState.SUSPECT, 1)


def test_of_very_many_the_oldest_are_forgotten() -> None:
    crashes = Crashes()
    for number in range(10_001):
        crashes.on_crash(str(number))
    assert crashes.standing("0") is PoisonState.CLEAR
    assert crashes.standing("1") is PoisonState.SUSPECT


def test_while_suspects_are_expected_messages_are_taken_one_by_one() -> None:
    solitude = SoloRun(4)
    assert [solitude.room(out, 0.0) for out in (0, 3, 4, 5)] == [4, 1, 0, 0]
    solitude.on_suspect("a", 0.0)
    solitude.on_suspect("b", 0.0)
    assert [solitude.room(out, 0.0) for out in (0, 1, 4)] == [1, 0, 0]
    solitude.on_end("a")
    solitude.on_end("a")
    assert solitude.room(0, 0.0) == 1
    solitude.on_end("b")
    assert solitude.room(0, 0.0) == 4


def test_a_suspect_that_does_not_come_again_is_somebody_elses() -> None:
    solitude = SoloRun(4)
    solitude.on_suspect("a", 0.0)
    solitude.on_suspect("a", 20.0)
    assert solitude.room(0, 50.0) == 1
    assert solitude.room(0, 50.1) == 4


def test_a_suspect_that_runs_is_alone_until_it_ends() -> None:
    solitude = SoloRun(4)
    solitude.on_suspect("a", 0.0)
    solitude.on_start("a")
    solitude.on_start("no suspect")
    assert solitude.room(1, 3600.0) == 0
    solitude.on_end("a")
    assert solitude.room(0, 3600.0) == 4


def test_a_run_lives_as_long_as_its_count_grows() -> None:
    signs = Heartbeats()
    assert not signs.lives("a")
    for second in range(6):
        signs.observe({"a": 7, "b": second}, float(second))
    assert not signs.lives("a")
    assert signs.lives("b")
    signs.observe({"a": 8}, 6.0)
    assert signs.lives("a")
    assert not signs.lives("b"), "it has left"


def test_silence_proves_nothing_while_nobody_listened() -> None:
    signs = Heartbeats()
    signs.observe({"a": 7}, 0.0)
    signs.observe({"a": 7}, 60.0)
    assert signs.lives("a")
    for second in (62.0, 64.0, 65.0):
        signs.observe({"a": 7}, second)
    assert not signs.lives("a")


@given(st.lists(st.booleans(), max_size=12))
def test_a_neighbour_never_dies(alone: list[bool]) -> None:
    """Crash after crash: a message is poison only when it was alone in three of them."""
    mark: CrashMark | None = None
    for number, was_alone in enumerate(alone):
        judgement = judge(mark, _lives)
        if judgement.standing is PoisonState.POISON:
            assert sum(alone[:number]) >= MAX_CRASHES
            return
        mark = CrashMark(f"run{number}", was_alone, judgement.crashes)
    assert sum(alone[:-1]) < MAX_CRASHES
