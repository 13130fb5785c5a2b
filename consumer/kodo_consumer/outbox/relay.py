"""The relay: claims rows, sends them, and writes their results. It has one thread; receipts come on other threads.

If the process is killed, no row is lost: a row is `sent` only after its receipt, and a claimed row can be claimed again
after its claim has ended. A message that is sent twice has the same `kodo-id`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, assert_never

from sqlalchemy.exc import SQLAlchemyError

from kodo_consumer.adapters.stores.database_trouble import DatabaseTrouble
from kodo_consumer.core.values.broker import Confirmed, Receipt, Rejected, Unconfirmed
from kodo_consumer.outbox.backoff import Backoff, TopicCooldown
from kodo_consumer.outbox.outbox_row import MAX_ID, Row, RowResult
from kodo_consumer.outbox.row_filter import RowStatus
from kodo_consumer.outbox.table import MAX_COUNT
from kodo_consumer.runtime.stray_errors import report_stray_error
from kodoctl.errors import ClusterError, UsageError
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.outbox.outbox_store import OutboxStore
    from kodo_consumer.outbox.producers import Senders

log = logging.getLogger("kodo.outbox")
_POLL: Final = 0.2  # seconds between two looks for rows while there are none
_SWEEP: Final = 60.0  # seconds between two removals of old rows
_SWEPT: Final = 1_000  # rows removed at once
_MAX_ERROR: Final = 500  # characters of last_error
_MAX_TOPIC: Final = 100  # characters of a topic in the log


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """Limits of a relay. `window`: largest number of rows that are claimed and have no result; `batch`: largest number
    of rows in one claim, and in one write of results; a row that is sent as the trial of a topic (TopicCooldown) comes
    on top of both. `claim`: duration of a claim in ms, whose first half is for sending the rows and whose second half
    is for their receipts; `keep`: time in ms after which sent rows are deleted; `backoff`: delays before the next try.
    """

    window: int = 2_000
    batch: int = 500
    claim: int = 150_000
    keep: int = 7 * 86_400_000
    backoff: Backoff = field(default_factory=Backoff)


class Relay:
    """Sends the rows of an outbox. One thread calls `turn` again and again, as `serve` does. `counts`, since the start:
    rows that got a receipt (`sent`), rows that can never be sent (`failed`), sends without a receipt (`again`; `late`:
    those of them after which Backoff.is_late was true), and rows whose result was not written, mostly because another
    relay had claimed them (`overtaken`). `turned_at`: time of the last sign of life, which is the start of a turn or of
    a send, at first the creation (time.monotonic()).
    """

    def __init__(
        self, store: OutboxStore, senders: Senders, clock: Clock, rng: Random, options: RelayOptions | None = None
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._store, self._senders, self._clock, self._rng = store, senders, clock, rng
        self._options = options or RelayOptions()
        self._rests = TopicCooldown()
        self._out: dict[str, Row] = {}  # sent, without receipt
        # a key's rows behind the one that is out, and until when their claims may be used
        self._chains: dict[tuple[str, str], deque[tuple[Row, float]]] = {}
        self._receipts: deque[tuple[Row, Receipt]] = deque()
        self._verdicts: list[RowResult] = []
        self._some = threading.Event()
        self._database = DatabaseTrouble()
        self._swept = float("-inf")
        self.turned_at = time.monotonic()  # for whoever watches over this thread

    def serve(self, asked_to_end: threading.Event, *, drain_timeout: float, until_empty: Callable[[], bool]) -> None:
        """Runs turns until `asked_to_end` is set, or until a turn claims nothing, `busy` is false and `until_empty`
        returns True; a SQLAlchemyError of `until_empty` counts as False. Then releases rows that were not sent, and
        waits at most `drain_timeout` seconds for receipts and until all results are written. Rows whose result is not
        written by then stay claimed; when their claim has ended, any relay sends them, perhaps once more.
        """
        while not asked_to_end.is_set():
            pause = self.turn()
            if pause and not self.busy and _answers_true(until_empty):
                break
            (asked_to_end if pause > 1.0 else self).wait(pause)  # the database is gone: receipts can wait
        self.let_go()
        deadline = time.monotonic() + drain_timeout
        while self.busy and time.monotonic() < deadline:
            self.wait(min(self.turn(claim=False), 0.5))
        if self.busy:
            log.warning(
                "some rows have no receipt yet: they are sent again, with the same identity, when their claim has ended"
            )

    @property
    def trouble(self) -> str:
        """Text about the error of the database with which the last turn ended; "" if it ended without one."""
        return self._database.text

    @property
    def busy(self) -> bool:
        """True if this relay has claimed a row whose result it has still to write."""
        return bool(self._out or self._chains or self._verdicts or self._receipts)

    def wait(self, seconds: float) -> None:
        """Blocks until a receipt comes, at most `seconds`; not at all if one came since the last turn began."""
        self._some.wait(seconds)

    def turn(self, *, claim: bool = True) -> float:
        """Handles the receipts that came, which sends the next claimed rows of their keys, and writes the results of
        rows. Then claims and sends rows that are due, unless `claim` is false or too many rows are out. Once a minute,
        and after a turn with an error, deletes old rows, and marks rows whose time is no number as failed. Sending may
        block: see Senders.post.

        Returns the seconds until the next turn, 0 after rows were claimed; a receipt may shorten them (see `wait`). An
        error of the database (SQLAlchemyError) ends the turn; it is logged, not raised, and later turns do the rest.
        """
        self.turned_at = time.monotonic()
        self._some.clear()
        self._read_receipts()
        try:
            self._settle()
            claimed = self._claim() if claim else 0
            self._sweep()
        except SQLAlchemyError as problem:
            pause = self._database.on_failure(problem)
            log.error("next try in %.1f s: %s", pause, self.trouble)  # noqa: TRY400
            return pause
        if self._database.works():
            log.warning("the database answers again")
        return 0.0 if claimed else _POLL

    def let_go(self) -> None:
        """Releases claimed rows that were not sent; the next turn writes that. Call `turn` with `claim` false from then
        on, while receipts of sent rows are to come.
        """
        for chain in self._chains.values():
            self._release(row for row, _ in chain)
            chain.clear()

    # ---- receipts

    def _on_receipt(self, row: Row, receipt: Receipt) -> None:
        """Stores a receipt for the next turn. Runs on a thread of the producer."""
        self._receipts.append((row, receipt))
        self._some.set()

    def _read_receipts(self) -> None:
        while self._receipts:
            row, receipt = self._receipts.popleft()
            if self._out.pop(row.id, None) is None:
                continue
            match receipt:
                case Confirmed():
                    self._on_stored(row)
                case Unconfirmed(reason):
                    self._on_loss(row, reason)
                case Rejected(reason):
                    self._fail(row, reason)
                case _:
                    assert_never(receipt)
            self._next_of_key((row.topic, row.key))

    def _on_stored(self, row: Row) -> None:
        self.counts["sent"] += 1
        self._verdicts.append(RowResult(row, RowStatus.SENT, 0, row.retry_count))
        if self._rests.works(row.topic):
            log.warning("%s takes messages again", row.topic)

    def _on_loss(self, row: Row, reason: str) -> None:
        self.counts["again"] += 1
        tries, backoff = min(max(0, row.retry_count) + 1, MAX_COUNT), self._options.backoff
        delay, reason = backoff.delay(row.biz_code, tries, self._rng), one_line(reason, _MAX_ERROR)
        self._verdicts.append(RowResult(row, RowStatus.TO_SEND, delay, tries, reason))
        if backoff.is_late(tries):
            self.counts["late"] += 1
            log.error("%s was sent %d times without a receipt; it is tried again: %s", _row_text(row), tries, reason)
        self._give_back(row)
        self._rest(row.topic, reason)

    def _fail(self, row: Row, reason: str) -> None:
        """Marks a row as failed for good, and logs the reason. The reason may contain text of others: names of
        properties, keys of a payload.
        """
        self.counts["failed"] += 1
        reason = one_line(reason, _MAX_ERROR)
        self._verdicts.append(RowResult(row, RowStatus.FAILED, 0, row.retry_count, reason))
        log.error("%s can never be sent: %s", _row_text(row), reason)

    def _next_of_key(self, at: tuple[str, str]) -> None:
        chain = self._chains.get(at)
        if chain is None:
            return
        while chain:
            if self._post(*chain.popleft()):
                return
        del self._chains[at]

    def _rest(self, topic: str, reason: str) -> None:
        if self._rests.on_failure(topic, self._clock.now()):
            log.error("%s gives no receipts (%s): it rests, then one row is tried", topic, reason)

    def _release(self, rows: Iterable[Row]) -> None:
        self._verdicts += [RowResult(row, RowStatus.TO_SEND, 0, row.retry_count) for row in rows]

    # ---- the database

    def _settle(self) -> None:
        while self._verdicts:
            some = self._verdicts[: self._options.batch]
            overtaken = self._store.settle(some)
            del self._verdicts[: len(some)]
            if overtaken:
                self.counts["overtaken"] += overtaken
                log.warning("claimed by another relay before they were settled: %s", many(overtaken, "row"))

    def _claim(self) -> int:
        room = min(self._options.batch, self._options.window - len(self._out) - sum(map(len, self._chains.values())))
        if (
            room < min(self._options.batch, self._options.window) // 2
        ):  # many small claims cost more than few large ones
            return 0
        now, rows = self._clock.now(), list[Row]()
        try:
            for some in self._claims(room, now):
                rows += some
        finally:  # those before an error are claimed, and nobody else sends them until their claim ends
            self._send(rows, now + self._options.claim / 2000)
        return len(rows)

    def _claims(self, room: int, now: float) -> Iterator[list[Row]]:
        """Claims at most `room` rows of topics that do not rest, and one of each topic that is to be tried again."""
        lasts, resting, ordered = self._options.claim, self._rests.topics, self._senders.send_targets.ordered_topics
        yield from self._store.claim(room, lasts, resting=resting, ordered=ordered)
        waiting_for = {row.topic for row in self._out.values()} if resting else set()
        for topic in self._rests.to_probe(now):
            if topic not in waiting_for:
                yield from self._store.claim(1, lasts, only=topic, ordered=ordered)

    def _sweep(self) -> None:
        now = self._clock.now()
        if now - self._swept < _SWEEP and not self.trouble:  # in trouble it asks, so that the database can answer again
            return
        if untimed := self._store.fail_untimed():
            self.counts["failed"] += untimed
            log.error("never due, because their time is none, and failed: %s", many(untimed, "row"))
        if self._store.forget_sent(self._options.keep, _SWEPT) < _SWEPT:
            self._swept = now

    # ---- sending

    def _send(self, rows: list[Row], deadline: float) -> None:
        """Sends claimed rows before `deadline`. In an ordered topic, the next row of a key is sent after the receipt of
        the one before it, because only a receipt proves their order.
        """
        keys, ordered = [], self._senders.send_targets.ordered_topics
        for row in rows:
            if row.problem:
                self._fail(row, row.problem)
                continue
            at = (row.topic, row.key)
            if not row.key or row.topic not in ordered:
                self._post(row, deadline)
                continue
            if at not in self._chains:
                self._chains[at] = deque()
                keys.append(at)
            self._chains[at].append((row, deadline))
        for at in keys:
            self._next_of_key(at)

    def _post(self, row: Row, deadline: float) -> bool:
        """Sends a row. Returns true if its receipt is awaited now; else the row was released or marked as failed."""
        now, self.turned_at = self._clock.now(), time.monotonic()
        is_too_late = now > deadline  # its claim may end before a receipt comes
        if is_too_late or self._rests.rests(row.topic, now):  # a pause that an earlier row of this claim began
            self._release([row])
            self._give_back(row)
            return False
        self._out[row.id] = row
        try:
            self._senders.post(row, partial(self._on_receipt, row))
        except (UsageError, ValueError) as problem:
            del self._out[row.id]
            self._fail(row, str(problem))
        except (ClusterError, OSError) as problem:
            del self._out[row.id]
            self._release([row])
            self._give_back(row)
            self._rest(row.topic, str(problem))
        except Exception as problem:  # noqa: BLE001  # whatever a row's content brings about is this row's: others go on
            report_stray_error(_row_text(row), problem, log)
            del self._out[row.id]
            self._fail(row, f"{type(problem).__name__}: {problem}")
        return row.id in self._out

    def _give_back(self, row: Row) -> None:
        """Releases the claimed rows that come after `row` in its key, because `row` was not sent."""
        if chain := self._chains.get((row.topic, row.key)):
            self._release(behind for behind, _ in chain)
            chain.clear()


def _row_text(row: Row) -> str:
    """Text for the log that names a row."""
    return f"row {one_line(row.id, MAX_ID)} for {one_line(row.topic, _MAX_TOPIC)}"


def _answers_true(until_empty: Callable[[], bool]) -> bool:
    """False also if the database does not answer: the next turn says so, and the relay goes on when it is back."""
    try:
        return until_empty()
    except SQLAlchemyError:
        return False
