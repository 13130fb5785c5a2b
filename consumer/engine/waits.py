"""Messages that wait in memory: for how long, and what a person is told of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from consumer.counts import Counts
from consumer.decide import Wait, Why
from consumer.effects import Effects
from consumer.policy import MAX_MEMORY_WAIT, Policy
from consumer.scheduling.held import Held, Place

_MAX_PAUSE: Final = 60.0  # seconds a lane with early deliveries is paused at a time


class Owner(Protocol):
    """The engine. Its effects are replaced whenever somebody took them."""

    policy: Policy
    effects: Effects
    counts: Counts


class Waits:
    """Begins and ends waits; in-place waits (of messages that failed) are counted against a share of the look-ahead."""

    def __init__(self, owner: Owner, set_timer: Callable[[float, Held], int], rng: Random) -> None:
        self._owner, self._set_timer, self._rng = owner, set_timer, rng
        self._resting = 0  # messages that sit out an in-place wait

    @property
    def room(self) -> bool:
        """Whether one more message may wait in place."""
        return self._resting < self._owner.policy.max_in_place

    def begin(self, held: Held, wait: Wait, now: float) -> None:
        """The message waits; a timer with `held.trials.wake` as its number ends it."""
        counts, effects, topic = self._owner.counts, self._owner.effects, held.lane.lane.topic
        counts.waited[wait.why] += 1
        held.lane.count("waited", wait.why)
        held.control = wait.control
        seconds = wait.delay / 1000
        match wait.why:
            case Why.IN_PLACE:
                trials = held.tried()
                trials.in_place += 1
                trials.resting = True
                self._resting += 1
            case Why.OVER_LIMIT:
                held.entitled = True
            case Why.UNAVAILABLE:
                held.tried().unavailable += 1
                seconds *= self._rng.uniform(1.0, 1.25)
            case Why.STUCK:
                held.tried().stuck += 1
                effects.alarm("stuck", f"a message of {topic} has nowhere to go: it is tried again")
            case Why.EARLY if wait.delay > MAX_MEMORY_WAIT and self._owner.policy.holds_back(held.lane.lane):
                held.lane.paused_until = now + min(seconds - MAX_MEMORY_WAIT / 1000, _MAX_PAUSE)
                effects.alarm("early", f"{topic} delivers long before time and is paused: is delayed delivery on?")
        held.place = Place.WAITING
        held.tried().wake = self._set_timer(now + seconds, held)

    def ended(self, held: Held) -> None:
        """Its wait is over, or it is held no more. Harmless when it sat out none in place."""
        if held.trials.resting:
            held.trials.resting = False
            self._resting -= 1
