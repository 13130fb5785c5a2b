"""Rest reasons: all reasons why a worker starts no handlers, or none for a part of its messages, in one place.

`/readyz`, a metric and an alarm show the reasons of this module. A reason that `_REASONS` lacks stays invisible while
the worker does nothing, so everything that can prevent starts needs an entry there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from kodo_consumer.core.limits.limiters import ConcurrencyLimiter
from kodo_consumer.core.scheduling.circuit_breaker import PROBES, BreakerState
from kodo_consumer.core.state.in_flight import Stage
from kodo_consumer.core.values.effects import Alarm
from kodoctl.text.formatting import many
from kodoctl.topology.names import PLAIN

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import LaneState
    from kodo_consumer.core.values.policy import Lane
    from kodo_consumer.runtime.store_session import StoreSession
    from kodo_consumer.runtime.worker import Worker

ALARM_AFTER: Final = 10.0  # seconds
_AGAIN: Final = 60.0  # seconds until a fault that lasts is told again
_APART: Final = 31.0  # seconds between two alarms: a worker logs one of a kind in 30 s (_QUIET of worker.py)


class InboxView(Protocol):
    """Facts about an inbox for metrics and probes; kodo_consumer.inbox.inbox_broker provides them."""

    @property
    def trouble(self) -> str:
        """Reason, as a text, why the database could not be used last; "" if it could, or was not used yet."""

    @property
    def backlog(self) -> tuple[int, int, float]:
        """Returns (number of rows that no worker has, number of rows that workers have, seconds since the first of all
        these rows was received), of the rows of the subscription that are not done, as counted last: every 10 s while
        the database answers. All are 0 without such rows, and before the first count.
        """


class RestingWorker(Protocol):
    """Facts about a worker from which rest reasons are computed; kodo_consumer.adapters.metrics.worker_view provides
    them.
    """

    @property
    def worker(self) -> Worker:
        """The worker whose reasons are computed."""

    @property
    def session(self) -> StoreSession | None:
        """Session with the store of done messages; None if the subscription has no such store."""

    @property
    def inbox(self) -> InboxView | None:
        """Inbox through which the messages come; None if they come from the topics directly."""

    @property
    def lanes(self) -> list[tuple[Lane, LaneState]]:
        """All lanes that the worker reads, each with its state."""

    @property
    def standing_still(self) -> list[Lane]:
        """Lanes of the subscription of which the broker delivers nothing although messages are due, by its statistics.
        Lanes that only other workers read may be among them.
        """

    @property
    def held_back(self) -> list[str]:
        """Topics of this worker's lanes of which the broker sends this worker nothing more, from one partition at
        least, because too many messages are unacknowledged.
        """

    @property
    def publishing(self) -> int:
        """Number of messages that the worker moves to other topics and that have no receipt yet, without audit
        records.
        """


class RestKind(StrEnum):
    """Kind of a rest reason. The values are public: they are in the metric's label and in `/readyz`."""

    STORE = "store"
    INBOX = "inbox"
    CONNECTION = "connection"
    PARTITION = "partition"
    PARKED = "parked"
    DELIVERY = "delivery"
    UNACKED = "unacked"
    BREAKER = "breaker"
    PAUSE = "pause"
    CLOCK = "clock"
    LEASE = "lease"
    LIMIT = "limit"
    SLOT = "slot"
    DEFERRED = "deferred"
    LOOKAHEAD = "lookahead"
    CONFIRMATION = "confirmation"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class RestReason:
    """A reason that applies now. Two are equal if all but `text`, which is for people, is equal. `about`: the lane,
    topic or partition concerned, for a missing connection perhaps with the cause; empty if there is no single one.
    `fault`: the worker is not ready while the reason applies. `starts_end_it`: the reason counts from the last start of
    any handler, if that is later, because a busy worker also uses up its slots and limits. `told_elsewhere`: RestWatch
    writes no alarm, because the reason has its own, a person ordered it, or it is no problem.
    """

    reason: RestKind
    text: str = field(compare=False)
    about: str = ""
    fault: bool = False
    starts_end_it: bool = False
    told_elsewhere: bool = False


def rest_reasons_of(sight: RestingWorker) -> list[RestReason]:
    """Rest reasons that apply now, also while the worker connects or drains. Takes the worker's lock, which the caller
    must not have. Thread-safe.
    """
    return sight.worker.call_locked(lambda: [rest for reason in _REASONS for rest in reason(sight)])


def slots_now(worker: Worker) -> int:
    """Number of handlers that may be at work at once: the slots, or fewer by adaptive concurrency and the circuit
    breaker.
    """
    throttle = worker.engine.scheduler.throttle
    most = throttle.adaptive.limit if throttle.adaptive is not None else worker.policy.concurrency
    match throttle.breaker.state:
        case BreakerState.OPEN:
            return 0
        case BreakerState.PROBING:
            return min(most, PROBES)
        case BreakerState.RESUMING:
            return min(most, throttle.breaker.starts)
        case _:
            return most


def hook_text(name: str, seconds: float) -> str:
    """Text for people: the hook `name` around acknowledged messages has run for so many seconds."""
    return f"the hook {name} around acknowledged has run for {seconds:.0f} s"


