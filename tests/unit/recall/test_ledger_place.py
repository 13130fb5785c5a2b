"""Where a ledger cannot be, that is told."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from kodoctl.errors import KodoctlError
from kodoctl.recall.delta_ledger import DeltaLedger
from kodoctl.recall.recall_ledger import RecallEntry, RecallEvent

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
