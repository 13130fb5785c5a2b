"""Summary of the counted tables in a few rows, summed up by Spark: lanes, and for each ground topic the tenants with
most messages.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from kodo_pipeline.rollup.latency_histograms import Histograms, percentiles_of
from kodo_pipeline.rollup.report import SHARES, TENANTS, document, lane_key
from kodo_pipeline.rollup.transforms import COUNTS
from kodo_pipeline.spark.concurrent_queries import collect_all
from kodo_pipeline.spark.spark_session import small_table

if TYPE_CHECKING:
    from kodo_pipeline.rollup.rollup_document import RollupDocument
    from kodo_pipeline.rollup.time_bounds import TimeBounds

_LANE: Final = ("topic", "subscription", "level", "state")
_TENANT: Final = ("topic", "tenant")


class RollupTotals(NamedTuple):
    """Counts of lanes, and of the 10 tenants (TENANTS) of each topic with most messages, over all windows. `span`:
    (start of the first window and of the last, in ms since the epoch, 0 without any; number of windows with rows;
    number of other windows, at impossible times).
    """

    lanes: Sequence[dict[str, Any]]
    tenants: Sequence[dict[str, Any]]
    span: tuple[int, int, int, int]

    @property
    def names(self) -> set[tuple[str, str]]:
        """(topic, tenant) of the tenants; a row whose tenant is null is left out."""
        return {(one["topic"], one["tenant"]) for one in self.tenants if one["tenant"] is not None}

    def document(self, window: int, late: Histograms) -> RollupDocument:
        """Makes the JSON document of a rollup. `window`: width in ms; `late`: histograms of the lanes and tenants in
        this summary.
        """
        shares = {
            kind: {key: percentiles_of(one, SHARES) for key, one in of.items()}
            for kind, of in (("lanes", late.lanes), ("tenants", late.tenants))
        }
        return document(window, self.span, self.lanes, self.tenants, shares)


def summary(rollup: DataFrame, latencies: DataFrame, window: int, bounds: TimeBounds) -> RollupDocument:
    """Runs the queries of a rollup's report, and makes its JSON document. `window`: width in ms; `bounds`: limit the
    windows of its span, but not its counts, which are those of all windows.
    """
    found = totals(rollup, bounds.windows(window))
    return found.document(window, histograms(latencies, found.names))


def totals(rollup: DataFrame, within: tuple[int, int]) -> RollupTotals:
    """Counts over all windows. `within`: the first and the last time (ms) at which a window of the span may begin."""
    lanes = rollup.groupBy(*_LANE).agg(*(F.sum(name).alias(name) for name in COUNTS))
    counted, tenants, ((since, until, windows, every),) = collect_all(lanes, _largest(rollup), _span(rollup, within))
    span = (since or 0, until or 0, windows, every - windows)
    return RollupTotals([row.asDict() for row in counted], [row.asDict() for row in tenants], span)


def histograms(latencies: DataFrame, tenants: Collection[tuple[str, str]]) -> Histograms:
    """Latency histograms of all lanes, and of `tenants`, by (topic, tenant)."""
    named = small_table(latencies.sparkSession, sorted(tenants), "topic string, tenant string")
    known = latencies.join(F.broadcast(named), list(_TENANT), how="inner")
    messages = F.sum("messages").alias("messages")
    of_lanes, of_tenants = collect_all(
        latencies.groupBy(*_LANE, "bucket").agg(messages), known.groupBy(*_TENANT, "bucket").agg(messages)
    )
    return Histograms.of(
        ((lane_key(row.asDict()), row["bucket"], row["messages"]) for row in of_lanes),
        (((row["topic"], row["tenant"]), row["bucket"], row["messages"]) for row in of_tenants),
    )


def _largest(rollup: DataFrame) -> DataFrame:
    """Returns the TENANTS largest tenants of each topic, by their arrivals on its ready topics. Their other counts
    include all lanes of the topic.
    """
    arrived = F.when(F.col("state") == "ready", F.col("arrivals")).otherwise(0).alias("arrivals")
    order = Window.partitionBy("topic").orderBy(F.desc("arrivals"), F.desc("done"), "tenant")
    return (
        rollup.select(*_TENANT, arrived, *COUNTS[1:])
        .groupBy(*_TENANT)
        .agg(*(F.sum(name).alias(name) for name in COUNTS))
        .withColumn("nth", F.row_number().over(order))
        .where(F.col("nth") <= TENANTS)
        .drop("nth")
    )


def _span(rollup: DataFrame, within: tuple[int, int]) -> DataFrame:
    inside = F.when(F.col("moment").between(*within), F.col("moment"))
    moments = rollup.select(F.unix_millis("window_ts").alias("moment")).distinct()
    return moments.agg(
        F.min(inside).alias("since"),
        F.max(inside).alias("until"),
        F.count(inside).alias("windows"),
        F.count("moment").alias("every"),
    )
