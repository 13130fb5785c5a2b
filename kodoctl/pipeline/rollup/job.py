"""Rollup job: counts landed messages and audit records by time window, into the tables `rollup` and `latencies`.

The unit of work is a day (UTC), which consists of whole windows. A run reads which batches are not counted yet and
the days of their rows; it counts these days again from all landed rows, and then replaces the files of these days by
one commit of both tables. So a repeated run finds nothing to do, a killed run leaves the earlier result, and no
message is counted twice. Duplicates of an audit record have the same event time: both are on a
day that is counted, and one of them counts. Days whose rows were removed stay as they were counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Final, Self

from kodoctl.errors import UsageError, error
from kodoctl.pipeline.ingest.data_rewrite import small_rows
from kodoctl.pipeline.ingest.landing_commits import (
    ROLLUP_RUN,
    LandingCommit,
    TableFiles,
    batches_with_messages,
    newest_batch,
)
from kodoctl.pipeline.ingest.landing_store import FEW, Landing, LandingSnapshot, must_hold
from kodoctl.pipeline.ingest.removal_record import RemovalRecord
from kodoctl.pipeline.ingest.tables import AUDIT, COUNTED, CURSORS, DATE, EVENTS, LATENCIES, ROLLUP, TRANSITIONS, Table
from kodoctl.pipeline.rollup.report import WINDOW
from kodoctl.pipeline.rollup.time_bounds import TimeBounds
from kodoctl.pipeline.spark.concurrent_queries import run_queries
from kodoctl.pipeline.spark.spark_session import small_table
from kodoctl.topology.units import LATEST, Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodoctl.pipeline.ingest.data_files import DataFile
    from kodoctl.topology.expand import Expansion

_SPANS: Final = 50  # a sender may choose any days, and Spark's stack ends in an expression of thousands
Place = tuple[str | None, str | None]  # level, state


@dataclass(frozen=True, slots=True)
class RollupState:
    """What the counted tables hold. `window`: ms; 0: nothing was counted yet. `batch`: the last batch that is counted,
    with all before it. `topics`: level and state of every topic with any event so far. `number`: of its commit.
    """

    window: int = 0
    batch: int = -1
    batches: int = 0
    topics: Mapping[str, Place] = field(default_factory=dict)
    number: int = -1

    @classmethod
    def of(cls, commits: Iterable[LandingCommit]) -> Self:
        """As the last run left it."""
        found = next((one for one in commits if one.run == ROLLUP_RUN), None)
        if found is None:
            return cls()
        topics = {name: (level, state) for name, (level, state) in found.facts["topics"].items()}
        return cls(found.facts["window"], found.facts["batch"], found.facts.get("batches", 0), topics, found.number)


@dataclass(frozen=True, slots=True)
class RollupScope:
    """Work of a run. `fresh`: batches that are not counted yet; `anew`: all are counted again, because windows have
    another width.
    """

    window: int
    fresh: int
    anew: bool


@dataclass(frozen=True, slots=True)
class RollupResult:
    """Result of a run: its batches, and the days (2026-01-31) it counted anew."""

    window: int
    batches: int
    days: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CountedTables:
    """Everything counted so far; `window`: the width of its windows in ms; `bounds`: the time that anything can be of."""

    window: int
    rollup: DataFrame
    latencies: DataFrame
    bounds: TimeBounds


def check_counted(landing: Landing) -> None:
    """Raises UsageError when nothing was counted, or not even landed. Starts no Spark, makes no folder."""
    must_hold(landing, "TOPOLOGY", messages=True)
    if not RollupState.of(landing.commits()).window:
        raise UsageError(error("K802", "nothing has been counted", f"{landing.root.uri} has no windows yet"))


def counted(spark: SparkSession, landing: Landing) -> CountedTables:
    """The tables as the last run left them. Raises UsageError when nothing was counted."""
    check_counted(landing)
    snapshot = landing.snapshot(*COUNTED, CURSORS)
    rollup, latencies = (landing.read(spark, table, snapshot=snapshot) for table in COUNTED)
    return CountedTables(RollupState.of(snapshot.commits).window, rollup, latencies, time_bounds(landing, snapshot))


def time_bounds(landing: Landing, snapshot: LandingSnapshot) -> TimeBounds:
    """By the creation times of partitions and the clock of who landed. `snapshot`: with CURSORS."""
    cursors = small_rows(landing.table(CURSORS), snapshot.files[CURSORS.name]).select(["created_ts", "taken_ts"])
    created, taken = ({round(at.timestamp() * 1000) for at in column.unique().to_pylist() if at} for column in cursors)
    return TimeBounds.of(created, [*taken, *(one.at for one in snapshot.commits if one.batch is not None)])


def count(
    spark: SparkSession,
    landing: Landing,
    expansion: Expansion,
    run: str,
    window: int | None = None,
    report: Callable[[RollupScope], None] = lambda _: None,
) -> RollupResult:
    """Counts the batches that are not counted yet. `window`: ms, a whole part of a day; None: the width of the existing
    tables, else 5 minutes. Another width counts everything again. Raises UsageError when nothing was landed,
    LockedError while another run counts. Raises UsageError (K800) for another width where rows were removed.
    """
    must_hold(landing, "TOPOLOGY", messages=True)
    with landing.alone(ROLLUP_RUN) as alone:
        landing.recover()
        landing.sweep(ROLLUP_RUN, alone=alone)
        snapshot = landing.snapshot(EVENTS, TRANSITIONS)
        state = RollupState.of(snapshot.commits)
        wide = window or state.window or WINDOW
        anew = wide != state.window
        counted_to = -1 if anew else state.batch
        removed = RemovalRecord.of(snapshot.commits)
        if removed and anew and state.window:
            detail = (
                f"rows of before {_day_of(removed.before)} were removed: windows stay {Duration(state.window)} wide"
            )
            raise UsageError(error("K800", "width of windows", detail))
        landed = batches_with_messages(snapshot.commits)
        fresh = landed if anew else landed - state.batches
        report(RollupScope(wide, fresh, anew and bool(state.window)))
        happened = _happened(spark, landing, snapshot, counted_to)
        topics = {**state.topics, **happened.topics, **_declared(expansion)}
        closed = "" if removed is None or anew else _day_of(removed.before)
        days = [one for one in happened.days if one >= closed]
        if days or anew or fresh:
            landing.start(run, ROLLUP_RUN)
            made = _write(spark, landing, snapshot, topics, days, wide, run, anew=anew)
            facts = {"run": run, "window": wide, "batch": newest_batch(snapshot.commits), "batches": landed}
            facts["topics"] = topics
            commit = LandingCommit(ROLLUP_RUN, int(time.time() * 1000), tables=made, facts=facts)
            landing.commit(commit, behind=state.number)
            landing.end(run, ROLLUP_RUN)
    return RollupResult(wide, fresh, tuple(days))


@dataclass(frozen=True, slots=True)
class _Happened:
    days: list[str]
    topics: dict[str, Place]


def _happened(spark: SparkSession, landing: Landing, snapshot: LandingSnapshot, counted_to: int) -> _Happened:
    """On which days what is behind a batch happened, in order, and the topics of its events: one query, few rows. A file
    that no ingest wrote may hold any batch. What an ingest before LATEST was its bound landed without a day, is
    counted on none.
    """
    query: DataFrame | None = None
    for table in (EVENTS, TRANSITIONS):
        fresh = [one for one in snapshot.files[table.name] if one.batch > counted_to or one.batch < 0]
        if fresh:
            rows = landing.read_files(spark, table, fresh)
            place = (
                ("msg_topic", "level", "state")
                if table is EVENTS
                else ("NULL AS msg_topic", "NULL AS level", "NULL AS state")
            )
            dated = f"{table.moment} BETWEEN timestamp_millis(0) AND timestamp_millis({LATEST})"
            found = rows.where(dated).selectExpr(f"CAST({table.moment} AS DATE) AS day", *place)
            query = found if query is None else query.unionByName(found)
    happened = query.distinct().collect() if query is not None else []
    topics = {row["msg_topic"]: (row["level"], row["state"]) for row in happened if row["state"] not in {None, AUDIT}}
    return _Happened(sorted({row["day"].isoformat() for row in happened}), topics)


def topics_table(spark: SparkSession, places: Mapping[str, Place]) -> DataFrame:
    """(msg_topic, level, state) of each topic."""
    listed = [(name, level, state) for name, (level, state) in places.items()]
    return small_table(spark, listed, "msg_topic string, level string, state string")


def _declared(expansion: Expansion) -> dict[str, Place]:
    """Topics of the topology file as it is now."""
    return {
        one.name.full: (one.level.value if one.level else None, one.state.value)
        for one in expansion.topics
        if one.state
    }


def _of_days(
    spark: SparkSession, landing: Landing, table: Table, files: Iterable[DataFile], days: list[str]
) -> DataFrame:
    """Everything landed that happened on these days. Files are passed over by the bounds of their times."""
    from pyspark.sql import functions as F

    spans = _spans(days)
    if not spans:
        return landing.read_files(spark, table, ())
    bounds = int(spans[0][0].timestamp() * 1000), int(spans[-1][1].timestamp() * 1000)
    rows = landing.read_files(spark, table, (one for one in files if one.touches(*bounds)))
    moment = F.col(table.moment or "")
    if len(spans) > _SPANS:
        return rows.where(F.to_date(moment).isin([date.fromisoformat(day) for day in days]))
    return rows.where(reduce(or_, ((moment >= F.lit(begin)) & (moment < F.lit(end)) for begin, end in spans)))


def _spans(days: Iterable[str]) -> list[tuple[datetime, datetime]]:
    """Beginning and end of each row of days without a gap: to compare with these costs less than to tell the day of
    each message.
    """
    spans: list[tuple[datetime, datetime]] = []
    for begin in map(_begin, days):
        since = spans.pop()[0] if spans and spans[-1][1] == begin else begin
        spans.append((since, begin + timedelta(days=1)))
    return spans


def _write(  # noqa: PLR0913 - a step of `count`, with what it found
    spark: SparkSession,
    landing: Landing,
    snapshot: LandingSnapshot,
    places: Mapping[str, Place],
    days: list[str],
    window: int,
    run: str,
    *,
    anew: bool,
) -> dict[str, TableFiles]:
    """Counts these days; files that replace theirs, or all (`anew`). A day without rows has none."""
    from pyspark.sql import functions as F

    from kodoctl.pipeline.audit.deduplicate import without_duplicates
    from kodoctl.pipeline.rollup import transforms as rollup

    if not days and not anew:
        return {}
    topics = topics_table(spark, places)
    events = _of_days(spark, landing, EVENTS, snapshot.files[EVENTS.name], days)
    records = _of_days(spark, landing, TRANSITIONS, snapshot.files[TRANSITIONS.name], days)
    landed = sum(one.rows for table in (EVENTS, TRANSITIONS) for one in snapshot.files[table.name])
    few = len(days) <= _SPANS and landed <= FEW  # each is at most a row of either table
    with without_duplicates(records, few=few) as transitions, ExitStack() as stack:

        def write(table: Table, made: DataFrame) -> TableFiles:
            dated = made.select(*table.names, F.to_date("window_ts").alias(DATE))
            rows = dated if few else dated.hint("rebalance", DATE)
            return landing.write_frame(rows, table, f"rollup-{run}", () if anew else days, few=few)

        def transformed(transform: Callable[..., DataFrame]) -> DataFrame:
            return transform(events, transitions, window=f"{window} milliseconds", topics=topics)

        if few:  # to plan both takes longer than to keep what both are made of
            detailed = transformed(rollup.detailed).persist()
            stack.callback(detailed.unpersist)
            tables = {ROLLUP: rollup.together(detailed), LATENCIES: rollup.late(detailed)}
        else:
            tables = {ROLLUP: transformed(rollup.rollup), LATENCIES: transformed(rollup.latencies)}
        written = run_queries(*(partial(write, table, made) for table, made in tables.items()))
    return {table.name: files for table, files in zip(tables, written, strict=True)}


def _day_of(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).date().isoformat()


def _begin(day: str) -> datetime:
    return datetime.combine(datetime.fromisoformat(day), datetime.min.time(), UTC)
