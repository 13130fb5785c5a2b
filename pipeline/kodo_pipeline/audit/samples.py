"""Samples of findings, which a report names one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from kodo_pipeline.audit.report import MOST_SAMPLES, SAMPLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sample_findings(found: DataFrame) -> DataFrame:
    """Chooses findings to name in a report: (fate, cause, topic, subscription, msg_topic, id), sorted by status and
    place. At most SAMPLES of each status and lane, and at most MOST_SAMPLES of each status, distributed over the lanes.
    `cause` is "" instead of null.
    """
    columns = ("fate", "cause", "topic", "subscription", "msg_topic", "id")
    order = ("msg_topic", "id", "subscription", "cause")  # several subscriptions may have lost one message
    of_lane = Window.partitionBy("fate", "msg_topic", "subscription").orderBy("id", "cause")
    of_fate = Window.partitionBy("fate").orderBy("nth", *order)
    return (
        found.select(*columns, F.row_number().over(of_lane).alias("nth"))
        .where(F.col("nth") <= SAMPLES)
        .withColumn("all", F.row_number().over(of_fate))
        .where(F.col("all") <= MOST_SAMPLES)
        .select("fate", F.coalesce("cause", F.lit("")).alias("cause"), *columns[2:])
        .orderBy("fate", *order)
    )
