"""What is on its way in an attempt at a recall, and its receipts, which come on threads of the client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from kodoctl.pulsar.letters import Receipt
from kodoctl.recall.ledger import Event
from kodoctl.recall.parcels import Bundle, Parcel

PATIENCE: Final = 5.0  # seconds without any receipt, after somebody said stop
_LOOK: Final = 0.5  # seconds between two looks whether somebody did


class Receipts:
    """Of all bundles of one attempt. `clock` in seconds."""

    def __init__(self, stop: threading.Event, clock: Callable[[], float] = time.monotonic) -> None:
        self._stop, self._clock = stop, clock
        self._changed = threading.Condition()
        self._quiet_since: float | None = None

    def expect(self, bundle: Bundle) -> None:
        """One more, before it is sent."""
        with self._changed:
            bundle.on_their_way += 1

    def take(self, parcel: Parcel, bundle: Bundle, receipt: Receipt) -> None:
        """One came."""
        with self._changed:
            if bundle.left:  # nobody looks any more: it stays in doubt
                return
            parcel.receipt, parcel.note = receipt.position, receipt.problem
            stored = not receipt.problem
            parcel.outcome = Event.SENT if stored else Event.REFUSED if receipt.never else Event.UNCLEAR
            bundle.on_their_way -= 1
            self._quiet_since = None
            self._changed.notify_all()

    def wait(self, bundle: Bundle) -> None:
        """Until every parcel has its own. Once somebody said stop, only as long as any come: a connection that is gone may
        never come back. Parcels without one keep no outcome, and the bundle is `left`.
        """
        with self._changed:
            while bundle.on_their_way and not bundle.left:
                if self._stop.is_set():
                    now = self._clock()
                    self._quiet_since = now if self._quiet_since is None else self._quiet_since
                    bundle.left = now - self._quiet_since >= PATIENCE
                if not bundle.left:
                    self._changed.wait(_LOOK)
