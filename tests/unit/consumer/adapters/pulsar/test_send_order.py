"""Order of what is sent to a partition through any course of faults: the messages of a key are stored as they were sent."""

from __future__ import annotations

from typing import Any

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.producer_factory import ProducerOptions
from kodo_consumer.core.values.broker import Confirmed, Unconfirmed

from tests.unit.consumer.adapters.pulsar.send_stand import TOPIC, SendStand

ORDERED = ProducerOptions(ordered={TOPIC})
COURSES = 240
EVENTS = 600


def _course(patch: pytest.MonkeyPatch, seed: int, options: ProducerOptions) -> SendStand:
    """Good and bad times in turn, and an end at which all is well."""
    stand = SendStand(patch, seed, options, cautious=seed % 4 == 0)
    well = True
    for event in range(EVENTS):
        if event % 40 == 0:
            well = not well
        stand.step(well=well)
    stand.settle()
    return stand


@pytest.mark.parametrize("part", range(4))
def test_no_message_of_a_key_is_stored_before_an_earlier_one_whatever_happens(
    monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    confirmed = 0
    for seed in range(part * COURSES // 4, (part + 1) * COURSES // 4):
        stand = _course(monkeypatch, seed, ORDERED)
        assert stand.overtaken() == [], f"seed {seed}"
        assert set(map(len, stand.answers.values())) == {1}, f"seed {seed}: each has one receipt"
        told = {ticket for ticket, (receipt,) in stand.answers.items() if isinstance(receipt, Confirmed)}
        assert told <= set(stand.stored), f"seed {seed}"
        confirmed += len(told)
    assert confirmed > COURSES


def test_a_refusal_of_a_later_try_does_not_say_that_the_first_one_stored_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise pulsar.AuthorizationError("no")

    stand = SendStand(monkeypatch, 0, ORDERED, cautious=False)
    stand.post("a")
    for _ in range(10):
        stand.turn()
        stand.run_thread()
    stand.store()
    monkeypatch.setattr(stand, "create_producer", refuse)
    for happens in (stand.open[0].disconnect, stand.open[0].connect, stand.open[0].disconnect):
        happens()
        stand.pass_time(0.1)
        stand.turn()
    for _ in range(20):
        stand.run_thread()
        stand.pass_time(0.5)
        stand.turn()
    assert stand.stored == [0]
    assert stand.answers == {0: [Unconfirmed("not authorised")]}
