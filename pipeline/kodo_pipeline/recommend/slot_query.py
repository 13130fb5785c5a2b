# adapter: runs Spark
"""Query of slot use: reads the audit records of the newest windows, and returns as few rows as the recommendations
need.

An audit record says when a worker finished with its message in a lane, for how long handlers ran, and how old the
message was. From these follow the time when the run began, the time when the message arrived, and how long it waited
for a slot. A run counts in the window in which it began, a late one in every window in which its message waited longer
than the goal; slot time counts in every window in which the handler ran.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodo_pipeline.landing.tables import AUDIT, CURSORS, EVENTS
from kodo_pipeline.recommend.noisy_neighbours import CALM, ENTER, JUDGED, LATE, RECENT
from kodo_pipeline.recommend.promotions import FEWEST
from kodo_pipeline.recommend.slot_use import LaneUse, SlotWindow, TenantUse
from kodo_pipeline.rollup.job import time_bounds
from kodo_pipeline.rollup.report import DAY
from kodo_pipeline.spark.spark_session import small_table
from kodoctl.protocol.audit_records import FORMAT, SLOT_TIME, Event
from kodoctl.topology.units import LATEST

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from kodo_pipeline.landing.landing_store import Landing
    from kodoctl.topology.expand import Expansion

LARGEST: Final = 5  # tenants with most slot time that are read of each window
_LONGEST: Final = 30 * DAY  # of a run, in ms: what a forged record says beyond that would have sums overflow
CANDIDATES: Final = 100  # tenants of a subscription that are read as candidates for a promotion
_RECORDS: Final = (
    "format int, run string, subscription string, first bigint, at bigint, topics array<string>, after array<bigint>, "
    f"topic array<int>, hop array<int>, event array<string>, tenant array<string>, age array<bigint>, "
    f"{SLOT_TIME} array<bigint>"
)
_COLUMNS: Final = ("after", "topic", "hop", "event", "tenant", "age", SLOT_TIME)
_SUBSCRIPTION: Final = ("topic", "subscription")
_LANE: Final = (*_SUBSCRIPTION, "window", "level", "state")
_TENANT: Final = (*_SUBSCRIPTION, "window", "tenant")
_FIGURES: Final = ("slot_ms", "offered_ms", "started", "late")
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SlotQuery:
    """Query of slot use. `pairs`: (topic, subscription) to query; `width`: width of a window in ms; `goals`: by tenant,
    in ms; `goal`: of all other tenants, in ms; `promoted`: (topic, subscription, tenant) of tenants that routes have
    promoted.
    """

    pairs: Sequence[Key]
    width: int
    goal: int
    goals: Mapping[str, int]
    promoted: Sequence[tuple[str, str, str]]


def read_slot_windows(
    spark: SparkSession, landing: Landing, expansion: Expansion, query: SlotQuery
) -> dict[Key, list[SlotWindow]]:
    """Runs the query. Returns the newest windows, oldest first, by (topic, subscription); subscriptions whose audit
    records have no slot times are left out.
    """
    from pyspark.sql import functions as F

    snapshot = landing.snapshot(EVENTS, CURSORS)
    latest = time_bounds(landing, snapshot).until

    def records(since: int) -> DataFrame:
        """Returns the audit records published since `since` (ms), up to the latest possible time. Reads only files that
        have rows of this time; records with a later publish time are left out.
        """
        moments = (F.timestamp_millis(F.lit(at)) for at in (since, latest))
        rows = landing.read(spark, EVENTS, since=since, until=latest + 1, snapshot=snapshot)
        return rows.where((F.col("state") == AUDIT) & F.col("publish_ts").between(*moments))

    ends = [min(one.until, latest) for one in snapshot.files[EVENTS.name] if one.until is not None]
    for begin in (max(ends, default=0) - DAY, 0):  # few files, and all where the newest have none
        newest = records(begin).agg(F.unix_millis(F.max("publish_ts"))).collect()[0][0]
        if newest is not None:
            break
    else:
        return {}
    since = (newest // query.width - RECENT) * query.width
    runs = _runs(spark, records(since), expansion, query).persist()
    try:
        lanes, tenants = _add_windows(runs, _LANE, query.width), _add_windows(runs, _TENANT, query.width)
        rows = [row.asDict() for row in lanes.collect()]
        alive = _workers(runs, query.width).collect()
        workers = {(row["topic"], row["subscription"], row["window"]): row["workers"] for row in alive}
        known = {(row["topic"], row["subscription"]) for row in alive if row["timed"]}
        loads = [row.asDict() for row in _relevant_rows(spark, tenants, query).collect()]
    finally:
        runs.unpersist()
    return {key: _windows(key, rows, workers, loads) for key in query.pairs if key in known}


def _windows(
    key: Key,
    lanes: Iterable[Mapping[str, Any]],
    workers: Mapping[tuple[Any, ...], int],
    loads: Iterable[Mapping[str, Any]],
) -> list[SlotWindow]:
    by_lane: dict[int, dict[tuple[str, str], LaneUse]] = defaultdict(dict)
    by_tenant: dict[int, dict[str, TenantUse]] = defaultdict(dict)
    for row in lanes:
        if (row["topic"], row["subscription"]) == key:
            by_lane[row["window"]][row["level"], row["state"]] = LaneUse(*(row[name] for name in _FIGURES))
    for row in loads:
        if (row["topic"], row["subscription"]) == key:
            slot_ms, offered_ms, started, late = (row[name] for name in _FIGURES)
            load = TenantUse(slot_ms, offered_ms, started, late, frozenset(row["levels"]))
            by_tenant[row["window"]][row["tenant"]] = load
    return [SlotWindow(at, workers.get((*key, at), 0), lanes, by_tenant[at]) for at, lanes in sorted(by_lane.items())]


def _runs(spark: SparkSession, audit: DataFrame, expansion: Expansion, query: SlotQuery) -> DataFrame:
    """Returns (topic, subscription, run, level, state, tenant, begins, ends, arrived, slot_time, first, late, timed,
    overdue) of each audit record, and of duplicates only one. Times are ms. `first`: the message was in a ready lane
    since it was stored, and a handler ran; `late`: it is `first`, and waited longer than its goal, from `overdue` on;
    `arrived`: when it was stored, or, if it was not in a ready lane since then, as `begins`; `timed`: the record has a
    slot time.
    """
    from pyspark.sql import functions as F

    places = [(one.name.full, one.level.value, one.state.value) for one in expansion.topics if one.level and one.state]
    topics = F.broadcast(small_table(spark, places, "lane string, level string, state string"))
    pairs = F.broadcast(small_table(spark, query.pairs, "topic string, subscription string"))
    goals = F.broadcast(small_table(spark, query.goals.items(), "tenant string, own_goal bigint"))
    found = audit.select("topic", F.from_json(F.col("payload").cast("string"), _RECORDS).alias("found"))
    zipped = F.arrays_zip(*(F.col(f"found.{name}").alias(name) for name in _COLUMNS))
    rows = found.where(F.col("found.format") == FORMAT).select(
        "topic", F.col("found.subscription").alias("subscription"), F.col("found.run").alias("run"), "found",
        F.posexplode(zipped).alias("at", "row"),
    ).select(
        "topic", "subscription", "run", F.try_add("found.first", "at").alias("number"),
        F.try_add("found.at", "row.after").alias("ends"), F.get("found.topics", F.col("row.topic")).alias("lane"),
        "row.hop", "row.event", "row.tenant", F.least(F.greatest("row.age", F.lit(0)), F.lit(LATEST)).alias("age"),
        F.coalesce(F.greatest(f"row.{SLOT_TIME}", F.lit(0)), F.lit(0)).alias("slot_time"),
        F.col(f"found.{SLOT_TIME}").isNotNull().alias("timed"),
    )  # fmt: skip
    once = rows.dropDuplicates(["run", "number"]).join(pairs, list(_SUBSCRIPTION), how="left_semi")
    sound = once.where(F.col("ends").between(0, LATEST)).withColumn(
        "slot_time", F.least("slot_time", "ends", F.lit(_LONGEST))
    )
    known = sound.join(topics, "lane", how="inner").join(goals, "tenant", how="left")
    begins, wait = F.col("ends") - F.col("slot_time"), F.greatest(F.col("age") - F.col("slot_time"), F.lit(0))
    goal = F.coalesce("own_goal", F.lit(query.goal))
    ran = (F.col("slot_time") > 0) | F.col("event").isin(Event.DONE.value, Event.TRANSFERRED.value)
    routed = (F.col("hop") == 1) & ~F.col("level").startswith("B")  # as it was received first
    first = (F.col("state") == "ready") & ((F.col("hop") == 0) | routed)
    return known.select(
        *_SUBSCRIPTION, "run", "level", "state", "tenant", begins.alias("begins"), "ends", "slot_time", "timed",
        F.when(first, F.col("ends") - F.col("age")).otherwise(begins).alias("arrived"),
        (first & ran).alias("first"),
        (first & ran & (wait > goal)).alias("late"),
        F.when(wait > goal, F.col("ends") - F.col("age") + goal).otherwise(begins).alias("overdue"),
    )  # fmt: skip


def _add_windows(runs: DataFrame, keys: Sequence[str], width: int) -> DataFrame:
    """Returns (keys, slot_ms, offered_ms, started, late, levels) by window. `slot_ms` counts in every window in which
    the run was, `offered_ms` in the one in which the message arrived; `started` and `late` count in the one in which
    the run began and, for a late message, in each in which it waited beyond its goal. `levels`: those of `slot_ms` and
    `started`.
    """
    from pyspark.sql import functions as F

    def part(rows: DataFrame, window: Column, at: Column, **figures: Column) -> DataFrame:
        counts = [figures.get(name, F.lit(0)).cast("bigint").alias(name) for name in _FIGURES]
        return rows.withColumn("window", window).select(*keys, *counts, at.alias("at"))

    nowhere = F.lit(None).cast("string")
    ran = runs.where("slot_time > 0").withColumn("window", F.explode(_from_to("begins", "ends", width)))
    waited = runs.where("first").withColumn("window", F.explode(_from_to("overdue", "begins", width)))
    within = F.least("ends", F.col("window") + width) - F.greatest("begins", "window")
    made = (
        part(ran, F.col("window"), F.col("level"), slot_ms=within)
        .unionByName(part(runs, _window("arrived", width), nowhere, offered_ms=F.col("slot_time")))
        .unionByName(part(waited, F.col("window"), F.col("level"), started=F.lit(1), late=F.col("late")))
    )
    return made.groupBy(*keys).agg(
        *(F.sum(name).alias(name) for name in _FIGURES), F.array_compact(F.collect_set("at")).alias("levels")
    )


def _workers(runs: DataFrame, width: int) -> DataFrame:
    """Returns (topic, subscription, window, workers, timed): the number of workers whose records span the window, and
    whether a record has a slot time.
    """
    from pyspark.sql import functions as F

    lives = runs.groupBy(*_SUBSCRIPTION, "run").agg(
        F.min("begins").alias("since"), F.max("ends").alias("until"), F.max("timed").alias("timed")
    )
    windows = lives.select(*_SUBSCRIPTION, "run", "timed", F.explode(_from_to("since", "until", width)).alias("window"))
    return windows.groupBy(*_SUBSCRIPTION, "window").agg(
        F.count_distinct("run").alias("workers"), F.max("timed").alias("timed")
    )


def _relevant_rows(spark: SparkSession, tenants: DataFrame, query: SlotQuery) -> DataFrame:
    """Rows of the tenants that matter: those with most slot time in a window, light tenants with late runs, and tenants
    that routes have promoted.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    per_window, per_tenant = Window.partitionBy(*_SUBSCRIPTION, "window"), Window.partitionBy(*_SUBSCRIPTION, "tenant")
    largest = F.row_number().over(per_window.orderBy(F.desc("slot_ms"), "tenant")) <= LARGEST
    all_runs, all_slots = F.sum("started").over(per_window), F.sum("slot_ms").over(per_window)
    took_slots = F.col("slot_ms") >= F.greatest(F.lit(1.0), F.lit(CALM) * all_slots)
    heavy = (all_runs >= JUDGED) & ((F.col("started") >= F.lit(CALM) * all_runs) | took_slots)
    promoted = F.broadcast(
        small_table(spark, query.promoted, "topic string, subscription string, tenant string").withColumn(
            "put", F.lit(True)
        )
    )
    recent = F.max("window").over(Window.partitionBy(*_SUBSCRIPTION)) - RECENT * query.width
    marked = (
        tenants.withColumn("newest", recent)
        .where(F.col("window") > F.col("newest"))
        .withColumn("large", largest)
        .withColumn("heavy", heavy)
        .withColumn("delayed", F.col("late") > F.lit(LATE) * F.col("started"))
    )
    known = (
        marked.withColumn("ever_large", F.max("large").over(per_tenant))
        .withColumn("ever_heavy", F.max("heavy").over(per_tenant))
        .withColumn("delays", F.sum(F.col("delayed").cast("int")).over(per_tenant))
        .withColumn("runs", F.sum("started").over(per_tenant))
        .withColumn("late_runs", F.sum("late").over(per_tenant))
        .join(promoted, [*_SUBSCRIPTION, "tenant"], how="left")
    )
    candidate = ~F.col("ever_heavy") & (F.col("delays") >= ENTER) & (F.col("runs") >= FEWEST)
    order = Window.partitionBy(*_SUBSCRIPTION, candidate).orderBy(F.desc("late_runs"), "tenant")
    nth = F.dense_rank().over(order)
    chosen = F.col("ever_large") | F.col("put").isNotNull() | (candidate & (F.col("nth") <= CANDIDATES))
    return known.withColumn("nth", nth).where(chosen).select(*_TENANT, *_FIGURES, "levels")


def _window(moment: str, width: int) -> Column:
    from pyspark.sql import functions as F

    return F.expr(f"{moment} div {width}") * F.lit(width)


def _from_to(begins: str, ends: str, width: int) -> Column:
    """Array of the beginnings (ms) of all windows from one moment to another, at most RECENT + 2 of them."""
    from pyspark.sql import functions as F

    last = _window(ends, width)
    first = F.greatest(_window(begins, width), last - F.lit((RECENT + 1) * width))
    return F.sequence(first, last, F.lit(width).cast("bigint"))
