"""What books say changes the fate of the places that they name, and of no other: sent again, written off, delayed."""

from __future__ import annotations

import pytest
from kodo_pipeline.audit.classify import CAUSES, delayed_by_sender, findings, judged_anew, outcome_of, written_off
from kodo_pipeline.audit.positions import LANES
from kodo_pipeline.audit.unbooked_recalls import UnbookedRecalls, sent_again
from kodo_pipeline.evidence.audit_evidence import RANKS, Cause, MessageStatus
from kodo_pipeline.spark.spark_session import small_table

from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan.recall_plan import ledger_key, lost_key, recall_id

TOPIC = "persistent://t/n/orders"
DEAD = f"{TOPIC}-billing-DLQ"
JUDGED = (
    "lane int, ledger bigint, entry bigint, batch int, family int, identity bigint, rank int, cause int, completions int, "
    "published bigint, has_record boolean, outcome int, final boolean"
)
LANE = {"family": 0, "topic": "orders", "msg_partition": 0, "subscription": "billing", "state": "ready"}
LOST, GONE = MessageStatus.LOST, Cause.GONE


@pytest.fixture(scope="module")
def lanes(spark):
    names = LANES.replace("\n", " ")
    rows = [{**LANE, "lane": 0, "msg_topic": TOPIC}, {**LANE, "lane": 1, "msg_topic": DEAD, "state": "dead"},
            {**LANE, "lane": 2, "msg_topic": TOPIC, "subscription": "mail"}]  # fmt: skip
    kinds = small_table(spark, [], names).columns
    assert set(rows[0]) <= set(kinds)
    return small_table(spark, [{name: row.get(name) for name in kinds} for row in rows], names)


def judged(spark, *places, recorded=()):
    """(lane, entry, fate, cause) as rows of `classify.place_outcomes`. `recorded`: entries that have a record."""
    rows = [
        (lane, 7, entry, -1, 0, entry, RANKS[fate], CAUSES.get(cause), 0, 100 + entry, entry in recorded,
         outcome_of(fate, cause), False)
        for lane, entry, fate, cause in places
    ]  # fmt: skip
    return small_table(spark, rows, JUDGED)


def fates(found):
    names = {rank: fate for fate, rank in RANKS.items()}
    causes = {number: cause for cause, number in CAUSES.items()}
    rows = found.collect()
    assert all(row["outcome"] == row["rank"] * 100 + (row["cause"] or 0) for row in rows)
    return {(row["lane"], row["entry"]): (names[row["rank"]], causes.get(row["cause"])) for row in rows}


def test_a_lost_place_whose_recall_landed_is_in_doubt_and_no_other(spark, lanes):
    known = judged(
        spark, *((0, entry, LOST, GONE) for entry in range(4)), (1, 0, LOST, Cause.RELEASED), (2, 0, LOST, GONE),
        (0, 9, MessageStatus.DONE, None),
    )  # fmt: skip
    at = [Position(0, 7, entry) for entry in range(10)]
    ids = {
        recall_id(lost_key(TOPIC, "billing"), at[0], 100),
        recall_id(ledger_key(TOPIC, "B1/ready", "billing"), at[1], 101),
        recall_id(lost_key(TOPIC, "billing"), at[2], 101),  # of another message at that place
        recall_id(lost_key(TOPIC, "billing"), at[3], 103, "r1"),  # sent again by --again
        recall_id(DEAD, at[0], 100),
        recall_id(lost_key(TOPIC, "billing"), at[9], 109),
    }
    found = fates(sent_again(known, lanes, UnbookedRecalls("here", {"orders": frozenset(ids)})))
    doubt = MessageStatus.UNPROVED, Cause.SENT_AGAIN
    assert found == {
        (0, 0): doubt, (0, 1): doubt, (0, 2): (LOST, GONE), (0, 3): (LOST, GONE), (1, 0): doubt,
        (2, 0): (LOST, GONE), (0, 9): (MessageStatus.DONE, None),
    }  # fmt: skip


def test_what_is_written_off_is_no_finding_unless_it_is_open_or_done_since(spark, lanes):
    known = judged(
        spark, (0, 1, LOST, GONE), (0, 2, LOST, GONE), (2, 1, LOST, GONE), (0, 3, MessageStatus.UNPROVED, Cause.UNCOVERED),
        (0, 4, MessageStatus.DONE, None), (0, 5, MessageStatus.OVERDUE, None),
    )  # fmt: skip
    named = [(TOPIC, "billing", f"7:{entry}:0:-1") for entry in (1, 3, 4, 5, 1)]
    places = small_table(spark, named, "msg_topic string, subscription string, id string")
    found = written_off(known, lanes, places)
    settled = MessageStatus.WRITTEN_OFF, None
    assert fates(found) == {
        (0, 1): settled, (0, 2): (LOST, GONE), (2, 1): (LOST, GONE), (0, 3): settled,
        (0, 4): (MessageStatus.DONE, None), (0, 5): (MessageStatus.OVERDUE, None),
    }  # fmt: skip
    assert sorted(row["id"] for row in findings(found, lanes).where("fate = 'lost'").collect()) == [
        "7:1:0:-1",
        "7:2:0:-1",
    ]
    assert judged_anew(known, places.selectExpr("0 lane", "7L ledger", "1L entry", "-1 batch").distinct(),
                       MessageStatus.WRITTEN_OFF, None, LOST).columns == known.columns  # fmt: skip


def test_what_senders_delay_waits_in_ready_lanes_alone(spark, lanes):
    known = judged(spark, (0, 1, MessageStatus.OVERDUE, None), (0, 2, LOST, GONE), (1, 1, MessageStatus.OVERDUE, None),
                   (2, 1, MessageStatus.OVERDUE, None))  # fmt: skip
    found = fates(delayed_by_sender(known, lanes, {(TOPIC, 0, "billing"), (DEAD, 0, "billing")}))
    assert found == {
        (0, 1): (MessageStatus.WAITING, None), (0, 2): (LOST, GONE), (1, 1): (MessageStatus.OVERDUE, None),
        (2, 1): (MessageStatus.OVERDUE, None),
    }  # fmt: skip


def test_what_is_stuck_in_an_inbox_stays_overdue_while_senders_delay_others(spark, lanes):
    known = judged(spark, (0, 1, MessageStatus.OVERDUE, None), (0, 2, MessageStatus.OVERDUE, None), recorded={2})
    found = fates(delayed_by_sender(known, lanes, {(TOPIC, 0, "billing")}))
    assert found == {(0, 1): (MessageStatus.WAITING, None), (0, 2): (MessageStatus.OVERDUE, None)}
