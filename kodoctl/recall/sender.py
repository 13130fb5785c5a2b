"""Sender of a recall plan: every letter arrives exactly once by its recall id, however often it is killed and restarted.

Why it is exact:

1. The plan fixes each letter's recall id, lane (one partition) and number; numbers of a lane rise from 1. A lane is
   one producer with the plan's own name, unbatched, without time-out, on a topic that deduplicates: the broker takes
   each number once and answers a repeated one with "had it already".
2. A letter is booked in the ledger as INTENT before it is sent, as SENT after its receipt, and acknowledged on the
   holder only after that. So a crash leaves each letter either untouched (not booked: send), stored (SENT: only
   acknowledge), or in doubt (INTENT; two bundles of them, as one is begun before the receipts of the last are
   awaited). A letter in doubt is sent again under its old number, and the broker decides. Where the broker may have
   forgotten the name, kodoctl.recall.recovery decides from reading the lane back, or the letter is left as UNCLEAR:
   told, neither sent nor acknowledged, never guessed.
3. The holder subscription is held exclusively meanwhile: two recalls of the same dead letters never run side by side,
   on this machine or another. What another run settled is not sent again, because the recall id is made from the
   place and the publish time of the letter, which are the same in every plan.
4. An acknowledgement that is lost (the client gathers them; those of a part of a batch do not survive an unload)
   leaves the letter with the holder, SENT in the ledger: it is acknowledged again, not sent again.

Exact for everybody who shares the ledger; kill -9 of this process is covered, a disk that loses writes is not.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

from kodoctl.errors import RefusedError, error
from kodoctl.protocol import properties as control
from kodoctl.pulsar.message_reader import ReadMessage
from kodoctl.pulsar.recall_transport import DeadLetterConsumer, LaneSender, NeverTakenError, RecalledMessage, Receipt
from kodoctl.recall.cluster import LetterSource, RecallCluster, letter_of
from kodoctl.recall.ledger_entries import line, unsent
from kodoctl.recall.partition_lanes import check_lanes, open_lanes, settle_doubts
from kodoctl.recall.payload_patch import Edit, NotEditableError
from kodoctl.recall.recall_headers import believed, recalled_properties
from kodoctl.recall.recall_ledger import LetterStatus, RecallEntry, RecallEvent, RecallLedger, highest_booked, standings
from kodoctl.recall.recall_plan import PlannedLetter, RecallAction, RecallPlan
from kodoctl.recall.send_receipts import Receipts
from kodoctl.recall.sends_in_flight import Further, InFlightMessage, ParallelSend, Report, SendBatch, SendOptions
from kodoctl.recall.stored_message import DeadLetter, Position

MOST_AT_ONCE: Final = 1_000  # letters booked together by default: a crash leaves twice as many in doubt
_MOST_BYTES: Final = 32 * 1024 * 1024  # of payloads in a bundle; two are held at once
_LOOKS: Final = 10  # at the holder's cursor, after the last acknowledgement
_WAIT: Final = 0.5  # seconds between two of them


class RecallSender:
    """One attempt at one plan."""

    def __init__(
        self,
        plan: RecallPlan,
        cluster: RecallCluster,
        ledger: RecallLedger,
        edit: Edit | None,
        orders: SendOptions,
        helpers: ParallelSend | None = None,
    ) -> None:
        self._plan, self._cluster, self._ledger, self._edit, self._orders = plan, cluster, ledger, edit, orders
        self._sends, self._helpers = plan.action is RecallAction.SEND, helpers
        self._chosen = {one.position: one for one in plan.letters}
        self._further = {one.position: Further(one) for one in plan.settle}
        self._further |= {copy.position: Further(copy, one) for one in plan.letters for copy in one.repeats}
        self._known: dict[str, LetterStatus] = {}
        self._lanes: dict[int, LaneSender] = {}
        self._begins: dict[int, str] = {}
        self._passed: dict[int, int] = {}  # lane -> numbers up to here are the broker's: none of them can be new
        self._receipts = Receipts(orders.stop, waits=cluster.waits)
        self._done = 0
        self._met: set[Position] = set()
        self._told: set[Position] = set()
        self.report = Report()

    def run(self) -> Report:
        """Raises KodoctlError when it cannot begin or go on; whatever was done by then is booked."""
        with ExitStack() as open_ends:
            holders = {number: self._hold(number, open_ends) for number in self._partitions()}
            self._read_ledger()
            own = [one for one in self._plan.letters if self._settled(one)]
            self.report.already = sum(self._known[one.recall_id].run == self._plan.run for one in own)
            if self._helpers is not None and self._needed():
                self._be_helped(self._helpers, self._let_go(holders))
            self._open_lanes(open_ends)
            for number, holder in holders.items():
                self._partition(number, holder)
        if self._orders.holds:
            self.report.unacknowledged = self._still_held()
            if not self.report.interrupted:
                self._count_unmet()
        return self.report

    def _read_ledger(self) -> None:
        self._known = standings(self._ledger.entries(self._plan.dead_topic))

    def _let_go(self, holders: Mapping[int, LetterSource]) -> set[Position]:
        """Letters to be sent that the holder has no more, although it has others of their batch: helpers do not see
        that.
        """
        found: set[Position] = set()
        for number, holder in holders.items():
            wanted = self._wanted(number)
            open_ = {p for p in wanted if (one := self._chosen.get(p)) is not None and not self._settled(one)}
            if isinstance(holder, DeadLetterConsumer) and any(position.batch >= 0 for position in open_):
                last = max(wanted)
                found |= open_.difference(holder.held((last.ledger, last.entry), wanted))
        return found

    def _be_helped(self, helpers: ParallelSend, without: set[Position]) -> None:
        """Others send while this holds: what they booked is only acknowledged here, what they left is sent here."""
        needed = self._needed(without)
        check_lanes(self._plan, self._cluster, needed)
        before = sum(self._settled(one) for one in self._plan.letters)
        found = helpers(needed, without) if needed else Report()
        self._read_ledger()
        booked = sum(self._settled(one) for one in self._plan.letters) - before
        self.report.sent, self.report.had_already = (
            (booked, 0) if found.interrupted else (found.sent, found.had_already)
        )
        self.report.before -= self.report.sent + self.report.had_already  # they will be met as settled

    def _count_unmet(self) -> None:
        """Letters that the holder has no more: the book says which of them a recall moved; of the others nobody
        knows.
        """
        for position, one in self._chosen.items():
            if position not in self._met:
                if self._settled(one):
                    self.report.before += 1
                else:
                    self.report.gone += 1

    def _still_held(self) -> int:
        """Letters that the holder has although they were acknowledged; single ones only, a batch tells nothing of its
        parts.
        """
        told = {position for position in self._told if position.batch < 0}
        for _ in range(_LOOKS):
            for number in {position.partition for position in told}:
                cursor = self._cluster.facts(self._part(number)).cursors.get(self._plan.holder)
                told = {p for p in told if p.partition != number or (cursor and not cursor.has((p.ledger, p.entry)))}
            if not told or self._orders.stop.wait(_WAIT):
                break
        return len(told)

    def _hold(self, number: int, open_ends: ExitStack) -> LetterSource:
        hold = self._cluster.hold if self._orders.holds else self._cluster.look
        holder = hold(self._part(number), self._plan.holder)
        open_ends.callback(holder.close)
        return holder

    def _part(self, number: int) -> str:
        return f"{self._plan.dead_topic}-partition-{number}"

    def _partitions(self) -> list[int]:
        return sorted({position.partition for position in (*self._chosen, *self._further)})

    def _open_lanes(self, open_ends: ExitStack) -> None:
        """Lanes of letters that are not settled yet, their doubts decided before anything is sent."""
        if not self._sends:
            return
        self._lanes, facts = open_lanes(self._plan, self._cluster, self._needed(), open_ends)
        self._read_ledger()  # whoever had the lanes until now may have booked to the last
        self._begins = {index: "{}:{}".format(*found.last) for index, found in facts.items()}
        booked = highest_booked(self._known, self._plan.run)
        self._passed = {index: max(lane.last_number, booked.get(lane.part, 0)) for index, lane in self._lanes.items()}
        entries = settle_doubts(self._plan, self._cluster, self._known, self._lanes, self._orders.clock())
        self._book(entries)
        self._known |= standings(entries)

    def _needed(self, without: Container[Position] = frozenset()) -> set[int]:
        """Lanes of letters that are not settled, nor at positions `without`; none where nothing is sent."""
        if not self._sends:
            return set()
        return {one.lane for one in self._plan.letters if not self._settled(one) and one.position not in without}

    def _settled(self, one: PlannedLetter) -> bool:
        standing = self._known.get(one.recall_id)
        return standing is not None and standing.settled

    # --- one partition of dead letters, in its order

    def _partition(self, number: int, holder: LetterSource) -> None:
        bundle, before = SendBatch(), SendBatch()  # what is gathered, and what is on its way meanwhile
        waiting: list[tuple[Further, object]] = []
        usual = self._orders.at_once or MOST_AT_ONCE
        most = min(usual, self._orders.pace.a_second)
        for position, stored in self._stored(number, holder):
            if self._orders.stop.is_set():
                break
            if (further := self._further.get(position)) is not None:
                if self._is_planned(further, letter_of(stored, self._plan.dead_topic, None)):
                    waiting.append((further, stored.token))
            elif (chosen := self._chosen.get(position)) is not None:
                self._met.add(position)
                if (parcel := self._parcel(chosen, stored, holder)) is not None:
                    bundle.add(parcel)
            if len(bundle.parcels) >= most or bundle.size >= _MOST_BYTES:
                self._begin(bundle)
                self._finish(before, holder)
                bundle, before = SendBatch(), bundle
                if most < usual:  # the rate is what takes the time
                    self._finish(before, holder)
                    before = SendBatch()
        self._begin(bundle)
        self._finish(before, holder)
        self._finish(bundle, holder)
        self._let_go_unsent(waiting, holder)
        self.report.interrupted = self.report.interrupted or self._orders.stop.is_set()

    def _is_planned(self, further: Further, letter: DeadLetter) -> bool:
        """True if the dead letter that was planned is stored there."""
        found = letter.publish_time == further.letter.published
        found = found and (further.first is None or letter.digest == further.first.digest)
        if not found:
            self.report.elsewhere.append(f"{letter.position}: it is not the letter that was planned")
        return found

    def _let_go_unsent(self, waiting: list[tuple[Further, object]], holder: LetterSource) -> None:
        """Booked by their own places before they are acknowledged: else whoever audits takes them for removed."""
        lines, free = [], []
        for further, token in waiting:
            place, first = further.letter.position, further.first
            sent = self._known.get(first.recall_id) if first else LetterStatus(self._plan.run, RecallEvent.SENT)
            own = self._known.get(self._plan.recall_id_of(further.letter))
            if own is not None and own.settled:
                free.append((place, token))
            elif sent is not None and sent.event is RecallEvent.SENT:
                lines.append(unsent(self._plan, further, sent, self._orders))
                free.append((place, token))
            elif sent is not None and sent.settled:
                self.report.elsewhere.append(f"{place}: its first was discarded: plan again")
        self._book(lines)
        for position, token in free:
            self._acknowledge(holder, position, token)

    def _stored(self, number: int, holder: LetterSource) -> Iterator[tuple[Position, ReadMessage]]:
        """Dead letters that the holder still has, up to the last one of the plan that it
        has; no further than needed.
        """
        if not (wanted := self._wanted(number)):
            return
        last = max(wanted)
        for stored in holder.letters((last.ledger, last.entry), wanted):
            position = Position(number, stored.ledger, stored.entry, stored.batch)
            yield position, stored
            wanted.discard(position)
            if not wanted:
                return

    def _wanted(self, number: int) -> set[Position]:
        """Positions of the plan whose entries the holder still has."""
        cursor = self._cluster.facts(self._part(number)).cursors.get(self._plan.holder)
        everything = (*self._chosen, *self._further)
        return {p for p in everything if p.partition == number and not (cursor and cursor.has((p.ledger, p.entry)))}

    def _parcel(self, chosen: PlannedLetter, stored: ReadMessage, holder: LetterSource) -> InFlightMessage | None:
        """A letter to be worked on; None when there is nothing left to do but telling the
        holder, or nothing at all.
        """
        letter = letter_of(stored, self._plan.dead_topic, None)
        if (letter.publish_time, letter.digest) != (chosen.published, chosen.digest):
            self.report.elsewhere.append(f"{chosen.position}: it is not the letter that was planned")
            self._one_done()
            return None
        standing = self._known.get(chosen.recall_id)
        if standing is not None and standing.settled:
            self.report.before += 1
            self._acknowledge(holder, chosen.position, stored.token)
            self._one_done()
            return None
        if standing is not None and self._must_stay(chosen, standing):
            self._one_done()
            return None
        own = standing is not None and standing.run == self._plan.run  # its number is taken, so the broker may be asked
        if not own and self._sends and chosen.number <= self._passed[chosen.lane]:
            self.report.elsewhere.append(f"{chosen.position}: its turn has passed: plan again")
            self._one_done()
            return None
        if self._sends and self._orders.signer is None and control.SIGNATURE in letter.properties:
            detail = f"{chosen.position} is signed, so workers would quarantine it unsigned: set KODO_CONSUMER_SIGNING_KEYS as they have it"
            raise RefusedError(error("K559", "recall plan that cannot be carried out", detail))
        return InFlightMessage(chosen, stored.token, letter, letter.payload)

    def _must_stay(self, chosen: PlannedLetter, standing: LetterStatus) -> bool:
        """Not settled, and not to be sent now: what a run refused or could not tell keeps its number."""
        if standing.run != self._plan.run and standing.event is not RecallEvent.REFUSED:
            self.report.elsewhere.append(f"{chosen.position}: begun by run {standing.run}, which is not finished")
        elif standing.run == self._plan.run and standing.event is RecallEvent.REFUSED:
            self.report.refused.append(f"{chosen.position}: {standing.note}")
        elif standing.event is RecallEvent.UNCLEAR:
            self.report.unclear.append(f"{chosen.position}: {standing.note}")
        else:
            return False
        return True

    def _one_done(self) -> None:
        self._done += 1
        self._orders.tell(self._done, len(self._chosen))

    # --- a bundle: book, send, book, acknowledge; the next one begins before the receipts of the last are awaited

    def _begin(self, bundle: SendBatch) -> None:
        """Books and sends."""
        if not bundle.parcels:
            return
        if not self._sends:
            for parcel in bundle.parcels:
                parcel.outcome, parcel.note = RecallEvent.DISCARDED, self._plan.because
            self.report.discarded += len(bundle.parcels)
        else:
            self._send_all(bundle)

    def _finish(self, bundle: SendBatch, holder: LetterSource) -> None:
        """Awaits receipts, books and acknowledges."""
        if not bundle.parcels:
            return
        self._receipts.wait(bundle)
        self.report.in_doubt += bundle.on_their_way
        if self._sends:
            self._count(bundle.parcels)
        finished = [parcel for parcel in bundle.parcels if parcel.outcome is not None]
        entries = [self._entry(parcel, parcel.outcome) for parcel in finished if parcel.outcome is not None]
        self._book(entries)
        self._known |= standings(entries)
        for parcel in finished:
            if self._settled(parcel.chosen):
                self._acknowledge(holder, parcel.chosen.position, parcel.token)
            self._one_done()
        if any(
            parcel.outcome is RecallEvent.UNCLEAR for parcel in finished
        ):  # a gap below what the broker counts: no further
            self._orders.stop.set()

    def _send_all(self, bundle: SendBatch) -> None:
        for parcel in bundle.parcels:
            self._patch(parcel)
        ready = [parcel for parcel in bundle.parcels if parcel.outcome is None]
        self._book([self._entry(parcel, RecallEvent.INTENT) for parcel in ready])
        for parcel in ready:
            if not self._orders.pace.wait(self._orders.stop):
                break
            self._send(parcel, bundle)
            if parcel.outcome is RecallEvent.REFUSED:  # before a higher number goes, else its own looks stored
                self._book([self._entry(parcel, RecallEvent.REFUSED)])

    def _patch(self, parcel: InFlightMessage) -> None:
        if self._edit is None:
            return
        try:
            parcel.payload = self._edit.apply(parcel.letter.payload)
        except NotEditableError as problem:  # the schema changed since the plan
            parcel.outcome, parcel.note = RecallEvent.REFUSED, str(problem)

    def _send(self, parcel: InFlightMessage, bundle: SendBatch) -> None:
        chosen, signer = parcel.chosen, self._orders.signer
        letter, lane = believed(parcel.letter, signer), self._plan.lanes[chosen.lane]
        subscription, again = self._plan.subscription, self._plan.again
        properties = recalled_properties(letter, chosen.recall_id, subscription, ready=lane.ready, again=again)
        if signer is not None:
            properties = signer.signed(lane.topic, parcel.payload, properties)
        message = RecalledMessage(parcel.payload, properties, letter.key, letter.ordering_key, letter.event_time)
        self._receipts.expect(bundle)
        try:
            self._lanes[chosen.lane].send(chosen.number, message, partial(self._receipts.take, parcel, bundle))
        except NeverTakenError as problem:  # a number that the broker has passed may be this letter's, stored before
            never = chosen.number > self._passed[chosen.lane]
            self._receipts.take(parcel, bundle, Receipt("", str(problem), never=never))

    def _count(self, bundle: list[InFlightMessage]) -> None:
        for parcel in bundle:
            match parcel.outcome:
                case RecallEvent.SENT if parcel.receipt:
                    self.report.sent += 1
                case RecallEvent.SENT:
                    self.report.had_already += 1
                case RecallEvent.REFUSED:
                    self.report.refused.append(f"{parcel.chosen.position}: {parcel.note}")
                case RecallEvent.UNCLEAR:
                    self.report.unclear.append(f"{parcel.chosen.position}: {parcel.note}")
                case _:
                    pass

    # --- booking and acknowledging

    def _entry(self, parcel: InFlightMessage, event: RecallEvent) -> RecallEntry:
        return line(self._plan, parcel, event, self._orders, self._begins.get(parcel.chosen.lane, ""))

    def _book(self, entries: list[RecallEntry]) -> None:
        self._ledger.append(entries)

    def _acknowledge(self, holder: LetterSource, position: Position, token: object) -> None:
        if not self._orders.holds:
            return
        holder.acknowledge(token)
        self._told.add(position)
        self.report.acknowledged += 1
