"""Engine of a worker: it tracks each message in flight and decides about it. No threads and no I/O: events in, effects
out.

The same code runs under threads with a real broker and under a manual clock in tests. Callers make one call at a time
(under one lock), and afterwards fetch and carry out effects (`context.take_effects`) and `acknowledgements`. Every
unacknowledged message is in exactly one Stage at all times.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from random import Random
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.engine.audit_recorder import AuditRecorder
from kodo_consumer.core.engine.hand_over import HandOver
from kodo_consumer.core.engine.handler_runs import HandlerRuns
from kodo_consumer.core.engine.lane_presence import LanePresence
from kodo_consumer.core.engine.message_flow import MessageFlow, TimerTarget
from kodo_consumer.core.engine.publishing import PendingPublish
from kodo_consumer.core.engine.queued_moves import QueuedMoves
from kodo_consumer.core.engine.tenant_isolation import TenantIsolation
from kodo_consumer.core.limits.limiters import Limiter
from kodo_consumer.core.scheduling.concurrency_control import ConcurrencyControl
from kodo_consumer.core.scheduling.scheduler import Scheduler
from kodo_consumer.core.scheduling.slot_reservation import SlotReservation
from kodo_consumer.core.scheduling.turn_queues import TurnQueues
from kodo_consumer.core.sequences.gap_monitor import GapMonitor
from kodo_consumer.core.state.confirmations import Confirmations
from kodo_consumer.core.state.engine_context import EngineContext
from kodo_consumer.core.state.in_flight import BatchEntry, InFlight, LaneState, Stage
from kodo_consumer.core.state.invariants import contradictions
from kodo_consumer.core.state.lookahead import LookaheadBudget
from kodo_consumer.core.state.timers import TimerQueue

if TYPE_CHECKING:
    from kodo_consumer.core.state.observer import DecisionObserver
    from kodo_consumer.core.values.broker import Receipt
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.counters import Counts
    from kodo_consumer.core.values.envelope import Delivery
    from kodo_consumer.core.values.outcomes import Outcome
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.message import Check, Message

_TICK: Final = 1.0  # seconds between two looks at what no event announces


class Engine:
    """Engine of one worker: it tracks each message that the worker received and did not acknowledge yet, and decides
    about it. Callers make one call at a time (under one lock), then fetch and carry out effects
    (`context.take_effects`) and `acknowledgements`. `draining`: it receives and starts nothing more. `confirms`:
    results of acknowledgements will be reported to `context.confirmations`.
    """

    def __init__(
        self,
        policy: Policy,
        clock: Clock,
        rng: Random,
        check: Check | None = None,
        observer: DecisionObserver | None = None,
        *,
        confirms: bool = False,
    ) -> None:
        self.draining = False
        self.timers: TimerQueue[TimerTarget] = TimerQueue()
        self.lanes = [LaneState(lane) for lane in policy.lanes]
        confirmations = Confirmations(policy.max_held, policy.max_held_bytes) if confirms else None
        self.context, self._clock = EngineContext(policy, observer, confirmations), clock
        self.lookahead = LookaheadBudget(policy)
        queues = TurnQueues(policy, self.lanes)
        several = policy.reserves_slots and (policy.fair_by or len(self.lanes) > 1)
        slots = SlotReservation(policy.concurrency, queues) if several else None
        throttle = ConcurrencyControl(self.context, slots, self.timers.set)
        self.scheduler = Scheduler(policy, queues, clock, self.timers.set, slots, throttle)
        self.gap_monitor = GapMonitor.of(policy, clock.wall(), self.counts)
        self.flow = MessageFlow(self.context, clock, self.lookahead, self.scheduler, self.timers, self.gap_monitor, rng)
        self.isolation = TenantIsolation(
            self.context, self.lanes, self.lookahead, self.flow, self.scheduler, self.timers.set, rng
        )
        self.queued_moves = QueuedMoves(self.lanes, self.flow, self.scheduler)
        self.handover = HandOver(self.context, self.flow, self.scheduler, self.gap_monitor, clock, self.timers.set)
        self.presence = LanePresence(self.context, self.lanes, self.handover)
        self.runs = HandlerRuns(self.context, self.scheduler, self.flow, check)
        self._next_check = float("-inf")

    @property
    def counts(self) -> Counts:
        """Counts since the start."""
        return self.context.counts

    # ---- what arrives

    def deliver(self, index: int, deliveries: Sequence[Delivery]) -> None:
        """Takes messages of the lane with this index; drops all of them if the engine drains or has left the lane. A
        copy of a message in flight is dropped, but its token replaces the earlier one. A copy of an acknowledged
        message is only acknowledged again, while another message of its entry (batch) is in flight, and for about a
        minute after the entry's last acknowledgement (see LaneState.entry); later it counts as new. Messages of a
        failover partition that this worker may not handle now are kept aside, or dropped if the broker will send them
        again.
        """
        if self.draining or index in self.presence.away:
            return
        lane, now, counts = self.lanes[index], self._clock.now(), self.context.counts
        if lane.active is not None:
            deliveries = lane.active.admit(deliveries, now)
        marks = counts.marks
        entry: BatchEntry | None = None
        for delivery in deliveries:
            if entry is None or entry.key is not delivery.entry:  # mostly many of one batch in a row
                entry = lane.entry(delivery.entry, now)
            in_flight = entry.in_flight.get(delivery.batch_index)
            if in_flight is not None:
                in_flight.on_redelivery(delivery, now)
                counts.redelivered += 1
            elif entry.done >> delivery.batch_index + 1 & 1:
                lane.acks.append(delivery.token)
                self.context.unsent += 1
                if self.context.confirmations is not None:
                    self.context.confirmations.add_copy(lane, entry, delivery.batch_index)
                counts.redelivered += 1
            else:
                self.flow.receive(lane, delivery, entry, now)
        counts.received += len(deliveries) - (counts.marks - marks)
        if self.isolation.tenants:
            self.isolation.evacuate_excess(now)
        elif self.flow.too_early:
            self.isolation.publish_pending(now)

    def on_disconnect(self, index: int, partition: str | None = None) -> None:
        """Releases the unstarted messages of a lane, of one partition (number as a text) or of all (None), because the
        broker delivers them again: see HandOver.
        """
        self.handover.on_disconnect(self.lanes[index], partition)

    def start_until(self, index: int, moment: float) -> None:
        """Lets messages of a lane (`index`) start only before `moment` (monotonic seconds; infinite: at any time). It
        replaces an earlier moment.
        """
        queues = self.scheduler.queues
        if queues.starts_until[index] <= self._clock.now():
            queues.version += 1  # its messages may start again
        queues.starts_until[index] = moment

    def withdraw(self, index: int, tokens: Collection[object]) -> Sequence[object]:
        """Releases those messages of a lane, by the tokens of their latest deliveries, that have not started (see
        HandOver). Returns those of `tokens` whose messages stay in flight: a handler works on them or has deferred
        them, they are being published elsewhere, await their audit record, or are parked.
        """
        lane = self.lanes[index]
        self.handover.drop_unstarted(lane, tokens=frozenset(tokens))
        return [in_flight.ack_token for in_flight in lane if in_flight.ack_token in tokens]

    def room(self, index: int) -> int:
        """Number of messages that a lane may deliver now: see LaneSink.room. A lane without room is noted for
        `resume_lanes`, and isolation may look for noisy tenants.
        """
        lane = self.lanes[index]
        shut = self.draining or lane.blocked or lane.paused_by_override or lane.paused_until > self._clock.now()
        if self.context.confirmations is not None:
            shut = shut or self.context.confirmations.is_full
        room = 0 if shut else self.lookahead.capacity(lane)
        if lane.active is not None:
            room = lane.active.room(room, lane.in_flight)
        if not room:
            self.lookahead.lanes_without_capacity[lane] = None
            if not (shut or lane.cannot_evacuate):
                self.isolation.on_full(self._clock.now())
        return room

    def receipt(self, ticket: int, receipt: Receipt) -> None:
        """Takes the receipt of one publish: see `receipts`."""
        self.receipts([(ticket, receipt)])

    def receipts(self, receipts: Sequence[tuple[int, Receipt]]) -> None:
        """Takes receipts by their tickets, and ignores unknown tickets. A stored message is acknowledged in its lane,
        after the receipt of its audit record if messages wait for those; one whose receipt is Unconfirmed is sent
        again after a backoff. One that its target refuses is sent again without its error text, if it has one; else it
        becomes a dead letter or, if the dead letters refuse it or there are none, stays in flight unhandled (parked).
        Audit records are sent again until they are stored. Then publishes moves that waited for room.
        """
        now, flow = self._clock.now(), self.flow
        for ticket, receipt in receipts:
            flow.receipt(ticket, receipt, now)
        self.isolation.publish_pending(now)
        self.queued_moves.publish_pending(now)

    # ---- handlers

    @property
    def version(self) -> int:
        """Number that grows when messages were queued or more may start, so that `take` may find one again. The end of
        a run alone, which may let another message start, need not change it.
        """
        return self.scheduler.queues.version + self.scheduler.throttle.version

    def next(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
        """Ends the run of `finished`, if that is not None, with `outcome`, which must not be None in this case. Then
        takes the next message as `take`.
        """
        now = self._clock.now()
        if finished is not None:
            assert outcome is not None
            self.finish(finished, outcome, now)
        return self.take(now)

    def take(self, now: float | None = None) -> Message | None:
        """Takes the next message to handle, with its tokens of all limits; its handler counts as started. None if the
        engine drains; else due timers go first, and None means that no message may start, too many messages are
        deferred, or limits refused 64 messages: then `version` has grown, so that the caller calls again. `now`:
        monotonic seconds, None: those of the clock.
        """
        if self.draining:
            return None
        now = self._clock.now() if now is None else now
        if self.timers.first <= now:
            self.advance(now)
        return self.runs.take(now)

    def finish(self, message: Message, outcome: Outcome, now: float | None = None) -> bool:
        """Ends the run of a message's handler and carries out the outcome, or Failed if the outcome is invalid (see
        OutcomeValidator). Returns False, without effect, if the run has ended already, such as by its time-out or
        because the handler deferred the message.
        """
        return self.runs.finish(message, outcome, self._clock.now() if now is None else now)

    # ---- time

    def advance(self, now: float) -> None:
        """Wakes all timers that are due at `now` (monotonic seconds), of messages, limiters, publishes and others."""
        for number, target in self.timers.pop_due(now):
            match target:
                case InFlight():
                    self.flow.wake(target, number, now)
                case Limiter():
                    target.timer_set = False
                    self.scheduler.let_through(target, now)
                case PendingPublish():
                    self.flow.publishes.send(target, now)
                case AuditRecorder():
                    target.flush(now)
                case _:
                    target(now)

    def tick(self) -> float:
        """Does all work that depends on time alone: due timers, handlers and deferred messages that took too long,
        sends that hang, and, once a second at most, the checks of limits, tenants, lanes and gaps; lets lanes that have
        room again deliver. Returns the seconds until the next tick; infinite: none is due. An event may make one due
        sooner. The check of gaps makes none due: callers that need it come every few seconds in any case.
        """
        now = self._clock.now()
        self.advance(now)
        self.runs.time_out(now)
        if now >= self.flow.publishes.stalled_at:
            self.flow.publishes.restart(now)
        if now >= self._next_check:  # not at every timer: there may be ten thousand limiters
            self._next_check = now + _TICK
            self.scheduler.recheck(now)
            for text in self.scheduler.limits.prune(now):
                self.context.effects.alarm("limits", text)
            self.scheduler.throttle.check_slow_tenants(now, self._clock.wall())
            self.isolation.update(now)
            self.presence.update()
            for text in self.gap_monitor.check(now) if self.gap_monitor is not None else ():
                self.context.effects.alarm("missing", text)
        self.resume_lanes()
        due = min(self.runs.next_timeout, self.flow.publishes.stalled_at, self.timers.first)
        if (
            self.lookahead.lanes_without_capacity
            or self.scheduler.any_shut
            or self.isolation.tenants
            or self.flow.too_early
            or self.presence.leaving
        ):
            due = min(due, now + _TICK)
        return max(0.0, due - now)

    def resume_lanes(self) -> None:
        """Adds an effect by which a lane delivers again, for each lane whose `room` was 0 since its last such effect,
        if the lane is neither paused nor blocked and LookaheadBudget.should_resume is true for it. Its `room` may be 0
        again for another reason.
        """
        now = self._clock.now()
        for lane in list(self.lookahead.lanes_without_capacity):
            if (
                not (lane.blocked or lane.paused_by_override)
                and lane.paused_until <= now
                and self.lookahead.should_resume(lane)
            ):
                del self.lookahead.lanes_without_capacity[lane]
                self.context.effects.ask_for_more(lane.lane.index)

    def acknowledgements(self) -> list[tuple[int, list[object]]]:
        """Returns and clears the tokens to acknowledge, as pairs (index of the lane, tokens)."""
        found = [(lane.lane.index, lane.acks) for lane in self.lanes if lane.acks]
        for index, _ in found:
            self.lanes[index].acks = []
        self.context.unsent = 0
        return found

    def on_active_consumers(
        self, index: int, named: Mapping[str, str] | None, asked: float, emptied: Mapping[str, float]
    ) -> None:
        """Takes the broker's answer about the active consumer of each partition of a lane that was prepared by
        LaneState.start_as_named, as ready lanes of a failover subscription are. Releases unstarted messages of
        partitions that another worker, or nobody, has now, or whose last answer has lapsed. Delivers kept messages of
        partitions that this worker may handle now.

        Args:
            index: index of the lane.
            named: name of the active consumer by partition (number as a text), "" for none; None: the request failed. A
                partition that it leaves out keeps its last answer until that lapses.
            asked: monotonic seconds before the request; an answer that comes 2 s later or more does not count.
            emptied: monotonic seconds when the client library last contained no message of a partition.
        """
        if ready := self.handover.on_active_consumers(self.lanes[index], named, asked, emptied):
            self.deliver(index, ready)

    def on_leases_changed(self, limiters: Sequence[Limiter]) -> None:
        """Lets messages that wait at these limiters try again, as far as Scheduler.on_leases_changed does: the leases
        of these limiters have changed, or the store was lost or is back.
        """
        for limiter in limiters:
            self.scheduler.on_leases_changed(limiter, self._clock.now())

    def apply_policy(
        self,
        policy: Policy,
        resting: AbstractSet[int] = frozenset(),
        paused: AbstractSet[str] = frozenset(),
        left: AbstractSet[int] = frozenset(),
    ) -> None:
        """Puts a policy in force that differs from the one before in nothing for which a worker needs a restart, such
        as lanes or look-ahead (see kodo_consumer.runtime.topology_reload). `resting`: indices of paused lanes.
        `paused`: paused tenants. Lanes and tenants that are left out are not paused any more. `left`: indices of paused
        lanes from which the worker disconnects although they are ready lanes, because a command moves their cursor.

        If moves of tenants or exclusive levels have changed, messages in queues or at limits that now belong on another
        level are moved there. Handlers that run go on.
        """
        before, self.context.policy = self.context.policy, policy
        self.runs.apply_policy()
        for lane in self.lanes:
            lane.paused_by_override = lane.lane.index in resting
        self.presence.rewound = left
        self.scheduler.apply_policy(policy, resting, paused, now := self._clock.now())
        self.queued_moves.begin(policy, before, self._clock.wall(), now)
        self.presence.update()
        self.resume_lanes()

    # ---- the end

    def drain(self) -> None:
        """Receives and starts nothing more, releases messages that have not started (see HandOver; they stay
        unacknowledged, and the broker delivers them again when the connections close), and publishes gathered audit
        records. Running handlers, deferred messages and publishes continue until `busy` is False.
        """
        self.draining = True
        for lane in self.lanes:
            self.handover.drop_unstarted(lane)
        if self.flow.recorder is not None:  # what still runs has its records gathered as ever
            self.flow.recorder.flush(self._clock.now())

    @property
    def busy(self) -> bool:
        """True if `works` is, or a confirmation is awaited."""
        confirmations = self.context.confirmations
        return self.works or (confirmations is not None and confirmations.awaited > 0)

    @property
    def works(self) -> bool:
        """True if a handler runs, a message is deferred, a publish awaits its receipt or next try, or audit records are
        gathered or not stored yet.
        """
        return bool(self.runs.running or self.runs.deferred) or self.flow.busy

    def check_invariants(self) -> list[str]:
        """Compares the stages of all messages in flight with the sizes of the structures that they wait in: each must
        be in exactly one. Returns a text for each contradiction; the list is empty unless there is a bug. Called with
        the worker's lock.
        """
        counted = {
            Stage.RUNNING: len(self.runs.running),
            Stage.DEFERRED: len(self.runs.deferred),
            Stage.PUBLISHING: self.flow.publishes.waiting,
            Stage.LIMITED: self.scheduler.messages_at_limits,
            Stage.EVACUATING: len(self.isolation) + len(self.queued_moves),
            Stage.RECORDED: self.flow.recorder.waiting if self.flow.recorder else 0,
            Stage.UNDELIVERABLE: self.lookahead.parked,
        }
        return contradictions(self.lanes, self.timers, counted)
