"""Worker: one engine behind one lock, its lanes and its publisher. Threads of others call in and carry out the effects."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

from kodo_consumer.core.broker import Broker, LaneReader, Publisher, Receipt
from kodo_consumer.core.broker_window import request_of
from kodo_consumer.core.clock import Clock
from kodo_consumer.core.counters import Counts
from kodo_consumer.core.effects import Alarm, Effects
from kodo_consumer.core.engine import Engine
from kodo_consumer.core.envelope import Delivery
from kodo_consumer.core.handler_executor import HandlerExecutor
from kodo_consumer.core.limits.limiters import Limiter
from kodo_consumer.core.outcomes import Outcome
from kodo_consumer.core.override_state import paused_lanes, paused_tenants, steered
from kodo_consumer.core.policy import Lane, Policy
from kodo_consumer.message import Check, Message
from kodo_consumer.runtime.threads import leave
from kodo_consumer.runtime.worker_sink import WorkerSink
from kodoctl.protocol.overrides import Order

log = logging.getLogger("kodo.consumer")
_BUNDLE: Final = 64  # acknowledgements and messages to publish that are gathered while work goes on
_GATHER: Final = 0.005  # seconds they are gathered at most
OnReceived = Callable[[Policy, Lane, Sequence[Delivery], Check | None], object]
_LEAVE_WITHIN: Final = 8.0  # seconds for lanes and publisher together: who waits for the end of a process sees one
_QUIET: Final = 30.0  # seconds between two alarms of one kind


@dataclass(slots=True)
class _Todo:
    """Effects and acknowledgements (tokens by lane) that somebody fetched and now carries out."""

    effects: Effects
    acks: list[tuple[int, list[object]]]


class Worker:
    """One subscription's worker. `bell` is rung when the timekeeper has to come earlier than it planned."""

    def __init__(
        self,
        policy: Policy,
        broker: Broker,
        runner: HandlerExecutor,
        clock: Clock,
        rng: Random,
        check: Check | None = None,
    ) -> None:
        self.policy = policy
        self.engine = Engine(policy, clock, rng, check)
        self.bell: Callable[[], None] = lambda: None
        self.on_broken: Callable[[], None] = lambda: None
        self.on_received: OnReceived | None = None
        self.problem: BaseException | None = None
        self._broker, self._runner, self.clock, self._check = broker, runner, clock, check
        self._orders: tuple[Order, ...] = ()
        self._lock = threading.Lock()
        self._readers: list[LaneReader] = []
        self._publisher: Publisher | None = None
        self._opened = False
        self._next_tick = float("inf")
        self._gathering = False
        self._in_hand: deque[None] = deque()  # one for each lot that was collected and is not carried out yet
        self._alarmed: dict[str, tuple[float, int]] = {}
        self.alarms: Counter[str] = Counter()  # by kind, those kept back among them
        self.contradictions: list[str] = []  # what the watchdog saw last

    # ---- life

    def open(self, consumer_name: str, unacked: Mapping[int, int] | None = None) -> None:
        """Connects every lane and begins. Raises ClusterError; what was opened is closed again.

        `unacked`: by lane index, how many unacknowledged messages the broker lets one of its consumers have, where
        known.
        """
        policy = self.policy
        self._broker.report_to(self.broke, self.alarm)
        if self.engine.flow.recorder is not None:
            self.engine.flow.recorder.run = consumer_name
        try:
            self._publisher = self._broker.publisher(sorted(policy.written), self.receipts, policy.largest, local=True)
            for lane in policy.lanes:
                request = request_of(policy, lane, consumer_name, (unacked or {}).get(lane.index, 0))
                self._readers.append(self._broker.open(request, WorkerSink(self, lane.index)))
        except BaseException:
            self.close()
            raise
        self._runner.start(self)
        self._opened = True  # until then no lane has room: nothing is received that could not be acknowledged
        for reader in self._readers:
            reader.resume()

    def reader(self, index: int) -> LaneReader | None:
        """Of a lane, once all are open."""
        return self._readers[index] if self._opened else None

    def drain(self) -> None:
        """Receives and starts nothing more."""
        for reader in self._readers:
            reader.stop()
        with self._lock:
            self.engine.drain()
            todo = self._collect(flush=True)
        if todo is not None:
            self._carry_out(todo)

    @property
    def opened(self) -> bool:
        """Whether every lane was connected once."""
        return self._opened

    @property
    def disconnected_topics(self) -> list[str]:
        """Topics, or partitions of them, whose connection is lost at the moment."""
        return [topic for reader in self._readers for topic in reader.unconnected]

    @property
    def orders(self) -> tuple[Order, ...]:
        """Live orders in force."""
        return self._orders

    @property
    def busy(self) -> bool:
        """Whether handlers run, receipts are awaited, or a thread is still about to acknowledge or publish what they brought."""
        with self._lock:
            return self.engine.busy or bool(self._in_hand)

    def close(self) -> None:
        """Leaves; what was not acknowledged goes to other workers."""
        self._runner.stop()
        with self._lock:
            todo = self._collect(flush=True)
        if todo is not None:
            self._carry_out(todo)
        if leave({"worker": self._leave}, _LEAVE_WITHIN):
            text = "lanes and publisher do not close within %.0f s: they are left behind, what is unacknowledged comes again"
            log.error(text, _LEAVE_WITHIN)

    def _leave(self) -> None:
        for reader in self._readers:
            reader.close()
        if self._publisher is not None:
            self._publisher.close()

    @property
    def counts(self) -> Counts:
        """What was counted so far."""
        return self.engine.counts

    # ---- called by lanes and publisher

    def deliver(self, index: int, deliveries: Sequence[Delivery]) -> None:
        """See LaneSink."""
        with self._or_broken():
            if self.on_received is not None:
                self.on_received(self.policy, self.policy.lanes[index], deliveries, self._check)
            with self._lock:
                before = self.engine.version
                self.engine.deliver(index, deliveries)
                todo = self._collect(flush=True)
            self._after(before, todo)

    def room(self, index: int) -> int:
        """See LaneSink."""
        with self._or_broken(), self._lock:
            if self._opened:
                return self.engine.room(index)
        return 0

    def disconnected(self, index: int, partition: str | None = None) -> None:
        """See LaneSink."""
        lost = "" if partition is None else f" (partition {partition})"
        log.info("%s%s: connection lost, its messages will come again", self.policy.lanes[index].topic, lost)
        with self._or_broken(), self._lock:
            self.engine.disconnected(index, partition)

    def receipts(self, receipts: Sequence[tuple[int, Receipt]]) -> None:
        """See OnReceipts."""
        with self._or_broken():
            with self._lock:
                before = self.engine.version
                for ticket, receipt in receipts:
                    self.engine.receipt(ticket, receipt)
                todo = self._collect(flush=True)
            self._after(before, todo)

    @contextmanager
    def _or_broken(self) -> Iterator[None]:
        """Around calls on the adapter's threads, which a failure of ours would end without a word: the worker ends instead."""
        try:
            yield
        except Exception as problem:  # noqa: BLE001
            self.broke(problem)

    # ---- called by handlers

    @property
    def version(self) -> int:
        """See Desk."""
        return self.engine.version

    def turn(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
        """See Desk."""
        with self._lock:
            message = self.engine.turn(finished, outcome)
            todo = self._collect(flush=message is None)
        if todo is not None:
            self._carry_out(todo)
        return message

    def exchange(self, ended: Sequence[tuple[Message, Outcome]], most: int) -> list[Message]:
        """See Desk."""
        engine, taken = self.engine, list[Message]()
        with self._lock:
            now = self.clock.now()
            for finished, outcome in ended:
                engine.finish(finished, outcome, now)
            while len(taken) < most and (message := engine.take(now)) is not None:
                taken.append(message)
            todo = self._collect(flush=len(taken) < most)
        if todo is not None:
            self._carry_out(todo)
        return taken

    def broke(self, problem: BaseException) -> None:
        """See Desk."""
        if self.problem is None:
            self.problem = problem
        log.critical("the worker broke and ends; unacknowledged messages go to others", exc_info=problem)
        self.on_broken()

    # ---- called by the timekeeper

    def tick(self) -> float:
        """Everything that depends on time alone. Answers in how many seconds to come again."""
        with self._lock:
            before = self.engine.version
            seconds = self.engine.tick()
            self._next_tick = self.clock.now() + seconds
            todo = self._collect(flush=True)
        self._after(before, todo)
        return seconds

    def share_limits(self, workers: int) -> None:
        """So many workers live on this subscription."""
        with self._lock:
            changed = self.engine.scheduler.limits.share_out(workers)
        if changed and self.engine.scheduler.limits.borrower is None:
            for limit in self.engine.scheduler.limits.too_small:
                text = f"{limit} is less than one for each of {workers} workers: each takes one, together more than declared"
                self.alarm(Alarm("limits", text))

    def borrow(self, step: Callable[[float], Sequence[Limiter]]) -> None:
        """A step in borrowing from a store what workers share, at a moment when nobody uses it: it is told the time and
        answers whose waiters should look again.
        """
        with self._or_broken():
            with self._lock:
                before = self.engine.version
                self.engine.lent(step(self.clock.now()))
                todo = self._collect(flush=True)
            self._after(before, todo)

    def answered(self, lane: Lane, named: Mapping[str, str] | None, asked: float) -> None:
        """See kodo_consumer.runtime.active_consumer_poller.Answered."""
        with self._or_broken():
            with self._lock:
                before = self.engine.version
                self.engine.answered(lane.index, named, asked)
                todo = self._collect(flush=True)
            self._after(before, todo)

    def follow(self, orders: tuple[Order, ...]) -> None:
        """These live orders are in force, and no others."""
        self._orders = orders
        self._adopt()

    def adopt(self, policy: Policy) -> None:
        """The file says otherwise now: a policy with the same structure (kodo_consumer.runtime.topology_reload tells)."""
        self.policy = policy
        self._adopt()

    def _adopt(self) -> None:
        with self._or_broken():
            with self._lock:
                orders, policy = self._orders, self.policy
                self.engine.adopt(steered(policy, orders), paused_lanes(policy, orders), paused_tenants(orders))
                if not self._opened:  # what it brings about is carried out with what the first messages do
                    return
                todo = self._collect(flush=True)
            self._runner.wake()
            if todo is not None:
                self._carry_out(todo)

    def watch(self) -> None:
        """Checks that every unacknowledged message is where it should be; a contradiction is logged."""
        with self._lock:
            self.contradictions = self.engine.misplaced()
        if self.contradictions:
            log.error("watchdog: %s", "; ".join(self.contradictions))

    # ---- carrying out

    def _collect(self, *, flush: bool) -> _Todo | None:
        """What is to be done outside the lock, if anything. While work goes on, acknowledgements and messages are gathered."""
        engine = self.engine
        if engine.lookahead.starved:
            engine.resume_starved()
        if engine.timers.first < self._next_tick:
            self._come_at(engine.timers.first)
        gathered = engine.context.unsent + len(engine.effects.publish)
        flush = gathered > 0 and (flush or gathered >= _BUNDLE)
        if flush or engine.effects.urgent:
            self._gathering = False
            todo = _Todo(engine.take_effects(), engine.acknowledgements())
            self._in_hand.append(None)
            return todo
        if gathered and not self._gathering:  # who began may be long at work: the timekeeper sees to the rest
            self._gathering = True
            self._come_at(min(self._next_tick, self.clock.now() + _GATHER))
        return None

    def _come_at(self, moment: float) -> None:
        self._next_tick = moment
        self.bell()

    @property
    def due_in(self) -> float:
        """Seconds until the next tick is due, by now; the bell is rung when that becomes sooner."""
        return self._next_tick - self.clock.now()

    def _after(self, version: int, todo: _Todo | None) -> None:
        if self.engine.version != version:
            self._runner.wake()
        if todo is not None:
            self._carry_out(todo)

    def _carry_out(self, todo: _Todo) -> None:
        try:
            self._do(todo)
        finally:
            self._in_hand.pop()

    def _do(self, todo: _Todo) -> None:
        effects = todo.effects
        for index, tokens in todo.acks:
            self._readers[index].acknowledge(tokens)
        if not effects.urgent and not effects.publish:
            return
        assert self._publisher is not None
        if effects.renew_publishing:
            self._publisher.renew()
        if effects.publish:
            self._publisher.publish(effects.publish)
        for index, partition in effects.anew:
            self._readers[index].reconnect(0.0, 0.0, partition)
        for index in effects.resume:
            self._readers[index].resume()
        for message in effects.overdue:
            self._runner.abandon(message)
        for alarm in effects.alarms:
            self.alarm(alarm)

    def alarm(self, alarm: Alarm) -> None:
        """Tells a person. One line for each kind of alarm in a while, with the number of those kept back."""
        now = self.clock.now()
        self.alarms[alarm.kind] += 1
        last, kept_back = self._alarmed.get(alarm.kind, (float("-inf"), 0))
        if now - last < _QUIET:
            self._alarmed[alarm.kind] = (last, kept_back + 1)
            return
        self._alarmed[alarm.kind] = (now, 0)
        more = f" (and {kept_back} more since the last line)" if kept_back else ""
        level = logging.INFO if alarm.good else logging.ERROR if alarm.severe else logging.WARNING
        log.log(level, "%s: %s%s", alarm.kind, alarm.text, more)
