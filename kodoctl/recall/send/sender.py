# adapter: sends to the broker
"""Sender of a recall plan: every dead letter arrives exactly once by its recall id, however often the process is killed
and started again.

Why it is exact:

1. The plan fixes each dead letter's recall id, lane (one partition) and number; numbers of a lane rise from 1. A lane
   is one producer with the plan's own name, unbatched, without time-out, on a topic that deduplicates: the broker
   stores each number once, and gives a repeated one a receipt without a position.
2. A dead letter is recorded in the ledger as INTENT before it is sent, as SENT after its receipt, and acknowledged on
   the holder only after that. So a crash leaves each one either untouched (not recorded: send), stored (SENT: only
   acknowledge), or in doubt (INTENT; two batches of them, as one is begun before the receipts of the last are
   awaited). A dead letter in doubt is sent again under its old number, and the broker decides. If the broker may have
   forgotten the name, the lane is read back (kodoctl.recall.ledger.recovery). A letter without a decision is UNCLEAR:
   it is reported, and neither sent nor acknowledged.
3. An attempt holds the subscription exclusively: two recalls of the same dead letters never run at the same time, on
   this machine or another. A letter that another run settled is not sent again, because the recall id is made from the
   position and the publish time of the dead letter, which are the same in every plan.
4. An acknowledgement that is lost (the client gathers them; those of a part of a batch do not survive an unload)
   leaves the dead letter unacknowledged, and SENT in the ledger: it is acknowledged again, not sent again.
5. A broker may still store a number twice when it takes a partition over: kodoctl.recall.send.lane_duplicates.

Exact for everybody who shares the ledger; kill -9 of this process is covered, a disk that loses writes is not.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Collection, Container, Iterable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kodoctl.documents.recall_document import SendReport
from kodoctl.errors import RefusedError, error
from kodoctl.protocol import properties as headers
from kodoctl.recall.cluster import RecallCluster, letter_of
from kodoctl.recall.ledger.recall_ledger import LetterStatus, RecallEvent, RecallLedger
from kodoctl.recall.message.stored_message import digest
from kodoctl.recall.plan.key_order import check_keys, late_arrivals
from kodoctl.recall.plan.letter_table import PlanSegment, segments
from kodoctl.recall.send.batch_sender import BatchSender
from kodoctl.recall.send.dead_letter_partitions import DeadLetterPartitions, MessageSource
from kodoctl.recall.send.lane_duplicates import LaneDuplicates
from kodoctl.recall.send.ledger_entries import copy_entry
from kodoctl.recall.send.partition_lanes import check_lanes
from kodoctl.recall.send.plan_ledger import PlanLedger
from kodoctl.recall.send.sends_in_flight import InFlightMessage, ParallelSend, SendBatch, SendOptions

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.message_reader import ReadMessage
    from kodoctl.recall.message.payload_patch import Edit
    from kodoctl.recall.message.stored_message import DeadLetter, Position
    from kodoctl.recall.plan.recall_plan import PlannedLetter, RecallPlan, UnsentCopy

MOST_AT_ONCE: Final = 1_000  # messages recorded together by default: a crash leaves twice as many in doubt
_MOST_BYTES: Final = 32 * 1024 * 1024  # of payloads in a batch; two are held at once


class RecallSender:
    """One attempt at one plan: call `run` once. `options`: settings of the attempt; `helpers`: sends in other
    processes, and this process sends what they left; None: this process sends everything. `report`: the result so far.
    """

    def __init__(
        self,
        plan: RecallPlan,
        cluster: RecallCluster,
        ledger: RecallLedger,
        edit: Edit | None,
        options: SendOptions,
        helpers: ParallelSend | None = None,
        source: MessageSource | None = None,
    ) -> None:
        """`source`: source of the messages; None: the source topic of the plan."""
        self._plan, self._cluster, self._options, self._helpers = plan, cluster, options, helpers
        self._segment = PlanSegment((), ())
        self._chosen: dict[Position, PlannedLetter] = {}
        self._further: dict[Position, UnsentCopy] = {}
        self._early: list[tuple[UnsentCopy, object]] = []  # copies that came before what they are copies of was sent
        self.report = SendReport()
        self._ledger = PlanLedger(ledger, plan, options.booked)
        self._partitions: MessageSource = source or DeadLetterPartitions(plan, cluster, options)
        self._batches = BatchSender(plan, cluster, self._ledger, edit, options, self.report)
        self._done = 0
        self._met: set[Position] = set()
        self._delegated: set[Position] = set()  # of the segment: recorded by helpers, and counted in the report

    def run(self) -> SendReport:
        """Sends or discards the messages, acknowledges them unless `holds` of the options is False, and returns the
        result. Ends early, with `interrupted` in the report, when the event `stop` of the options is set; this object
        sets it, too, if it is unknown whether a message was stored. Raises KodoctlError if it cannot begin or continue:
        the ledger has all that the next attempt at the plan must know.
        """
        with ExitStack() as stack:
            for segment in segments(self._plan):
                self._send_segment(segment, stack)
                if self.report.interrupted:
                    break
            self._acknowledge_early()
            if self._options.ordered:
                self.report.elsewhere += late_arrivals(self._plan, self._cluster)
        self.report.acknowledged = self._partitions.acknowledged
        if self._options.holds:
            self.report.unacknowledged += self._partitions.count_unacknowledged()
        return self.report

    def _send_segment(self, segment: PlanSegment, stack: ExitStack) -> None:
        """Carries out one segment of the plan. `stack`: closes the source of the messages when the attempt is over."""
        self._segment = segment
        self._chosen = {one.position: one for one in segment.letters}
        self._further = {one.letter.position: one for one in segment.unsent}
        self._met.clear()
        self._delegated.clear()
        numbers = self._partitions.open(stack, (*self._chosen, *self._further))
        self._ledger.select(segment)
        own = [one for one in segment.letters if self._ledger.settled(one)]
        self.report.already += sum(self._ledger.statuses[one.recall_id].run == self._plan.run for one in own)
        if self._options.ordered and not self._has_begun():
            check_keys(self._plan, self._cluster)
        if self._helpers is not None and self._needed_lanes():
            self._delegate(self._helpers)
        with ExitStack() as lanes:
            if self._plan.action.sends:
                self._batches.open(self._needed_lanes(), lanes)
            with COLLECTOR_REST if self._plan.edit is None else nullcontext():
                for number in numbers:
                    self._partition(number)
        if self._options.holds and not self.report.interrupted:
            self._count_unmet()
            if self._plan.action.sends:
                self._find_duplicates(numbers)

    def _find_duplicates(self, numbers: Collection[int]) -> None:
        """Finds messages of the segment that brokers stored twice. A duplicate is acknowledged at the end if
        nobody else reads the lane, otherwise reported.
        """
        duplicates = LaneDuplicates(self._plan, self._cluster, self._ledger)
        for one in duplicates.find(self._segment.letters, numbers):
            if one.exclusive:
                self._early.append((one.copy, self._cluster.token(one.position)))
                self.report.duplicates += 1
            else:
                self.report.stored_twice.append(str(one))
        self.report.stored_twice += duplicates.doubts

    def _acknowledge_early(self) -> None:
        """Acknowledges copies that came before the letters sent for them, and messages that a broker stored twice."""
        if self._early:
            copies, self._early = self._early, []
            self._ledger.select(PlanSegment((), tuple(further for further, _ in copies)))
            self._acknowledge_unsent(copies)

    def _has_begun(self) -> bool:
        """True if an attempt at the plan may have sent, or has discarded, anything."""
        statuses = self._ledger.statuses.values()
        return any(one.run == self._plan.run and one.event is not RecallEvent.REFUSED for one in statuses)

    def _delegate(self, helpers: ParallelSend) -> None:
        """Lets other processes send while this process holds the subscription. Messages that they recorded are
        only acknowledged here; messages that they left are sent here.
        """
        letters = self._segment.letters
        unsettled = {one.position for one in letters if not self._ledger.settled(one)}
        without = self._partitions.acknowledged_in_batches(unsettled)
        needed = self._needed_lanes(without)
        check_lanes(self._plan, self._cluster, needed)
        part = replace(self._plan, letters=letters, table=None)
        had_already = helpers(part, needed, without, self._ledger.highest_booked()) if needed else 0
        self._ledger.read()
        self._delegated = {one.position for one in letters if one.position in unsettled and self._ledger.settled(one)}
        self.report.sent += len(self._delegated) - had_already
        self.report.had_already += had_already

    def _count_unmet(self) -> None:
        """Counts dead letters that the holder has no longer: those that a recall moved, by the ledger,
        and all others.
        """
        for position, one in self._chosen.items():
            if position not in self._met:
                if self._ledger.settled(one):
                    self.report.before += position not in self._delegated
                elif why := self._partitions.why_missing(position):
                    self.report.elsewhere.append(f"{position}: {why}")
                else:
                    self.report.gone += 1

    def _needed_lanes(self, without: Container[Position] = frozenset()) -> set[int]:
        """Lanes of letters that are neither settled nor at positions `without`; none if the plan sends nothing."""
        if not self._plan.action.sends:
            return set()
        return {
            one.lane for one in self._segment.letters if not self._ledger.settled(one) and one.position not in without
        }

    # --- one partition of dead letters, in its order

    def _partition(self, number: int) -> None:
        batch, before = SendBatch(), SendBatch()  # the one that is gathered, and the one that was sent meanwhile
        copies: list[tuple[UnsentCopy, object]] = []
        usual = self._options.at_once or MOST_AT_ONCE
        most = min(usual, self._options.pace.a_second)
        for position, stored in self._partitions.messages(number):
            if self._options.stop.is_set():
                break
            if position in self._met:
                self._handle_redelivery(position, stored)
            elif (further := self._further.get(position)) is not None:
                self._met.add(position)
                if self._matches_plan(further, letter_of(stored, self._plan.source_topic, None)):
                    copies.append((further, stored.token))
            elif (chosen := self._chosen.get(position)) is not None:
                self._met.add(position)
                if (message := self._message(chosen, stored)) is not None:
                    batch.add(message)
            if len(batch.messages) >= most or batch.size >= _MOST_BYTES:
                self._batches.begin(batch)
                self._finish(before)
                batch, before = SendBatch(), batch
                if most < usual:  # the rate is what takes the time
                    self._finish(before)
                    before = SendBatch()
        self._batches.begin(batch)
        self._finish(before)
        self._finish(batch)
        self._acknowledge_unsent(copies)
        self.report.interrupted = self.report.interrupted or self._options.stop.is_set()

    def _handle_redelivery(self, position: Position, stored: ReadMessage) -> None:
        """Handles a message that came again after a lost connection: acknowledges it again if the ledger has it
        as settled. Other messages are in a batch, or are not part of the plan.
        """
        if (chosen := self._chosen.get(position)) is not None and self._ledger.settled(chosen):
            self._partitions.acknowledge(position, stored.token)

    def _finish(self, batch: SendBatch) -> None:
        """Records the outcomes of the batch, and acknowledges the messages that are settled by the ledger."""
        for message in self._batches.finish(batch):
            if self._ledger.settled(message.chosen):
                self._partitions.acknowledge(message.chosen.position, message.token)
            self._progress()

    def _matches_plan(self, further: UnsentCopy, letter: DeadLetter) -> bool:
        """True if the planned dead letter is stored there; otherwise the report gets a line."""
        found = letter.publish_time == further.letter.published
        found = found and (further.first is None or letter.digest == further.first.digest)
        if not found:
            self.report.elsewhere.append(f"{letter.position}: it is not the letter that was planned")
        return found

    def _acknowledge_unsent(self, copies: Iterable[tuple[UnsentCopy, object]]) -> None:
        """Records copies by their own positions, then acknowledges them: without the record an audit takes them for
        removed. A copy whose letter was not sent is not acknowledged.
        """
        entries, recorded = [], []
        for further, token in copies:
            position, first = further.letter.position, further.first
            sent = (
                self._ledger.statuses.get(first.recall_id) if first else LetterStatus(self._plan.run, RecallEvent.SENT)
            )
            own = self._ledger.statuses.get(self._plan.recall_id_of(further.letter))
            if own is not None and own.settled:
                recorded.append((position, token))
            elif sent is not None and sent.event is RecallEvent.SENT:
                entries.append(copy_entry(self._plan, further, sent, self._options))
                recorded.append((position, token))
            elif sent is not None and sent.settled:
                self.report.elsewhere.append(f"{position}: its first was discarded: plan again")
            elif first is not None and first.position not in self._chosen:
                self._early.append((further, token))  # its first may be in a later segment
        self._ledger.append(entries)
        for position, token in recorded:
            self._partitions.acknowledge(position, token)

    def _message(self, chosen: PlannedLetter, stored: ReadMessage) -> InFlightMessage | None:
        """The dead letter as a message to send or discard. None: it is settled, and is acknowledged here, or it must
        not be sent, and the report says why. Raises RefusedError for a signed letter if there is no signer.
        """
        letter = letter_of(stored, self._plan.source_topic, None)
        if (letter.publish_time, digest(letter.payload)) != (chosen.published, chosen.digest):
            self._leave(chosen, "it is not the letter that was planned")
            return None
        status = self._ledger.statuses.get(chosen.recall_id)
        if status is not None and status.settled:
            self.report.before += chosen.position not in self._delegated
            self._partitions.acknowledge(chosen.position, stored.token)
            self._progress()
            return None
        if status is not None and self._must_stay(chosen, status):
            self._progress()
            return None
        own = status is not None and status.run == self._plan.run  # its number is taken, so the broker may be asked
        if not own and self._plan.action.sends and self._batches.passed(chosen):
            self._leave(chosen, "a later message was already sent on this partition: plan again")
            return None
        if self._plan.action.sends and self._options.signer is None and headers.SIGNATURE in letter.properties:
            detail = f"{chosen.position} is signed, so workers would quarantine it unsigned: set KODO_CONSUMER_SIGNING_KEYS as they have it"
            raise RefusedError(error("K559", "recall plan that cannot be carried out", detail))
        return InFlightMessage(chosen, stored.token, letter, letter.payload)

    def _leave(self, chosen: PlannedLetter, why: str) -> None:
        """Reports a dead letter that this plan cannot send any more."""
        self.report.elsewhere.append(f"{chosen.position}: {why}")
        self._progress()

    def _must_stay(self, chosen: PlannedLetter, status: LetterStatus) -> bool:
        """True if a letter is not settled and must not be sent now: a letter that a run refused or left unclear
        keeps its number. The report gets the reason.
        """
        if status.run != self._plan.run and status.event is not RecallEvent.REFUSED:
            self.report.elsewhere.append(f"{chosen.position}: begun by run {status.run}, which is not finished")
        elif status.run == self._plan.run and status.event is RecallEvent.REFUSED:
            self.report.refused.append(f"{chosen.position}: {status.note}")
        elif status.event is RecallEvent.UNCLEAR:
            self.report.unclear.append(f"{chosen.position}: {status.note}")
        else:
            return False
        return True

    def _progress(self) -> None:
        self._done += 1
        self._options.tell(self._done, self._plan.size)


class CollectorRest:
    """Context that switches Python's garbage collector off while any thread is in it; later the collector is as it was
    before. A process has one such object (COLLECTOR_REST), because it has one collector.

    The collector would scan a segment's letters again and again, which takes a third of the time of a letter, and
    reference counts free all of them. Not for a plan with an edit: a validator leaves cycles.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._senders = 0
        self._enabled = False  # before the first of them

    def __enter__(self) -> None:
        with self._lock:
            if not self._senders:
                self._enabled = gc.isenabled()
                gc.disable()
            self._senders += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._senders -= 1
            if not self._senders and self._enabled:
                gc.enable()


COLLECTOR_REST: Final = CollectorRest()
"""The CollectorRest of this process, because Python has one collector."""
