"""A broker and a ledger that outlive attempts at a recall, for tests of the sender."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kodoctl.documents.recall_document import SendReport
from kodoctl.pulsar.binary.message_reader import Cursor, PartitionFacts, ReadMessage
from kodoctl.pulsar.binary.recall_transport import RecalledMessage, Receipt
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from kodoctl.recall.ledger.recall_ledger import LedgerSlice, RecallEntry, highest_booked, latest_status
from kodoctl.recall.message.stored_message import Position, digest
from kodoctl.recall.plan import letter_table
from kodoctl.recall.plan.letter_table import LetterTableWriter, PlanRow
from kodoctl.recall.plan.recall_plan import (
    LetterRef,
    PlannedLetter,
    PlannedPartition,
    RecallAction,
    RecallPlan,
    lost_key,
    recall_id,
)
from kodoctl.recall.send.rate_limit import RateLimit
from kodoctl.recall.send.sender import RecallSender
from kodoctl.recall.send.sends_in_flight import SendOptions
from tests.unit.recall.letters import DEAD, NOW

READY = "persistent://kodo/trade/orders"
HOLDER = "billing"
ENTRIES = 8
COPY, OLD = ENTRIES, ENTRIES + 1  # of the first dead letter; of one that an earlier recall sent


class KilledError(BaseException):
    """The process ends here."""


class World:
    """A broker and a ledger that outlive attempts. Each call that an attempt makes is a step, with one moment before it and
    one behind it; at the `fatal` moment the attempt ends.
    """

    def __init__(self, *, bundled: bool = False, refused: Collection[int] = ()) -> None:
        """`bundled`: messages wait in lanes for others; `refused`: entries that the client library does not take."""
        self.bundled, self.refused = bundled, [payload_of(entry) for entry in refused]
        self.steps, self.fatal = 0, -1
        self.ledger: list[RecallEntry] = []
        self.acknowledged: set[int] = set()
        self.stored: dict[str, list[RecalledMessage]] = {}
        self.watermarks: dict[tuple[str, str], int] = {}
        self.waits = WaitMonitor()
        self.unread: set[str] = set()  # partitions without the subscription
        self.deduplicates = True
        self.first_ledger = 1  # of each partition, so long as nothing was trimmed
        self.again: set[int] = (
            set()
        )  # behind these entries the connection is lost: what is not acknowledged comes again
        self.collector: set[bool] = set()  # whether it ran while something was sent

    def step(self, effect: Callable[[], Any]) -> Any:
        for part in (lambda: None, effect):
            part()
            self.steps += 1
            if self.steps == self.fatal:
                raise KilledError

    def append(self, entries: Sequence[RecallEntry]) -> None:
        self.step(lambda: self.ledger.extend(entries))

    def entries(self, dead_topic: str, among: LedgerSlice | None = None) -> list[RecallEntry]:
        assert dead_topic in (DEAD, lost_key(DEAD, HOLDER))
        assert among is not None, "no attempt needs all that the ledger has of a topic"
        assert among.since <= NOW <= among.until
        return [one for one in self.ledger if one.recall_id in among.recall_ids]

    def highest_numbers(self, dead_topic: str, run: str) -> dict[str, int]:
        return highest_booked(latest_status(self.ledger), run)

    def facts(self, part: str) -> PartitionFacts:
        done = tuple(((1, entry), (1, entry)) for entry in sorted(self.acknowledged))
        cursors = {HOLDER: Cursor((1, -1), done)} if part.startswith(DEAD) or part not in self.unread else {}
        return PartitionFacts(
            part, 0, self.first_ledger, (1, len(self.stored.get(part, ())) - 1), self.deduplicates, cursors
        )

    def partitions(self, topic: str) -> int:
        assert topic == READY
        return 2

    def read_all(self, facts: PartitionFacts, after: tuple[int, int] | None) -> Iterator[ReadMessage]:
        for entry, one in enumerate(self.stored.get(facts.topic, ())):
            if after is None or (1, entry) > after:
                yield message_of(entry, one.payload, one.properties)

    def hold(self, part: str, subscription: str, stop: threading.Event) -> DeadLetters:
        assert (part, subscription) == (f"{DEAD}-partition-0", HOLDER)
        return DeadLetters(self)

    def lane(self, part: str, name: str) -> Lane:
        return BundledLane(self, part, name) if self.bundled else Lane(self, part, name)

    def arrived(self) -> Counter[bytes | None]:
        return Counter(one.payload for messages in self.stored.values() for one in messages)


class DeadLetters:
    """The holder subscription."""

    def __init__(self, world: World) -> None:
        self.world = world

    def letters(self, until: tuple[int, int], only: Container[Position]) -> Iterator[ReadMessage]:
        for entry in range(until[1] + 1):
            if Position(0, 1, entry) in only:
                yield message_of(entry, payload_of(entry), {})
            if entry in self.world.again:
                yield from (message_of(one, payload_of(one), {}) for one in range(entry + 1))

    def acknowledge(self, token: int) -> None:
        self.world.step(lambda: self.world.acknowledged.add(token))

    def close(self) -> None:
        """Nothing is open."""


class Landed:
    """Messages that no topic has any more, without the entries `erased`."""

    acknowledged = 0

    def __init__(self, world: World, erased: Collection[int] = ()) -> None:
        self.world, self.erased = world, erased

    def open(self, stack: ExitStack, positions: Collection[Position]) -> list[int]:
        return [0]

    def messages(self, number: int) -> Iterator[tuple[Position, ReadMessage]]:
        for entry in range(OLD + 1):
            if entry not in self.erased:
                yield Position(number, 1, entry), message_of(entry, payload_of(entry), {})

    def acknowledged_in_batches(self, expected: Collection[Position]) -> set[Position]:
        return set()

    def acknowledge(self, position: Position, token: object) -> None:
        """Nobody keeps them."""

    def count_unacknowledged(self) -> int:
        return 0

    def why_missing(self, position: Position) -> str:
        return "it was erased"


class Lane:
    """A partition whose broker drops numbers that it has."""

    def __init__(self, world: World, part: str, name: str) -> None:
        self.world, self.part, self.key = world, part, (part, name)

    @property
    def full(self) -> bool:
        return False

    def flush(self) -> bool:
        return True

    @property
    def last_number(self) -> int:
        return self.world.watermarks.get(self.key, -1)

    def send(self, number: int, message: RecalledMessage, on_receipt: Callable[[Receipt], None]) -> None:
        self.world.collector.add(gc.isenabled())
        self.world.step(lambda: self._store(number, message, on_receipt))

    def _store(self, number: int, message: RecalledMessage, on_receipt: Callable[[Receipt], None]) -> None:
        if message.payload in self.world.refused:
            on_receipt(Receipt("", "too large", never=True))
            return
        if number <= self.last_number:
            on_receipt(Receipt(""))
            return
        self.world.watermarks[self.key] = number
        stored = self.world.stored.setdefault(self.part, [])
        stored.append(message)
        on_receipt(Receipt(f"1:{len(stored) - 1}"))

    def close(self) -> None:
        """Nothing is open."""


class BundledLane(Lane):
    """The same, whose messages wait for `flush`, two at most."""

    def __init__(self, world: World, part: str, name: str) -> None:
        super().__init__(world, part, name)
        self.waiting: list[tuple[int, RecalledMessage, Callable[[Receipt], None]]] = []

    def send(self, number: int, message: RecalledMessage, on_receipt: Callable[[Receipt], None]) -> None:
        self.waiting.append((number, message, on_receipt))

    @property
    def full(self) -> bool:
        return len(self.waiting) == 2

    def flush(self) -> bool:
        while self.waiting:
            number, message, on_receipt = self.waiting.pop(0)
            super().send(number, message, on_receipt)
            if message.payload in self.world.refused:
                return False
        return True


def payload_of(entry: int) -> bytes:
    return b"%d" % (0 if entry == COPY else entry)


def message_of(entry: int, payload: bytes | None, properties: Any) -> ReadMessage:
    return ReadMessage(entry, 0, 1, entry, -1, payload, properties, "", "", 0, NOW, "")


def plan_of(action: RecallAction) -> RecallPlan:
    sends = action.sends
    letters = [
        PlannedLetter(
            position := Position(0, 1, entry), NOW, recall_id(DEAD, position, NOW), digest(payload_of(entry)),
            entry % 2 if sends else 0, entry // 2 + 1 if sends else 0,
            (LetterRef(Position(0, 1, COPY), NOW),) if sends and entry == 0 else (),
        )
        for entry in range(ENTRIES)
    ]  # fmt: skip
    return RecallPlan(
        action=action, run="run", made_at=NOW, cluster=None, topology="trade", path="trade.yaml", environment=None,
        topic="orders", subscription=HOLDER, source_topic=DEAD, source_partitions=1, holder=HOLDER, where="true", to=None,
        limit=100, again=False, because="" if sends else "a test", edit=None,
        lanes=tuple(PlannedPartition(READY, number, True, 2) for number in range(2)) if sends else (),
        letters=tuple(letters), settle=(LetterRef(Position(0, 1, OLD), NOW),), summary=cast("Any", {}),
    )  # fmt: skip


def make_attempt(world: World, plan: RecallPlan, fatal: int = -1) -> SendReport:
    world.steps, world.fatal = 0, fatal
    options = SendOptions(RateLimit(100_000), "me", lambda: NOW, threading.Event(), lambda *_: None, at_once=3)
    source = Landed(world) if plan.action is RecallAction.RESEND else None
    return RecallSender(plan, cast("Any", world), world, None, options, source=source).run()


def with_table(plan: RecallPlan, folder: Path, monkeypatch: pytest.MonkeyPatch) -> RecallPlan:
    """The same plan in segments of three rows."""
    monkeypatch.setattr(letter_table, "SEGMENT", 3)
    rows = [PlanRow(LetterRef(one.position, one.published), one) for one in plan.letters]
    rows += [PlanRow(copy, first=one) for one in plan.letters for copy in one.repeats]
    rows += map(PlanRow, plan.settle)
    with LetterTableWriter(folder / "letters") as writer:
        for row in sorted(rows, key=lambda row: row.ref):
            writer.add(row)
        table = writer.close()
    assert (table.rows, table.letters, table.settled) == (len(rows), len(plan.letters), 1)
    return replace(plan, letters=(), settle=(), table=table)
