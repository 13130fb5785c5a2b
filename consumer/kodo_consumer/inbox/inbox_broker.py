"""Broker whose lanes lead through the inbox: a worker receives rows instead of messages, and everything else stays.

A received message is stored, then acknowledged on its topic. Rows are claimed, delivered to the worker, and marked as
done when the worker acknowledges them. Moves to other states, dead letters and transfers go to their topics as without
an inbox. One thread stores, claims, delivers and marks; if it dies at any step, the message is still unacknowledged, or
its row is to do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from sqlalchemy.exc import SQLAlchemyError

from kodo_consumer.adapters.stores.database_trouble import DatabaseTrouble
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.core.values.infrastructure_faults import words
from kodo_consumer.inbox.inbox_intake import InboxIntake
from kodo_consumer.inbox.inbox_lane import InboxLane, positions_text
from kodo_consumer.inbox.inbox_store import InboxBacklog, InboxStore
from kodo_consumer.runtime.threads import begin
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

log = logging.getLogger("kodo.consumer")
_LOOK: Final = 1.0  # seconds between two looks at a lane that had no rows to claim
_SWEEP: Final = 60.0  # seconds between two removals of done rows
_COUNT: Final = 10.0  # seconds between two counts of the rows that are to do
_LOG: Final = 60.0  # seconds between two log entries about them
_SWEPT: Final = 1_000  # rows removed at once
_JOIN: Final = 5.0
_MARGIN: Final = 1.0  # seconds before the end of a claim from which on none of its messages starts


class InboxBroker:
    """Implementation of kodo_consumer.core.values.broker.Broker around another one. `keep`: ms for which done rows are
    kept at least; `intake` None: rows have no tenants, and messages need no audit records. `clock`: for a test that
    calls `turn` itself; None: a thread does, from the first `open` on. `backlog`: rows that are to do, as counted last
    (every 10 s; 0 rows before the first count).
    """

    def __init__(
        self,
        broker: Broker,
        store: InboxStore,
        *,
        keep: int,
        intake: InboxIntake | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._broker, self._store, self._keep = broker, store, keep
        self._intake = intake or InboxIntake(store)
        self._is_driven, self._clock = clock is not None, clock or SystemClock()
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
        """This broker: metrics and workers find an inbox by the name of this attribute."""
        return self

    @property
    def trouble(self) -> str:
        """Reason, as a text, why the last turn of the thread failed at the database; "" if it succeeded, and until the
        first one has ended.
        """
        return self._database.text

    @property
    def border(self) -> BorderStatus:
        """Status of the native border."""
        return self._broker.border

    def report_to(self, on_broken: Callable[[BaseException], object], on_alarm: Callable[[Alarm], object]) -> None:
        """Sets callbacks: see Broker. To be called before `open`."""
        self._on_broken, self._on_alarm = on_broken, on_alarm
        self._broker.report_to(on_broken, on_alarm)

    def open(self, request: LaneRequest, sink: LaneSink) -> LaneReader:
        """Opens a lane on the topic, whose messages become rows, and returns its reader. `sink`, a ClaimSink, gets
        messages from rows of the topic that are to do, also those that other workers stored. The first call also opens
        the publisher of the inbox's audit records, if it has any, and starts the thread unless a clock was given.
        Raises ClusterError as the broker does.
        """
        if not self._lanes:
            self._intake.open(self._broker, request.consumer_name, self._bell.set)
        records = request.records and self._intake.records is not None  # else the broker must not show any
        topic_request = replace(request, records=records, confirms=False)  # rows say what is done, not the topic
        lane = InboxLane(topic_request, cast("ClaimSink", sink), self._bell.set)
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
        """Opens a publisher to the topics themselves, past the inbox: see Broker."""
        return self._broker.publisher(topics, on_receipts, largest, moves=moves)

    def partitions(self, topic: str) -> Sequence[str]:
        """Full names of a topic's partitions: see Broker."""
        return self._broker.partitions(topic)

    def close(self) -> None:
        """Waits up to 5 s until the thread ends, then does as `end`, or nothing of it if the thread still runs. Closes
        the publisher of the inbox's audit records, and the broker around which this one is. Lanes should have been
        closed before.
        """
        self._over.set()
        self._bell.set()
        if self._thread is not None:
            self._thread.join(_JOIN)
        if self._thread is None or not self._thread.is_alive():
            self.end()
        self._intake.close()
        self._broker.close()

    def end(self) -> None:
        """Marks the rows as done whose messages the worker has acknowledged, and releases the present claims of all
        lanes; claims from before `InboxLane.leave` lapse by themselves. An error of the database is only logged. To be
        called while no turn runs.
        """
        try:
            self._finish()
            self._store.release([lane.claim for lane in self._lanes])
        except SQLAlchemyError as problem:
            text = (
                "the inbox did not take the last results, or did not end its claims; rows that are to do come again: %s"
            )
            log.warning(text, words(problem))

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
        """Marks rows as done, renews claims, stores received messages, delivers rows, deletes old done rows (1,000 at
        most) and counts the rows that are to do: in this order, each as far as it is due. Returns False if the worker
        had acknowledged nothing, and nothing was stored or delivered. Raises SQLAlchemyError; the caller calls it again
        after a pause.
        """
        now = self._clock.now()
        busy = self._finish()
        if now - self._last["renew"] >= self._store.lasts / 3000:  # a third of a claim, in seconds
            self._renew_claims(now)
        busy = self._intake.accept(self._lanes, self._on_alarm) or busy
        for lane in self._lanes:
            busy = self._deliver(lane, now) or busy
        if now - self._last["sweep"] >= _SWEEP and self._store.forget_done(self._keep, _SWEPT) < _SWEPT:
            self._last["sweep"] = now
        if now - self._last.get("count", float("-inf")) >= _COUNT:
            self._count(now)
        return busy

    def _renew_claims(self, now: float) -> None:
        """Renews the present claims of all lanes, then gives back the rows that they have without their messages: those
        of messages that a lane dropped, and those of a `claim` whose answer was lost.
        """
        ordered = [lane.request.topic for lane in self._lanes if lane.is_ordered]
        rows = self._store.renew([lane.claim for lane in self._lanes], ordered)
        for lane in self._lanes:
            lane.on_renewed(rows, self._until(now))
        claims = [lane.claim for lane in self._lanes]  # a lane that was left meanwhile lets its rows lapse
        if left := rows.difference(*(lane.unfinished for lane in self._lanes)):
            self._store.give_back(left, claims)
        self._last["renew"] = now

    def _until(self, now: float) -> float:
        """Moment (monotonic seconds) until which messages may start whose rows were claimed or renewed after `now`."""
        return now + self._store.lasts / 1000 - _MARGIN

    def _count(self, now: float) -> None:
        """Counts the rows that are to do, and logs them once a minute if one has waited for a minute."""
        self._last["count"], self.backlog = now, self._store.backlog()
        if self.backlog.oldest >= _LOG and now - self._last["log"] >= _LOG:
            self._last["log"] = now
            text = "inbox: %s to do, the oldest received %.0f s ago"
            log.info(text, many(self.backlog.waiting + self.backlog.claimed, "row"), self.backlog.oldest)

    def _deliver(self, lane: InboxLane, now: float) -> bool:
        claim = lane.claim  # before the question: `leave` changes it afterwards
        if lane.is_stopped or lane.is_away or now < lane.next_look or not (room := lane.sink.room()):
            return False
        by_size = max(1, lane.request.batch_bytes // max(1, lane.largest))
        limit = min(room, lane.request.batch, by_size)
        asked = self._clock.now()
        try:
            rows = self._store.claim(lane.request.topic, claim, limit, ordered=lane.is_ordered)
        except SQLAlchemyError:
            self._last["renew"] = float("-inf")  # the next turn gives back the rows that it may have claimed
            raise
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
            ended = [lane.ended[place] for place in range(len(lane.ended))]
            if not ended:
                continue
            busy = True
            if lost := self._store.finish([token for token, _ in ended]):
                text = "%s: handled here, and done or claimed by another worker before they were marked as done: %s"
                log.warning(text, lane.request.topic, positions_text(lost))
            results: dict[bool, list[int]] = {True: [], False: []}  # tickets: of rows that are done, and of others
            for token, ticket in ended:
                lane.ended.popleft()
                if lane.unfinished.get(token.row) == token:  # else the row was delivered again, by a later claim
                    del lane.unfinished[token.row]
                if ticket:
                    results[token not in lost].append(ticket)
            if any(results.values()):
                lane.sink.on_acknowledged(results[True], results[False])
        return busy
