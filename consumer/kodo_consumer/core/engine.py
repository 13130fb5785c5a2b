"""The worker's core: what is held and what becomes of it. No threads and no I/O: events in, effects out.

The same code runs under threads with a real broker and under a manual clock in tests. Callers serialise the calls and
carry out `effects` and acknowledgements afterwards. Every unacknowledged message is in exactly one Place at all times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from random import Random
from typing import Final

from kodo_consumer.core.audit_recorder import AuditRecorder
from kodo_consumer.core.broker import Receipt
from kodo_consumer.core.clock import Clock
from kodo_consumer.core.counters import Counts
from kodo_consumer.core.due_times import DueTimes
from kodo_consumer.core.effects import Effects
from kodo_consumer.core.engine_context import EngineContext
from kodo_consumer.core.envelope import Delivery
from kodo_consumer.core.in_flight import BatchEntry, InFlight, LaneState, LookaheadBudget, Stage
from kodo_consumer.core.invariants import misplaced
from kodo_consumer.core.limits.limiter_set import LimiterSet
from kodo_consumer.core.limits.limiters import Limiter
from kodo_consumer.core.message_flow import MessageFlow, Sleeper
from kodo_consumer.core.observer import Watcher
from kodo_consumer.core.outcome_validation import OutcomeValidator
from kodo_consumer.core.outcomes import DONE, TOOK_TOO_LONG, Outcome
from kodo_consumer.core.policy import Policy
from kodo_consumer.core.redelivery import HandOver
from kodo_consumer.core.scheduling.concurrency_control import ConcurrencyControl
from kodo_consumer.core.scheduling.scheduler import Scheduler
from kodo_consumer.core.scheduling.slot_reservation import SlotReservation
from kodo_consumer.core.scheduling.tenant_isolation import TenantIsolation
from kodo_consumer.core.send_state import PendingPublish
from kodo_consumer.core.sequences.gap_monitor import GapMonitor
from kodo_consumer.core.timers import TimerQueue
from kodo_consumer.core.worker_metrics import Meter
from kodo_consumer.message import Check, Message

_TICK: Final = 1.0  # seconds between two looks at what no event announces


class Engine:
    """One subscription's messages in one worker."""

    def __init__(self, policy: Policy, clock: Clock, rng: Random, check: Check | None = None) -> None:
        self.draining = False
        self.meter: Meter | None = None  # there when somebody wants to see
        self.timers: TimerQueue[Sleeper] = TimerQueue()
        self.lanes = [LaneState(lane) for lane in policy.lanes]
        self.running: dict[Message, float] = {}  # oldest start first
        self._context, self._clock, self._check = EngineContext(policy), clock, check
        self._verdicts = OutcomeValidator(policy)
        self._stock = LookaheadBudget(policy)
        slots = SlotReservation(policy.concurrency) if policy.fair_by else None
        throttle = ConcurrencyControl(self._context, slots, self.timers.set)
        self._scheduler = Scheduler(policy, self.lanes, clock, self.timers.set, slots, throttle)
        self._sole = GapMonitor.of(policy, clock.wall(), self.counts)
        self._flow = MessageFlow(self._context, clock, self._stock, self._scheduler, self.timers, self._sole, rng)
        self.isolation = TenantIsolation(
            self._context, self.lanes, self._stock, self._flow, self._scheduler, self.timers.set, rng
        )
        self.handover = HandOver(self._context, self._flow, self._scheduler, self._sole, clock, self.timers.set)
        self._look_again = float("-inf")

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._context.policy

    @property
    def counts(self) -> Counts:
        """Counts since the start."""
        return self._context.counts

    @property
    def effects(self) -> Effects:
        """What is to be done outside; `take_effects` fetches it."""
        return self._context.effects

    @property
    def unsent(self) -> int:
        """Acknowledgements that nobody has fetched yet."""
        return self._context.unsent

    @property
    def starved(self) -> dict[LaneState, None]:
        """Lanes that were given no room, in the order they asked."""
        return self._stock.starved

    @property
    def limits(self) -> LimiterSet:
        """The subscription's limits at work."""
        return self._scheduler.limits

    @property
    def throttle(self) -> ConcurrencyControl:
        """What holds handlers back whichever is next."""
        return self._scheduler.throttle

    @property
    def due_times(self) -> DueTimes:
        """What was sent with a due time, and when."""
        return self._flow.due_times

    @property
    def moving(self) -> int:
        """Messages on their way to other topics, with a receipt to come."""
        return self._flow.publishes.waiting

    @property
    def watcher(self) -> Watcher | None:
        """Sees every decision before it is carried out."""
        return self._flow.watcher

    @watcher.setter
    def watcher(self, watcher: Watcher | None) -> None:
        self._flow.watcher = watcher

    @property
    def recorder(self) -> AuditRecorder | None:
        """What writes the subscription's audit records; None where it keeps none."""
        return self._flow.recorder

    # ---- what arrives

    def deliver(self, index: int, deliveries: Sequence[Delivery]) -> None:
        """Messages of a lane. A copy of one that is held, or was just finished with, is dropped."""
        if self.draining:
            return
        lane, now, counts = self.lanes[index], self._clock.now(), self._context.counts
        if lane.active is not None:
            deliveries = lane.active.handled(deliveries, now)
        counts.received += len(deliveries)
        entry: BatchEntry | None = None
        for delivery in deliveries:
            if entry is None or entry.key is not delivery.entry:  # mostly many of one batch in a row
                entry = lane.entry(delivery.entry, now)
            held = entry.held.get(delivery.batch_index)
            if held is not None:
                held.token = delivery.token
                if lane.active is not None:  # else the first time counts
                    held.received = now
                counts.repeats += 1
            elif entry.done >> delivery.batch_index + 1 & 1:
                lane.acks.append(delivery.token)
                self._context.unsent += 1
                counts.repeats += 1
            else:
                self._flow.receive(lane, delivery, entry, now)
        if self.isolation.tenants:
            self.isolation.sift(now)

    def disconnected(self, index: int, partition: str | None = None) -> None:
        """The messages of a lane, or of one partition, will come again: see HandOver."""
        self.handover.disconnected(self.lanes[index], partition)

    def room(self, index: int) -> int:
        """See LaneSink.room."""
        lane = self.lanes[index]
        shut = self.draining or lane.blocked or lane.resting or lane.paused_until > self._clock.now()
        room = 0 if shut else self._stock.room(lane)
        if lane.active is not None:
            room = lane.active.room(room, lane.held)
        if not room:
            self._stock.starved[lane] = None
            if not (shut or lane.stays):
                self.isolation.full(self._clock.now())
        return room

    def receipt(self, ticket: int, receipt: Receipt) -> None:
        """The broker's word on a send."""
        self._flow.receipt(ticket, receipt, now := self._clock.now())
        self.isolation.move(now)

    # ---- handlers

    @property
    def version(self) -> int:
        """Grows whenever there may be more to take."""
        return self._scheduler.version + self.throttle.version

    def turn(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
        """A handler ended, if any did, and the next message is taken, if there is one."""
        now = self._clock.now()
        if finished is not None:
            assert outcome is not None
            self.finish(finished, outcome, now)
        return self.take(now)

    def take(self, now: float | None = None) -> Message | None:
        """The next message to handle, its tokens taken; None when nobody may start now."""
        if self.draining:
            return None
        now = self._clock.now() if now is None else now
        if self.timers.first <= now:
            self.advance(now)
        held = self._scheduler.take(now)
        if self._scheduler.over_limit:
            self._flow.conclude_over_limit(now)
        if held is None:
            return None
        held.place = Stage.RUNNING
        self._context.counts.started += 1
        message = Message(held.delivery, held.lane.lane, held.control, held.tenant, self._check, held)
        self.running[message] = now
        return message

    def finish(self, message: Message, outcome: Outcome, now: float | None = None) -> bool:
        """The handler ended. False: too late, its message has been taken from it."""
        started = self.running.pop(message, None)
        if started is None:
            return False
        held = message._held  # noqa: SLF001  # made by take
        assert isinstance(held, InFlight)
        now = self._clock.now() if now is None else now
        self._scheduler.freed(held, now)
        if self.meter is not None:
            self.meter.ended(held, started, now, done=outcome is DONE)
        outcome = outcome if outcome is DONE else self._verdicts.judged(held, outcome)
        if outcome is not DONE or self.throttle.listens:
            self.throttle.ended(held.tenant, outcome, started, len(self.running) + 1, now)
        self._flow.finish(held, outcome, now)
        return True

    # ---- time

    def advance(self, now: float) -> None:
        """Wakes what is due."""
        for number, sleeper in self.timers.due(now):
            match sleeper:
                case InFlight():
                    self._flow.wake(sleeper, number, now)
                case Limiter():
                    sleeper.timer_set = False
                    self._scheduler.let_through(sleeper, now)
                case PendingPublish():
                    self._flow.publishes.send(sleeper, now)
                case AuditRecorder():
                    sleeper.flush(now)
                case _:
                    sleeper(now)

    def tick(self) -> float:
        """Everything that depends on time alone. Answers in how many seconds to come again; infinite: when something happens."""
        now = self._clock.now()
        self.advance(now)
        self._give_up_overdue(now)
        if now >= self._flow.publishes.hanging_from:
            self._flow.publishes.renew(now)
        if now >= self._look_again:  # not at every timer: there may be ten thousand gates
            self._look_again = now + _TICK
            self._scheduler.recheck(now)
            for text in self.limits.prune(now):
                self._context.effects.alarm("limits", text)
            self.isolation.look(now)
            for text in self._sole.look(now) if self._sole is not None else ():
                self._context.effects.alarm("missing", text)
        self.resume_starved()
        oldest = next(iter(self.running.values()), float("inf"))
        due = min(oldest + self._timeout, self._flow.publishes.hanging_from, self.timers.first)
        if self.starved or self._scheduler.any_shut or self.isolation.tenants:
            due = min(due, now + _TICK)
        return max(0.0, due - now)

    def resume_starved(self) -> None:
        """Asks for more from lanes that were told to wait and have room again, for more than a few."""
        now = self._clock.now()
        for lane in list(self._stock.starved):
            if not (lane.blocked or lane.resting) and lane.paused_until <= now and self._stock.worthwhile(lane):
                del self._stock.starved[lane]
                self._context.effects.ask_for_more(lane.lane.index)

    def acknowledgements(self) -> list[tuple[int, list[object]]]:
        """What is to be acknowledged, by lane; fetched once."""
        found = [(lane.lane.index, lane.acks) for lane in self.lanes if lane.acks]
        for index, _ in found:
            self.lanes[index].acks = []
        self._context.unsent = 0
        return found

    def take_effects(self) -> Effects:
        """What is to be done outside; fetched once."""
        found, self._context.effects = self._context.effects, Effects()
        return found

    def answered(self, index: int, named: Mapping[str, str] | None, asked: float) -> None:
        """The active consumer of each partition of a lane: see HandOver."""
        if ready := self.handover.answered(self.lanes[index], named, asked):
            self.deliver(index, ready)

    def lent(self, gates: Sequence[Limiter]) -> None:
        """A store has lent to these limits, or lends no more."""
        for gate in gates:
            self._scheduler.lent(gate, self._clock.now())

    def adopt(
        self, policy: Policy, resting: AbstractSet[int] = frozenset(), paused: AbstractSet[str] = frozenset()
    ) -> None:
        """What a policy with the same lanes says counts from now on; lanes that rest and paused tenants stay as they are."""
        self._context.policy, self._verdicts = policy, OutcomeValidator(policy)
        for lane in self.lanes:
            lane.resting = lane.lane.index in resting
        self._scheduler.adopt(policy, resting, paused, self._clock.now())
        self.resume_starved()

    # ---- the end

    def drain(self) -> None:
        """Starts nothing more and lets go what has not started; what runs or is being published goes on."""
        self.draining = True
        for lane in self.lanes:
            self.handover.let_go(lane)
        if self.recorder is not None:  # what still runs has its records gathered as ever
            self.recorder.flush(self._clock.now())

    @property
    def _timeout(self) -> float:
        return self._context.policy.handler_timeout / 1000

    @property
    def busy(self) -> bool:
        """Whether a handler runs or a receipt is awaited."""
        return bool(self.running) or self._flow.busy

    def misplaced(self) -> list[str]:
        """Watchdog: what contradicts "every unacknowledged id is in exactly one place". Empty unless there is a bug."""
        counted = {
            Stage.RUNNING: len(self.running),
            Stage.PUBLISHING: self._flow.publishes.waiting,
            Stage.GATED: self._scheduler.gated,
            Stage.LEAVING: len(self.isolation),
            Stage.RECORDED: self.recorder.waiting if self.recorder else 0,
            Stage.PARKED: self._stock.parked,
        }
        return misplaced(self.lanes, self.timers, counted)

    def _give_up_overdue(self, now: float) -> None:
        for message, started in list(self.running.items()):
            if now - started < self._timeout:
                return
            self._context.effects.give_up(message)
            self.finish(message, TOOK_TOO_LONG)
