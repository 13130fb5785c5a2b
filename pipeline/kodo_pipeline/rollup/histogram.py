"""Histogram of latencies with buckets that grow by 2 %, and its percentiles. Histograms of hours, topics and runs add
up.

The bucket of a latency is the whole part of its logarithm to the base 1.02; its value is the middle of the bucket, so
that no percentile is off by more than 1 %. Latencies below 1 ms, and negative ones of clocks that differ, have buckets
of their own, with the value 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kodo_pipeline.rollup.latency_histograms import BASE, NEGATIVE, ZERO


def bucket(latency: str | Column) -> Column:
    """Bucket of a latency in ms, given as a column or the name of one; null for null."""
    taken = F.col(latency) if isinstance(latency, str) else latency
    return F.when(taken < 0, NEGATIVE).when(taken < 1, ZERO).otherwise(F.floor(F.log(BASE, taken))).cast("int")


def value(number: str) -> Column:
    """Latency, in ms, of a bucket in the column `number`: the harmonic middle of its ends, off by at most 1 % to both
    sides.
    """
    middle = 2 * BASE / (1 + BASE)
    return F.when(F.col(number) < 0, F.lit(0.0)).otherwise(F.pow(F.lit(BASE), F.col(number)) * middle)


def percentiles(histogram: DataFrame, keys: Sequence[str], shares: Sequence[float]) -> DataFrame:
    """Returns (keys, share, latency): for each share the latency (ms) that this share of the messages did not exceed.
    `histogram`: (keys, bucket, messages), with any number of rows for a bucket.
    """
    order = Window.partitionBy(*keys).orderBy("bucket")
    counted = (
        histogram.groupBy(*keys, "bucket")
        .agg(F.sum("messages").alias("messages"))
        .select(
            *keys,
            "bucket",
            F.sum("messages").over(order).alias("until"),
            F.sum("messages").over(Window.partitionBy(*keys)).alias("all"),
        )
    )
    asked = F.explode(F.array(*(F.lit(float(share)) for share in shares))).alias("share")
    return (
        counted.select(*keys, "bucket", "until", "all", asked)
        .where(F.col("until") >= F.ceil(F.round(F.col("share") * F.col("all"), 6)))
        .groupBy(*keys, "share")
        .agg(F.min("bucket").alias("bucket"))
        .select(*keys, "share", value("bucket").alias("latency"))
    )
