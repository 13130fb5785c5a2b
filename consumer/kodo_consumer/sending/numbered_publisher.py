"""Numbered publisher: sends the messages of one producer to the partitions of its topic, and awaits their receipts.

It numbers the messages, and sends marks, which are messages with the last number of a partition. Numbers are no
interceptor: see kodo_consumer.sending.send_hooks.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.engine.publishing import HANGS
from kodo_consumer.core.sequences.sequencer import Router, Sequencer
from kodo_consumer.core.values.broker import Broker, Confirmed, Publisher, Receipt, Unconfirmed
from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.core.values.object_use import misuse_error
from kodo_consumer.runtime.stray_errors import report_stray_error
from kodo_consumer.runtime.threads import begin, log_end
from kodo_consumer.sending import program_end
from kodo_consumer.sending.backpressure import Backpressure, SendRoom
from kodo_consumer.sending.pending_messages import OnStored, PendingSend
from kodoctl.errors import KodoctlError
from kodoctl.protocol.properties import FOR, SEQ
from kodoctl.protocol.sequence_numbers import NOBODY, ProducerWatermark, new_run
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.core.checks.message_validation import MessageValidator, NewMessage
    from kodoctl.protocol.signing import Signer

log = logging.getLogger("kodo.producer")
RECEIPT_TIMEOUT: Final = 90.0  # seconds; a send is given up before
_CHECK_EVERY: Final = 1.0  # seconds between two checks of what hangs
_MARK_EVERY: Final = 60.0  # seconds
_LAST_MARKS: Final = 20.0  # seconds the marks at the end are waited for


class NumberedPublisher:
    """Publishes the messages of one producer, and passes each receipt to a callback. A message is identified by its
    ticket, a number. Thread-safe. `numbered`: messages get sequence numbers, and marks are sent, which are messages
    with the last number of a partition. The constructor asks the broker for the topic's partitions and opens them; it
    raises ClusterError.
    """

    def __init__(
        self,
        topic: str,
        broker: Broker,
        form: MessageValidator,
        signer: Signer | None,
        *,
        numbered: bool,
    ) -> None:
        self._topic, self._broker, self._form, self._signer = topic, broker, form, signer
        self._lock = threading.Condition()
        self._next = 0
        self._calling: set[int] = set()  # threads that call back: they would wait for themselves
        self._partitions = list(broker.partitions(topic))
        self._router = Router(len(self._partitions))
        run = new_run(time.time_ns() // 1_000_000, secrets.token_hex(4))
        self._numbering = Sequencer(run) if numbered else None
        self._over = threading.Event()
        self._room = SendRoom(self._lock, self._over.is_set)
        self._room.partitions = len(self._partitions)
        self._watcher: threading.Thread | None = None
        self._publisher: Publisher = broker.publisher(self._partitions, self._hand_out)

    def publish(self, message: NewMessage, on_receipt: OnStored, partition: int | None = None) -> int:
        """Publishes a message, and returns its ticket. Blocks while too many messages have no receipt, but not with a
        `partition`, which `await_room` returned, and not in a callback, which would wait for itself.

        Raises ClusterError if there is no room within 90 s, and UsageError if the message is too large or the publisher
        is closed.
        """
        with self._lock:
            if partition is None:
                partition = self._router.choose(message.partition_key, time.monotonic())
                if not self._room.has(to := self._partitions[partition]) and not self.is_calling:
                    self._room.wait(to, RECEIPT_TIMEOUT)
            to = self._partitions[partition]
            if self._over.is_set():
                raise misuse_error(f"{self._topic}: this producer was closed meanwhile; the message was not sent")
            number = None if self._numbering is None else self._numbering.next(partition)
            if self._watcher is None:
                self._watcher = begin(self._watch, "kodo-marks", log_end, over=self._over.is_set)
                program_end.register(self)
            outgoing = message.outgoing(self._topic, to, number, self._signer)
            sent = PendingSend(on_receipt, number, time.monotonic(), to)
            if (problem := self._form.too_large(outgoing)) is not None:
                self._void(sent)
                raise problem
            return self._publish(outgoing, sent)

    @property
    def is_calling(self) -> bool:
        """True if the current thread is calling callbacks with receipts: it must not wait for receipts, because it
        delivers them.
        """
        return threading.get_ident() in self._calling

    def give_up(self, ticket: int) -> None:
        """Stops waiting for the receipt of a message: its callback gets a failure, and a later receipt is ignored. Does
        nothing for a message that has its receipt.
        """
        self._hand_out([(ticket, Unconfirmed("no receipt in time"))])

    async def await_room(self, message: NewMessage) -> int:
        """Waits, without a thread, until `publish` has room for the message in its partition. Returns the number of the
        partition, to publish there before the next `await`: nothing keeps the room. Raises ClusterError if there is no
        room within 90 s.
        """
        with self._lock:
            partition = self._router.choose(message.partition_key, time.monotonic())
        await self._room.wait_async(self._partitions[partition], RECEIPT_TIMEOUT)
        return partition

    @property
    def backpressure(self) -> Backpressure:
        """How messages wait for receipts and for room."""
        return self._room.backpressure

    def wait(self, timeout: float) -> int:
        """Waits at most `timeout` seconds until no message, and no mark, waits for a receipt, and no callback runs any
        more. Returns how many still wait for a receipt; a receipt may report a failure. A callback must not call it.
        """
        with self._lock:
            self._lock.wait_for(lambda: not self._room.out and not self._calling, timeout)
            return len(self._room.out)

    def close(self, timeout: float) -> None:
        """Gives up messages without a receipt, whose callbacks get a failure, and sends the last marks, which name the
        numbers that were given up; waits at most `timeout` seconds, and 20 at most, for the receipts of these marks;
        then closes the publisher.
        """
        program_end.unregister(self)
        self._over.set()
        self._room.tell()
        if self._watcher is not None:
            self._watcher.join()
        self._end(timeout)
        self._publisher.close()

    def end(self, seconds: float) -> str:
        """Waits at most `seconds` for receipts, gives up messages without one, as in `close`, and sends the last marks.
        Returns "": callbacks get the failures. See kodo_consumer.sending.program_end.Unfinished.
        """
        if not self._over.is_set():
            deadline = time.monotonic() + seconds
            self.wait(seconds)
            self._over.set()
            self._end(max(0.0, deadline - time.monotonic()))
        return ""

    def _publish(self, message: Outgoing, sent: PendingSend) -> int:
        """Publishes a message under the next ticket, and returns the ticket. The caller holds the lock, so that
        sequence numbers are sent in order.
        """
        self._next += 1
        self._room.out.add(self._next, sent)
        self._publisher.publish([(self._next, message)])
        return self._next

    def _void(self, sent: PendingSend | None) -> None:
        if sent is not None and sent.number is not None and self._numbering is not None:
            self._numbering.give_up(sent.number)

    def _watch(self) -> None:
        marked = time.monotonic()
        while not self._over.wait(min(_CHECK_EVERY, _MARK_EVERY)):
            try:
                self._let_go_of_what_hangs()
                if time.monotonic() - marked >= _MARK_EVERY:
                    marked = time.monotonic()
                    self._grow()
                    self._mark(end=False)
            except Exception as problem:  # whatever it is: the next time may do better
                log.warning(
                    "%s: no marks now: %s", self._topic, problem, exc_info=not isinstance(problem, KodoctlError)
                )

    def _let_go_of_what_hangs(self) -> None:
        """Gives up all messages, and renews the publisher, if the oldest message has had no receipt for `HANGS`
        seconds. For a message above a limit that this role may not read, the client never reports a result, nor for
        later messages.
        """
        with self._lock:
            oldest = self._room.out.oldest
            if oldest is None or time.monotonic() - oldest.at < HANGS:
                return
            hanging = list(self._room.out)
            self._publisher.renew()
        log.error("%s: %s unconfirmed for too long: starting afresh", self._topic, many(len(hanging), "message"))
        self._hand_out([(ticket, Unconfirmed("no receipt in time")) for ticket in hanging])

    def _grow(self) -> None:
        """Reads the partitions of the topic again, which may have become more, never fewer."""
        found = list(self._broker.partitions(self._topic))
        with self._lock:
            if len(found) > len(self._partitions):
                self._partitions = found
                self._router.partitions = self._room.partitions = len(found)

    def _mark(self, *, end: bool) -> None:
        if self._numbering is None:
            return
        with self._lock:
            for mark in self._numbering.marks(end=end):
                properties = {SEQ: str(mark), FOR: NOBODY}
                if self._signer is not None:
                    properties = self._signer.signed(self._topic, b"", properties)
                message = Outgoing(self._partitions[mark.partition], b"", properties)
                sent = PendingSend(partial(self._on_mark_stored, mark), None, time.monotonic(), message.topic)
                self._publish(message, sent)

    def _on_mark_stored(self, mark: ProducerWatermark, receipt: Receipt) -> None:
        with self._lock:
            if isinstance(receipt, Confirmed) and self._numbering is not None:
                self._numbering.marked_sent(mark)

    def _end(self, timeout: float) -> None:
        """Gives up messages without a receipt, calls their callbacks with a failure, sends the last marks, and waits
        for their receipts.
        """
        with self._lock:
            left = list(self._room.out)
        self._hand_out([(ticket, Unconfirmed("no receipt in time")) for ticket in left])
        self._mark(end=True)
        with self._lock:
            if not self._lock.wait_for(lambda: not self._room.out, min(timeout, _LAST_MARKS)):
                log.warning(
                    "%s: the last marks have no receipt: nobody can tell whether all messages came", self._topic
                )

    def _hand_out(self, receipts: Sequence[tuple[int, Receipt]]) -> None:
        is_nested = self.is_calling  # a callback gave a message up
        self._calling.add(thread := threading.get_ident())
        for ticket, receipt in receipts:
            with self._lock:
                sent = self._room.out.take(ticket)
                if not isinstance(receipt, Confirmed):
                    self._void(sent)
            try:
                if sent is not None:
                    sent.on_receipt(receipt)
            except BaseException as problem:  # noqa: BLE001  # SystemExit as well: the others have theirs to come
                report_stray_error("a callback for receipts failed", problem, log)
        if not is_nested:
            self._calling.discard(thread)
        self._room.tell()
