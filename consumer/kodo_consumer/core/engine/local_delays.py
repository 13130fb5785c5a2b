"""Local delays: messages that wait in memory, the length of their waits, and alarms about them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.state.in_flight import InFlight, Stage
from kodo_consumer.core.state_machine import ISOLATED_REASON, Delay, Rule
from kodo_consumer.core.values.delay_schedule import MAX_MEMORY_WAIT
from kodo_consumer.core.values.envelope import State

if TYPE_CHECKING:
    from kodo_consumer.core.state.engine_context import EngineContext
    from kodo_consumer.core.values.policy import Policy

_MAX_PAUSE: Final = 60.0  # seconds a lane of a waiting state is paused at a time when too much of it comes early


class _Early:
    """Messages that came long before they are due, and their bytes."""

    __slots__ = ("messages", "size")

    def __init__(self) -> None:
        self.messages = self.size = 0

    def add(self, in_flight: InFlight, by: int) -> None:
        """One more, or (`by` -1) one less."""
        self.messages += by
        self.size += by * in_flight.size

    def full(self, policy: Policy) -> bool:
        """True if these messages, or their bytes, use up their share of the look-ahead."""
        return self.messages >= policy.max_early or self.size >= policy.max_early_bytes


class LocalDelays:
    """Begins and ends waits in memory. Some kinds have a share of the look-ahead each: in-place waits (of messages that
    failed) on lanes that keep no order, and early messages, which come more than 5 s before they are due, on ready
    lanes and on lanes of waiting states.

    Only workers write to the topics of waiting states: if early messages use up their share there, their lane is
    paused, unless it is isolated messages that come. On a ready topic any sender may claim a due time: there messages
    beyond the share are due at once (`hurries`), and no lane is paused. Isolated messages beyond the share are put back
    into their lane (`overflows`), if it can be written with a due time.
    """

    def __init__(self, context: EngineContext, set_timer: Callable[[float, InFlight], int], rng: Random) -> None:
        self._context, self._set_timer, self._rng = context, set_timer, rng
        self._resting = 0  # messages that sit out an in-place wait
        self._early_ready, self._early_state = _Early(), _Early()

    @property
    def room(self) -> bool:
        """True if one more failed message may wait in place; lanes that keep an order do not ask."""
        return self._resting < self._context.policy.max_in_place

    def hurries(self, in_flight: InFlight, milliseconds: int) -> bool:
        """True if a message that claims a wait of `milliseconds` is due at once: the wait is more than 5,000, the lane
        is a ready one, and early messages use up their share. Then counts the message and raises an alarm.
        """
        if milliseconds <= MAX_MEMORY_WAIT or in_flight.lane.lane.state is not State.READY:
            return False
        if not self._early_ready.full(self._context.policy):
            return False
        self._context.counts.hurried += 1
        text = (
            f"{in_flight.lane.lane.topic}: more messages say that they are due later than may wait, and start at once: is delayed"
            " delivery on, or does a producer write control properties?"
        )
        self._context.effects.alarm("early", text)
        return True

    def overflows(self, in_flight: InFlight, milliseconds: int) -> bool:
        """True if the broker, not this worker, shall keep a message for `milliseconds`: isolation moved the message,
        the wait is more than 5,000, early messages use up their share, and the lane keeps no order and can be written
        with a due time.
        """
        lane, policy = in_flight.lane.lane, self._context.policy
        if milliseconds <= MAX_MEMORY_WAIT or lane.ordered or not self._is_aside(in_flight):
            return False
        can_wait = policy.holds_back(lane) and (lane.level, lane.state) in policy.targets
        return can_wait and self._early(in_flight).full(policy)

    def begin(self, in_flight: InFlight, wait: Delay, now: float) -> None:
        """Begins the wait of a message: sets its headers and its stage, counts the wait, and sets a timer with the
        number `in_flight.waits.timer_id`; a wait for a dependency is up to a quarter longer than `wait` says. `now`:
        monotonic seconds. Alarms if the message is stuck, or comes more than 5 s early although the broker should have
        kept it; the second may pause its lane.
        """
        counts, effects, topic = self._context.counts, self._context.effects, in_flight.lane.lane.topic
        counts.waited[wait.why] += 1
        in_flight.lane.count("waited", wait.why)
        in_flight.headers = wait.headers
        seconds = wait.delay / 1000
        match wait.why:
            case Rule.IN_PLACE:
                waits = in_flight.mutable_waits()
                waits.local_retries += 1
                waits.in_local_retry = True
                self._resting += 1
            case Rule.OVER_LIMIT:
                in_flight.has_reservation = True
            case Rule.UNAVAILABLE:
                in_flight.mutable_waits().unavailable += 1
                seconds *= self._rng.uniform(1.0, 1.25)
            case Rule.STUCK:
                in_flight.mutable_waits().undeliverable_retries += 1
                effects.alarm("stuck", f"a message of {topic} has nowhere to go: it is tried again")
            case Rule.EARLY if wait.delay > MAX_MEMORY_WAIT:
                self._begin_early(in_flight, seconds, now)
        in_flight.enter(Stage.WAITING)
        in_flight.mutable_waits().timer_id = self._set_timer(now + seconds, in_flight)

    def end(self, in_flight: InFlight) -> None:
        """Stops counting the in-place or early wait of a message that wakes up or is released; for a message without
        such a wait it does nothing.
        """
        if in_flight.waits.in_local_retry:
            in_flight.waits.in_local_retry = False
            self._resting -= 1
        if in_flight.waits.early:
            in_flight.waits.early = False
            self._early(in_flight).add(in_flight, -1)

    def _early(self, in_flight: InFlight) -> _Early:
        return self._early_ready if in_flight.lane.lane.state is State.READY else self._early_state

    def _is_aside(self, in_flight: InFlight) -> bool:
        """True if isolation moved the message, as far as that may be believed."""
        lane, isolate = in_flight.lane.lane, self._context.policy.isolate
        if in_flight.headers.reason != ISOLATED_REASON:
            return False
        return lane.state is not State.READY or (isolate is not None and isolate.to == lane.level)

    def _begin_early(self, in_flight: InFlight, seconds: float, now: float) -> None:
        in_flight.mutable_waits().early = True
        lane, early, policy = in_flight.lane, self._early(in_flight), self._context.policy
        early.add(in_flight, 1)
        if not policy.holds_back(lane.lane) or self._is_aside(in_flight):
            return  # that it comes early says nothing of the broker
        if paused := lane.lane.state is not State.READY and early.full(policy):
            lane.paused_until = now + min(seconds - MAX_MEMORY_WAIT / 1000, _MAX_PAUSE)
        text = (
            f"{lane.lane.topic} delivers long before time{' and is paused' if paused else ''}: is delayed delivery on?"
        )
        self._context.effects.alarm("early", text)
