"""Where a ledger cannot be, that is told."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from kodoctl.errors import KodoctlError
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.ledger.recall_ledger import LedgerSlice, RecallEntry, RecallEvent
from kodoctl.render.recall import recall_list_lines

ENTRY = RecallEntry("run", RecallEvent.INTENT, "r" * 32, "persistent://a/b/c-DLQ", "1:0:0:-1", 1, "lane", 1)


@pytest.mark.parametrize("place", ["/proc/nowhere/ledger", "{}/file/below/ledger"])
def test_a_ledger_that_cannot_be_written_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    ledger = DeltaLedger(place.format(tmp_path))
    for write in (ledger.create, lambda: ledger.append([ENTRY])):
        with pytest.raises(KodoctlError, match="K557"):
            write()


def test_a_ledger_of_another_version_is_told(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "old"), pa.table({"run": ["r"], "dead_topic": ["d"], "at": [1]}))
    with pytest.raises(KodoctlError, match=r"(?s)K557.*has no event, .*another version"):
        DeltaLedger(str(tmp_path / "old")).entries("d")


def test_a_topology_that_can_lose_nothing_asks_for_no_source(tmp_path: Path) -> None:
    ledger = DeltaLedger(str(tmp_path))
    ledger.create()
    ledger.append([ENTRY])
    assert ledger.entries_among([]) == []
    assert ledger.entries_among([ENTRY.dead_topic, "another"]) == [ENTRY]


@pytest.mark.parametrize("made", [True, False])
def test_a_table_that_somebody_made_at_the_same_moment_is_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    ledger = DeltaLedger(str(tmp_path / "recalls"))
    create = deltalake.DeltaTable.create

    def second(*given: Any, **named: Any) -> None:
        if made:
            create(*given, **named)
        raise deltalake.exceptions.CommitFailedError("version 0 is there")

    monkeypatch.setattr(deltalake.DeltaTable, "create", second)
    with nullcontext() if made else pytest.raises(KodoctlError, match="K557"):
        ledger.create()
    assert ledger.exists() is made


def test_a_part_of_the_letters_can_be_asked_for_and_the_highest_number_of_a_lane(tmp_path: Path) -> None:
    ledger = DeltaLedger(str(tmp_path / "book"))
    dead = ENTRY.dead_topic
    assert ledger.highest_numbers(dead, "run") == {}
    of = [ENTRY._replace(recall_id=f"{number:032x}", published=number, number=number) for number in range(1, 7)]
    sent = [one._replace(event=RecallEvent.SENT) for one in of[:3]]
    sent.append(sent[0]._replace(event=RecallEvent.DISCARDED, lane="other", number=9))
    ledger.append(of)
    ledger.append(
        [*sent, sent[2]._replace(run="another", number=99), sent[2]._replace(dead_topic="another", number=98)]
    )
    ledger.append([of[5]._replace(event=RecallEvent.SENT, lane="", number=97)])
    assert ledger.highest_numbers(dead, "run") == {"lane": 3, "other": 9}
    asked = LedgerSlice(frozenset(one.recall_id for one in of[1:3]), 2, 3)
    found = ledger.entries(dead, asked)
    assert sorted((one.number, one.event, one.run) for one in found) == [
        (2, RecallEvent.INTENT, "run"), (2, RecallEvent.SENT, "run"),
        (3, RecallEvent.INTENT, "run"), (3, RecallEvent.SENT, "run"), (99, RecallEvent.SENT, "another"),
    ]  # fmt: skip
    assert ledger.entries(dead, LedgerSlice(frozenset(), 0, 0)) == []
    ledger.append([of[1]._replace(published=0, number=5), of[4]._replace(published=0)])
    assert sorted(one.number for one in ledger.entries(dead, asked)) == [2, 2, 3, 3, 5, 99], "also without its time"


def test_runs_of_a_namespace_count_what_each_message_came_to(tmp_path: Path) -> None:
    ledger = DeltaLedger(str(tmp_path / "book"))
    assert ledger.runs("kodo/trade") == []
    own = ENTRY._replace(dead_topic="persistent://kodo/trade/orders-DLQ", who="ann")
    events = ["sent", "sent", "refused", "unclear", ""]
    for number, event in enumerate(events):
        intent = own._replace(recall_id=f"{number:032x}", at=50 + number)
        ledger.append([intent, *([intent._replace(event=RecallEvent(event), at=99, who="")] if event else [])])
    discarded = own._replace(run="early", event=RecallEvent.DISCARDED, at=7)
    elsewhere = own._replace(dead_topic="persistent://kodo/trade2/orders-DLQ")
    lane = own._replace(dead_topic="persistent://kodo/trade/orders-B1/billing", event=RecallEvent.SENT, at=80)
    ledger.append([discarded, elsewhere, lane])
    none = {"sent": 0, "discarded": 0, "refused": 0, "unclear": 0, "open": 0}
    assert ledger.runs("kodo/trade") == [
        {"run": "early", "began": 7, "who": "ann", "source": "orders-DLQ", **none, "discarded": 1},
        {"run": "run", "began": 50, "who": "ann", "source": "orders-DLQ", "sent": 2, "discarded": 0, "refused": 1,
         "unclear": 1, "open": 1},
        {"run": "run", "began": 80, "who": "ann", "source": "orders-B1/billing", **none, "sent": 1},
    ]  # fmt: skip
    rows = ledger.runs("kodo/trade")
    assert [line.text for line in recall_list_lines(rows, "kodo/trade", "book")][2:4] == [
        "run  1970-01-01 00:00 UTC  orders-DLQ: 2 sent, 1 not sent, 1 unclear, 1 begun and not ended", "  by ann",
    ]  # fmt: skip
    (line,) = recall_list_lines([], "kodo/trade", "book")
    assert line.text == "The ledger book has no recall, release or discard in kodo/trade."


def test_runs_of_a_later_version_are_refused(tmp_path: Path) -> None:
    ledger = DeltaLedger(str(tmp_path / "book"))
    own = ENTRY._replace(dead_topic="persistent://kodo/trade/orders-DLQ", event="melted")  # type: ignore[arg-type]
    ledger.append([own])
    with pytest.raises(KodoctlError, match="does not know"):
        ledger.runs("kodo/trade")
