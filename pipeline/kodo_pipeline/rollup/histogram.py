"""Histogram of latencies with buckets that grow by 2 %, and its percentiles. Histograms of different hours, topics and
runs can be added.

The bucket of a latency is the whole part of its logarithm to the base 1.02; its value is the middle of the bucket, so
that no percentile is wrong by more than 1 %. Latencies below 1 ms, and negative ones (clocks differ), have buckets of
their own, with the value 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kodo_pipeline.rollup.latency_histograms import BASE, NEGATIVE, ZERO


def bucket(latency: str | Column) -> Column:
    """Column: bucket of a latency in ms, which is a column or the name of one; null for null."""
    taken = F.col(latency) if isinstance(latency, str) else latency
    return F.when(taken < 0, NEGATIVE).when(taken < 1, ZERO).otherwise(F.floor(F.log(BASE, taken))).cast("int")


def value(number: str) -> Column:
    """Column: latency in ms of the bucket in the column `number`. It is the harmonic middle of the bucket's ends, at
    most 1 % off, and 0 for the buckets of latencies below 1 ms.
    """
    middle = 2 * BASE / (1 + BASE)
    return F.when(F.col(number) < 0, F.lit(0.0)).otherwise(F.pow(F.lit(BASE), F.col(number)) * middle)


def percentiles(histogram: DataFrame, keys: Sequence[str], shares: Sequence[float]) -> DataFrame:
    """Percentiles of latency for each of the keys: (keys, share, latency), where the share (0 to 1) of the messages did
    not exceed the latency (ms). `histogram`: (keys, bucket, messages), with any number of rows per bucket.
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
