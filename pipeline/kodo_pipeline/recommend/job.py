# adapter: runs Spark
"""Recommendation job: computes changes of the topology from the counted tables and audit records. Of each subscription
it reads only the tenants that may matter, and those that suffered.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.ingest.events import NOBODY, UNKNOWN
from kodo_pipeline.recommend.exclusive_tenants import exclusive_levels, released_routes, tenant_figures
from kodo_pipeline.recommend.noisy_neighbours import (
    CALM,
    RECENT,
    LevelMove,
    LoadWindow,
    SubscriptionWindows,
    TenantLoad,
    recommend_moves,
    unmovable,
    without_contrast,
)
from kodo_pipeline.recommend.recommendation_document import WaitingTenant
from kodo_pipeline.recommend.slot_judgement import recommend_by_slots, slot_query
from kodo_pipeline.recommend.slot_query import read_slot_windows
from kodo_pipeline.recommend.subscription_routes import SubscriptionRoutes, movable_subscriptions
from kodo_pipeline.recommend.verified_patch import Recommendations
from kodo_pipeline.rollup.histogram import percentiles
from kodo_pipeline.rollup.latency_histograms import BASE
from kodo_pipeline.spark.spark_session import small_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.recommend.slot_judgement import Goals
    from kodo_pipeline.rollup.job import CountedTables
    from kodoctl.topology.expand import Expansion

HORIZON: Final = 3 * RECENT  # windows that are read
VICTIMS: Final = 3  # named of each move
CUT: Final = 200  # characters of a tenant's name in audit records
_PAIRS: Final = "topic string, subscription string"
_ROUTED: Final = "topic string, subscription string, tenant string, place string"
_BLAMED: Final = "topic string, subscription string, mover string, window bigint"


@dataclass(frozen=True, slots=True)
class RecommendationResult:
    """Result of the job. `wanted`: changes for the patch; `victims`: by move to a lower level, up to three other
    tenants with late messages in its windows, the most first; `notes`: sentences about subscriptions and tenants that
    could not be judged, moved or helped.
    """

    wanted: Recommendations
    victims: dict[LevelMove, tuple[WaitingTenant, ...]]
    notes: tuple[str, ...]


def recommend(
    spark: SparkSession, landing: Landing, tables: CountedTables, expansion: Expansion, goals: Goals
) -> RecommendationResult:
    """Recommends moves of tenants, and settings, so that messages of quiet tenants are done within the goal. `tables`,
    `landing`: of the topology of `expansion`. Runs queries, changes nothing.
    """
    places, notes = movable_subscriptions(expansion)
    cases = _cases(spark, tables, places, goals.goal) if places else []
    moves = []
    for place, case in zip(places, cases, strict=True):
        found_moves = recommend_moves(case)
        doubtful = without_contrast(case, found_moves)
        notes += map(_no_contrast, doubtful)
        moves.append((place, [one for one in found_moves if one not in doubtful]))
    for place, case in zip(places, cases, strict=True):
        for tenant in [one for one in unmovable(case) if one not in place.promoted]:
            why = (
                "has no name that a route could test"
                if tenant in (NOBODY, UNKNOWN)
                else "has a route of its own in the file"
            )
            notes.append(f"{case.topic} / {case.subscription}: {tenant} harms others, but {why}")
    blaming = [move for _, some in moves for move in some if move.action != "upgrade"]
    victims = _victims(spark, tables, blaming, goals.goal) if blaming else {}
    query = slot_query(expansion, tables.window, goals, places)
    found = read_slot_windows(spark, landing, expansion, query) if query.pairs else {}
    by_slots = recommend_by_slots(found, query, expansion, goals, moves)
    every = [(place, (*some, *by_slots.moves.get((place.topic, place.subscription), ()))) for place, some in moves]
    wanted = Recommendations([(place, some) for place, some in every if some], by_slots.settings)
    return RecommendationResult(wanted, victims, (*notes, *by_slots.notes))


def _no_contrast(move: LevelMove) -> str:
    return (
        f"{move.topic} / {move.subscription}: cannot compare, so this is no finding: {move.action} {move.tenant}, {move.source}"
        f" -> {move.target}; others waited in {move.late or 0:.0%} of what they had done while it was loud, and as long when"
        " nobody was"
    )


def recommend_exclusive(
    spark: SparkSession, landing: Landing, width: int, expansion: Expansion, goals: Goals, given: Sequence[str]
) -> RecommendationResult:
    """Recommends an exclusive level for each TOPIC/TENANT in `given`, and the removal of the tenant from managed
    routes, with the tenant's figures in windows of `width` ms. Raises UsageError (K803), with every reason, if one of
    them cannot have such a level; a tenant without runs in the newest windows gets a note. Changes nothing.
    """
    places, _ = movable_subscriptions(expansion)
    levels = exclusive_levels(expansion, given, places)
    query = slot_query(expansion, width, goals, ())
    pairs = [key for key in query.pairs if key[0] in {one.topic for one in levels}]
    named = [(*key, one.tenant) for one in levels for key in pairs if key[0] == one.topic]
    found = read_slot_windows(spark, landing, expansion, replace(query, pairs=pairs, promoted=named)) if pairs else {}
    known = [replace(one, figures=tenant_figures(one, found, width)) for one in levels]
    notes = [
        f"{one.topic}: no record says how long handlers of {one.tenant} ran"
        for one in known
        if not any(figures["runs"] for figures in one.figures)
    ]
    return RecommendationResult(Recommendations(released_routes(levels, places), (), known), {}, tuple(notes))


def _cases(
    spark: SparkSession, tables: CountedTables, places: Sequence[SubscriptionRoutes], goal: int
) -> list[SubscriptionWindows]:
    found: dict[tuple[str, str], dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in _loads(spark, _newest_windows(tables), places, goal).collect():
        found[row["topic"], row["subscription"]][row["window"]].append(row.asDict())
    return [
        SubscriptionWindows(
            one.topic,
            one.subscription,
            one.ladder,
            {tenant: level for tenant, level in one.routed.items() if level in one.ladder},
            one.fixed | one.promoted.keys() | _too_long(found[one.topic, one.subscription].values()),
            tables.window,
            [_slice(at, rows) for at, rows in sorted(found[one.topic, one.subscription].items())],
        )
        for one in places
    ]


def _too_long(windows: Iterable[list[dict[str, Any]]]) -> frozenset[str]:
    """Tenants whose names audit records may have cut: they cannot be written into a route."""
    return frozenset(row["tenant"] for rows in windows for row in rows if row["tenant"] and len(row["tenant"]) >= CUT)


def _slice(at: int, rows: Sequence[dict[str, Any]]) -> LoadWindow:
    """Makes a window of its rows: one for each tenant that may matter, and one (tenant null) for all others together."""
    rest = next((row for row in rows if row["tenant"] is None), {"done": 0, "late": 0})
    return LoadWindow(
        at,
        sum(row["volume"] for row in rows),
        sum(row["active"] for row in rows),
        rest["done"],
        rest["late"],
        {
            row["tenant"]: TenantLoad(row["volume"], row["done"], row["late"], frozenset(row["levels"]))
            for row in rows
            if row["tenant"] is not None
        },
    )


def _newest_windows(tables: CountedTables) -> CountedTables:
    """Returns the rows of the newest windows, as `_loads` reads them. The bound is a literal time, so that Spark skips
    Parquet files of older windows however many years were counted. Rows with an impossible publish time are left out:
    such a row would be the newest of all and hide the others.
    """
    from pyspark.sql import functions as F

    window = F.unix_millis("window_ts")
    possible = tables.rollup.where(F.col("window_ts") <= F.timestamp_millis(F.lit(tables.bounds.until)))
    newest = possible.groupBy("topic").agg(F.max(window).alias("newest")).agg(F.min("newest")).collect()[0][0] or 0
    recent = F.col("window_ts") > F.timestamp_millis(F.lit(newest - HORIZON * tables.window))
    late = tables.latencies.where(F.col("window_ts") <= F.timestamp_millis(F.lit(tables.bounds.until)))
    return replace(tables, rollup=possible.where(recent), latencies=late.where(recent))


def _loads(spark: SparkSession, tables: CountedTables, places: Sequence[SubscriptionRoutes], goal: int) -> DataFrame:
    """Returns (topic, subscription, window, tenant, volume, done, late, levels, active) of the newest windows: a row
    for each tenant with a share of CALM, or that routes move, and one without a name for all other tenants. So few rows
    leave Spark.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    pairs = small_table(spark, [(one.topic, one.subscription) for one in places], _PAIRS)
    listed = [(one.topic, one.subscription, tenant, to) for one in places for tenant, to in one.routed.items()]
    routed = F.broadcast(small_table(spark, listed, _ROUTED))
    keys = ["topic", "subscription", "window", "tenant"]
    events = _of_readers(tables.rollup, pairs).join(routed, ["topic", "subscription", "tenant"], how="left")
    newest = events.groupBy("topic").agg(F.max("window").alias("newest"))
    ready, handled = (
        F.col("state") == "ready",
        F.col("done") + F.col("failed") + F.col("rerouted") + F.col("discarded") > 0,
    )
    counts = ready & ~F.col("level").eqNullSafe(F.col("place")) | ~F.coalesce(F.col("state"), F.lit("dead")).isin(
        "ready", "dead"
    )
    volumes = events.groupBy(*keys).agg(
        F.sum(F.when(counts, F.col("arrivals")).otherwise(0)).alias("volume"),
        F.array_compact(F.collect_set(F.when(handled, F.col("level")))).alias("levels"),
        F.max("place").alias("place"),
    )
    known = volumes.join(_late(tables.latencies, pairs, goal), keys, how="left").join(
        F.broadcast(newest), "topic", how="inner"
    )
    window = Window.partitionBy("topic", "subscription", "window")
    shared = known.where(F.col("window") > F.col("newest") - HORIZON * tables.window).withColumn(
        "share", F.col("volume") / F.greatest(F.sum("volume").over(window), F.lit(1))
    )
    named = F.when((F.col("share") >= CALM) | F.col("place").isNotNull(), F.col("tenant"))
    return (
        shared.select("topic", "subscription", "window", named.alias("tenant"), "volume", "done", "late", "levels")
        .groupBy(*keys)
        .agg(
            F.sum("volume").alias("volume"),
            F.coalesce(F.sum("done"), F.lit(0)).alias("done"),
            F.coalesce(F.sum("late"), F.lit(0)).alias("late"),
            F.flatten(F.collect_set("levels")).alias("levels"),
            F.count_if(F.col("volume") > 0).alias("active"),
        )
    )


