"""What an audit says beside its verdict where a ledger of recalls may be missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kodoctl.pipeline.audit.audit_inputs import with_ledger_note
from kodoctl.pipeline.audit.verdict import Cause
from kodoctl.recall.delta_ledger import DeltaLedger


class Found:
    """Stands for the document of a Spark job."""

    def __init__(self, cause: str) -> None:
        self.cause = cause

    def document(self) -> dict[str, Any]:
        return {"notes": ["first"], "findings": [{"cause": self.cause}]}


@pytest.mark.parametrize(("cause", "booked", "notes"), [
    (Cause.RELEASED.value, False, 2), (Cause.RELEASED.value, True, 1), (Cause.GONE.value, False, 1),
])  # fmt: skip
def test_letters_let_go_without_a_ledger_are_told_so(tmp_path: Path, cause: str, booked: bool, notes: int) -> None:
    place = str(tmp_path / "recalls")
    if booked:
        DeltaLedger(place).create()
    found = with_ledger_note(Found(cause), place)["notes"]  # type: ignore[arg-type]
    assert len(found) == notes
    assert notes == 1 or place in found[1]
