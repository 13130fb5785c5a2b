"""Message flow: the way of one message from its receipt by a worker to its acknowledgement."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from kodo_consumer.core.checks.receive_checks import check_before_queueing, check_on_receipt
from kodo_consumer.core.engine.audit_recorder import AuditBatch, AuditRecorder, event_of
from kodo_consumer.core.engine.local_delays import LocalDelays
from kodo_consumer.core.engine.publishing import PendingPublish, PendingPublishes, PendingReroute, Published
from kodo_consumer.core.limits.limiter_set import LimitKind
from kodo_consumer.core.limits.limiters import Limiter
from kodo_consumer.core.state.in_flight import BatchEntry, InFlight, LaneState, Stage
from kodo_consumer.core.state_machine import Acknowledge, Delay, Rule, decide
from kodo_consumer.core.values import outcomes
from kodo_consumer.core.values.due_times import DueTimes
from kodo_consumer.core.values.envelope import HEADER_NAMES, Delivery
from kodo_consumer.core.values.limit_policy import NOBODY
from kodo_consumer.core.values.outcomes import DONE, TOOK_TOO_LONG, Outcome, TooEarly, error_of, failure_reason
from kodoctl.protocol.sequence_numbers import NOBODY as MARK

if TYPE_CHECKING:
    from kodo_consumer.core.scheduling.scheduler import Scheduler
    from kodo_consumer.core.sequences.gap_monitor import GapMonitor
    from kodo_consumer.core.state.engine_context import EngineContext
    from kodo_consumer.core.state.lookahead import LookaheadBudget
    from kodo_consumer.core.state.timers import TimerQueue
    from kodo_consumer.core.values.broker import Receipt
    from kodo_consumer.core.values.clock import Clock

TimerTarget = InFlight | Limiter | PendingPublish | AuditRecorder | Callable[[float], None]


class MessageFlow:
    """Message flow of an engine: carries out decisions about messages. Must be called under the same lock as the
    engine.

    `due_times`: due times of messages that this worker moved and the broker keeps until then. `too_early`: isolated
    messages to be published to the end of their lane once more, where the broker keeps them until they are due (some
    may have been released meanwhile). `recorder`: None if there are no audit records.
    """

    def __init__(
        self,
        context: EngineContext,
        clock: Clock,
        lookahead: LookaheadBudget,
        scheduler: Scheduler,
        timers: TimerQueue[TimerTarget],
        gap_monitor: GapMonitor | None,
        rng: Random,
    ) -> None:
        self.due_times = DueTimes()
        self.too_early: deque[InFlight] = deque()
        self._observer, self._confirmations = context.observer, context.confirmations
        self._context, self._clock, self._lookahead = context, clock, lookahead
        self._scheduler, self._gap_monitor = scheduler, gap_monitor
        self._delays = LocalDelays(context, timers.set, rng)
        self.publishes = PendingPublishes(context, timers.set, clock, rng)
        to = context.policy.audit
        self.recorder = None if to is None else AuditRecorder(context, to, clock, self.publishes.send, timers.set)

    # ---- before the handler: for us? due? route? limits

    def receive(self, lane: LaneState, delivery: Delivery, entry: BatchEntry, now: float) -> None:
        """Takes in a message that is not in flight yet: counts it in the look-ahead, and queues it, leaves it at a
        limiter, delays it, moves it, or ends it by a check of its headers. On an ordered lane a message that passes
        this check waits behind earlier messages of its key.
        """
        policy = self._context.policy
        properties = delivery.properties
        in_flight = InFlight(
            lane, delivery, entry, policy.tenant(properties, delivery.key) if policy.fair_by else NOBODY
        )
        in_flight.received = now
        self._lookahead.add(in_flight)
        if policy.is_plain and not delivery.broken and HEADER_NAMES.isdisjoint(properties):
            if self._gap_monitor is not None:
                self._gap_monitor.on_message(in_flight.delivery, lane.lane)
            self._scheduler.queues.enqueue(
                in_flight
            )  # nothing can stand in its way: the same as below, without the questions
            return
        outcome = check_on_receipt(in_flight, policy, self._clock.wall())
        self._context.counts.unsigned += policy.signer is not None and in_flight.delivery is not delivery
        if self._gap_monitor is not None:
            self._gap_monitor.on_message(in_flight.delivery, lane.lane)
        if outcome is not None:
            self.apply_decision(in_flight, outcome, now)
        elif lane.enqueue_by_key(in_flight):
            self.check_due(in_flight, now)

    def check_due(self, in_flight: InFlight, now: float) -> None:
        """Queues the message, or leaves it at a limiter, if it is due and belongs on its level, or if
        LocalDelays.hurries is true; else begins its wait, moves it, or adds it to `too_early` (LocalDelays.overflows).
        A limit may make it wait elsewhere as well. A broken message becomes a dead letter, or waits if there are none.
        """
        outcome = check_before_queueing(in_flight, self._context.policy, wall := self._clock.wall())
        if isinstance(outcome, TooEarly):
            if self._delays.overflows(in_flight, outcome.due - wall):
                in_flight.enter(Stage.EVACUATING)
                self.too_early.append(in_flight)
                return
            if self._delays.hurries(in_flight, outcome.due - wall):
                outcome = None
        if outcome is None:
            self._scheduler.admit(in_flight, now, in_turn=self._lookahead.is_low)
            self.decide_over_limit(now)
        else:
            self.apply_decision(in_flight, outcome, now)

    def decide_over_limit(self, now: float) -> None:
        """Decides about the messages in the scheduler's `over_limit`, and empties that list."""
        found = self._scheduler.over_limit
        while found:
            in_flight, slot = found.pop(0)
            wall = self._clock.wall() + round((slot.at - now) * 1000)
            is_quota = slot.over is LimitKind.QUOTA
            self.apply_decision(in_flight, outcomes.OverQuota(wall) if is_quota else outcomes.OverRate(wall), now)

    def wake(self, in_flight: InFlight, timer: int, now: float) -> None:
        """Ends the wait of a message, and checks it again, if `timer` is the number of its timer; else does nothing."""
        if in_flight.stage is Stage.WAITING and in_flight.waits.timer_id == timer:
            self._delays.end(in_flight)
            self.check_due(in_flight, now)

    def move_aside(self, in_flight: InFlight, wait: float, now: float) -> None:
        """Publishes a message of an isolated tenant to the lane where such messages wait. It is due there in about
        `wait` seconds, but after 60 s at least and 1 h at most, or after the horizon if that is shorter; jitter of up
        to 3 s is added. A message with too many moves becomes a dead letter. If there is no such lane, or its own lane
        is not a ready one or keeps an order, the message stays in its lane.
        """
        self.apply_decision(in_flight, outcomes.Isolated(self._clock.wall() + round(wait * 1000)), now)

    # ---- after the handler

    def finish(self, in_flight: InFlight, outcome: Outcome, now: float) -> None:
        """Carries out and counts an outcome of a handler that OutcomeValidator lets pass: acknowledges a done message
        (after its audit record, if messages wait for these), decides about others.
        """
        counts = self._context.counts
        if outcome is DONE:  # the first line of the table, without its cost
            counts.done += 1
            if self.recorder is None:
                self._acknowledge(in_flight, now)
            else:
                self._complete(in_flight, now)
            return
        if (reason := failure_reason(outcome)) is not None:
            counts.failed[reason] += 1
            counts.timed_out += outcome is TOOK_TOO_LONG
            in_flight.lane.count("failed", reason)
        self.apply_decision(in_flight, outcome, now)

    def apply_decision(self, in_flight: InFlight, outcome: Outcome, now: float) -> None:
        """Derives the decision from an outcome, notifies the observer, and carries the decision out."""
        decision = decide(
            in_flight.envelope(may_wait=self._delays.room), outcome, self._context.policy, self._clock.wall()
        )
        if self._observer is not None:
            self._observer.on_decision(in_flight, outcome, decision)
        if isinstance(decision, Acknowledge):  # here and where else it counts no `match`, which is slow when compiled
            if isinstance(outcome, outcomes.OtherSubscription) and in_flight.headers.meant_for == MARK:
                self._context.counts.marks += 1
            else:
                self._context.counts.finished[decision.why] += 1
                in_flight.lane.count("finished", decision.why)
            self._complete(in_flight, now, decision.why, decision.reason)
        elif isinstance(decision, Delay):
            self._delays.begin(in_flight, decision, now)
        else:
            self.publishes.start(in_flight, decision, now, self._recorded_error(outcome))

    def _recorded_error(self, outcome: Outcome) -> str:
        """Text of the outcome's error, if audit records have error texts; else empty."""
        kept, error = self._context.policy.error_text, error_of(outcome)
        return error.text if kept is not None and kept.audit and error is not None else ""

    def receipt(self, ticket: int, receipt: Receipt, now: float) -> None:
        """Takes the receipt of a publish: acknowledges a stored message in its lane, unless it has to wait for its
        audit record, and the messages of stored records. An unconfirmed message, and a record without a receipt, is
        sent again. A message that its target refuses is sent again without its error text, if it has one; else it
        becomes a dead letter, or is parked (stays unacknowledged and unhandled, with an alarm) if no target is left.
        """
        end = self.publishes.receipt(ticket, receipt, now)
        if isinstance(end, Published):
            self._on_stored(end.sent, end.token, now)
        elif end is not None and end.sent.last_resort:
            sent = end.sent
            self._start_next_for_key(sent.in_flight, now)  # by its key, which is not kept
            self._park(sent.in_flight, f"{sent.message.topic} will not take it: {end.reason}")
        elif end is not None:
            outcome = outcomes.RejectedByTarget(f"refused by its target: {end.reason}")
            self.apply_decision(end.sent.in_flight, outcome, now)

    def _on_stored(self, sent: PendingPublish, token: Any, now: float) -> None:
        if isinstance(sent, PendingReroute):
            self._context.counts.finished[sent.why] += 1
            sent.in_flight.lane.count("finished", sent.why)
            if self._context.policy.error_text is not None:
                self._context.causes.count(sent.why, sent.message.properties)
            self.due_times.add(sent.message)
            self._complete(sent.in_flight, now, sent.why, sent.reason, sent, token)
        else:
            assert isinstance(sent, AuditBatch)
            assert self.recorder is not None  # who else sends records
            for in_flight in self.recorder.on_stored(sent):
                self._acknowledge(in_flight, now)

    @property
    def busy(self) -> bool:
        """True if a publish awaits its receipt or next try, or audit records are gathered or not stored yet."""
        return self.publishes.waiting > 0 or (self.recorder is not None and self.recorder.busy)

    # ---- the end of a message

    def _complete(
        self,
        in_flight: InFlight,
        now: float,
        why: Rule = Rule.DONE,
        reason: str = "",
        sent: PendingReroute | None = None,
        token: object = "",
    ) -> None:
        """Acknowledges a message, after the receipt of its audit record if there are records and messages wait for
        them. The next message of its key need not wait for that receipt. Tokens that keep the end of a message get it.
        """
        if self._confirmations is not None:
            rule = why.value
            in_flight.why = rule
        if why is not Rule.DONE and (with_end := getattr(in_flight.ack_token, "with_end", None)) is not None:
            in_flight.ack_token = with_end(event_of(why), reason)
        if self.recorder is None:
            self._acknowledge(in_flight, now)
            return
        self._start_next_for_key(in_flight, now)
        if self.recorder.add(in_flight, why, now, reason, sent, token):
            self._acknowledge(in_flight, now)

    def _acknowledge(self, in_flight: InFlight, now: float) -> None:
        """Acknowledges and releases a message that is complete."""
        in_flight.lane.acks.append(in_flight.ack_token)
        self._context.unsent += 1
        if self._confirmations is not None:
            self._confirmations.add(in_flight)
        entry = in_flight.entry
        entry.done |= 1 << in_flight.delivery.batch_index + 1
        entry.at = now
        self.release(in_flight)
        self._start_next_for_key(in_flight, now)

    def _start_next_for_key(self, in_flight: InFlight, now: float) -> None:
        if in_flight.lane.key_queues is not None and (following := in_flight.lane.next_for_key(in_flight)) is not None:
            self.check_due(following, now)

    def _park(self, in_flight: InFlight, reason: str) -> None:
        """Parks a message that every target refuses, the dead letters too, and raises an alarm: nobody will handle it.

        It stays unacknowledged. The broker has its payload, so memory keeps nothing of it that others could use, and
        the next message of its key may start, as after a dead letter. Only the number of such messages is limited,
        because the broker limits unacknowledged messages: beyond it their lane is no longer read.
        """
        lane, lookahead = in_flight.lane, self._lookahead
        lookahead.park(in_flight)
        self._context.counts.parked += 1
        lane.blocked = lane.blocked or lookahead.overgrown
        text = f"{lane.lane.topic}: message {in_flight.delivery.position} has nowhere to go: {reason}; it stays unacknowledged"
        more = f". {lookahead.parked} are parked: the topic is no longer read" if lane.blocked else ""
        self._context.effects.alarm("parked", text + more)

    def release(self, in_flight: InFlight) -> None:
        """Drops the worker's record of a message that is acknowledged, or that the broker delivers again; does not
        acknowledge it, nor take it out of queues.
        """
        in_flight.enter(Stage.RELEASED)
        self._lookahead.remove(in_flight)
        if in_flight.waits.in_local_retry or in_flight.waits.early:
            self._delays.end(in_flight)
