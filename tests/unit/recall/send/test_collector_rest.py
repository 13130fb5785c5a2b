"""The garbage collector rests while letters are sent, and runs after that."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from dataclasses import replace

import pytest

from kodoctl.recall.plan.recall_plan import RecallAction
from kodoctl.recall.send.sender import CollectorRest
from tests.unit.recall.sender_world import (
    KilledError,
    World,
    make_attempt,
    plan_of,
)


@pytest.mark.parametrize("fatal", [-1, 5])
def test_the_garbage_collector_rests_while_letters_are_sent_and_runs_after_that(fatal: int) -> None:
    world = World()
    with nullcontext() if fatal < 0 else pytest.raises(KilledError):
        make_attempt(world, plan_of(RecallAction.SEND), fatal)
    assert (world.collector, gc.isenabled()) == ({False}, True)
    gc.disable()
    try:
        make_attempt(World(), plan_of(RecallAction.SEND))
        assert not gc.isenabled(), "who had it off has it off"
    finally:
        gc.enable()
    edited = World()
    make_attempt(edited, replace(plan_of(RecallAction.SEND), edit={"a": 1}))
    assert edited.collector == {True}, "what checks an edited payload leaves cycles"


def test_the_garbage_collector_rests_until_the_last_of_several_senders_is_done() -> None:
    rest = CollectorRest()
    with rest:
        with rest:
            assert not gc.isenabled()
        assert not gc.isenabled(), "another one sends"
    assert gc.isenabled()
