"""Arrivals of one ground topic for one of its subscriptions: the messages that producers sent, and what workers
recorded of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kodoctl.pipeline.audit.positions import identity_of
from kodoctl.pipeline.rollup.transforms import DONE, FAILED

COLUMNS: Final = ("at_ms", "level", "tenant", "key", "properties", "size", "took_ms", "moves", "fails")


def arrivals(
    events: DataFrame, transitions: DataFrame, *, topic: str, subscription: str, properties: Sequence[str], newest: int
) -> DataFrame:
    """(COLUMNS) of the newest messages of all levels, oldest first. `properties`: those that are asked for.
    `took_ms`: time until it was done, null without a record; `moves`: number of lanes it left before; `fails`: those
    because of a failed handler. Marks, recalled messages and messages for other subscriptions are left out.
    """
    reader = F.col("for_subscription")
    sent = events.where(
        (F.col("topic") == topic) & (F.col("state") == "ready") & (F.col("hop") == 0) & F.col("seq_high").isNull()
        & F.col("recall").isNull() & (reader.isNull() | (reader == subscription))
    )  # fmt: skip
    asked = F.map_filter("properties", lambda name, _: name.isin(*properties)) if properties else F.create_map()
    rows = (
        sent.select(
            F.unix_millis("publish_ts").alias("at_ms"), "level", "tenant", "key", asked.alias("properties"), "size",
            identity_of("kodo_id", "mid").alias("identity"), "id",
        )
        .orderBy(F.desc("at_ms"), F.desc("id"))
        .limit(newest)
    )  # fmt: skip
    told = (
        transitions.where((F.col("topic") == topic) & (F.col("subscription") == subscription))
        .groupBy("identity")
        .agg(
            F.max(F.when(F.col("event").isin(*DONE), F.col("age_ms"))).alias("took_ms"),
            F.count_if(F.col("event").isin("moved", "dead")).alias("moves"),
            F.count_if(F.col("rule").isin(*FAILED)).alias("fails"),
        )
    )
    none = F.lit(0).cast("bigint")
    return (
        rows.join(told, "identity", how="left")
        .orderBy("at_ms", "id")
        .select(
            *COLUMNS[:-2], F.coalesce("moves", none).alias("moves"), F.coalesce("fails", none).alias("fails")
        )
    )  # fmt: skip
