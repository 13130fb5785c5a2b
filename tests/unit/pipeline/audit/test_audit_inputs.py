"""What an audit says beside its verdict where a ledger of recalls may be missing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kodo_pipeline.audit import incremental_audit
from kodo_pipeline.audit.audit_inputs import AuditInputs, _letters, delayed_lanes, unbooked_recalls, with_ledger_note
from kodo_pipeline.evidence.audit_evidence import Cause
from kodo_pipeline.landing.landing_commits import LandingCommit
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import EVENTS
from kodo_pipeline.recall.lost_planning import must_be_booked

from kodoctl.errors import ClusterError, RefusedError, error
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.ledger.recall_ledger import RecallEntry, RecallEvent
from kodoctl.recall.plan.waiting_lanes import waiting_lanes
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from tests.unit.pipeline.source.test_partition_stats import answering

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
    for number, key in enumerate(
        (billing.ledger_key, billing.source_topic, f"{billing.source_topic}-billing-RETRYING")
    ):
        ledger.append(
            [RecallEntry("run", RecallEvent.DISCARDED, f"r{number}", key, f"0:7:{number}:-1", 1, published=9)]
        )
    found = list(_letters(expand(topology), str(tmp_path / "recalls")))
    assert [(one.msg_topic, one.recall_id, one.holder) for one in found] == [(billing.source_topic, "r0", "billing")]


@pytest.mark.parametrize(("cause", "missing", "notes"), [
    (Cause.RELEASED.value, "books", 2), (Cause.RELEASED.value, "", 1), (Cause.GONE.value, "books", 1),
])  # fmt: skip
def test_letters_let_go_without_a_ledger_are_told_so(cause: str, missing: str, notes: int) -> None:
    document: Any = {"notes": ["first"], "findings": [{"cause": cause}]}
    found = with_ledger_note(document, missing)["notes"]
    assert len(found) == notes
    assert notes == 1 or missing in found[1]


def stats(*subscriptions: tuple[int, int]) -> dict[str, Any]:
    """Of partitions whose subscription `billing` has so many unacknowledged messages, and so many that are delayed."""
    parts = {
        f"persistent://kodo/trade/orders-partition-{number}": {
            "subscriptions": {"billing": {"msgBacklog": backlog, "msgDelayed": delayed}}
        }
        for number, (backlog, delayed) in enumerate(subscriptions)
    }
    return {"metadata": {"partitions": len(parts)}, "partitions": parts}


def test_only_where_all_that_is_unacknowledged_is_delayed_nothing_is_stuck() -> None:
    topic = "persistent://kodo/trade/orders"
    with answering({"orders/partitioned-stats": stats((2, 2), (3, 2), (0, 0), (1, 4))}) as server:
        admin = HttpAdmin(Connection(server.url))
        assert delayed_lanes(admin, [topic]) == {(topic, 0, "billing"), (topic, 3, "billing")}
        assert delayed_lanes(admin, []) == frozenset()
        admin.close()


def test_an_audit_whose_question_about_delays_has_no_answer_stays_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"findings": [{"msg_topic": "orders", "fate": "overdue", "cause": None}], "notes": []}
    judged = SimpleNamespace(document=document)
    monkeypatch.setattr(incremental_audit, "_Judge", lambda *_: SimpleNamespace(judged=lambda: judged))

    def delays(_: Any) -> Any:
        raise ClusterError(error("K502", "not answered", "orders-partition-3 moves"))

    anything: Any = None
    inputs = AuditInputs(anything, anything, anything, (), None, delays=delays)
    with incremental_audit.judged_landing(anything, anything, inputs, incremental_audit.AuditOptions("r")) as found:
        assert found is judged
    (note,) = document["notes"]
    assert "may be delayed by their senders; the cluster did not say" in note
    assert "orders-partition-3 moves" in note


def test_a_recall_that_landed_and_that_no_entry_is_about_belongs_to_another_ledger(tmp_path: Path) -> None:
    landing = Landing(str(tmp_path / "landing"), "trade", None)
    rows = [
        {"id": f"7:{number}:0:-1", "topic": topic, "recall": recall}
        for number, (topic, recall) in enumerate(
            [("orders", "r1"), ("orders", "r2"), ("orders", "r2"), ("carts", "r3"), ("carts", None)]
        )
    ]
    landing.commit(LandingCommit("r", 1, 0, {EVENTS.name: landing.write_rows(EVENTS, "000000000-r", rows)}))
    ledger = DeltaLedger(str(tmp_path / "recall"))

    def missing() -> dict[str, frozenset[str]]:
        found = unbooked_recalls(landing, landing.snapshot(EVENTS), ledger.path)
        return {} if found is None else dict(found.ids)

    assert missing() == {"orders": frozenset({"r1", "r2"}), "carts": frozenset({"r3"})}
    ledger.append([RecallEntry("run", RecallEvent.INTENT, "r1", "any", "0:7:0:-1", 1)])
    assert missing() == {"orders": frozenset({"r2"}), "carts": frozenset({"r3"})}
    found = unbooked_recalls(landing, landing.snapshot(EVENTS), ledger.path)
    assert (found.count, "1 message was sent again" in found.text("carts")) == (2, True)  # type: ignore[union-attr]
    with pytest.raises(RefusedError, match="K826"):
        must_be_booked(found, "carts")
    with pytest.raises(RefusedError, match="K826"):
        must_be_booked(found, None)
    must_be_booked(found, "others")
    ledger.append([RecallEntry("run", RecallEvent.SENT, one, "any", "0:7:0:-1", 1) for one in ("r2", "r3")])
    assert unbooked_recalls(landing, landing.snapshot(EVENTS), ledger.path) is None
