"""Messages in flight in an attempt at a recall, and the settings of the attempt. Sizes are bytes, times
are ms since the epoch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kodoctl.recall.message.stored_message import DeadLetter, Position

if TYPE_CHECKING:
    from kodoctl.protocol.signing import Signer
    from kodoctl.recall.ledger.recall_ledger import RecallEvent
    from kodoctl.recall.plan.recall_plan import PlannedLetter, RecallPlan
    from kodoctl.recall.send.rate_limit import RateLimit


@dataclass(frozen=True, slots=True)
class SendOptions:
    """Settings of an attempt.

    Args:
        pace: limit of the rate.
        who: the user, as text, for the ledger.
        clock: returns ms since the epoch.
        stop: event that ends the attempt in order; the attempt sets it, too, if it is unknown whether a message was
            stored.
        tell: takes (number of letters done, number of letters in the plan); the first may never reach the second.
        signer: signs headers; None: headers are not signed.
        at_once: number of letters that are recorded together at most; None: MOST_AT_ONCE.
        holds: False: another process holds the subscription and acknowledges.
        horizon: ms after its sending at which a message is due at the latest.
        ordered: the lane of the letters keeps the order of keys.
        booked: by lane (full name of a partition), the highest number that was certainly stored when the attempt began;
            None: these numbers are read from the ledger.
    """

    pace: RateLimit
    who: str
    clock: Callable[[], int]
    stop: threading.Event
    tell: Callable[[int, int], None]
    signer: Signer | None = None
    at_once: int | None = None
    holds: bool = True
    horizon: int = 0
    ordered: bool = False
    booked: Mapping[str, int] | None = None


@dataclass(slots=True)
class InFlightMessage:
    """A letter (a dead, waiting or lost message) that is being sent or discarded.

    Args:
        chosen: the letter in the plan.
        token: acknowledges the letter.
        letter: the letter as it is stored.
        payload: the payload to send, edited before it is sent if the plan has an edit; None: a tombstone.
        outcome: None: not known yet.
        receipt: position where it was stored (`ledger:entry`), "" if the broker did not report it.
        note: reason for any outcome but SENT; else "".
    """

    chosen: PlannedLetter
    token: object
    letter: DeadLetter
    payload: bytes | None
    outcome: RecallEvent | None = None
    receipt: str = ""
    note: str = ""

    def finish(self, outcome: RecallEvent, *, receipt: str = "", note: str = "") -> None:
        """Sets the outcome of the message. `receipt`: position where it was stored (`ledger:entry`), "" if the broker
        did not report it; `note`: reason for any outcome but SENT.
        """
        self.receipt, self.note = receipt, note
        self.outcome = outcome  # last: who sees it reads the others without a lock


@dataclass(slots=True)
class SendBatch:
    """Messages that are recorded together. `size`: bytes of their payloads before any edit; `on_their_way`: number of
    messages that were sent and have no receipt yet; `left`: nobody waits for these receipts any more.
    """

    messages: list[InFlightMessage] = field(default_factory=list)
    size: int = 0
    on_their_way: int = 0
    left: bool = False

    def add(self, message: InFlightMessage) -> None:
        """Appends a message, which has not been sent yet, and adds its payload to `size`."""
        self.messages.append(message)
        self.size += message.letter.size


ParallelSend = Callable[["RecallPlan", Collection[int], Container[Position], Mapping[str, int]], int]
"""Sends letters in other processes and records them in the ledger. Arguments: the plan or a segment of it, the lanes
whose letters are sent, positions that are left out, the numbers of PlanLedger.highest_booked. Returns the number of
letters that the broker dropped because it had stored them before, 0 after an interruption. The caller counts by the
ledger what was sent, and sends the rest.
"""