class RestWatch:
    """Measures for how long each rest reason of one worker lasts. One thread calls `check` every second; any thread may
    call `seconds`.
    """

    def __init__(self, sight: RestingWorker) -> None:
        self._sight = sight
        self._since: dict[RestReason, float] = {}
        self._started = -1
        self._last_start = float("-inf")
        self._told_at: dict[RestReason, float] = {}
        self._alarm_at = float("-inf")
        self._hook_told_at = float("-inf")

    def check(self, now: float) -> None:
        """Notes which reasons apply at `now` (time.monotonic()); none does while the worker connects or drains. Writes
        an alarm about those that have lasted for ten seconds: once for each, as long as it lasts, but about a fault
        again every minute. An alarm comes half a minute after the last one at the earliest, so that each is logged.
        Reasons that are `told_elsewhere` get none; those with `starts_end_it` only while the worker has messages that
        neither run nor are deferred. A hook that has run for ten seconds gets an alarm of its own, again every minute.
        """
        counts, engine = self._sight.worker.counts, self._sight.worker.engine
        if counts.started != self._started:
            self._started, self._last_start = counts.started, now
        found = rest_reasons_of(self._sight) if self._sight.worker.opened and not engine.draining else []
        self._since = {rest: self._since.get(rest, now) for rest in found}
        any_waits = engine.lookahead.messages > len(engine.runs.running) + len(engine.runs.deferred)
        long = [
            rest
            for rest, seconds in self.seconds(now).items()
            if seconds >= ALARM_AFTER and not rest.told_elsewhere and (any_waits or not rest.starts_end_it)
        ]
        self._told_at = {rest: at for rest, at in self._told_at.items() if rest in long}
        news = [
            rest for rest in long if rest not in self._told_at or (rest.fault and now - self._told_at[rest] >= _AGAIN)
        ]
        hook = self._sight.worker.running_hook
        if hook is None or hook[1] < ALARM_AFTER:
            self._hook_told_at = float("-inf")
        elif now - self._hook_told_at >= _AGAIN:
            self._hook_told_at = now
            text = f"{hook_text(*hook)}: no other hook is called meanwhile"
            self._sight.worker.alarms.write(Alarm("hook", text))
        if news and now - self._alarm_at >= _APART:
            self._alarm_at = now
            self._told_at |= dict.fromkeys(news, now)
            text = "; ".join(f"{rest.reason.value}: {rest.text}" for rest in news)
            severe = any(rest.fault for rest in news)
            self._sight.worker.alarms.write(Alarm("rests", f"nothing is started: {text}", severe=severe))

    def seconds(self, now: float) -> dict[RestReason, float]:
        """Seconds that each reason of the last `check` has lasted at `now` (time.monotonic()). A reason with
        `starts_end_it` counts from the last start of a handler before that `check`, if the reason is older.
        """
        return {
            rest: now - (max(since, self._last_start) if rest.starts_end_it else since)
            for rest, since in self._since.items()
        }


# ---- the reasons


def _store(sight: RestingWorker) -> Iterator[RestReason]:
    session = sight.session
    if session is not None and session.down and not session.go_on:
        text = f"the store cannot be asked, nothing is started until it is back: {session.problem}"
        yield RestReason(RestKind.STORE, text, fault=True)


def _inbox(sight: RestingWorker) -> Iterator[RestReason]:
    if sight.inbox is not None and sight.inbox.trouble:
        yield RestReason(RestKind.INBOX, f"the inbox cannot be used: {sight.inbox.trouble}", fault=True)


def _connection(sight: RestingWorker) -> Iterator[RestReason]:
    for topic in sight.worker.disconnected_topics:
        yield RestReason(RestKind.CONNECTION, f"not connected to {topic}", topic, fault=True)


def _partition(sight: RestingWorker) -> Iterator[RestReason]:
    now = sight.worker.clock.now()
    for lane, lane_state in sight.lanes:
        for number, why in lane_state.active.waiting(now) if lane_state.active is not None else ():
            about = lane.topic if number == str(PLAIN) else f"{lane.topic}, partition {number}"
            yield RestReason(RestKind.PARTITION, f"{about}: {why}", about, fault=True)


def _parked_lanes(sight: RestingWorker) -> Iterator[RestReason]:
    for lane, lane_state in sight.lanes:
        if lane_state.blocked:
            text = f"{lane.topic} is paused: too many messages are parked"
            yield RestReason(RestKind.PARKED, text, lane.name, fault=True, told_elsewhere=True)


def _delivery(sight: RestingWorker) -> Iterator[RestReason]:
    for lane in sight.standing_still:
        if lane.index < len(sight.lanes):
            text = f"{lane.topic}: messages are due and the broker delivers none"
            yield RestReason(RestKind.DELIVERY, text, lane.name, fault=True, told_elsewhere=True)


def _unacked_topics(sight: RestingWorker) -> Iterator[RestReason]:
    for topic in sight.held_back:
        text = f"{topic}: the broker sends nothing more, too much is unacknowledged"
        yield RestReason(RestKind.UNACKED, text, topic, fault=True, told_elsewhere=True)


