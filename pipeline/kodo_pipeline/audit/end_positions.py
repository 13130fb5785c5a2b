"""Conditions on the target position of a record or a receipt: whether an ingest has read it, and whether something was
stored there when the cursors were last read. A condition is false if the position is unknown.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def read_limits(lanes: DataFrame, topic: str, partition: str) -> DataFrame:
    """Limits for `was_read` and `was_stored`, one row per lane: (target, `topic`, `partition`, subscription, last_*,
    stored_*). `target`: number of the lane; `last_*`: the end of the last range that was read, null if there is none;
    `stored_*`: the last position that was stored when the cursors were last read, null if they never were. The
    parameters `topic` and `partition` are the names of these two columns.
    """
    return lanes.select(
        F.col("lane").alias("target"),
        F.col("msg_topic").alias(topic),
        F.col("msg_partition").alias(partition),
        "subscription",
        "last_ledger",
        "last_entry",
        "stored_ledger",
        "stored_entry",
    )


def was_read(ledger: str, entry: str) -> Column:
    """Condition on a row joined with `read_limits`: the position in the columns `ledger` and `entry` is at or before
    the end of the last range that was read, so that reading has passed it. False if either is unknown. A ledger of -1
    is no position: the broker dropped the message as a copy of one that it had.
    """
    return _is_reached(ledger, entry, "last")


def was_stored(ledger: str, entry: str) -> Column:
    """Condition on a row joined with `read_limits`: the position in the columns `ledger` and `entry` is at or before
    the last position that was stored when the cursors were last read. False if either is unknown, as a ledger of -1 is.
    """
    return _is_reached(ledger, entry, "stored")


def _is_reached(ledger: str, entry: str, end: str) -> Column:
    # A struct of nulls would be compared, and be the smallest.
    known = (F.col(ledger) >= 0) & F.col(f"{end}_ledger").isNotNull()
    return F.coalesce(known & (F.struct(ledger, entry) <= F.struct(f"{end}_ledger", f"{end}_entry")), F.lit(False))
