"""What an audit says beside its verdict where a ledger of recalls may be missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kodoctl.pipeline.audit.audit_inputs import _letters, with_ledger_note
from kodoctl.pipeline.audit.verdict import Cause
from kodoctl.recall.delta_ledger import DeltaLedger
from kodoctl.recall.recall_ledger import RecallEntry, RecallEvent
from kodoctl.recall.waiting_lanes import waiting_lanes
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology

FILE = """
version: 1
name: trade
tenant: kodo
namespace: trade
topics:
  orders: {backup: true, subscriptions: {billing: {}, mail: {}}}
"""


def test_the_ledger_is_asked_for_what_a_subscription_released_of_a_backup_level(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(FILE, encoding="utf-8")
    topology = load_topology(str(tmp_path / "t.yaml"))
    ledger = DeltaLedger(str(tmp_path / "recalls"))
    ledger.create()
    (billing, _) = [lane for lane in waiting_lanes(topology, "orders") if lane.lane == "B1/ready"]
    for number, key in enumerate((billing.ledger_key, billing.dead_topic, f"{billing.dead_topic}-billing-RETRYING")):
        ledger.append(
            [RecallEntry("run", RecallEvent.DISCARDED, f"r{number}", key, f"0:7:{number}:-1", 1, published=9)]
        )
    found = list(_letters(expand(topology), str(tmp_path / "recalls")))
    assert [(one.msg_topic, one.recall_id, one.holder) for one in found] == [(billing.dead_topic, "r0", "billing")]


@pytest.mark.parametrize(("cause", "booked", "notes"), [
    (Cause.RELEASED.value, False, 2), (Cause.RELEASED.value, True, 1), (Cause.GONE.value, False, 1),
])  # fmt: skip
def test_letters_let_go_without_a_ledger_are_told_so(tmp_path: Path, cause: str, booked: bool, notes: int) -> None:
    place = str(tmp_path / "recalls")
    if booked:
        DeltaLedger(place).create()
    document: Any = {"notes": ["first"], "findings": [{"cause": cause}]}
    found = with_ledger_note(document, place)["notes"]
    assert len(found) == notes
    assert notes == 1 or place in found[1]
