"""What an audit has to say, for machines and for people."""

from __future__ import annotations

from typing import Any

from kodo_pipeline.audit.audit_text import lines
from kodo_pipeline.audit.report import EXIT_CODES, document, sql
from kodo_pipeline.audit.verdict import Outcome, decide_verdict
from kodo_pipeline.evidence.audit_evidence import AuditEvidence, MessageStatus, PartitionCoverage, SubscriptionTotals

TOPIC = "persistent://t/n/orders"


def finding(fate, cause, position, topic="orders", subscription="billing", msg_topic=TOPIC):
    return {
        "fate": fate, "cause": cause, "topic": topic, "subscription": subscription, "msg_topic": msg_topic, "id": position,
    }  # fmt: skip


def told(*findings, **fates) -> Any:
    counts = {MessageStatus[name.upper()]: count for name, count in fates.items()}
    tallies = (
        SubscriptionTotals("orders", "billing", "wait", {MessageStatus.DONE: 1_200, **counts}),
        SubscriptionTotals("orders", "empty", "wait"),
    )
    evidence = AuditEvidence((PartitionCoverage(TOPIC, 0, 12, 12), PartitionCoverage(TOPIC, 1, 3, 3)), tallies)
    return document(decide_verdict(evidence), evidence, findings)


def test_a_clean_run():
    assert list(lines(told(duplicated=2))) == [
        "NO LOSS",
        "",
        "orders / billing: 1,200 done, 2 done twice",
        "orders / empty: no messages",
        "note: orders / billing: 2 messages done twice; that is no loss",
        "coverage: 15 of 15 entries of 2 partitions",
    ]


def test_a_loss_names_the_messages_and_shows_how_to_look_at_them():
    lost = [finding("lost", "gone", f"7:{number}:0:-1") for number in range(7)]
    found = told(*lost, finding("overdue", "", "7:9:0:-1"), lost=7, overdue=1)
    text = list(lines(found))
    assert text[:2] == ["LOSS", "  orders / billing: 7 messages lost"]
    assert f"lost (gone) on {TOPIC}: 7:0:0:-1, 7:1:0:-1, 7:2:0:-1, 7:3:0:-1, 7:4:0:-1 and 2 more" in text
    assert f"overdue on {TOPIC}: 7:9:0:-1" in text
    assert [line.split(" WHERE")[0] for line in text[-2:]] == [
        "sql: SELECT * FROM events",
        "sql: SELECT * FROM transitions",
    ]
    assert [one["id"] for one in found["findings"]] == [*(one["id"] for one in lost), "7:9:0:-1"]


def test_the_document_says_what_was_counted_and_read():
    found = told()
    assert found["verdict"] == "no loss"
    assert found["subscriptions"][0]["messages"] == {"done": 1_200}
    assert found["coverage"][0]["entries_seen"] == 12
    assert found["sql"] == []


def test_text_from_the_cluster_stays_a_text_in_sql():
    query = next(sql([finding("lost", "", "1", "t", "s", "a'b\\c")]))
    assert query == "SELECT * FROM events WHERE msg_topic = 'a''b\\c' AND id IN ('1')"


def test_exit_codes_tell_the_verdicts_apart():
    assert [EXIT_CODES[one] for one in Outcome] == [0, 5, 6]


def test_the_run_is_told_last():
    text = list(lines(told() | {"read_at": 1_767_322_980_000, "run": "20260102-030405-9f86d081"}))
    assert text[-2:] == ["read at 2026-01-02 03:03 UTC: what came later is not judged", "run: 20260102-030405-9f86d081"]


def test_what_was_judged_is_told():
    all_rows = {"all_rows": True, "why": "few rows have landed", "settled_before": 0, "reopened": 0, "unsaved": ""}
    assert "judged: all, as few rows have landed" in lines(told() | {"judged": all_rows})
    new = {"all_rows": False, "why": "", "settled_before": 1_200, "reopened": 0, "unsaved": "no space"}
    assert list(lines(told() | {"judged": new}))[-2:] == [
        "judged: what is new or open; 1,200 messages had been settled",
        "the next audit cannot begin with this one: no space",
    ]
    again = "judged: what is new or open, 3 more once again; 1,200 messages had been settled"
    assert again in lines(told() | {"judged": new | {"reopened": 3}})
