"""Causes of failures in the landing and in the report: of what is stored, and of records."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from kodo_pipeline.ingest.transitions import audit_messages, transitions, unreadable
from kodo_pipeline.landing.tables import EVENTS, TRANSITIONS
from kodo_pipeline.report import report_tables
from kodo_pipeline.rollup.failure_counts import failed_records, failures_by_day, without_doubles
from pyspark.sql import functions as F

from kodoctl.protocol.audit_records import Event, Record, encode

pytestmark = pytest.mark.timeout(900)
RETRYING = "persistent://kodo/trade/orders-billing-RETRYING"
READY = "persistent://kodo/trade/orders"
AT = datetime(2026, 1, 1, tzinfo=UTC)


def _record(number: int, error: str = "", reason: str = "ConnectionError") -> Record:
    place = f"7:{number}:0:-1"
    return Record(
        "run", "billing", number + 1, int(1000 * AT.timestamp()), READY, place, place, 0, Event.MOVED, "retrying", RETRYING,
        f"8:{number}:0:-1", reason, error=error,
    )  # fmt: skip


def failures(events, records):
    """As a report has them, of all days."""
    counted = failures_by_day(events, failed_records(records), events)
    return report_tables.failures(without_doubles(counted, records))


def _row(**columns):
    row = {"topic": "orders", "publish_ts": AT, "subscription": "billing", "hop": 1} | columns
    return tuple(row.get(name) for name in EVENTS.names)


def test_records_land_with_error_and_cause_and_a_report_groups_by_the_cause_of_what_is_stored(spark):
    bundles = [[_record(0, "bank 7 answered 503"), _record(1)], [_record(2, reason="BankError: 17"), _record(3)]]
    audit = [
        _row(state="audit", payload=one.payload, properties=dict(one.properties), msg_topic="a", id=f"9:{at}:0:-1")
        for at, one in enumerate(map(encode, bundles))
    ]
    bank = "ConnectionError: bank # answered #"
    stored = _row(state="retrying", msg_topic=RETRYING, id="8:3:0:-1", cause=bank, reason="ConnectionError")
    events = spark.createDataFrame([*audit, stored], EVENTS.spark())
    read = audit_messages(events)
    assert read.where(unreadable()).count() == 0
    found = transitions(read)
    assert found.columns == TRANSITIONS.names
    rows = {row["number"]: (row["reason"], row["error"], row["cause"]) for row in found.collect()}
    assert rows == {
        1: ("ConnectionError", "bank 7 answered 503", bank),
        2: ("ConnectionError", None, "ConnectionError"),
        3: ("BankError: 17", None, "BankError: #"),
        4: ("ConnectionError", None, "ConnectionError"),
    }
    counted, every = failures(events, found)
    assert [(one["cause"], one["reason"], one["messages"]) for one in counted] == [
        (bank, "ConnectionError", 2), ("BankError: #", "BankError: 17", 1), ("ConnectionError", "ConnectionError", 1),
    ]  # fmt: skip
    assert every == 4
    older = found.withColumn("cause", F.lit(None).cast("string"))
    assert {one["cause"] for one in failures(events, older)[0]} == {bank, "BankError: #", "ConnectionError"}
