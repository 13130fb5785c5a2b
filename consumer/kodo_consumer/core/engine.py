"""The worker's core: what is held and what becomes of it. No threads and no I/O: events in, effects out.

The same code runs under threads with a real broker and under a manual clock in tests. Callers serialise the calls and
carry out `effects` and acknowledgements afterwards. Every unacknowledged message is in exactly one Place at all times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from random import Random
from typing import Final, assert_never

from kodo_consumer.core import outcomes
from kodo_consumer.core.audit_recorder import AuditRecorder
from kodo_consumer.core.broker import Receipt
from kodo_consumer.core.clock import Clock
from kodo_consumer.core.counters import Counts
from kodo_consumer.core.due_times import DueTimes
from kodo_consumer.core.effects import Effects
from kodo_consumer.core.envelope import CONTROL_NAMES, Delivery
from kodo_consumer.core.in_flight import BatchEntry, InFlight, LaneState, LookaheadBudget, Stage
from kodo_consumer.core.invariants import misplaced
from kodo_consumer.core.limits.limiter_set import LimitKind, Reservation
from kodo_consumer.core.limits.limiters import Limiter
from kodo_consumer.core.local_delays import LocalDelays
from kodo_consumer.core.observer import Watcher
from kodo_consumer.core.outcome_validation import OutcomeValidator
from kodo_consumer.core.outcomes import DONE, TOOK_TOO_LONG, Outcome, TooEarly, failure
from kodo_consumer.core.parked_messages import Parking
from kodo_consumer.core.policy import NOBODY, Policy
from kodo_consumer.core.publishing import PendingPublishes, PendingReroute
from kodo_consumer.core.receive_checks import before_its_turn, on_arrival
from kodo_consumer.core.redelivery import HandOver
from kodo_consumer.core.scheduling.concurrency_control import ConcurrencyControl
from kodo_consumer.core.scheduling.scheduler import Scheduler
from kodo_consumer.core.scheduling.tenant_isolation import TenantIsolation
from kodo_consumer.core.send_state import PendingPublish
from kodo_consumer.core.sequences.gap_monitor import GapMonitor
from kodo_consumer.core.state_machine import Acknowledge, Delay, Reroute, Rule, TransferOut, decide
from kodo_consumer.core.timers import TimerQueue
from kodo_consumer.core.worker_metrics import Meter
from kodo_consumer.message import Check, Message

_TICK: Final = 1.0  # seconds between two looks at what no event announces


class Engine:
    """One subscription's messages in one worker."""

    def __init__(self, policy: Policy, clock: Clock, rng: Random, check: Check | None = None) -> None:
        self.policy = policy
        self.counts = Counts()
        self.effects = Effects()
        self.draining = False
        self.meter: Meter | None = None  # there when somebody wants to see
        self.watcher: Watcher | None = None
        self.timers: TimerQueue[InFlight | Limiter | PendingPublish | AuditRecorder | Callable[[float], None]] = (
            TimerQueue()
        )
        self.lanes = [LaneState(lane) for lane in policy.lanes]
        self.dues = DueTimes()
        self.running: dict[Message, float] = {}  # oldest start first
        self._clock, self._check, self._verdicts = clock, check, OutcomeValidator(policy)
        self._stock = LookaheadBudget(policy)
        self._scheduler = Scheduler(policy, self.lanes, clock, self.timers.set, self._over_limit)
        self.limits = self._scheduler.limits
        self._waits = LocalDelays(self, self.timers.set, rng)
        self._publications = PendingPublishes(
            self, Parking(self, self._stock, self._let_next), self.timers.set, clock, rng
        )
        self.recorder = self._publications.recorder(self._finished_with)
        self.throttle = self._scheduler.throttle = ConcurrencyControl(self, self._scheduler, self.timers.set)
        self.isolation: TenantIsolation = TenantIsolation(self, self._stock, self._publications, self.timers.set, rng)
        self._scheduler.starts, self.isolation.paused = self.isolation.starts, self._scheduler.paused_messages
        self._sole = GapMonitor.of(policy, clock.wall(), self.counts)
        self.handover = HandOver(self, self._scheduler, self._sole, clock, self.timers.set)
        self.starved: dict[LaneState, None] = {}  # told that there is no room; in the order they were told
        self.unsent = 0  # acknowledgements nobody has fetched yet
        self._look_again = float("-inf")
        self._is_plain, self._timeout = policy.is_plain, policy.handler_timeout / 1000

    # ---- what arrives

    def deliver(self, index: int, deliveries: Sequence[Delivery]) -> None:
        """Messages of a lane. A copy of one that is held, or was just finished with, is dropped."""
        if self.draining:
            return
        lane, now, counts = self.lanes[index], self._clock.now(), self.counts
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
                self.unsent += 1
                counts.repeats += 1
            else:
                self._receive(lane, delivery, entry, now)
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
            self.starved[lane] = None
            if not (shut or lane.stays):
                self.isolation.full(self._clock.now())
        return room

    def receipt(self, ticket: int, receipt: Receipt) -> None:
        """The broker's word on a send."""
        self._publications.receipt(ticket, receipt, now := self._clock.now())
        self.isolation.move(now)

    # ---- handlers

    @property
    def version(self) -> int:
        """Grows whenever there may be more to take."""
        return self._scheduler.version

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
        if held is None:
            return None
        held.place = Stage.RUNNING
        self.counts.started += 1
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
        if outcome is DONE:  # the first line of the table, without its cost
            self.counts.done += 1
            if self.recorder is None:
                self._finished_with(held, now)
            else:
                self._ended(held, now)
            return True
        if (reason := failure(outcome)) is not None:
            self.counts.failed[reason] += 1
            self.counts.timed_out += outcome is TOOK_TOO_LONG
            held.lane.count("failed", reason)
        self._conclude(held, outcome, now)
        return True

    # ---- time

    def advance(self, now: float) -> None:
        """Wakes what is due."""
        for number, sleeper in self.timers.due(now):
            match sleeper:
                case InFlight():
                    if sleeper.place is Stage.WAITING and sleeper.trials.wake == number:
                        self._waits.ended(sleeper)
                        self.check_due(sleeper, now)
                case Limiter():
                    sleeper.timer_set = False
                    self._scheduler.let_through(sleeper, now)
                case PendingPublish():
                    self._publications.send(sleeper, now)
                case AuditRecorder():
                    sleeper.flush(now)
                case _:
                    sleeper(now)

    def tick(self) -> float:
        """Everything that depends on time alone. Answers in how many seconds to come again; infinite: when something happens."""
        now = self._clock.now()
        self.advance(now)
        self._give_up_overdue(now)
        if now >= self._publications.hanging_from:
            self._publications.renew(now)
        if now >= self._look_again:  # not at every timer: there may be ten thousand gates
            self._look_again = now + _TICK
            self._scheduler.recheck(now)
            for text in self.limits.prune(now):
                self.effects.alarm("limits", text)
            self.isolation.look(now)
            for text in self._sole.look(now) if self._sole is not None else ():
                self.effects.alarm("missing", text)
        self.resume_starved()
        oldest = next(iter(self.running.values()), float("inf"))
        due = min(oldest + self._timeout, self._publications.hanging_from, self.timers.first)
        if self.starved or self._scheduler.any_shut or self.isolation.tenants:
            due = min(due, now + _TICK)
        return max(0.0, due - now)

    def resume_starved(self) -> None:
        """Asks for more from lanes that were told to wait and have room again, for more than a few."""
        now = self._clock.now()
        for lane in list(self.starved):
            if not (lane.blocked or lane.resting) and lane.paused_until <= now and self._stock.worthwhile(lane):
                del self.starved[lane]
                self.effects.ask_for_more(lane.lane.index)

    def acknowledgements(self) -> list[tuple[int, list[object]]]:
        """What is to be acknowledged, by lane; fetched once."""
        found = [(lane.lane.index, lane.acks) for lane in self.lanes if lane.acks]
        for index, _ in found:
            self.lanes[index].acks = []
        self.unsent = 0
        return found

    def lent(self, gates: Sequence[Limiter]) -> None:
        """A store has lent to these limits, or lends no more."""
        for gate in gates:
            self._scheduler.lent(gate, self._clock.now())

    def adopt(
        self, policy: Policy, resting: AbstractSet[int] = frozenset(), paused: AbstractSet[str] = frozenset()
    ) -> None:
        """What a policy with the same lanes says counts from now on; lanes that rest and paused tenants stay as they are."""
        self.policy, self._verdicts = policy, OutcomeValidator(policy)
        self._is_plain, self._timeout = policy.is_plain, policy.handler_timeout / 1000
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
    def busy(self) -> bool:
        """Whether a handler runs or a receipt is awaited."""
        return bool(self.running) or self._publications.busy

    def misplaced(self) -> list[str]:
        """Watchdog: what contradicts "every unacknowledged id is in exactly one place". Empty unless there is a bug."""
        counted = {
            Stage.RUNNING: len(self.running),
            Stage.PUBLISHING: self._publications.waiting,
            Stage.GATED: self._scheduler.gated,
            Stage.LEAVING: len(self.isolation),
            Stage.RECORDED: self.recorder.waiting if self.recorder else 0,
            Stage.PARKED: self._stock.parked,
        }
        return misplaced(self.lanes, self.timers, counted)

    # ---- before the handler: for us? due? route? limits

    def _receive(self, lane: LaneState, delivery: Delivery, entry: BatchEntry, now: float) -> None:
        policy = self.policy
        properties = delivery.properties
        held = InFlight(lane, delivery, entry, policy.tenant(properties, delivery.key) if policy.fair_by else NOBODY)
        held.received = now
        self._stock.add(held)
        if self._is_plain and not delivery.broken and CONTROL_NAMES.isdisjoint(properties):
            if self._sole is not None:
                self._sole.received(held.delivery, lane.lane)
            self._scheduler.enqueue(held)  # nothing can stand in its way: the same as below, without the questions
            return
        outcome = on_arrival(held, policy, self._clock.wall())
        self.counts.unsigned += policy.signer is not None and held.delivery is not delivery
        if self._sole is not None:
            self._sole.received(held.delivery, lane.lane)
        if outcome is not None:
            self._conclude(held, outcome, now)
        elif lane.chain(held):
            self.check_due(held, now)

    def check_due(self, held: InFlight, now: float) -> None:
        """See handover.Owner."""
        outcome = before_its_turn(held, self.policy, wall := self._clock.wall())
        if outcome is None or (isinstance(outcome, TooEarly) and self._waits.hurries(held, outcome.due - wall)):
            self._scheduler.admit(held, now, in_turn=self._stock.ample)
        else:
            self._conclude(held, outcome, now)

    def _over_limit(self, held: InFlight, slot: Reservation, now: float) -> None:
        wall = self._clock.wall() + round((slot.at - now) * 1000)
        self._conclude(held, outcomes.OverQuota(wall) if slot.over is LimitKind.QUOTA else outcomes.OverRate(wall), now)

    def move_aside(self, held: InFlight, wait: float, now: float) -> None:
        """See isolation.Owner."""
        self._conclude(held, outcomes.Isolated(self._clock.wall() + round(wait * 1000)), now)

    # ---- after the handler

    def _conclude(self, held: InFlight, outcome: Outcome, now: float) -> None:
        decision = decide(held.envelope(may_wait=self._waits.room), outcome, self.policy, self._clock.wall())
        if self.watcher is not None:
            self.watcher.decided(held, outcome, decision)
        match decision:
            case Acknowledge(why, reason):
                self.counts.finished[why] += 1
                held.lane.count("finished", why)
                self._ended(held, now, why, reason)
            case Delay():
                self._waits.begin(held, decision, now)
            case Reroute() | TransferOut():
                self._publications.begin(held, decision, now)
            case _:
                assert_never(decision)

    def published(self, sent: PendingReroute, token: object, now: float) -> None:
        """The message is where it is to go: acknowledge it here."""
        self.counts.finished[sent.why] += 1
        sent.held.lane.count("finished", sent.why)
        self.dues.sent(sent.message)
        self._ended(sent.held, now, sent.why, sent.reason, sent.message.topic, token)

    def refused(self, held: InFlight, reason: str, now: float) -> None:
        """Its target will never take it."""
        self._conclude(held, outcomes.Refused(f"refused by its target: {reason}"), now)

    def _give_up_overdue(self, now: float) -> None:
        for message, started in list(self.running.items()):
            if now - started < self._timeout:
                return
            self.effects.give_up(message)
            self.finish(message, TOOK_TOO_LONG)

    def _ended(
        self, held: InFlight, now: float, why: Rule = Rule.DONE, reason: str = "", target: str = "", token: object = ""
    ) -> None:
        """Acknowledged, where records are kept after the receipt of its record; the next of its key need not wait for that."""
        if self.recorder is None:
            self._finished_with(held, now)
        else:
            self._let_next(held, now)
            self.recorder.add(held, why, now, reason, target, token)

    def _finished_with(self, held: InFlight, now: float) -> None:
        """Acknowledged: nothing is left to do for this message."""
        lane = held.lane
        lane.acks.append(held.token)
        self.unsent += 1
        entry = held.entry
        entry.done |= 1 << held.delivery.batch_index + 1
        entry.at = now
        self.forget(held)
        self._let_next(held, now)

    def _let_next(self, held: InFlight, now: float) -> None:
        if held.lane.chains is not None and (following := held.lane.next_of_chain(held)) is not None:
            self.check_due(following, now)

    def forget(self, held: InFlight) -> None:
        """See handover.Owner."""
        held.place = Stage.GONE
        self._stock.remove(held)
        if held.trials.resting or held.trials.early:
            self._waits.ended(held)
