# adapter: waits for receipts
"""Receipts of the messages in flight in an attempt at a recall. Thread-safe: receipts come
on threads of the client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kodoctl.pulsar.binary.exclusive_producer import RECEIPT_S
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from kodoctl.recall.ledger.recall_ledger import RecallEvent

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.recall_transport import Receipt
    from kodoctl.recall.send.sends_in_flight import InFlightMessage, SendBatch

PATIENCE: Final = 5.0  # seconds without any receipt, after a stop was asked for
SILENCE: Final = RECEIPT_S  # and where nobody did: a fail-over is over by then
_LOOK: Final = 0.5  # seconds between two looks whether somebody did


class ReceiptTracker:
    """Receipts of all batches of one attempt. `clock` in seconds; `waits` reports long waits."""

    def __init__(
        self,
        stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
        waits: WaitMonitor | None = None,
    ) -> None:
        self._stop, self._clock, self._waits = stop, clock, waits or WaitMonitor()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._quiet_since: float | None = None  # after a stop
        self._silent_since: float | None = None

    def expect(self, batch: SendBatch) -> None:
        """To be called for each message of a batch before it is sent."""
        with self._lock:
            batch.on_their_way += 1

    def take(self, message: InFlightMessage, batch: SendBatch, receipt: Receipt) -> None:
        """Sets the outcome of a message by its receipt, on any thread. Of a batch that is `left` it stays in doubt."""
        with self._lock:
            if batch.left:
                return
            stored = not receipt.problem
            outcome = RecallEvent.SENT if stored else RecallEvent.REFUSED if receipt.never else RecallEvent.UNCLEAR
            message.finish(outcome, receipt=receipt.position, note=receipt.problem)
            batch.on_their_way -= 1
            self._quiet_since = self._silent_since = None
            if not batch.on_their_way:  # woken for each, who waits would cost more than the receipt
                self._changed.notify_all()

    def wait(self, batch: SendBatch) -> None:
        """Waits until every message that was sent has its receipt. Gives up after SILENCE seconds without a receipt, or
        PATIENCE seconds once `stop` is set: a lost connection may never return. Messages without a receipt then have no
        outcome, the batch is `left`, and `stop` is set, so that nothing more is sent.
        """
        with self._waits.during("receipts of the letters that were sent", SILENCE), self._changed:
            self._silent_since = None
            while batch.on_their_way and not batch.left:
                now = self._clock()
                self._silent_since = now if self._silent_since is None else self._silent_since
                batch.left = now - self._silent_since >= SILENCE
                if self._stop.is_set():
                    self._quiet_since = now if self._quiet_since is None else self._quiet_since
                    batch.left |= now - self._quiet_since >= PATIENCE
                if not batch.left:
                    self._changed.wait(_LOOK)
            if batch.left:
                self._stop.set()
