"""The counted tables in a few rows: lanes, and of each ground topic the tenants with most messages. Rows are added,
never listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from kodoctl.pipeline.rollup.histogram import percentiles
from kodoctl.pipeline.rollup.report import SHARES, TENANTS, document, lane_key
from kodoctl.pipeline.rollup.transforms import COUNTS
from kodoctl.pipeline.spark.concurrent_queries import collect_all

if TYPE_CHECKING:
    from kodoctl.documents.rollup_document import RollupDocument
    from kodoctl.pipeline.rollup.time_bounds import TimeBounds

_LANE: Final = ("topic", "subscription", "level", "state")
_TENANT: Final = ("topic", "tenant")


def summary(rollup: DataFrame, latencies: DataFrame, window: int, bounds: TimeBounds) -> RollupDocument:
    """The document of kodoctl.pipeline.rollup.report. `window`: ms. `bounds`: of the windows that its span is of; the counts
    are those of all windows.
    """
    lanes = rollup.groupBy(*_LANE).agg(*(F.sum(name).alias(name) for name in COUNTS))
    largest = _largest(rollup).persist()
    try:
        known = latencies.join(F.broadcast(largest.select(*_TENANT)), list(_TENANT), how="inner")
        shares = list(SHARES.values())
        slow, of_tenants, counted, tenants, span = collect_all(
            percentiles(latencies, _LANE, shares),
            percentiles(known, _TENANT, shares),
            lanes,
            largest,
            _span(rollup, bounds.windows(window)),
        )
        late: dict[str, dict[Any, dict[str, float]]] = {"lanes": {}, "tenants": {}}
        names = {share: name for name, share in SHARES.items()}
        for row in slow:
            late["lanes"].setdefault(lane_key(row.asDict()), {})[names[row["share"]]] = row["latency"]
        for row in of_tenants:
            late["tenants"].setdefault((row["topic"], row["tenant"]), {})[names[row["share"]]] = row["latency"]
        since, until, windows, every = span[0]
        return document(
            window,
            (since or 0, until or 0, windows, every - windows),
            (row.asDict() for row in counted),
            (row.asDict() for row in tenants),
            late,
        )
    finally:
        largest.unpersist()


def _largest(rollup: DataFrame) -> DataFrame:
    """Tenants of each topic by what arrived on its ready topics; what happened to that later is counted wherever it
    did.
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
    moment = F.unix_millis("window_ts")
    inside = F.when(moment.between(*within), moment)
    return rollup.agg(F.min(inside), F.max(inside), F.count_distinct(inside), F.count_distinct(moment))
