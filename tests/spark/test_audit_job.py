"""The audit of a landing's tables: from their rows to the document."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from kodoctl.pipeline.audit.job import audit
from kodoctl.pipeline.audit.judged_rows import LandedTables, RecalledLetter
from kodoctl.pipeline.audit.positions import LANES
from kodoctl.pipeline.audit.reading_clock import ReadingClock
from kodoctl.pipeline.audit.recalled import WEIGHED, recalled_positions
from kodoctl.pipeline.ingest.tables import COVERAGE, CURSORS, EVENTS, TRANSITIONS
from kodoctl.protocol.properties import FOR, SEQ
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.protocol.signing import Signer
from kodoctl.pulsar.secret import Secret
from kodoctl.topology.expand import expand
from kodoctl.topology.load import load_topology
from kodoctl.topology.names import HOLDER

FILE = """
version: 1
name: trade
tenant: kodo
namespace: trade
defaults: {partitions: 1}
topics:
  orders:
    subscriptions:
      billing: {states: [retrying], audit: true}
"""
READY = "persistent://kodo/trade/orders"
RETRYING, DEAD, AUDIT = (f"{READY}-billing-{name}" for name in ("RETRYING", "DLQ", "AUDIT"))
LEDGERS = {READY: 7, RETRYING: 8, DEAD: 9, AUDIT: 10}
SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)
pytestmark = pytest.mark.timeout(900)


def frame(spark, table, rows):
    return spark.createDataFrame([tuple(row.get(name) for name in table.names) for row in rows], table.spark())


def event(topic, state, entry, mid=None, **columns):
    place = f"{LEDGERS[topic]}:{entry}:0:-1"
    return {
        "mid": mid or place, "id": place, "msg_topic": topic, "msg_partition": 0, "ledger": LEDGERS[topic], "entry": entry,
        "batch_index": -1, "topic": "orders", "state": state, "hop": 0, "publish_ts": SOME_TIME,
    } | columns  # fmt: skip


def record(number, topic, entry, kind="done", target=None, **columns):
    place = f"{LEDGERS[topic]}:{entry}:0:-1"
    return {
        "worker_run": "w", "number": number, "topic": "orders", "subscription": "billing", "msg_topic": topic, "id": place,
        "identity": place, "hop": 0, "event": kind, "rule": kind, "target_topic": target and target["msg_topic"],
        "target_id": target and target["id"],
    } | columns  # fmt: skip


def looks():
    for run, entry in (("r1", -1), ("r2", 2)):
        taken = SOME_TIME.replace(minute=int(run[1]))
        for topic, name in ((READY, "billing"), (RETRYING, "billing"), (DEAD, HOLDER), (AUDIT, "")):
            yield {
                "msg_topic": topic, "msg_partition": 0, "subscription": name, "mark_ledger": LEDGERS[topic],
                "mark_entry": -1 if topic == AUDIT or (topic == DEAD and run == "r1") else entry, "acknowledged": [], "rewrites": 0,
                "first_ledger": LEDGERS[topic], "taken_ts": taken, "ingest_run": run,
                "audit": "wait" if topic == AUDIT else None,
            }  # fmt: skip


def tables(spark, records):
    moved = event(RETRYING, "retrying", 0, "7:1:0:-1", hop=1)
    dead = event(DEAD, "dead", 0, "7:2:0:-1", hop=1)
    events = [event(READY, "ready", entry) for entry in range(3)] + [moved, dead]
    everything = [
        record(1, READY, 0),
        record(2, READY, 1, "moved", moved),
        record(3, READY, 2, "dead", dead),
        record(4, RETRYING, 0, identity="7:1:0:-1", hop=1),
    ]
    coverage = [
        {
            "split_id": topic, "msg_topic": topic, "msg_partition": 0, "first": f"{ledger}:0", "last": f"{ledger}:2",
            "entries_planned": 3, "entries_seen": 3, "full": True, "state": "complete", "ingest_run": "r2",
        }
        for topic, ledger in LEDGERS.items()
    ]  # fmt: skip
    return LandedTables(
        frame(spark, EVENTS, events),
        frame(spark, TRANSITIONS, everything[:records]),
        frame(spark, COVERAGE, coverage),
        frame(spark, CURSORS, list(looks())),
    )


def test_from_tables_to_a_document(spark, tmp_path):
    file = tmp_path / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    expansion = expand(load_topology(str(file)))
    letters = [RecalledLetter(DEAD, 0, 9, 0, -1, int(SOME_TIME.timestamp() * 1000), "discarded", "r", "r")]
    found = audit(spark, tables(spark, 4), expansion, letters=letters)
    assert (found["verdict"], found["reasons"]) == ("no loss", [])
    assert found["subscriptions"][0]["messages"] == {"discarded": 1, "done": 2}
    elsewhere = [letters[0]._replace(published=letters[0].published + 1)]  # the same place of another cluster
    found = audit(spark, tables(spark, 4), expansion, letters=elsewhere)
    assert (found["verdict"], found["subscriptions"][0]["messages"]) == ("loss", {"done": 2, "lost": 1})

    removed = tables(spark, 3)
    found = audit(spark, removed, expansion)
    assert found["verdict"] == "loss"
    assert [(one["fate"], one["msg_topic"], one["id"]) for one in found["findings"]] == [
        ("lost", DEAD, "9:0:0:-1"),
        ("lost", RETRYING, "8:0:0:-1"),
    ]
    turned_on = frame(
        spark, CURSORS, [row | {"audit": None if row["ingest_run"] == "r1" else row["audit"]} for row in looks()]
    )
    began = audit(spark, replace(removed, cursors=turned_on), expansion, letters=letters)
    assert (began["verdict"], began["subscriptions"][0]["messages"]) == (
        "inconclusive", {"discarded": 1, "done": 1, "unproved": 1},
    ), "it was acknowledged before anybody knew that its record would be there"  # fmt: skip
    waiting = RecalledLetter(RETRYING, 0, 8, 0, -1, letters[0].published, "discarded", "w", "w")
    told = audit(spark, removed, expansion, letters=[*letters, waiting])
    assert (told["verdict"], told["subscriptions"][0]["messages"]) == ("no loss", {"discarded": 2, "done": 1})
    there = {"lane_topic": RETRYING, "lane_part": 0, "receipt": "8:1"}
    released = waiting._replace(settled="sent", sending="r 1 lane", **there)
    copy = event(RETRYING, "retrying", 1, "7:1:0:-1", hop=1) | {"recall": "w"}
    moved_on = replace(tables(spark, 3), events=removed.events.unionByName(frame(spark, EVENTS, [copy])))
    told = audit(spark, moved_on, expansion, letters=[*letters, released])
    assert [one["msg_topic"] for one in told["findings"]] == [RETRYING], "its copy was acknowledged without a record"
    assert told["findings"][0]["id"] == "8:1:0:-1"
    removed.events.createOrReplaceTempView("events")
    removed.transitions.createOrReplaceTempView("transitions")
    assert [spark.sql(query).count() for query in found["sql"]] == [1, 1, 1, 1]


def test_of_a_lane_that_all_subscriptions_read_only_what_was_done_for_the_own_one_counts(spark):
    place = {"msg_topic": READY, "msg_partition": 0, "ledger": 7, "entry": 0, "batch_index": -1}
    letter = RecalledLetter(**place, published=1, settled="discarded", recall_id="b", sending="b")
    rows = [
        (*letter._replace(ledger=ledger, holder=holder), True, False)
        for ledger, holder in ((7, "billing"), (8, "mail"), (9, ""))
    ]
    names = [field.name for field in spark.createDataFrame([], LANES).schema]
    lanes = [
        {"lane": at, "family": at, "msg_topic": READY, "msg_partition": 0, "subscription": name, "state": "ready"}
        for at, name in enumerate(("billing", "mail"))
    ]
    table = spark.createDataFrame([tuple(lane.get(name) for name in names) for lane in lanes], LANES)
    found = recalled_positions(spark.createDataFrame(rows, WEIGHED), table).where("discarded")
    assert sorted((row["lane"], row["ledger"]) for row in found.collect()) == [(0, 7), (1, 8)]


def test_what_was_discarded_of_a_backup_level_is_no_loss_to_the_audit(spark, tmp_path):
    file = tmp_path / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    published = int(SOME_TIME.timestamp() * 1000)
    letters = [
        RecalledLetter(*place, published, "discarded", place[0], place[0], holder=holder)
        for place, holder in (((DEAD, 0, 9, 0, -1), ""), ((READY, 0, 7, 0, -1), "billing"))
    ]
    known = tables(spark, 4)
    others = known.transitions.where("number > 1").withColumn("number", F.col("number") - 1)
    told = audit(spark, replace(known, transitions=others), expand(load_topology(str(file))), letters=letters)
    assert (told["verdict"], told["subscriptions"][0]["messages"]) == ("no loss", {"discarded": 2, "done": 1})


def test_marks_of_producers_who_sign_prove_a_loss_to_who_has_the_keys_and_a_doubt_to_others(spark, tmp_path):
    file = tmp_path / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    expansion = expand(load_topology(str(file)))
    count = {"seq_run": "0" * 15, "seq_partition": 0}
    said = {SEQ: f"{'0' * 15}:0:high=3:end", FOR: NOBODY}
    signed = Signer(["the key of the platform"]).signed(READY, b"", said)
    mark = event(
        READY, "ready", 2, **count, seq_high=3, seq_end=True, for_subscription=NOBODY, size=0, properties=signed
    )
    found = tables(spark, 4)
    numbered = [event(READY, "ready", entry, **count, seq_number=entry + 1) for entry in range(2)]
    found = replace(found, events=frame(spark, EVENTS, [*numbered, mark]))

    def reasons(keys):
        told = audit(spark, found, expansion, keys=keys)["reasons"]
        return [(one["proves"], one["text"]) for one in told if "producer run" in one["text"]]

    run = f"{READY}-partition-0, producer run {'0' * 15}"
    assert reasons(Secret("the key of the platform")) == [("loss", f"{run}: 1 message sent and stored nowhere")]
    [(proves, text)] = reasons(None)
    assert proves == "inconclusive"
    assert text.startswith(f"{run}: 1 number missing, by marks whose signature was not verified")
    assert "KODO_CONSUMER_SIGNING_KEYS" in text


def test_an_open_message_that_was_published_after_the_reading_is_a_doubt_and_one_of_a_later_run_is_none(
    spark, tmp_path
):
    file = tmp_path / "trade.yaml"
    file.write_text(FILE, encoding="utf-8")
    expansion = expand(load_topology(str(file)))
    hour = int(SOME_TIME.timestamp() * 1000) + 3_600_000
    found = tables(spark, 4)
    newer = found.events.union(frame(spark, EVENTS, [event(READY, "ready", 3, publish_ts=SOME_TIME.replace(hour=1))]))

    def doubts(of):
        return [one["text"] for one in audit(spark, of, expansion)["reasons"] if one["kind"] == "clock"]

    (text,) = doubts(replace(found, events=newer))
    assert text.startswith("1 open message with a publish time after the reading")
    assert not doubts(replace(found, events=newer, landed_at=hour + 1000)), "a run that was cut short landed it"
    late = event(READY, "ready", 2, publish_ts=SOME_TIME.replace(hour=1))
    done = found.events.where("entry < 2").union(frame(spark, EVENTS, [late]))
    assert not doubts(replace(found, events=done)), "how long it was open is nobody's question"
    (text,) = doubts(replace(found, events=newer, landed_at=hour + 1000, clock=ReadingClock(None)))
    assert text.startswith("the cluster's clock is unknown")
