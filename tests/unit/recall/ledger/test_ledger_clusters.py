"""A ledger knows of which cluster its recalls are, by tenant."""

from __future__ import annotations

from pathlib import Path

import pytest

from kodoctl.errors import RefusedError
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.ledger.ledger_clusters import check_cluster, record_cluster
from kodoctl.recall.ledger.recall_ledger import RecallEntry, RecallEvent

SENT = RecallEntry("run", RecallEvent.SENT, "r" * 32, "persistent://acme/trade/orders-DLQ", "1:0:0:-1", 1, "lane", 1)


def test_a_ledger_of_another_cluster_is_refused_with_both_identities(tmp_path: Path) -> None:
    ledger = DeltaLedger(str(tmp_path / "recall"))
    ledger.append([SENT])
    assert not check_cluster(ledger, "acme", "uuid-a"), "ledgers of earlier versions say nothing"
    for _ in range(2):
        record_cluster(ledger, "acme", "uuid-a", "ann", 7)
    record_cluster(ledger, "other", "uuid-o", "ann", 7)
    assert check_cluster(ledger, "acme", "uuid-a")
    with pytest.raises(RefusedError, match=r"(?s)K557.*acme on another cluster \(uuid-a\), and this one is uuid-b"):
        record_cluster(ledger, "acme", "uuid-b", "ann", 8)
    assert len(ledger.entries("cluster of acme")) == 1


def test_without_an_identity_nothing_is_compared_or_recorded(tmp_path: Path) -> None:
    ledger = DeltaLedger(str(tmp_path / "recall"))
    record_cluster(ledger, "acme", None, "ann", 7)
    assert not ledger.exists()
    record_cluster(ledger, "acme", "uuid-a", "ann", 7)
    assert not check_cluster(ledger, "acme", None)
    assert ledger.runs("acme/trade") == [], "no entry about a cluster is a recall"
