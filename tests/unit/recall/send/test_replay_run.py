"""A replay that goes on after retention removed a part of its plan: what is stored comes again, and the rest is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kodoctl.documents.replay_document import ReplayReport
from kodoctl.pulsar.admin.admin import Reply
from kodoctl.pulsar.binary.message_reader import Cursor, PartitionFacts
from kodoctl.pulsar.binary.undeliverable_entries import EntryRun
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.entry_runs import Runs
from kodoctl.recall.plan.replay_history import CursorMoved, ReplayRecord
from kodoctl.recall.plan.replay_plan import part_of
from kodoctl.recall.send.replay_run import ReplayWork, apply_replay
from tests.unit.recall.letters import NOW
from tests.unit.recall.plan.test_replay_plan import PARTITION, made

BEFORE = (EntryRun(1, 0, 9),)


class Broker:
    """One partition with the entries from `first` to 9, which a subscription has acknowledged up to `mark`."""

    def __init__(self, first: int, mark: int = 9) -> None:
        self.stored, self.mark = first, mark
        self.acknowledged: set[int] = set()
        self.waits = WaitMonitor(pause=lambda _: None)

    def call(self, method: str, path: str, body: Any = None, **_: Any) -> Reply:
        assert path.endswith("/resetcursor")
        self.mark = body["entryId"] - 1
        return Reply(method, path, 200)

    def facts(self, part: str) -> PartitionFacts:
        done = tuple(((1, entry), (1, entry)) for entry in sorted(self.acknowledged))
        runs: Runs = (EntryRun(1, self.stored, 9),) if self.stored <= 9 else ()
        return PartitionFacts(part, 0, 1, (1, 9), True, {"billing": Cursor((1, self.mark), done)}, runs)

    def hold(self, part: str, subscription: str) -> Any:
        assert (part, subscription) == (part_of(PARTITION), "billing")
        return SimpleNamespace(acknowledge=self.acknowledged.add, close=lambda: None)

    def token(self, place: Position) -> int:
        return place.entry

    @property
    def coming(self) -> list[int]:
        return [entry for entry in range(max(self.stored, self.mark + 1), 10) if entry not in self.acknowledged]


class Pause:
    """A pause that stands since the attempt before."""

    lane, stood, began = PARTITION["lane"], NOW, NOW

    def begin(self, wait: int) -> None:
        """The lane is paused."""

    def finish(self) -> str:
        return ""


def continued(broker: Broker, *moves: CursorMoved) -> tuple[ReplayReport, list[str], list[Any]]:
    """The report of an attempt that goes on after another one, what it told, and what it wrote into the journal."""
    told: list[str] = []
    entries: list[Any] = []
    plan = made()
    pauses: Any = [Pause()]
    given = cast("Any", broker)
    work = ReplayWork(plan, given, given, pauses, entries.append, "me", 0, told.append)
    part = part_of(PARTITION)
    earlier = ReplayRecord(plan, NOW, "me", {part: BEFORE}, moves=dict.fromkeys([part] if moves else [], *moves))
    return apply_replay(work, earlier), told, entries


@pytest.mark.parametrize("moves", [(), (CursorMoved(NOW, is_sure=False),)])
def test_what_is_still_stored_comes_again_and_what_retention_removed_is_told(moves: tuple[CursorMoved, ...]) -> None:
    broker = Broker(first=6)
    report, told, entries = continued(broker, *moves)
    assert broker.coming == [6, 7]
    assert (report.entries, report.kept, report.complete, report.unclear) == (2, 2, True, [])
    assert [one.rpartition(": ")[0].partition(": ")[2] for one in told] == [
        "2 entries were removed before the cursor moved"
    ]
    assert [one["phase"] for one in entries] == ["moving", "moved", "end"]


def test_nothing_comes_of_a_plan_of_which_nothing_is_stored() -> None:
    broker = Broker(first=8)
    report, told, _ = continued(broker)
    assert (broker.coming, report.entries, report.complete, len(told)) == ([], 0, True, 1)


def test_what_may_have_come_again_is_unclear_although_retention_removed_a_part_of_it() -> None:
    broker = Broker(first=6)
    report, told, _ = continued(broker, CursorMoved(NOW - 1, is_sure=False))
    assert (broker.coming, told) == ([], [])
    assert [one.rpartition(": ")[2] for one in report.unclear] == ["4 entries"]


def test_what_came_again_by_the_journal_is_neither_moved_nor_told() -> None:
    broker = Broker(first=6, mark=6)
    report, told, _ = continued(broker, CursorMoved(0, is_sure=True))
    assert (broker.coming, broker.acknowledged, told) == ([7], {8, 9}, [])
    assert (report.entries, report.complete) == (4, True)
