"""What a broker stored twice when it took a lane over is found, and only that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.binary.message_reader import Cursor, PartitionFacts, ReadMessage
from kodoctl.pulsar.binary.undeliverable_entries import EntryRun
from kodoctl.recall.ledger.recall_ledger import LetterStatus, RecallEntry, RecallEvent
from kodoctl.recall.message.stored_message import Position, digest
from kodoctl.recall.plan.recall_plan import (
    LetterRef,
    PlannedLetter,
    PlannedPartition,
    RecallAction,
    RecallPlan,
    UnsentCopy,
)
from kodoctl.recall.send.lane_duplicates import Duplicate, LaneDuplicates, Stretch, stretches
from kodoctl.recall.send.plan_ledger import PlanLedger
from tests.unit.recall.letters import NOW
from tests.unit.recall.send.test_lane_pause import WAITING

LANE = f"{WAITING.source_topic}-partition-0"
OTHER = PlannedPartition("persistent://kodo/trade/orders-L2", 0, ready=True, partitions=1)
RELEASE = replace(
    WAITING, action=RecallAction.RELEASE, edit=None,
    lanes=(PlannedPartition(WAITING.source_topic, 0, ready=False, partitions=1),),
)  # fmt: skip
MOVE = replace(WAITING, action=RecallAction.MOVE, edit=None, lanes=(OTHER,))


def sent(number: int, receipt: str, lane: str = LANE, run: str = WAITING.run) -> LetterStatus:
    return LetterStatus(run, RecallEvent.SENT, lane=lane, number=number, receipt=receipt)


def test_a_lane_is_read_where_its_receipts_go_on_in_another_ledger() -> None:
    known = [sent(3, "7:0"), sent(1, "5:8"), sent(2, ""), sent(4, "7:1"), sent(1, "5:1", "other")]
    assert stretches(known, {}, ()) == [Stretch(LANE, (5, 8), (7, 0))]
    assert stretches(known, {LANE: {"4:9"}, "other": {"5:0"}}, ()) == [
        Stretch(LANE, (4, 9), (5, 8)), Stretch(LANE, (5, 8), (7, 0)),
    ]  # fmt: skip
    assert stretches(known, {LANE: {"5:7", "6:9000"}}, ()) == [Stretch(LANE, (6, 9000), (7, 0))], "a later attempt"
    assert stretches(known, {LANE: {"5:7", "7:-1"}}, ()) == [], "others have sent millions meanwhile"
    assert stretches(known[:1], {LANE: {"-1:-1"}}, ()) == [Stretch(LANE, (-1, -1), (7, 0))], "nothing was there"
    assert stretches(known[3:4], {}, {LANE}) == [Stretch(LANE, (7, 1), None)], "nobody else reads it"
    assert stretches([known[0]._replace(event=RecallEvent.INTENT)], {}, {LANE}) == []
    assert stretches(known, {}, {LANE}) == [Stretch(LANE, (5, 8), None)], "one of them has no place"


class Cluster:
    """One partition with messages by (ledger, entry): the recall id, or what it is beside that."""

    def __init__(self, stored: Mapping[tuple[int, int], str], *acknowledged: tuple[int, int]) -> None:
        self.stored, self.acknowledged = stored, acknowledged
        self.read: list[tuple[int, int]] = []
        self.fails = False

    def facts(self, part: str) -> PartitionFacts:
        cursors = {WAITING.holder: Cursor((1, 0), tuple((place, place) for place in self.acknowledged))}
        runs = [EntryRun(ledger, 0, 9) for ledger in sorted({ledger for ledger, _ in self.stored})]
        return PartitionFacts(part, 0, 1, max(self.stored), True, cursors, tuple(runs))

    def read_all(self, facts: PartitionFacts, after: tuple[int, int] | None) -> Iterator[ReadMessage]:
        if self.fails:
            raise ClusterError(error("K561", "messages cannot be read", "no right to consume"))
        there = {(run.ledger, entry) for run in facts.behind(after) for entry in range(run.first, run.last + 1)}
        for place in sorted(there & self.stored.keys()):
            self.read.append(place)
            name, _, payload = self.stored[place].partition("=")
            properties = {"kodo-release": name}
            yield ReadMessage(None, 0, *place, -1, payload.encode() or name.encode(), properties, "", "", 0, NOW, "")


def find(
    cluster: Cluster, plan: RecallPlan, receipts: Mapping[str, str], begins: str = "1:0"
) -> tuple[list[Duplicate], list[str]]:
    """The duplicates of letters with recall ids and receipts, in the order of their numbers, and the doubts."""
    ledger = PlanLedger(cast("Any", None), plan)
    lane = plan.lanes[0].part
    ledger.begins[lane].add(begins)
    ledger.statuses = {name: sent(at, place, lane) for at, (name, place) in enumerate(receipts.items(), 1)}
    ledger.statuses["z"] = sent(9, "1:5", lane, "another run")
    letters = [PlannedLetter(Position(0, 1, 0), 5, name, digest(name.encode()), 0, 1) for name in [*receipts, "z"]]
    found = LaneDuplicates(plan, cast("Any", cluster), ledger)
    return list(found.find(letters, (0,))), found.doubts


TAIL = {(5, 0): "a", (5, 1): "b", (5, 2): "c", (5, 3): "foreign", (7, 0): "b", (7, 1): "c", (7, 2): "d"}


@pytest.mark.parametrize(("plan", "exclusive"), [(RELEASE, True), (MOVE, False)])
def test_copies_in_front_of_their_receipts_are_found(plan: RecallPlan, exclusive: bool) -> None:
    cluster = Cluster(TAIL)
    found, doubts = find(cluster, plan, {"a": "5:0", "b": "7:0", "c": "7:1", "d": "7:2"}, "5:-1")
    assert [(one.letter.recall_id, str(one.position), one.published, one.exclusive) for one in found] == [
        ("b", "5:1:0:-1", NOW, exclusive), ("c", "5:2:0:-1", NOW, exclusive),
    ]  # fmt: skip
    assert (cluster.read, doubts) == ([(5, 1), (5, 2), (5, 3)], []), "nothing else of the lane is read"
    assert found[0].copy == UnsentCopy(LetterRef(Position(0, 5, 1), NOW), found[0].letter)
    assert str(found[0]).startswith(f"{plan.lanes[0].part} 5:1: a second copy of 1:0:0:-1, ")


def test_a_ledger_that_was_only_full_has_nothing() -> None:
    cluster = Cluster({(5, 8): "a", (5, 9): "b", (7, 0): "c"})
    assert find(cluster, MOVE, {"a": "5:8", "b": "5:9", "c": "7:0"}, "5:7") == ([], [])
    assert cluster.read == []


def test_what_the_broker_had_already_is_its_one_copy() -> None:
    assert find(Cluster(TAIL), RELEASE, {"a": "5:0", "b": "", "c": "", "d": "7:2"}, "5:-1")[0][0].position.ledger == 5
    once = {place: name for place, name in TAIL.items() if place[0] == 5 or name == "d"}
    assert find(Cluster(once), RELEASE, {"a": "5:0", "b": "", "c": "", "d": "7:2"}, "5:-1") == ([], [])


def test_a_second_copy_is_found_where_the_first_has_no_place_and_stands_behind_receipts() -> None:
    """It was missed, and stayed: each stretch had one of its two copies."""
    stored = {(5, 0): "a", (5, 1): "b", (5, 2): "c", (7, 0): "b", (7, 1): "c", (7, 2): "d"}
    found, _ = find(Cluster(stored), RELEASE, {"a": "5:0", "b": "7:0", "c": "", "d": "7:2"}, "5:-1")
    assert [str(one.position) for one in found] == ["5:1:0:-1", "5:2:0:-1"]


def test_what_was_read_back_has_its_copy_behind_it() -> None:
    receipts = {"a": "5:0", "b": "5:1", "c": "5:2"}
    found, _ = find(Cluster(TAIL), RELEASE, receipts, "5:-1")
    assert [str(one.position) for one in found] == ["7:0:0:-1", "7:1:0:-1"], (
        "a lane that nobody else reads is read to its end"
    )
    behind = {(5, 0): "a", (7, 0): "a", (7, 1): "b"}
    assert find(Cluster(behind), MOVE, {"a": "5:0", "b": "7:1"}, "5:-1") == ([], []), "a worker may have moved it there"


def test_copies_that_are_acknowledged_and_messages_of_others_are_left_out() -> None:
    found, _ = find(Cluster(TAIL, (5, 1)), RELEASE, {"a": "5:0", "b": "7:0", "c": "7:1"}, "5:-1")
    assert [one.letter.recall_id for one in found] == ["c"]
    forged = {**TAIL, (5, 1): "b=another payload"}
    found, _ = find(Cluster(forged), MOVE, {"a": "5:0", "b": "7:0", "c": "7:1"}, "5:-1")
    assert [one.letter.recall_id for one in found] == ["c"], "anybody may write a recall id"
    edited = replace(MOVE, edit={"n": 1})
    assert len(find(Cluster(forged), edited, {"a": "5:0", "b": "7:0", "c": "7:1"}, "5:-1")[0]) == 2


def test_a_lane_that_cannot_be_read_is_named() -> None:
    cluster = Cluster(TAIL)
    cluster.fails = True
    found, doubts = find(cluster, MOVE, {"a": "5:0", "b": "7:0"}, "5:-1")
    assert found == []
    assert doubts == [
        f"{OTHER.part} behind 5:0 could not be read, so messages there may be stored twice (messages cannot be read: no right to consume)"
    ]


def test_the_ends_of_lanes_are_remembered() -> None:
    entries = [
        RecallEntry("run", RecallEvent.INTENT, name, "d", "1:0:0:-1", NOW, lane, note=note)
        for name, lane, note in [("a", "l", "9:1"), ("b", "l", "9:1"), ("c", "l", "7:30"), ("d", "m", ""), ("e", "m", "-1:-1")]
    ]  # fmt: skip
    entries.append(entries[0]._replace(run="another", note="1:1"))
    entries.append(entries[0]._replace(event=RecallEvent.SENT, note="read back from its lane"))

    class Ledger:
        def append(self, entries: Any) -> None:
            """Stored."""

        def entries(self, *_: object) -> list[RecallEntry]:
            return entries[:2]

    ledger = PlanLedger(cast("Any", Ledger()), replace(WAITING, run="run"))
    ledger.read()
    assert ledger.begins == {"l": {"9:1"}}
    ledger.append(entries)
    assert ledger.begins == {"l": {"9:1", "7:30"}, "m": {"-1:-1"}}
