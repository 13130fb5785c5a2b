"""Handler runs: messages that handlers work on, times of their starts, and effects of their ends on later starts.

A deferred message has no slot any more; it keeps its concurrency limits, its place in the look-ahead and, on an ordered
lane, its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kodo_consumer.core.checks.outcome_validation import OutcomeValidator
from kodo_consumer.core.state.in_flight import InFlight, Stage
from kodo_consumer.core.values.deferral import NOT_ENDED
from kodo_consumer.core.values.outcomes import DONE, TOOK_TOO_LONG, Outcome
from kodo_consumer.message import Check, Message, parts_of

if TYPE_CHECKING:
    from kodo_consumer.core.engine.message_flow import MessageFlow
    from kodo_consumer.core.scheduling.scheduler import Scheduler
    from kodo_consumer.core.state.engine_context import EngineContext
    from kodo_consumer.core.state.worker_metrics import Meter


class DeferralLimits(NamedTuple):
    """Limits of deferred messages of one worker. `most`: number of deferred and running messages together (the number
    of slots, if that is larger) at which nothing more starts while any message is deferred; `timeout`: seconds from the
    return of its handler after which the attempt of a deferred message counts as failed, unless its handler named
    another time.
    """

    most: int
    timeout: float


class OpenMessage(NamedTuple):
    """Times of a deferred message, monotonic seconds: when its handler returned, and its deadline."""

    since: float
    deadline: float


_NEVER: Final = float("inf")


def _in_flight_of(message: Message) -> InFlight:
    in_flight = message._in_flight  # noqa: SLF001  # `take` gave it
    assert isinstance(in_flight, InFlight)
    return in_flight


class HandlerRuns:
    """Starts and ends handler runs, under the engine's lock. `running`: monotonic time of the start (seconds) by
    message, oldest first. `deferred`: times of the messages whose handler returned and whose token ends them, by
    message, in the order in which the handlers returned. `meter`: measures the ends of runs; None: nobody reads
    metrics.
    """

    def __init__(self, context: EngineContext, scheduler: Scheduler, flow: MessageFlow, check: Check | None) -> None:
        self.running: dict[Message, float] = {}
        self.deferred: dict[Message, OpenMessage] = {}
        self._limits: DeferralLimits | None = None
        self._next_deadline = _NEVER  # or sooner: a message that ended may have had it
        self.meter: Meter | None = None  # only while it is read
        self._context, self._scheduler, self._flow, self._check = context, scheduler, flow, check
        self._validator = OutcomeValidator(context.policy)

    def measure(self, meter: Meter) -> None:
        """Lets `meter` measure the ends of runs from now on."""
        self.meter = meter

    def allow_deferral(self, limits: DeferralLimits) -> None:
        """Lets handlers defer the messages that are taken from now on, within these limits (see DeferralLimits)."""
        self._limits = limits

    @property
    def has_room(self) -> bool:
        """True if deferred messages let one more handler start: none is deferred, or deferred and running messages
        together are fewer than their limit (see DeferralLimits).
        """
        if not self.deferred or self._limits is None:
            return True
        most = max(self._limits.most, self._context.policy.concurrency)
        return len(self.deferred) + len(self.running) < most

    def oldest_deferred(self, now: float) -> float:
        """Seconds since the oldest deferred message was deferred, at `now` (monotonic seconds); 0 if no message is
        deferred.
        """
        first = next(iter(self.deferred.values()), None)
        return 0.0 if first is None else now - first.since

    def apply_policy(self) -> None:
        """Validates outcomes by the policy of the context, which has just changed, from now on."""
        self._validator = OutcomeValidator(self._context.policy)

    def take(self, now: float) -> Message | None:
        """Takes the next message to handle, with its tokens of all limits; its handler counts as started at `now`
        (monotonic seconds). None if too many messages are deferred (see `has_room`), no message may start, or limits
        refused 64 messages (see TurnQueues.next). Also decides about messages that the scheduler found over limits.
        """
        if self.deferred and not self.has_room:
            return None
        in_flight = self._scheduler.take(now)
        if self._scheduler.over_limit:
            self._flow.decide_over_limit(now)
        if in_flight is None:
            return None
        in_flight.enter(Stage.RUNNING)
        self._context.counts.started += 1
        message = Message(
            in_flight.delivery,
            in_flight.lane.lane,
            in_flight.headers,
            in_flight.tenant,
            self._check,
            in_flight,
            None if self._limits is None else self.running,
        )
        self.running[message] = now
        return message

    def leave_open(self, message: Message, timeout: float | None, now: float) -> bool:
        """Ends the run of a handler that deferred its message, and frees its slot; the message waits for its deferral
        token. `timeout`: seconds from `now` until the attempt counts as failed, None: as the limits say. Returns False,
        without effect, if the run has ended already, such as by `time_out`. Only after `allow_deferral`.
        """
        started = self.running.pop(message, None)
        if started is None or self._limits is None:
            return False
        in_flight = _in_flight_of(message)
        slow = self._scheduler.free_slot(in_flight, now)
        in_flight.slot_time += now - started
        if self.meter is not None:
            self.meter.on_end(in_flight, started, now, done=False)
        throttle = self._scheduler.throttle
        if throttle.wants_all_outcomes:
            throttle.on_end(in_flight, DONE, started, len(self.running) + 1, now, slow=slow)
        in_flight.enter(Stage.DEFERRED)
        deadline = now + (self._limits.timeout if timeout is None else timeout)
        self.deferred[message] = OpenMessage(now, deadline)
        self._next_deadline = min(self._next_deadline, deadline)
        return True

    def end(self, message: Message, outcome: Outcome, now: float) -> bool:
        """Ends a deferred message with an outcome, or with Failed if the outcome is invalid (see OutcomeValidator).
        Returns False, without effect, if the message is not deferred, such as because it has ended before.
        """
        if self.deferred.pop(message, None) is None:
            return False
        in_flight = _in_flight_of(message)
        self._scheduler.free_limits(in_flight, now)
        self._scheduler.queues.version += 1  # there may be room for one more now
        if self.meter is not None and outcome is DONE:
            self.meter.on_deferred_done(in_flight, now)
        outcome = outcome if outcome is DONE else self._validator.validate(in_flight, outcome)
        self._flow.finish(in_flight, outcome, now)
        return True

    def abandon(self) -> None:
        """Closes the unused deferral tokens of all deferred messages and of those whose handlers run, because the
        worker ends: using them has no effect any more, and the broker delivers again all messages that do not end
        otherwise.
        """
        for message in (*self.deferred, *self.running):
            if message.deferral is not None:
                message.deferral.close()

    def finish(self, message: Message, outcome: Outcome, now: float) -> bool:
        """Ends the run of a message's handler and carries out the outcome, or Failed if the outcome is invalid (see
        OutcomeValidator). Returns False, without effect, if the run has ended already, such as by `time_out` or
        `leave_open`.
        """
        started = self.running.pop(message, None)
        if started is None:
            return False
        if message.deferral is not None:
            message.deferral.close()
        in_flight = _in_flight_of(message)
        slow = self._scheduler.on_end(in_flight, now)
        in_flight.slot_time += now - started
        if self.meter is not None:
            self.meter.on_end(in_flight, started, now, done=outcome is DONE)
        outcome = outcome if outcome is DONE else self._validator.validate(in_flight, outcome)
        throttle = self._scheduler.throttle
        if outcome is not DONE or throttle.wants_all_outcomes:
            throttle.on_end(in_flight, outcome, started, len(self.running) + 1, now, slow=slow)
        self._flow.finish(in_flight, outcome, now)
        return True

    def time_out(self, now: float) -> None:
        """Ends the runs that have taken the policy's `handler_timeout` or longer with TOOK_TOO_LONG, and deferred
        messages whose deadline has come with NOT_ENDED, with an alarm for each of these. Lists the messages of both in
        the effect `overdue`, by which executors free the slots of handlers. It does not interrupt handlers itself.
        """
        if now >= self._next_deadline:
            self._end_overdue(now)
        timeout = self._context.policy.handler_timeout / 1000
        for message, started in list(self.running.items()):
            if now - started < timeout:
                return
            self._context.effects.give_up(message)
            self.finish(message, TOOK_TOO_LONG, now)

    def _end_overdue(self, now: float) -> None:
        for message, times in [one for one in self.deferred.items() if one[1].deadline <= now]:
            self._context.effects.give_up(message)
            self._say_overdue(message, now - times.since)
            if message.deferral is not None:
                message.deferral.close()
            self.end(message, NOT_ENDED, now)
        self._next_deadline = min((times.deadline for times in self.deferred.values()), default=_NEVER)

    def _say_overdue(self, message: Message, seconds: float) -> None:
        delivery, lane, _ = parts_of(message)
        text = f"{lane.topic}: message {delivery.position} was deferred and did not end in {seconds:.0f} s: the attempt failed"
        self._context.effects.alarm("deferred", text, severe=False)

    @property
    def next_timeout(self) -> float:
        """Time (monotonic seconds) at which `time_out` has to be called next: the oldest run, or a deferred message,
        may reach its limit then. May be too early, also for a deferred message that has ended meanwhile. Infinite if
        nothing is to come.
        """
        oldest = next(iter(self.running.values()), _NEVER)
        return min(oldest + self._context.policy.handler_timeout / 1000, self._next_deadline)
