"""Tables of a report, of a few rows each, besides those of audit and rollup: waiting messages, failures, noisy tenants,
and traffic over time.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kodo_pipeline.evidence.audit_evidence import RANKS, MessageStatus
from kodo_pipeline.recommend.noisy_neighbours import LEAST, LOUD, TIMES
from kodo_pipeline.report.document import NOTHING
from kodo_pipeline.rollup.histogram import bucket
from kodo_pipeline.rollup.latency_histograms import percentiles_of
from kodo_pipeline.rollup.report import SHARES
from kodo_pipeline.spark.concurrent_queries import collect_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kodo_pipeline.report.report_document import FailureCount, TrafficCounts, TrafficPoint
    from kodo_pipeline.rollup.latency_histograms import Histograms
    from kodo_pipeline.rollup.time_bounds import TimeBounds

CAUSES: Final = 50  # shown one by one
_HANDLED: Final = ("done", "failed", "over_limit")
_FAILURE: Final = ("topic", "subscription", "event", "rule", "cause", "reason")
_LANE: Final = ("topic", "subscription", "msg_topic", "state")
_HELD: Final = (
    MessageStatus.OPEN, MessageStatus.WAITING, MessageStatus.STORED, MessageStatus.OVERDUE, MessageStatus.DEAD,
)  # fmt: skip
Row = dict[str, Any]


def waiting(verdicts: DataFrame, lanes: DataFrame, since: int, dead_letters: DataFrame | None = None) -> list[Row]:
    """Counts waiting messages and dead letters by lane: (topic, subscription, msg_topic, state, messages, overdue,
    oldest_ms, median_ms).

    An age is the time from the publish time, or from `since` (ms since the epoch) if that is later, to the reading of
    the cursors. `verdicts`: result of kodo_pipeline.audit.classify.place_outcomes; `dead_letters`: settled dead
    letters, which are not in `verdicts`, with the columns of kodo_pipeline.landing.state_tables.DEAD_LETTERS.
    """
    came = F.greatest("published", F.lit(since))
    named = lanes.select("lane", *_LANE, "read_at")
    places = verdicts.where(F.col("rank").isin([RANKS[fate] for fate in _HELD])).select("lane", "rank", "published")
    if dead_letters is not None:
        readers = F.broadcast(lanes.select("lane", "family", "msg_topic", "msg_partition"))
        settled = dead_letters.join(readers, ["family", "msg_topic", "msg_partition"], how="inner")
        places = places.unionByName(settled.select("lane", F.lit(RANKS[MessageStatus.DEAD]).alias("rank"), "published"))
    unacknowledged = places.join(F.broadcast(named), "lane", how="inner").select(
        *_LANE, "rank", F.greatest(F.lit(0), F.col("read_at") - came).alias("age")
    )
    overdue = F.count_if(F.col("rank") == RANKS[MessageStatus.OVERDUE]).alias("overdue")
    ages = unacknowledged.groupBy(*_LANE, bucket("age").alias("bucket")).agg(
        F.count("*").alias("messages"), overdue, F.max("age").alias("oldest_ms")
    )
    held_lanes: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in ages.collect():
        held_lanes[_key(row, _LANE)].append(row.asDict())
    return [
        {
            **dict(zip(_LANE, key, strict=True)),
            "messages": sum(one["messages"] for one in rows),
            "overdue": sum(one["overdue"] for one in rows),
            "oldest_ms": max(one["oldest_ms"] for one in rows),
            "median_ms": percentiles_of({one["bucket"]: one["messages"] for one in rows}, {"p50": 0.5})["p50"],
        }
        for key, rows in held_lanes.items()
    ]


def failures(counted: DataFrame) -> tuple[list[FailureCount], int]:
    """Returns (the 50 (CAUSES) most frequent groups of failures, number of all failures). A group has one topic,
    subscription, event, rule and cause; its `reason` is one of its failures'. `counted`: rows of the table `failures`,
    which are counts by day, after `without_doubles`, so that no failure is counted twice.
    """
    messages, reason = F.sum("messages").alias("messages"), F.min("reason").alias("reason")
    every = F.sum("messages").over(Window.partitionBy()).alias("every")
    causes = counted.groupBy(*_FAILURE[:-1]).agg(reason, messages).select("*", every)
    found = causes.orderBy(F.desc("messages"), *_FAILURE).limit(CAUSES).collect()
    rows = [{name: row[name] for name in (*_FAILURE, "messages")} for row in found]
    return [cast("FailureCount", row) for row in rows], found[0]["every"] if found else 0


def sent_by(sent: DataFrame, tenants: Sequence[tuple[str, str | None]]) -> dict[tuple[str, str], int]:
    """Number of messages that each of these (topic, tenant) sent; those that sent none are missing. `sent`: the table
    `sent`. The same tenants on other topics may be included.
    """
    names = sorted({name for _, name in tenants if name is not None})
    found = sent.where(F.col("tenant").isin(names)).groupBy("topic", "tenant").agg(F.sum("messages").alias("messages"))
    return {(row["topic"], row["tenant"]): row["messages"] for row in found.collect()}


def groups(sent: DataFrame) -> list[Row]:
    """Sums messages sent by noisy tenants and by all others: a dict (topic, noisy, names, tenants, arrivals) for each
    topic and value of `noisy` that occurs. A tenant is `noisy` if it sent, over the whole time, at least a quarter of
    the topic's messages, at least 100, and at least twice an equal share. `names`: the noisy tenants in no order, []
    for the others; `tenants`: number of tenants; `arrivals`: messages in the table `sent`.
    """
    by_topic = Window.partitionBy("topic")
    many = F.col("arrivals") >= F.greatest(F.lit(LOUD), TIMES / F.col("tenants")) * F.col("total")
    names = F.collect_list(F.when(F.col("noisy"), F.col("tenant"))).alias("names")
    found = (
        sent.groupBy("topic", "tenant")
        .agg(F.sum("messages").alias("arrivals"))
        .withColumn("tenants", F.count("*").over(by_topic))
        .withColumn("total", F.sum("arrivals").over(by_topic))
        .select("topic", "tenant", "arrivals", (many & (F.col("arrivals") >= LEAST)).alias("noisy"))
        .groupBy("topic", "noisy")
        .agg(names, F.count("*").alias("tenants"), F.sum("arrivals").alias("arrivals"))
    )
    return [row.asDict() for row in found.collect()]


def with_latencies(groups: Sequence[Row], late: Histograms) -> list[Row]:
    """Returns `groups` with `latency_ms` added: percentiles (p50, p95, p99) of the time until done, None if nothing was
    done. `late`: histograms that include all noisy tenants.
    """
    names = {group["topic"]: group["names"] for group in groups if group["noisy"]}

    def row(group: Row) -> Row:
        of = late.of_tenants if group["noisy"] else late.of_others
        return {
            **group,
            "latency_ms": percentiles_of(of(group["topic"], names.get(group["topic"], ())), SHARES) or None,
        }

    return [row(group) for group in groups]


class Traffic(NamedTuple):
    """Counts of windows in which something happened (`points`, in order of time), and sums of everything before
    (`past`) and after (`future`) the bounds of time.
    """

    points: list[TrafficPoint]
    past: TrafficCounts
    future: TrafficCounts


def traffic(rollup: DataFrame, sent: DataFrame, width: int, bounds: TimeBounds) -> Traffic:
    """Counts messages in windows of `width` ms within the bounds. Arrivals are those of the table `sent`, whose windows
    divide these. Spark sums up everything outside of the bounds, because senders may choose any number of times.
    """
    first, last = bounds.windows(width)
    within = F.greatest(F.lit(first - 1), F.least(F.lit(last + 1), "at")).alias("at")
    window = _window(F.unix_millis("window_ts"), width)
    handled, arrived = collect_all(
        rollup.select(window, *_HANDLED).groupBy(within).agg(*(F.sum(name).alias(name) for name in _HANDLED)),
        sent.select(window, "messages").groupBy(within).agg(F.sum("messages").alias("arrivals")),
    )
    found: dict[int, Row] = {}
    for row in (*handled, *arrived):
        found.setdefault(row["at"], {"at": row["at"], **NOTHING}).update(row.asDict())
    past, future = ({**NOTHING, **found.pop(at, {})} for at in (first - 1, last + 1))
    made = (one for _, one in sorted(found.items()) if any(one[name] for name in NOTHING))
    return Traffic([cast("TrafficPoint", one) for one in made], *(_counts(one) for one in (past, future)))


def _window(moment: Column, width: int) -> Column:
    """Column `at`: beginning, in ms, of the window of a moment."""
    return (F.floor(moment / width) * width).cast("bigint").alias("at")


def _counts(row: Row) -> TrafficCounts:
    return cast("TrafficCounts", {name: row[name] for name in NOTHING})


def _key(row: Any, columns: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(row[name] for name in columns)
