"""Worker: one engine behind one lock, its lanes and its publisher. Threads of others call it and carry out effects."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from kodo_consumer.core.engine.engine import Engine
from kodo_consumer.core.engine.pending_actions import Actions, PendingActions
from kodo_consumer.core.state.observer import Acknowledged, Observers
from kodo_consumer.core.state.tenant_ring import MAX_TENANTS
from kodo_consumer.core.upkeep.backlog_trend import HandlerLoad
from kodo_consumer.core.upkeep.override_state import apply_overrides, left_lanes, paused_lanes, paused_tenants
from kodo_consumer.core.upkeep.tenant_backlog import TenantShare
from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.message import Check, Message
from kodo_consumer.runtime.outcome_log import OutcomeLog
from kodo_consumer.runtime.worker_connections import WorkerConnections
from kodoctl.protocol.sequence_numbers import NOBODY as MARK
from kodoctl.topology.names import PLAIN

if TYPE_CHECKING:
    from kodo_consumer.core.limits.limiters import Limiter
    from kodo_consumer.core.state.in_flight import InFlight
    from kodo_consumer.core.values.broker import Broker, LaneReader, Receipt
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.counters import Counts
    from kodo_consumer.core.values.envelope import Delivery
    from kodo_consumer.core.values.handler_executor import HandlerExecutor
    from kodo_consumer.core.values.outcomes import Outcome
    from kodo_consumer.core.values.policy import Lane, Policy
    from kodoctl.protocol.overrides import Override

log = logging.getLogger("kodo.consumer")
T = TypeVar("T")
_QUIET: Final = 30.0  # seconds between two alarms of one kind


class Worker:
    """Worker of one subscription. `opened`: every lane was connected once. `orders`: live orders in force. `problem`:
    the exception that broke it; None while it works. Thread-safe. Calls of the adapter's threads raise nothing: an
    exception breaks the worker (`fail`).
    """

    def __init__(
        self,
        policy: Policy,
        broker: Broker,
        runner: HandlerExecutor,
        clock: Clock,
        rng: Random,
        check: Check | None = None,
        observers: Observers | None = None,
    ) -> None:
        observers = observers or Observers()
        self.policy, self.clock = policy, clock
        confirms = observers.acknowledged is not None
        self.engine = Engine(policy, clock, rng, check, observers.decisions, confirms=confirms)
        self.problem: BaseException | None = None
        self.contradictions: list[str] = []  # what the watchdog saw last
        self._runner, self._check, self._observers = runner, check, observers
        self._connections = WorkerConnections(broker)
        self._actions = PendingActions(self.engine, clock)
        self.alarms = AlarmLog(clock)
        self._lock = threading.Lock()
        self.orders: tuple[Override, ...] = ()
        self.opened = False
        self._on_failure: Callable[[], object] = lambda: None
        broker.report_to(self.fail, self.alarms.write)

    # ---- life

    def supervise(self, ring: Callable[[], object], on_broken: Callable[[], object]) -> None:
        """Sets callbacks, which any thread may call: `ring`, if the next tick is due sooner than planned, and
        `on_broken`, if the worker breaks.
        """
        self._actions.ring_with(ring)
        self._on_failure = on_broken

    def open(self, consumer_name: str, unacked: Mapping[int, int] | None = None) -> None:
        """Connects every lane, then starts the handlers and the receiving. Raises KodoctlError, after closing all that
        was opened: ClusterError, or the error with which the executor does not start.

        `unacked`: number of unacknowledged messages that the broker allows one consumer, by lane index, if known.
        """
        if self.engine.flow.recorder is not None:
            self.engine.flow.recorder.run = consumer_name
        try:
            sinks = partial(WorkerSink, self)
            confirms = self._observers.acknowledged is not None
            self._connections.open(self.policy, consumer_name, unacked or {}, sinks, self.receipts, confirms=confirms)
            self._runner.start(self)
        except BaseException:
            self.close()
            raise
        self.opened = True  # until then no lane has room: nothing is received that could not be acknowledged
        for reader in self._connections.readers:
            reader.resume()

    def reader(self, index: int) -> LaneReader | None:
        """Reader of a lane. None until all lanes are open, and for a lane that this worker does not read."""
        return self._connections.readers[index] if self.opened and index < len(self.policy.lanes) else None

    def drain(self) -> None:
        """Ends receiving, and starts no more messages. Those that have not started are dropped here, but stay
        unacknowledged at this worker's consumers until `close` ends the connections; then the broker gives them to
        other workers. Running handlers, acknowledgements and reroutes continue, and this does not wait for them.
        """
        self._connections.stop()
        with self._lock:
            self.engine.drain()
            actions = self._all_actions()
        self._carry_out(actions)

    @property
    def has_inbox(self) -> bool:
        """True if messages come from an inbox, whose rows are this worker's whichever consumer the broker names."""
        return getattr(self._connections.broker, "inbox", None) is not None

    @property
    def disconnected_topics(self) -> list[str]:
        """Texts for people, one for each topic, or partition of it, of which no messages can come now: its name,
        followed by the reason if it is known. Partitions that another reader holds alone are among them, and those that
        have not been connected yet.
        """
        return self._connections.disconnected_topics

    @property
    def busy(self) -> bool:
        """True if handlers run, messages are deferred, receipts or confirmations are awaited, or a thread is about to
        acknowledge or publish. Messages that wait for their start do not count.
        """
        with self._lock:
            return self.engine.busy or self._actions.has_uncommitted

    def call_locked(self, read: Callable[[], T]) -> T:
        """Result of `read`, which is called with the worker's lock held, so that the engine does not change meanwhile.
        `read` must be short, and call no method of the worker.
        """
        with self._lock:
            return read()

    def close(self) -> None:
        """Stops the executor, carries out pending actions and closes the connections, within a limited time. The broker
        gives unacknowledged messages to other workers; tokens of deferred ones have no effect any more. An action that
        fails breaks the worker (`problem`), and everything is closed all the same.
        """
        with self._lock:
            self.engine.runs.abandon()
        if self._observers.acknowledged is not None:
            self._observers.acknowledged.close()
        self._runner.stop()
        with self._or_broken(), self._event():
            pass  # what is gathered goes out
        self._connections.close()
        if self._observers.decisions is not None:
            self._observers.decisions.close()

    def handler_load(self) -> HandlerLoad:
        """Handlers at work, their runs since the start, and two tenants: the one with most of the waiting messages, and
        the one with most of the handlers at work. It needs no lock, and looks at 10,000 tenants of a lane at most.
        """
        working = Counter(message.tenant for message in list(self.engine.runs.running))
        waiting: Counter[str] = Counter()
        rings = [lane.ring for lane in self.engine.lanes if self.policy.fair_by]
        for tenant, count, _ in chain.from_iterable(islice(ring.queues(), MAX_TENANTS) for ring in rings):
            waiting[tenant] += count
        total = max(waiting.total(), sum(map(len, rings)))
        return HandlerLoad(
            working.total(),
            self.engine.counts.started,
            TenantShare.largest(waiting, total),
            TenantShare.largest(working, working.total()),
        )

    @property
    def counts(self) -> Counts:
        """Counts since the start, which keep changing."""
        return self.engine.counts

    # ---- called by lanes and publisher

    def deliver(self, index: int, deliveries: Sequence[Delivery]) -> None:
        """Takes messages that the reader of a lane (`index`) received, in their order. Called by threads of the
        broker's adapter.
        """
        with self._or_broken():
            if self._observers.received is not None:
                self._observers.received(self.policy, self.policy.lanes[index], deliveries, self._check)
            with self._event():
                self.engine.deliver(index, deliveries)

    def room(self, index: int) -> int:
        """Number of further messages that the look-ahead admits for a lane (`index`); 0 until all lanes are open."""
        with self._or_broken(), self._lock:
            if self.opened:
                return self.engine.room(index)
        return 0

    def on_disconnect(self, index: int, partition: str | None = None) -> None:
        """Notes that a lane, or one `partition` of it, lost its connection: the broker redelivers its unacknowledged
        messages.
        """
        lost = "" if partition in (None, str(PLAIN)) else f" (partition {partition})"
        log.info("%s%s: connection lost, its messages will come again", self.policy.lanes[index].topic, lost)
        with self._or_broken(), self._lock:
            self.engine.on_disconnect(index, partition)

    def start_until(self, index: int, moment: float) -> None:
        """Lets messages of a lane (`index`) start only before `moment` (monotonic seconds; infinite: at any time)."""
        with self._or_broken(), self._event():
            self.engine.start_until(index, moment)

    def withdraw(self, index: int, tokens: Collection[object]) -> Sequence[object]:
        """Drops those messages of a lane (`index`) with these tokens that wait for their start. Returns the tokens of
        those that it keeps: they have started, are being moved or are parked. See ClaimSink.
        """
        with self._or_broken(), self._lock:
            if tokens:
                return self.engine.withdraw(index, tokens)
        return ()

    def receipts(self, receipts: Sequence[tuple[int, Receipt]]) -> None:
        """Takes receipts of published messages, each with its ticket. Called by threads of the publisher."""
        with self._or_broken(), self._event():
            self.engine.receipts(receipts)

    @property
    def running_hook(self) -> tuple[str, float] | None:
        """(name of the hook for acknowledged messages that runs now, seconds since it was called); None if no such hook
        runs.
        """
        observer = self._observers.acknowledged
        return None if observer is None else observer.running_hook

    def on_acknowledged(self, confirmed: Sequence[int], unknown: Sequence[int]) -> None:
        """Takes the tickets of acknowledgements that the broker has confirmed, and of those whose result is unknown.
        Lets the observer call the hooks with the confirmed messages, perhaps later and on another thread. Does nothing
        if there are no such hooks.
        """
        confirmations, observer = self.engine.context.confirmations, self._observers.acknowledged
        if confirmations is None or observer is None:
            return
        with self._or_broken():
            with self._lock:
                ended = confirmations.take_results(confirmed, unknown)
            if ended:
                check = self._check
                messages: list[Acknowledged] = [  # `Message[Any](…)` would cost 2 µs more
                    (Message(one.delivery, one.lane.lane, one.headers, one.tenant, check), one.why)
                    for one in ended
                    if one.headers.meant_for != MARK
                ]
                observer.on_acknowledged(messages, partial(self._end_confirmations, ended))

    def _end_confirmations(self, called: Sequence[InFlight]) -> None:
        with self._lock:
            if self.engine.context.confirmations is not None:
                self.engine.context.confirmations.end(called)

    @contextmanager
    def _or_broken(self) -> Iterator[None]:
        """Context manager for calls on the adapter's threads: an exception of ours fails the worker, instead of ending
        such a thread silently.
        """
        try:
            yield
        except Exception as problem:  # noqa: BLE001  # whatever it is, the worker is broken
            self.fail(problem)

    # ---- called by handlers

    @property
    def version(self) -> int:
        """Number that changes whenever `next` may return more."""
        return self.engine.version

    def next(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
        """Takes the outcome of a finished message (both None: no handler ended), and returns the next message to
        handle; None if no message may start now.
        """
        if finished is not None and outcome is not None and (outcome is not DONE or log.isEnabledFor(logging.DEBUG)):
            self.alarms.outcomes.write(finished, outcome, self.policy)
        with self._lock:
            message = self.engine.next(finished, outcome)
            actions = self._actions.collect(flush=message is None)
        if actions is not None:
            self._carry_out(actions)
        return message

    def next_batch(self, ended: Sequence[tuple[Message, Outcome]], most: int) -> list[Message]:
        """Takes the outcomes of ended messages, and returns at most `most` messages to handle; [] if no message may
        start now.
        """
        engine, taken = self.engine, list[Message]()
        for finished, outcome in ended:
            if outcome is not DONE or log.isEnabledFor(logging.DEBUG):
                self.alarms.outcomes.write(finished, outcome, self.policy)
        with self._lock:
            now = self.clock.now()
            for finished, outcome in ended:
                engine.finish(finished, outcome, now)
            while len(taken) < most and (message := engine.take(now)) is not None:
                taken.append(message)
            actions = self._actions.collect(flush=len(taken) < most)
        if actions is not None:
            self._carry_out(actions)
        return taken

    def leave_open(self, message: Message, timeout: float | None) -> bool:
        """Ends the handler run of a message that a token ends later. `timeout`: seconds, None: as the settings say.
        Returns False if the run has ended already. See DeferringSource.
        """
        with self._event():
            return self.engine.runs.leave_open(message, timeout, self.clock.now())

    def end(self, message: Message, outcome: Outcome) -> bool:
        """Takes the outcome of a message that was left open; any thread may call. Returns False, without effect, if the
        message has ended already. See DeferringSource.
        """
        is_ended = False
        with self._or_broken(), self._event():  # the caller's thread is the application's
            is_ended = self.engine.runs.end(message, outcome, self.clock.now())
        if is_ended:
            self.alarms.outcomes.write(message, outcome, self.policy, is_ended=True)
        return is_ended

    def fail(self, problem: BaseException) -> None:
        """Breaks the worker: keeps the first problem, logs each, and ends the wait of its supervisor, whose owner then
        stops it. Handlers run until then. Any thread may call it; never raises.
        """
        if self.problem is None:
            self.problem = problem
        log.critical("the worker broke and ends; unacknowledged messages go to others", exc_info=problem)
        self._on_failure()

    # ---- called by the timekeeper

    def tick(self) -> float:
        """Does everything that depends on time alone, such as due messages and time-outs. Returns the seconds until the
        next tick.
        """
        with self._event():
            seconds = self.engine.tick()
            self._actions.tick_in(seconds)
        return seconds

    def share_limits(self, workers: int) -> None:
        """Divides shared limits of the subscription among `workers` live workers. If the number has changed and limits
        use no leases, writes an alarm for each that is too small for that.
        """
        with self._lock:
            texts = self.engine.scheduler.limits.share_out(workers)
        for text in texts:
            self.alarms.write(Alarm("limits", text))

    def update_leases(self, step: Callable[[float], Sequence[Limiter]]) -> None:
        """Calls `step` with the worker's time while no thread uses the limiters. `step` returns the limiters whose
        waiting messages are to be checked again; an exception that it raises breaks the worker.
        """
        with self._or_broken(), self._event():
            self.engine.on_leases_changed(step(self.clock.now()))

    def on_active_consumers(self, lane: Lane, named: Mapping[str, str] | None, asked: float) -> None:
        """Takes the active consumers of a lane's partitions from the broker, by partition (its number as a text); None:
        unknown. `asked`: time before the request, in seconds of the worker's clock.
        """
        emptied = self._connections.empty_times(lane.index, self.clock.now())
        with self._or_broken(), self._event():
            self.engine.on_active_consumers(lane.index, named, asked, emptied)

    def set_overrides(self, orders: tuple[Override, ...]) -> None:
        """Replaces the live orders (instructions of people to running workers) in force, and applies them."""
        self.orders = orders
        self._apply_policy()

    def apply_policy(self, policy: Policy) -> None:
        """Applies a policy with the same structure, from a changed file; live orders stay in force. Does not check the
        structure: kodo_consumer.runtime.topology_reload does.
        """
        self.policy = policy
        self._apply_policy()

    def _apply_policy(self) -> None:
        with self._or_broken():
            with self._lock:
                orders, policy = self.orders, self.policy
                self.engine.apply_policy(
                    apply_overrides(policy, orders),
                    paused_lanes(policy, orders),
                    paused_tenants(orders),
                    left_lanes(policy, orders),
                )
                if not self.opened:
                    return
                actions = self._all_actions()
            self._runner.wake()
            self._carry_out(actions)

    def watch(self) -> None:
        """Checks that every unacknowledged message is in exactly one stage; logs contradictions and keeps them in
        `contradictions`.
        """
        with self._lock:
            self.contradictions = self.engine.check_invariants()
        if self.contradictions:
            log.error("watchdog: %s", "; ".join(self.contradictions))

    # ---- carrying out

    @property
    def due_in(self) -> float:
        """Seconds from now until the next tick; the worker calls `ring` of `supervise` if that becomes sooner."""
        return self._actions.due_in

    @contextmanager
    def _event(self) -> Iterator[None]:
        """Context of a change of the engine: takes the lock, and carries out the resulting actions after the lock is
        released.
        """
        with self._lock:
            before = self.engine.version
            yield
            actions = self._all_actions()
        if self.engine.version != before:
            self._runner.wake()
        self._carry_out(actions)

    def _all_actions(self) -> Actions | None:
        """All actions so far. None if there are none, and until all lanes are open: the lanes that actions name may be
        missing before, so the first event after takes them. Needs the lock.
        """
        return self._actions.collect(flush=True) if self.opened else None

    def _carry_out(self, actions: Actions | None) -> None:
        if actions is None:
            return
        effects = actions.effects
        try:
            self._connections.carry_out(actions)
            for message in effects.overdue:
                self._runner.time_out(message)
            for alarm in effects.alarms:
                self.alarms.write(alarm)
        finally:
            self._actions.end_commit()


@dataclass(slots=True)
class WorkerSink:
    """Sink of a lane: hands everything that its reader receives to the worker, with the index of the lane. Called by
    threads of the broker's adapter.
    """

    worker: Worker
    index: int

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Takes messages of the lane, in their order."""
        self.worker.deliver(self.index, deliveries)

    def room(self) -> int:
        """Number of further messages that the look-ahead admits."""
        return self.worker.room(self.index)

    def on_disconnect(self, partition: str | None = None) -> None:
        """Notes that a partition (None: all) lost its connection, and will redeliver its unacknowledged messages."""
        self.worker.on_disconnect(self.index, partition)

    def on_acknowledged(self, confirmed: Sequence[int], unknown: Sequence[int]) -> None:
        """Takes the tickets of acknowledgements that the broker has confirmed, and of those whose result is unknown."""
        self.worker.on_acknowledged(confirmed, unknown)

    def start_until(self, moment: float) -> None:
        """Lets messages of the lane start only before `moment` (monotonic seconds; infinite: at any time)."""
        self.worker.start_until(self.index, moment)

    def withdraw(self, tokens: Collection[object]) -> Sequence[object]:
        """Drops those messages with these tokens that wait for their start. Returns the tokens of those that it keeps:
        they have started, are being moved or are parked. See ClaimSink.
        """
        return self.worker.withdraw(self.index, tokens)

    def fail(self, problem: BaseException) -> None:
        """Fails the worker because the reader of the lane ended."""
        self.worker.fail(problem)


class AlarmLog:
    """Alarms of one worker as log lines, at most one line for each kind in 30 s. Any thread may write. `counts`: alarms
    by kind, including those without a line. `outcomes`: log of the outcomes of the worker's handlers.
    """

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        self.outcomes = OutcomeLog()
        self._clock = clock
        self._lock = threading.Lock()
        self._written: dict[str, tuple[float, int]] = {}  # by kind: when last, and how many were kept back since

    def write(self, alarm: Alarm) -> None:
        """Counts an alarm, and logs it unless its kind was logged in the last 30 s; the next line has the number of
        those without a line.
        """
        now = self._clock.now()
        with self._lock:
            self.counts[alarm.kind] += 1
            last, kept_back = self._written.get(alarm.kind, (float("-inf"), 0))
            is_quiet = now - last < _QUIET
            self._written[alarm.kind] = (last, kept_back + 1) if is_quiet else (now, 0)
        if is_quiet:
            return
        more = f" (and {kept_back} more since the last line)" if kept_back else ""
        level = logging.INFO if alarm.good else logging.ERROR if alarm.severe else logging.WARNING
        log.log(level, "%s: %s%s", alarm.kind, alarm.text, more)
