# adapter: sends to the broker
"""Batches of messages of a recall: each is recorded, sent or discarded, and recorded again with its outcome.

A batch is begun before the receipts of the one before it are awaited, so that the two steps of the ledger and the way
to the broker overlap.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from kodoctl.protocol import properties
from kodoctl.pulsar.binary.exclusive_producer import RECEIPT_S
from kodoctl.pulsar.binary.recall_transport import DedupProducer, RecalledMessage, Receipt, RejectedError
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from kodoctl.recall.ledger.recall_ledger import RecallEvent
from kodoctl.recall.message.payload_patch import Edit, NotEditableError
from kodoctl.recall.message.recall_headers import due_time, trusted_letter
from kodoctl.recall.send.ledger_entries import ledger_entries
from kodoctl.recall.send.partition_lanes import open_lanes, settle_doubts

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import SendReport
    from kodoctl.protocol.signing import Signer
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.plan.recall_plan import PlannedLetter, RecallPlan
    from kodoctl.recall.send.plan_ledger import PlanLedger
    from kodoctl.recall.send.sends_in_flight import InFlightMessage, SendBatch, SendOptions


PATIENCE: Final = 5.0  # seconds without any receipt, after a stop was asked for
SILENCE: Final = RECEIPT_S  # and where nobody did: a fail-over is over by then
_LOOK: Final = 0.5  # seconds between two looks whether somebody did


class BatchSender:
    """Sends the batches of one attempt, or discards them if that is the plan; counts outcomes in `report`. The caller
    calls `begin` and then `finish` once for each batch; if the plan sends, the lanes of its messages must be open
    before.
    """

    def __init__(
        self,
        plan: RecallPlan,
        cluster: RecallCluster,
        ledger: PlanLedger,
        edit: Edit | None,
        options: SendOptions,
        report: SendReport,
    ) -> None:
        self._plan, self._cluster, self._ledger, self._edit = plan, cluster, ledger, edit
        self._options, self._report = options, report
        self._receipts = ReceiptTracker(options.stop, waits=cluster.waits)
        self._lanes: dict[int, DedupProducer] = {}
        self._begins: dict[int, str] = {}  # lane -> its end when the attempt began
        self._passed: dict[int, int] = {}  # lane -> numbers up to here are the broker's: none of them can be new

    def open(self, lanes: Collection[int], stack: ExitStack) -> None:
        """Opens lanes by their indices in place of those of an earlier call (`stack` closes them). Reads the ledger
        again, and scans at once each lane where it has letters in doubt of this plan: the ledger gets an outcome (sent,
        refused, unclear) for each that must not be sent again. Raises the errors of `open_lanes` and of the ledger, and
        ClusterError.
        """
        self._lanes, facts = open_lanes(self._plan, self._cluster, lanes, stack)
        self._ledger.read()  # whoever had the lanes until now may have appended entries to the last
        self._begins = {index: "{}:{}".format(*found.last) for index, found in facts.items()}
        booked = self._ledger.highest_booked()
        self._passed = {index: max(lane.last_number, booked.get(lane.part, 0)) for index, lane in self._lanes.items()}
        now = self._options.clock()
        self._ledger.append(settle_doubts(self._plan, self._cluster, self._ledger.statuses, booked, self._lanes, now))

    def passed(self, letter: PlannedLetter) -> bool:
        """True if the number of the letter is not above the highest one of this plan that was stored in its lane, by
        the broker's memory or by the ledger, when the lane was opened: the broker may drop the letter. The lane must be
        open.
        """
        return letter.number <= self._passed[letter.lane]

    def begin(self, batch: SendBatch) -> None:
        """Records in the ledger that the messages are about to be sent, and sends them, not faster than the allowed
        rate; receipts come later, on threads of the client. A message that cannot be sent, such as by its size, gets
        the outcome refused or unclear. If `stop` of the options is set meanwhile, the remaining messages are recorded
        and not sent. For a discard, only sets the outcomes. Raises ClusterError, LockedError, and the errors of the
        ledger.
        """
        if not batch.messages:
            return
        if not self._plan.action.sends:
            for message in batch.messages:
                message.finish(RecallEvent.DISCARDED, note=self._plan.because)
            self._report.discarded += len(batch.messages)
        else:
            self._send_all(batch)

    def finish(self, batch: SendBatch) -> list[InFlightMessage]:
        """Waits for receipts and records the outcomes in the ledger. Returns the messages with an outcome in order,
        including refused and unclear ones, but not those that were not sent because of a stop, or have no receipt at
        the end of the wait (`ReceiptTracker.wait`). Raises the errors of the ledger.

        Sets the event `stop` of the options if an outcome is unclear or a receipt is missing: such a message would be a
        gap below the number up to which the broker counts.
        """
        if not batch.messages:
            return []
        self._receipts.wait(batch)
        self._report.in_doubt += batch.on_their_way
        if self._plan.action.sends:
            self._count(batch.messages)
        finished = [message for message in batch.messages if message.outcome is not None]
        self._record((one, one.outcome) for one in finished if one.outcome is not None)
        if any(message.outcome is RecallEvent.UNCLEAR for message in finished):
            self._options.stop.set()
        return finished

    def _send_all(self, batch: SendBatch) -> None:
        if self._edit is not None:
            for message in batch.messages:
                self._patch(message, self._edit)
        ready = [message for message in batch.messages if message.outcome is None]
        self._record((message, RecallEvent.INTENT) for message in ready)
        pace, stop = self._options.pace, self._options.stop
        waiting: list[InFlightMessage] = []
        for message in ready:
            if not pace.free:
                self._flush(waiting)
            if not pace.wait(stop):
                break
            self._send(message, batch)
            if message.outcome is RecallEvent.REFUSED:  # before a higher number goes, else its own looks stored
                self._record([(message, RecallEvent.REFUSED)])
                continue
            waiting.append(message)
            if self._lanes[message.chosen.lane].full:
                self._flush(waiting)
        self._flush(waiting)

    def _flush(self, waiting: list[InFlightMessage]) -> None:
        """Makes each lane send its waiting messages, which are among `waiting`. Messages that a lane refuses
        are recorded before a higher number is sent.
        """
        for lane in self._lanes.values():
            while not lane.flush():
                refused = [message for message in waiting if message.outcome is RecallEvent.REFUSED]
                self._record((message, RecallEvent.REFUSED) for message in refused)
                waiting[:] = [message for message in waiting if message.outcome is not RecallEvent.REFUSED]
        waiting.clear()

    def _patch(self, message: InFlightMessage, edit: Edit) -> None:
        try:
            message.payload = edit.apply(message.letter.payload)
        except NotEditableError as problem:  # the schema changed since the plan
            message.finish(RecallEvent.REFUSED, note=str(problem))

    def _send(self, message: InFlightMessage, batch: SendBatch) -> None:
        chosen, recalled = message.chosen, self._recalled_message(message, self._options.signer)
        self._receipts.expect(batch)
        try:
            self._lanes[chosen.lane].send(chosen.number, recalled, partial(self._receipts.take, message, batch))
        except RejectedError as problem:  # a number that the broker has passed may be this letter's, stored before
            self._receipts.take(message, batch, Receipt("", str(problem), never=not self.passed(chosen)))

    def _recalled_message(self, message: InFlightMessage, signer: Signer | None) -> RecalledMessage:
        """The message to send; its headers are signed if there is a signer."""
        plan, letter, lane = self._plan, trusted_letter(message.letter, signer), self._plan.lanes[message.chosen.lane]
        recall_id = message.chosen.recall_id
        waits_until = due_time(letter, self._options.clock(), self._options.horizon)
        headers = plan.kind.sent_headers(plan, lane, letter, recall_id, waits_until)
        due = int(headers.get(properties.DUE, "0"))
        if signer is not None:
            headers = signer.signed(lane.topic, message.payload, headers)
        return RecalledMessage(message.payload, headers, letter.key, letter.ordering_key, letter.event_time, due)

    def _count(self, messages: list[InFlightMessage]) -> None:
        for message in messages:
            match message.outcome:
                case RecallEvent.SENT if message.receipt:
                    self._report.sent += 1
                case RecallEvent.SENT:
                    self._report.had_already += 1
                case RecallEvent.REFUSED:
                    self._report.refused.append(f"{message.chosen.position}: {message.note}")
                case RecallEvent.UNCLEAR:
                    self._report.unclear.append(f"{message.chosen.position}: {message.note}")
                case _:
                    pass

    def _record(self, messages: Iterable[tuple[InFlightMessage, RecallEvent]]) -> None:
        self._ledger.append(ledger_entries(self._plan, messages, self._options, self._begins))


class ReceiptTracker:
    """Receipts of all batches of one attempt, for several threads: the sender counts messages and waits, threads of the
    client library bring receipts. `clock` in seconds; `waits` reports long waits; `stop`: event that is set when the
    attempt should end, also by `wait`.
    """

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
        """Counts one message of a batch. The sender calls this for each message before it sends the message, so that
        `take` always comes later.
        """
        with self._lock:
            batch.on_their_way += 1

    def take(self, message: InFlightMessage, batch: SendBatch, receipt: Receipt) -> None:
        """Sets the outcome of a message by its receipt, in any thread; to be called once for each message. If nobody
        waits for its batch any more (`left`), the receipt is ignored, and the message stays in doubt.
        """
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
        """Waits until every message of the batch that was sent has its receipt. Gives up if for 90 s (SILENCE) of this
        wait no receipt of any batch comes, or for 5 s (PATIENCE) after `stop` was seen set, earlier waits included: a
        lost connection may never return. Messages without a receipt then have no outcome, the batch is `left`, and
        `stop` is set, so that nothing more is sent.
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
