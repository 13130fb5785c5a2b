"""Failures by day, counted from audit records, and for subscriptions without audit records from the messages on retry
and dead-letter topics.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kodo_pipeline.landing.tables import FAILURES
from kodo_pipeline.rollup.landed_days import is_dated
from kodo_pipeline.rollup.transforms import FAILED
from kodo_pipeline.spark.spark_columns import cause_column
from kodoctl.protocol.properties import POSTPONED_REASON
from kodoctl.topology.names import State

_KEYS: Final = tuple(one for one in FAILURES.names if one not in ("reason", "messages"))
_COLUMNS: Final = (*_KEYS, "reason")


def failed_records(transitions: DataFrame) -> DataFrame:
    """Keeps the audit records of failed handler runs, whose `rule` is one of FAILED (retrying, escalated, backup,
    dead). Records with a time before 1970 or after LATEST are left out.
    """
    return transitions.where(F.col("rule").isin(*FAILED)).where(is_dated("at_ts"))


def failures_by_day(stored: DataFrame, failed: DataFrame, targets: DataFrame) -> DataFrame:
    """Rows of the table `failures` for some days. `stored`: events of these days; `failed`: audit records of these days
    by `failed_records`, each once; `targets`: events of these days and of the day before and after each.

    The cause of a record is that of the moved message, which has an error text even if records have none, provided that
    the message was published on the day (UTC) of the record or on a day next to it. So a day's failures do not depend
    on which other days are counted.
    """
    cause = F.coalesce("cause", F.expr(cause_column("reason", "NULL")), F.lit(""))  # landed by an older kodoctl
    reason = F.coalesce(F.min("reason"), F.lit("")).alias("reason")
    every_failure = _of_records(failed, targets).unionByName(_of_messages(stored)).withColumn("cause", cause)
    return every_failure.groupBy(*_KEYS).agg(reason, F.count("*").alias("messages")).select(*FAILURES.names)


def without_doubles(counted: DataFrame, recorded: DataFrame) -> DataFrame:
    """Filters `counted`, rows of the table `failures`, so that each failure is in one row. `recorded`: (topic,
    subscription) of subscriptions with any audit record: for these, rows that were counted from messages are left out.
    """
    pairs = recorded.select("topic", "subscription", F.lit(False).alias("recorded"))
    return counted.join(F.broadcast(pairs), ["topic", "subscription", "recorded"], how="left_anti")


def _of_records(failed: DataFrame, targets: DataFrame) -> DataFrame:
    day = F.date_trunc("DAY", "at_ts")
    went_on = targets.where("cause IS NOT NULL").select(
        F.col("msg_topic").alias("next_topic"),
        F.col("id").alias("next_id"),
        F.col("cause").alias("next_cause"),
        F.to_date("publish_ts").alias("next_day"),
    )
    is_next = (F.col("target_topic") == F.col("next_topic")) & (F.col("target_id") == F.col("next_id"))
    is_near = F.abs(F.date_diff("next_day", F.to_date("at_ts"))) <= 1
    return (
        failed.join(went_on, is_next & is_near, how="left")
        .withColumns({"window_ts": day, "recorded": F.lit(True), "cause": F.coalesce("next_cause", "cause")})
        .select(*_COLUMNS)
    )


def _of_messages(stored: DataFrame) -> DataFrame:
    state = F.col("state")
    columns = {
        "window_ts": F.date_trunc("DAY", "publish_ts"),
        "event": F.when(state == State.DEAD.value, "dead").otherwise("moved"),
        "rule": state,
        "recorded": F.lit(False),
    }
    postponed = F.coalesce(F.col("reason").rlike(f"^{POSTPONED_REASON}(:|$)"), F.lit(False))
    failing = stored.where((state == State.DEAD.value) | ((state == State.RETRYING.value) & ~postponed))
    return failing.where(is_dated("publish_ts")).withColumns(columns).select(*_COLUMNS)
