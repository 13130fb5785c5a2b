"""Broker whose lanes lead through the inbox: a worker receives rows instead of messages, and everything else stays.

A received message is stored, then acknowledged on its topic. Rows are claimed, delivered to the worker, and marked as
done when the worker acknowledges them. Moves to other states, dead letters and transfers go to their topics as without
an inbox. One thread does all of it; if it dies at any step, the message is still unacknowledged, or its row is to do.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

from sqlalchemy.exc import SQLAlchemyError

from kodo_consumer.adapters.stores.database_trouble import DatabaseTrouble
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.core.values.envelope import position
from kodo_consumer.core.values.infrastructure_faults import words
from kodo_consumer.inbox.inbox_row import InboxToken
from kodo_consumer.inbox.inbox_store import InboxBacklog, InboxStore, TenantOf, no_tenant
from kodo_consumer.runtime.threads import begin
from kodoctl.protocol.audit_records import Event
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import (
        BorderStatus,
        Broker,
        ClaimSink,
        LaneReader,
        LaneRequest,
        LaneSink,
        OnReceipts,
        Publisher,
    )
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.envelope import Delivery
    from kodo_consumer.inbox.inbox_records import InboxRecords

log = logging.getLogger("kodo.consumer")
_LOOK: Final = 1.0  # seconds between two looks at a lane that had no rows to claim
_SWEEP: Final = 60.0  # seconds between two removals of done rows
_COUNT: Final = 10.0  # seconds between two counts of the rows that are to do
_LOG: Final = 60.0  # seconds between two log entries about them
_SWEPT: Final = 1_000  # rows removed at once
_FIRST: Final = 10  # rows of a lane claimed at once, before the sizes of its messages are known
_JOIN: Final = 5.0
_MARGIN: Final = 1.0  # seconds before the end of a claim from which on none of its messages starts
_NAMED: Final = 10  # messages that a log entry names


class InboxLane:
    """Lane through the inbox: sink of the lane on the topic, and reader of the lane for the worker. `anew` is called
    when there is something to do. Thread-safe.
    """

    def __init__(self, request: LaneRequest, sink: ClaimSink, anew: Callable[[], object]) -> None:
        self.request, self.sink = request, sink
        self.reader: LaneReader  # set once the topic is open
        self.received: deque[Delivery] = deque()
        self.ended: deque[InboxToken] = deque()
        self.unfinished: dict[int, InboxToken] = {}  # delivered rows that are not marked as done
        self.next_look = 0.0
        self.largest = request.batch_bytes // _FIRST  # bytes of the largest payload that was claimed
        self.is_stopped = self.is_away = False
        self._lock, self._is_closed = threading.Lock(), False
        self._anew, run = anew, f"{request.consumer_name[-40:]}-{uuid4().hex[:12]}"
        self._claims = (f"{run}-{number}" for number in count())
        self.claim = next(self._claims)

    @property
    def is_ordered(self) -> bool:
        """True if the lane keeps the order of each key."""
        return self.request.type != "shared"

    # ---- sink of the topic

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Queues received messages to be stored."""
        self.received.extend(deliveries)
        self._anew()

    def room(self) -> int:
        """Number of messages that may be received now, before others are stored."""
        return 0 if self.is_stopped else max(0, self.request.batch - len(self.received))

    def on_disconnect(self, partition: str | None = None) -> None:
        """Does nothing: rows stay, and messages that come again are told by their names."""

    def fail(self, problem: BaseException) -> None:
        """Fails the worker, because no messages will come any more."""
        self.sink.fail(problem)

    # ---- reader for the worker

    @property
    def disconnected_topics(self) -> Sequence[str]:
        """Topics without a connection: see LaneReader."""
        return self.reader.disconnected_topics

    def long_connected(self, seconds: float) -> frozenset[str]:
        """Partitions that are connected for `seconds`: see LaneReader."""
        return self.reader.long_connected(seconds)

    def seconds_since_empty(self) -> Mapping[str, float]:
        """Seconds since the client had no message left: see LaneReader."""
        return self.reader.seconds_since_empty()

    def acknowledge(self, tokens: Sequence[object]) -> None:
        """Queues rows to be marked as done."""
        self.ended.extend(token for token in tokens if isinstance(token, InboxToken))
        self._anew()

    def resume(self) -> None:
        """Looks for rows again, because the worker has room."""
        self.next_look = 0.0
        self._anew()

    def add_consumers(self) -> None:
        """Does nothing: messages are acknowledged as soon as they are stored."""

    def reconnect(self, wait: float, away: float, partition: str | None = None) -> None:
        """Reconnects the lane on the topic."""
        self.reader.reconnect(wait, away, partition)

    def leave(self, wait: float) -> None:
        """Leaves the topic until `join`, and claims no rows. Claims of this lane are not renewed any more: rows that the
        worker dropped can be claimed when they lapse.
        """
        self.is_away, self.claim = True, next(self._claims)
        self.reader.leave(wait)

    def join(self) -> None:
        """Reads the topic and its rows again."""
        self.is_away = False
        self.reader.join()
        self.resume()

    def stop(self) -> None:
        """Ends receiving and claiming; rows are still marked as done until `close`."""
        self.is_stopped = True
        self.reader.stop()

    def close(self) -> None:
        """Closes the lane on the topic. The broker of this lane marks rows as done and releases claims."""
        with self._lock:
            self.is_stopped = self._is_closed = True
        self.reader.close()

    # ---- the inbox

    def on_renewed(self, rows: AbstractSet[int], until: float) -> AbstractSet[InboxToken]:
        """Lets the messages of these rows start until a moment (monotonic seconds), and drops the messages of others:
        another worker has claimed them. Returns the tokens of further messages that it dropped, to keep the order of
        keys: their rows have to be given back.
        """
        mine = {row: token for row, token in self.unfinished.items() if token.claim == self.claim}
        lost = {token for row, token in mine.items() if row not in rows}
        dropped = set(mine.values()) if lost and self.is_ordered else lost
        started = set(self.sink.withdraw(dropped))
        self.unfinished = {row: token for row, token in mine.items() if token not in dropped or token in started - lost}
        topic = self.request.topic
        if lost:
            text = "%s: %s claimed by another worker, because the claim lapsed"
            log.warning(text, topic, many(len(lost), "row"))
        if twice := [token for token in started if token in lost]:
            log.warning("%s: handled twice, because they have started here: %s", topic, _names(twice))
        self.sink.start_until(until)
        return dropped - lost - started

    def first_received(self) -> list[Delivery]:
        """Returns the first received messages, a batch at most."""
        return [self.received[place] for place in range(min(len(self.received), self.request.batch))]

    def on_stored(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledges the first received messages on the topic, because they are stored."""
        for _ in deliveries:
            self.received.popleft()
        with self._lock:
            if not self._is_closed:
                self.reader.acknowledge([one.token for one in deliveries])
                self.reader.resume()
        self.next_look = 0.0


def _names(tokens: Sequence[object]) -> str:
    """Positions of messages on their topic, of ten at most."""
    more = f" and {len(tokens) - _NAMED} more" if len(tokens) > _NAMED else ""
    return ", ".join(position(token) for token in tokens[:_NAMED]) + more


class InboxBroker:
    """Implementation of kodo_consumer.core.values.broker.Broker around another one. `keep`: ms for which done rows are
    kept; `tenant_of`: see InboxStore.accept; `records`: None if messages need no audit records. `clock`: of a test
    that calls `turn`, `end` and nothing else; None: a thread does. `backlog`: rows that are to do, as last counted.
    """

    def __init__(
        self,
        broker: Broker,
        store: InboxStore,
        *,
        keep: int,
        tenant_of: TenantOf = no_tenant,
        records: InboxRecords | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._broker, self._store, self._keep, self._tenant_of = broker, store, keep, tenant_of
        self._records = records
        self._is_driven, self._clock = clock is not None, clock or SystemClock()
        self._recorded: list[tuple[InboxLane, Sequence[Delivery]]] = []  # stored, until the receipts of their records
        self._lasts = store.lasts / 1000
        self._renew = self._lasts / 3
        self._lanes: list[InboxLane] = []
        self._bell, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self.backlog = InboxBacklog(0, 0, 0.0)
        self._last = dict.fromkeys(("renew", "sweep", "log"), self._clock.now())  # when each was done
        self._database = DatabaseTrouble()
        self._on_broken: Callable[[BaseException], object] = lambda _: None
        self._on_alarm: Callable[[Alarm], object] = lambda _: None

    @property
    def inbox(self) -> InboxBroker:
        """Itself, for metrics, which find it by this name."""
        return self

    @property
    def trouble(self) -> str:
        """Reason, as a text, why the database could not be used last; "" if it could."""
        return self._database.text

    @property
    def border(self) -> BorderStatus:
        """Status of the native border."""
        return self._broker.border

    def report_to(self, on_broken: Callable[[BaseException], object], on_alarm: Callable[[Alarm], object]) -> None:
        """Sets callbacks: see Broker."""
        self._on_broken, self._on_alarm = on_broken, on_alarm
        self._broker.report_to(on_broken, on_alarm)

    def open(self, request: LaneRequest, sink: LaneSink) -> LaneReader:
        """Opens a lane of the topic and of its rows. Raises ClusterError as the broker does."""
        if self._records is not None and not self._lanes:
            self._records.open(self._broker, request.consumer_name, self._bell.set)
        records = request.records and self._records is not None  # else the broker must not show that there are any
        lane = InboxLane(replace(request, records=records), cast("ClaimSink", sink), self._bell.set)
        lane.sink.start_until(0.0)  # until rows are claimed
        lane.reader = self._broker.open(lane.request, lane)
        self._lanes.append(lane)
        if self._thread is None and not self._is_driven:
            self._thread = begin(self._serve, "kodo-inbox", self._on_broken, over=self._over.is_set)
        return lane

    def publisher(
        self,
        topics: Sequence[str],
        on_receipts: OnReceipts,
        largest: Mapping[str, int] | None = None,
        *,
        moves: bool = False,
    ) -> Publisher:
        """Opens a publisher to the topics themselves: see Broker."""
        return self._broker.publisher(topics, on_receipts, largest, moves=moves)

    def partitions(self, topic: str) -> Sequence[str]:
        """The topics that a topic consists of: see Broker."""
        return self._broker.partitions(topic)

    def close(self) -> None:
        """Marks the last rows as done, releases all claims, and closes the broker."""
        self._over.set()
        self._bell.set()
        if self._thread is not None:
            self._thread.join(_JOIN)
        if self._thread is None or not self._thread.is_alive():
            self.end()
        if self._records is not None:
            self._records.close()
        self._broker.close()

    def end(self) -> None:
        """Marks the last rows as done and releases all claims, or logs that the database does not answer."""
        try:
            self._finish()
            self._store.release([lane.claim for lane in self._lanes])
        except SQLAlchemyError as problem:
            log.warning("the inbox did not take the last results, their rows come again: %s", words(problem))

    # ---- the thread

    def _serve(self) -> None:
        while not self._over.is_set():
            self._bell.clear()
            try:
                busy = self.turn()
            except SQLAlchemyError as problem:
                pause = self._database.on_failure(problem)
                text = f"{self._database.text}; next try in {pause:.1f} s, nothing is lost meanwhile"
                self._on_alarm(Alarm("inbox", text))
                self._over.wait(pause)
                continue
            if self._database.works():
                self._on_alarm(Alarm("resumed", "inbox: the database answers again", good=True))
            if not busy:
                self._bell.wait(_LOOK)

    def turn(self) -> bool:
        """Stores received messages, marks rows as done, renews claims and delivers rows. Returns False if there was
        nothing to do. Raises SQLAlchemyError; the next turn then does the same again.
        """
        now = self._clock.now()
        busy = self._finish()
        if now - self._last["renew"] >= self._renew:
            self._renew_claims(now)
        busy = self._accept() or busy
        for lane in self._lanes:
            busy = self._deliver(lane, now) or busy
        if now - self._last["sweep"] >= _SWEEP and self._store.forget_done(self._keep, _SWEPT) < _SWEPT:
            self._last["sweep"] = now
        if now - self._last.get("count", float("-inf")) >= _COUNT:
            self._count(now)
        return busy

    def _renew_claims(self, now: float) -> None:
        rows = self._store.renew([lane.claim for lane in self._lanes])
        self._last["renew"] = now
        for lane in self._lanes:
            if left := lane.on_renewed(rows, self._until(now)):
                self._store.give_back(left)

    def _until(self, now: float) -> float:
        """Moment (monotonic seconds) until which messages may start whose rows were claimed or renewed after `now`."""
        return now + self._lasts - _MARGIN

    def _count(self, now: float) -> None:
        """Counts the rows that are to do, and logs them once a minute if one has waited for a minute."""
        self._last["count"], self.backlog = now, self._store.backlog()
        if self.backlog.oldest >= _LOG and now - self._last["log"] >= _LOG:
            self._last["log"] = now
            text = "inbox: %s to do, the oldest received %.0f s ago"
            log.info(text, many(self.backlog.waiting + self.backlog.claimed, "row"), self.backlog.oldest)

    def _accept(self) -> bool:
        if self._records is not None and not self._settle(self._records):
            return False
        ends: list[tuple[str, Delivery, Event]] = []
        stored: list[tuple[InboxLane, Sequence[Delivery]]] = []
        for lane in self._lanes:
            if not (received := lane.first_received()):
                continue
            topic = lane.request.topic
            self._store.accept(topic, received, self._tenant_of, ordered=lane.is_ordered)
            stored.append((lane, received))
            if self._records is None:
                lane.on_stored(received)
            else:
                repeats = self._store.repeats(topic, received)
                kinds = (Event.REPEATED if one.position in repeats else Event.STORED for one in received)
                ends += [(topic, one, kind) for one, kind in zip(received, kinds, strict=True)]
        if ends and self._records is not None:
            self._recorded = stored
            self._records.publish(ends)
        return bool(stored)

    def _settle(self, records: InboxRecords) -> bool:
        """Acknowledges stored messages whose records have a receipt. Returns False if there are others."""
        if not records.is_settled:
            if reason := records.settle():
                self._on_alarm(
                    Alarm("audit", f"the inbox acknowledges nothing: its audit records are not stored: {reason}")
                )
            return False
        for lane, received in self._recorded:
            lane.on_stored(received)
        self._recorded = []
        return True

    def _deliver(self, lane: InboxLane, now: float) -> bool:
        claim = lane.claim  # before the question: `leave` changes it afterwards
        if lane.is_stopped or lane.is_away or now < lane.next_look or not (room := lane.sink.room()):
            return False
        by_size = max(1, lane.request.batch_bytes // max(1, lane.largest))
        limit = min(room, lane.request.batch, by_size)
        asked = self._clock.now()
        rows = self._store.claim(lane.request.topic, claim, limit, ordered=lane.is_ordered)
        lane.next_look = 0.0 if len(rows) == limit else now + _LOOK
        if rows:
            lane.largest = max(1, *(len(row.payload or b"") for row in rows))
            if not lane.unfinished:  # else those that are here have the earlier end, until all are renewed
                lane.sink.start_until(self._until(asked))
            lane.unfinished.update((row.token.row, row.token) for row in rows)
            lane.sink.deliver(rows)
        return bool(rows)

    def _finish(self) -> bool:
        busy = False
        for lane in self._lanes:
            tokens = [lane.ended[place] for place in range(len(lane.ended))]
            if tokens and (lost := self._store.finish(tokens)):
                text = "%s: handled here, and claimed by another worker before they were marked as done: %s"
                log.warning(text, lane.request.topic, _names(lost))
            for token in tokens:
                lane.ended.popleft()
                lane.unfinished.pop(token.row, None)
            busy = busy or bool(tokens)
        return busy