def _of_readers(table: DataFrame, pairs: DataFrame) -> DataFrame:
    """Rows of these subscriptions; a row without a subscription counts for every subscription of its topic."""
    from pyspark.sql import functions as F

    asked = F.broadcast(pairs.withColumnRenamed("subscription", "reader"))
    mine = F.col("subscription").isNull() | (F.col("subscription") == F.col("reader"))
    read = (
        table.join(asked, "topic", how="inner")
        .where(mine)
        .drop("subscription")
        .withColumnRenamed("reader", "subscription")
    )
    return read.withColumn("window", F.unix_millis("window_ts"))


def _late(latencies: DataFrame, pairs: DataFrame, goal: int) -> DataFrame:
    from pyspark.sql import functions as F

    late = F.col("bucket") >= math.ceil(math.log(goal, BASE))  # so many ms at least
    return (
        _of_readers(latencies, pairs)
        .groupBy("topic", "subscription", "window", "tenant")
        .agg(
            F.sum("messages").alias("done"),
            F.sum(F.when(late, F.col("messages")).otherwise(0)).alias("late"),
        )
    )


def _victims(
    spark: SparkSession, tables: CountedTables, moves: Sequence[LevelMove], goal: int
) -> dict[LevelMove, tuple[WaitingTenant, ...]]:
    """Tenants with the most late messages in the windows of each move, and their latency in these and in all other
    windows.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    blamed = [(one.topic, one.subscription, one.tenant, at) for one in moves for at in one.windows]
    movers = small_table(spark, [row[:3] for row in blamed], f"{_PAIRS}, mover string").distinct()
    keys = ["topic", "subscription", "mover", "tenant"]
    rows = tables.latencies.withColumn("window", F.unix_millis("window_ts")).join(
        F.broadcast(movers), keys[:2], how="inner"
    )
    marked = rows.where(F.col("tenant") != F.col("mover")).join(
        F.broadcast(small_table(spark, blamed, _BLAMED).withColumn("then", F.lit(True))),
        [*keys[:3], "window"],
        how="left",
    )
    then = F.coalesce(F.col("then"), F.lit(False))
    late = F.col("bucket") >= math.ceil(math.log(goal, BASE))
    counted = (
        marked.where(then)
        .groupBy(*keys)
        .agg(F.sum("messages").alias("done"), F.sum(F.when(late, F.col("messages")).otherwise(0)).alias("late"))
    )
    order = Window.partitionBy(*keys[:3]).orderBy(F.desc("late"), F.desc("done"), "tenant")
    worst = (
        counted.withColumn("nth", F.row_number().over(order))
        .where((F.col("nth") <= VICTIMS) & (F.col("late") > 0))
        .persist()
    )
    try:
        tenants = worst.orderBy("nth").collect()
        histogram = marked.join(F.broadcast(worst.select(*keys)), keys, how="inner").withColumn("then", then)
        slow = {
            tuple(row[name] for name in (*keys, "then")): row["latency"]
            for row in percentiles(histogram, [*keys, "then"], [0.95]).collect()
        }
    finally:
        worst.unpersist()
    found: dict[tuple[str, ...], list[WaitingTenant]] = defaultdict(list)
    for row in tenants:
        key = tuple(row[name] for name in keys)
        found[key[:3]].append(
            WaitingTenant(
                tenant=row["tenant"], done=row["done"], late=row["late"],
                p95=slow.get((*key, True)), p95_else=slow.get((*key, False)),
            )
        )  # fmt: skip
    return {one: tuple(found[one.topic, one.subscription, one.tenant]) for one in moves}
