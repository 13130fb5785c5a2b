"""Rollup by windows of time: counts and latencies by topic, subscription, level, state and tenant, as transforms of
Spark DataFrames.

Rows can be added over windows, topics and runs. A row counts in the window in which its event happened: an arrival at
its publish time, an action of a worker at the time of the action.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kodo_pipeline.landing.tables import AUDIT, LATENCIES, ROLLUP, SENT
from kodo_pipeline.rollup.histogram import bucket
from kodoctl.protocol.audit_records import Event

KEYS: Final = tuple(LATENCIES.names[:-2])
COUNTS: Final = tuple(ROLLUP.names[len(KEYS) :])
FAILED: Final = ("retrying", "escalated", "backup", "dead")
_LIMITED: Final = ("pending", "blocking")
DONE: Final = ("done", "transferred")
_SENT: Final = "state = 'ready' AND hop = 0 AND recall IS NULL AND seq_high IS NULL"


def rollup(events: DataFrame, transitions: DataFrame, *, window: str, topics: DataFrame | None = None) -> DataFrame:
    """Counts events by window: (KEYS, COUNTS), a row for each key that occurs. KEYS are window_ts, topic, subscription,
    level, state and tenant. `window`: such as `5 minutes`. On ready topics, which every subscription reads, arrivals
    are counted once, with `subscription` null. `topics`: (msg_topic, level, state) of all topics, needed if `events`
    may lack some.

    `failed`: handler runs after which the message left its lane; `over_limit`: messages that were moved to wait because
    of a limit or at the handler's request; `rerouted`: messages moved for any reason; `retries`: arrivals that had been
    attempted before.
    """
    return together(_count_events(events, transitions, window, topics))


def detailed_counts(
    events: DataFrame, transitions: DataFrame, *, window: str, topics: DataFrame | None = None
) -> DataFrame:
    """Counts of `rollup`, `latencies` and `sent_counts` in one table: (KEYS, bucket, COUNTS, sent), from which
    `together`, `late` and `sent_among` extract them. Done messages have a row for each bucket; all other counts are in
    a row without a bucket.
    """
    first = F.when(F.expr(_SENT), 1).otherwise(0).cast("bigint").alias("sent")
    rows = _count_events(events, transitions, window, topics, first).groupBy(*KEYS, "bucket")
    counts = (*COUNTS, "sent")
    return rows.agg(*(F.sum(name).alias(name) for name in counts)).select(*KEYS, "bucket", *counts)


def together(rows: DataFrame) -> DataFrame:
    """Sums up rows by key: (KEYS, COUNTS)."""
    return rows.groupBy(*KEYS).agg(*(F.sum(name).alias(name) for name in COUNTS)).select(*KEYS, *COUNTS)


def late(detailed: DataFrame) -> DataFrame:
    """Extracts the result of `latencies` from that of `detailed_counts`."""
    done = detailed.where("bucket IS NOT NULL")
    return done.select(*KEYS, "bucket", F.col("done").alias("messages"))


def sent_among(detailed: DataFrame) -> DataFrame:
    """Extracts the result of `sent_counts` from that of `detailed_counts`."""
    return detailed.where("sent > 0").groupBy(*SENT.names[:-1]).agg(F.sum("sent").alias("messages"))


def sent_counts(events: DataFrame, *, window: str) -> DataFrame:
    """Counts the messages that producers sent: (window_ts, topic, tenant, messages). Each message counts once: moves,
    redeliveries and recalls are not counted, nor are the marks of producers.
    """
    windows = events.where(_SENT).select(F.window("publish_ts", window)["start"].alias("window_ts"), "topic", "tenant")
    return windows.groupBy(*SENT.names[:-1]).agg(F.count("*").alias("messages"))


def latencies(events: DataFrame, transitions: DataFrame, *, window: str, topics: DataFrame | None = None) -> DataFrame:
    """Histograms of the time from the first storing of a message until it was done: (KEYS, bucket, messages), with the
    buckets of kodo_pipeline.rollup.histogram. Histograms of one key in several windows or runs can be added.
    """
    return (
        _add_places(
            transitions.where(F.col("event").isin(*DONE)), _topics(events) if topics is None else topics, window
        )
        .select(*KEYS, bucket("age_ms").alias("bucket"))
        .groupBy(*KEYS, "bucket")
        .agg(F.count("*").alias("messages"))
        .select(*KEYS, "bucket", "messages")
    )


def _count_events(
    events: DataFrame, transitions: DataFrame, window: str, topics: DataFrame | None, *more: Column
) -> DataFrame:
    """Returns (KEYS, bucket, COUNTS) and the columns `more` of arrivals: a row for each arrival and each audit record."""
    placed = _handling_rows(transitions, _topics(events) if topics is None else topics, window)
    return _arrival_rows(events, window, *more).unionByName(placed, allowMissingColumns=True)


def _arrival_rows(events: DataFrame, window: str, *more: Column) -> DataFrame:
    tried = F.size("attempts") > 0
    marks = F.col("seq_high").isNotNull()
    return events.where((F.col("state") != AUDIT) & ~marks).select(
        F.window("publish_ts", window)["start"].alias("window_ts"),
        *KEYS[1:],
        F.lit(None).cast("int").alias("bucket"),
        *_counts(arrivals=F.lit(1), retries=F.when(tried, 1)),
        *more,
    )


def _handling_rows(transitions: DataFrame, topics: DataFrame, window: str) -> DataFrame:
    event, rule = F.col("event"), F.col("rule")
    # another subscription records a skipped message, and a later record says how a stored one ended
    records = transitions.where(~event.isin(Event.SKIPPED.value, Event.STORED.value))
    return _add_places(records, topics, window).select(
        *KEYS,
        F.when(event.isin(*DONE), bucket("age_ms")).alias("bucket"),
        *_counts(
            done=F.when(event.isin(*DONE), 1),
            failed=F.when(rule.isin(*FAILED), 1),
            rerouted=F.when(event == "moved", 1),
            over_limit=F.when(rule.isin(*_LIMITED), 1),
            dead=F.when(event == "dead", 1),
            discarded=F.when(event == "discarded", 1),
            repeated=F.when(event == "repeated", 1),
        ),
    )


def _topics(events: DataFrame) -> DataFrame:
    """Returns (msg_topic, level, state) of the topics of these events, without audit topics."""
    return events.where(F.col("state") != AUDIT).select("msg_topic", "level", "state").distinct()


def _add_places(transitions: DataFrame, topics: DataFrame, window: str) -> DataFrame:
    """Records with the level and state of the topic they are about."""
    return transitions.join(F.broadcast(topics), "msg_topic", how="left").select(
        F.window("at_ts", window)["start"].alias("window_ts"), *KEYS[1:], "event", "rule", "age_ms"
    )


def _counts(**given: Column) -> list[Column]:
    return [F.coalesce(given.get(name, F.lit(0)), F.lit(0)).cast("bigint").alias(name) for name in COUNTS]
