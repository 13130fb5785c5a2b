"""Handler runs: messages that handlers work on, times of their starts, and effects of their ends on later starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodo_consumer.core.checks.outcome_validation import OutcomeValidator
from kodo_consumer.core.state.in_flight import InFlight, Stage
from kodo_consumer.core.values.outcomes import DONE, TOOK_TOO_LONG, Outcome
from kodo_consumer.message import Check, Message

if TYPE_CHECKING:
    from kodo_consumer.core.engine.message_flow import MessageFlow
    from kodo_consumer.core.scheduling.scheduler import Scheduler
    from kodo_consumer.core.state.engine_context import EngineContext
    from kodo_consumer.core.state.worker_metrics import Meter


class HandlerRuns:
    """Starts and ends handler runs, under the engine's lock. `running`: monotonic time of the start (seconds) by
    message, oldest first. `meter`: measures the ends of runs; None: nobody reads metrics.
    """

    def __init__(self, context: EngineContext, scheduler: Scheduler, flow: MessageFlow, check: Check | None) -> None:
        self.running: dict[Message, float] = {}
        self.meter: Meter | None = None  # only while it is read
        self._context, self._scheduler, self._flow, self._check = context, scheduler, flow, check
        self._validator = OutcomeValidator(context.policy)

    def measure(self, meter: Meter) -> None:
        """Lets `meter` measure the ends of runs from now on."""
        self.meter = meter

    def apply_policy(self) -> None:
        """Validates outcomes by the policy of the context, which has just changed, from now on."""
        self._validator = OutcomeValidator(self._context.policy)

    def take(self, now: float) -> Message | None:
        """Takes the next message to handle, with its tokens of all limits; its handler counts as started at `now`
        (monotonic seconds). None if no message may start. Also decides about messages that the scheduler found over
        limits.
        """
        in_flight = self._scheduler.take(now)
        if self._scheduler.over_limit:
            self._flow.decide_over_limit(now)
        if in_flight is None:
            return None
        in_flight.enter(Stage.RUNNING)
        self._context.counts.started += 1
        message = Message(
            in_flight.delivery, in_flight.lane.lane, in_flight.headers, in_flight.tenant, self._check, in_flight
        )
        self.running[message] = now
        return message

    def finish(self, message: Message, outcome: Outcome, now: float) -> bool:
        """Ends the run of a message's handler and carries out the outcome, or Failed if the outcome is invalid. Returns
        False, without effect, if `time_out` has taken the message from the handler before.
        """
        started = self.running.pop(message, None)
        if started is None:
            return False
        in_flight = message._in_flight  # noqa: SLF001  # made by take
        assert isinstance(in_flight, InFlight)
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
        """Ends the runs that took longer than the policy's `handler_timeout` with TOOK_TOO_LONG, and lists their
        messages in the effect `overdue`, by which executors free the slots. It does not interrupt handlers itself.
        """
        timeout = self._context.policy.handler_timeout / 1000
        for message, started in list(self.running.items()):
            if now - started < timeout:
                return
            self._context.effects.give_up(message)
            self.finish(message, TOOK_TOO_LONG, now)

    @property
    def next_timeout(self) -> float:
        """Monotonic time (seconds) when the oldest run will have taken too long; infinite when no handler runs."""
        oldest = next(iter(self.running.values()), float("inf"))
        return oldest + self._context.policy.handler_timeout / 1000