def _breaker(sight: RestingWorker) -> Iterator[RestReason]:
    breaker = sight.worker.engine.scheduler.throttle.breaker
    if breaker.state is BreakerState.OPEN:
        yield RestReason(RestKind.BREAKER, f"the circuit breaker is open: {breaker.cause}", told_elsewhere=True)


def _pause(sight: RestingWorker) -> Iterator[RestReason]:
    for lane, lane_state in sight.lanes:
        if lane_state.paused_by_override:
            yield RestReason(RestKind.PAUSE, f"{lane.name} is paused by an order", lane.name, told_elsewhere=True)
    if sight.worker.engine.scheduler.paused_messages():
        yield RestReason(RestKind.PAUSE, "messages of tenants that are paused by an order", told_elsewhere=True)


def _clock(sight: RestingWorker) -> Iterator[RestReason]:
    now = sight.worker.clock.now()
    for lane, lane_state in sight.lanes:
        if lane_state.paused_until > now:
            text = f"{lane.name} is not read: its messages come before they are due, or too many of them wait"
            yield RestReason(RestKind.CLOCK, text, lane.name)


def _limit(sight: RestingWorker) -> Iterator[RestReason]:
    scheduler, now = sight.worker.engine.scheduler, sight.worker.clock.now()
    limiters = list(scheduler.shut)
    unlent = [one for one in limiters if not isinstance(one, ConcurrencyLimiter) and one.free_at(now) == float("inf")]
    if unlent:
        yield RestReason(RestKind.LEASE, "messages wait until the store lends what a limit allows", starts_end_it=True)
    by_limit, _ = _waiting(sight)
    if len(unlent) < len(limiters) or by_limit:
        yield RestReason(RestKind.LIMIT, "messages wait at a limit that is used up", starts_end_it=True)


def _wait(sight: RestingWorker) -> Iterator[RestReason]:
    _, otherwise = _waiting(sight)
    if otherwise:
        text = "messages wait in memory for their due time or for a retry in place"
        yield RestReason(RestKind.WAIT, text, starts_end_it=True, told_elsewhere=True)


def _waiting(sight: RestingWorker) -> tuple[int, int]:
    """(messages that wait for the time of a limiter's reservation, messages that wait for another time); (0, 0) while
    any handler runs.
    """
    if sight.worker.engine.runs.running:
        return 0, 0
    entries = [entry for _, lane_state in sight.lanes for entry in list(lane_state.active_entries.values())]
    waits = [one for entry in entries for one in list(entry.in_flight.values()) if one.stage is Stage.WAITING]
    by_limit = sum(one.has_reservation for one in waits)
    return by_limit, len(waits) - by_limit


def _slot(sight: RestingWorker) -> Iterator[RestReason]:
    engine, slots, most = sight.worker.engine, sight.worker.policy.concurrency, slots_now(sight.worker)
    if len(engine.runs.running) >= most:
        if most:  # else the breaker is open, which is another reason
            few = f" that may be used just now are taken, of {slots}" if most < slots else " are taken"
            yield RestReason(RestKind.SLOT, f"all {many(most, 'slot')}{few}", starts_end_it=True)
        return
    bulkheads = engine.scheduler.bulkheads
    for lane, lane_state in sight.lanes if bulkheads.groups else ():
        if len(lane_state.ring) and not bulkheads.has_slot(lane.index):
            text = f"no slot is free for {lane.name}, by the bulkheads"
            yield RestReason(RestKind.SLOT, text, lane.name, starts_end_it=True)


def _deferred(sight: RestingWorker) -> Iterator[RestReason]:
    runs = sight.worker.engine.runs
    if not runs.has_room:
        text = f"{many(len(runs.deferred), 'message')} deferred and not ended, no more may start (max_deferred)"
        yield RestReason(RestKind.DEFERRED, text, starts_end_it=True)


def _lookahead(sight: RestingWorker) -> Iterator[RestReason]:
    if len(sight.worker.engine.lookahead.lanes_without_capacity) == len(sight.lanes):
        text = f"the look-ahead is full, {sight.publishing} of its messages await a receipt"
        yield RestReason(RestKind.LOOKAHEAD, text, starts_end_it=True)


def _confirmation(sight: RestingWorker) -> Iterator[RestReason]:
    confirmations = sight.worker.engine.context.confirmations
    if confirmations is None or not confirmations.is_full:
        return
    hook = sight.worker.running_hook
    why = "the broker confirms no acknowledgements" if hook is None else hook_text(*hook)
    text = f"nothing is received, {many(confirmations.awaited, 'acknowledged message')} await their hooks: {why}"
    yield RestReason(RestKind.CONFIRMATION, text, fault=True)


_REASONS: Final[tuple[Callable[[RestingWorker], Iterator[RestReason]], ...]] = (
    _store, _inbox, _connection, _partition, _parked_lanes, _delivery, _unacked_topics, _breaker, _pause, _clock, _limit, _wait, _slot, _deferred,
    _lookahead, _confirmation,
)  # fmt: skip
