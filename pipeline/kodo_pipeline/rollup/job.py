# adapter: runs Spark
"""Rollup job: counts landed messages and audit records by time window, into the tables `rollup`, `latencies` and
`sent`, and failures by day, into `failures`.

The unit of work is a day (UTC), which consists of whole windows. A run finds out which batches are not counted yet, and
the days of their rows; it counts these days again from all landed rows, and then replaces the files of these days by
one commit of all tables. So a repeated run has nothing to do, a killed run leaves the earlier result, and no message is
counted twice. Duplicates of an audit record have the same event time: both are on a day that is counted, and one of
them counts. Days whose rows were removed keep their counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from kodo_pipeline.landing.data_rewrite import small_rows
from kodo_pipeline.landing.landing_commits import (
    ROLLUP_RUN,
    LandingCommit,
    batches_with_messages,
    newest_batch,
)
from kodo_pipeline.landing.landing_store import Landing, LandingSnapshot, must_hold
from kodo_pipeline.landing.removal_record import RemovalRecord
from kodo_pipeline.landing.tables import AUDIT, CURSORS, DATE, EVENTS, LATENCIES, ROLLUP, TRANSITIONS
from kodo_pipeline.rollup.landed_days import day_of, is_dated, with_neighbours
from kodo_pipeline.rollup.report import WINDOW
from kodo_pipeline.rollup.time_bounds import TimeBounds
from kodo_pipeline.spark.spark_session import small_table
from kodoctl.errors import UsageError, error
from kodoctl.topology.names import State
from kodoctl.topology.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodoctl.topology.expand import Expansion

Place = tuple[str | None, str | None]  # level, state
Pair = tuple[str, str]  # ground topic, subscription


@dataclass(frozen=True, slots=True)
class RollupState:
    """State of the counted tables. `window`: width in ms, 0 if nothing was counted yet; `batch`: the last batch that is
    counted, with all before it; `batches`: how many of these have messages; `topics`: level and state of every topic
    that the file declares or that has had an event, by full name; `number`: number of the commit; `recorded`:
    subscriptions with any audit record so far, None if the last rollup was by an older kodoctl, which had only the
    tables `rollup` and `latencies`.
    """

    window: int = 0
    batch: int = -1
    batches: int = 0
    topics: Mapping[str, Place] = field(default_factory=dict)
    number: int = -1
    recorded: frozenset[Pair] | None = None

    @classmethod
    def of(cls, commits: Iterable[LandingCommit]) -> Self:
        """The state that the last rollup committed; an empty state if there was none."""
        found = next((one for one in commits if one.run == ROLLUP_RUN), None)
        if found is None:
            return cls()
        facts = found.facts
        topics = {name: (level, state) for name, (level, state) in facts["topics"].items()}
        pairs = facts.get("recorded")
        recorded = None if pairs is None else frozenset((topic, name) for topic, name in pairs)
        return cls(facts["window"], facts["batch"], facts.get("batches", 0), topics, found.number, recorded)

    def to_facts(self, run: str) -> dict[str, Any]:
        """The state as JSON facts of a commit of the run."""
        return {
            "run": run, "window": self.window, "batch": self.batch, "batches": self.batches, "topics": dict(self.topics),
            "recorded": [list(pair) for pair in sorted(self.recorded or ())],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class RollupScope:
    """Work of a run. `window`: width in ms; `fresh`: number of batches with messages to count; `anew`: all batches are
    counted again, because windows have another width, or (`is_upgrade`) because an older kodoctl counted less.
    """

    window: int
    fresh: int
    anew: bool
    is_upgrade: bool = False


@dataclass(frozen=True, slots=True)
class RollupResult:
    """Result of a run. `window`: width in ms; `batches`: number of batches with messages that it counted; `days`: days
    (such as 2026-01-31) of which it counted all rows, in order.
    """

    window: int
    batches: int
    days: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CountedTables:
    """All windows counted so far. `window`: their width in ms; `bounds`: time span in which landed messages can have
    been stored.
    """

    window: int
    rollup: DataFrame
    latencies: DataFrame
    bounds: TimeBounds


def check_counted(landing: Landing) -> None:
    """Raises UsageError if there are no counts, or no messages have landed. Starts no Spark, creates no folder."""
    must_hold(landing, "TOPOLOGY", messages=True)
    if not RollupState.of(landing.commits()).window:
        raise UsageError(error("K802", "nothing has been counted", f"{landing.root.uri} has no windows yet"))


def counted_tables(spark: SparkSession, landing: Landing) -> CountedTables:
    """The counted tables, as the last run left them. Raises UsageError if nothing was counted."""
    check_counted(landing)
    snapshot = landing.snapshot(ROLLUP, LATENCIES, CURSORS)
    rollup, latencies = (landing.read(spark, table, snapshot=snapshot) for table in (ROLLUP, LATENCIES))
    return CountedTables(RollupState.of(snapshot.commits).window, rollup, latencies, time_bounds(landing, snapshot))


def time_bounds(landing: Landing, snapshot: LandingSnapshot) -> TimeBounds:
    """Time span in which landed messages can have been stored, by the cluster's clock: from an hour before the first
    creation of a partition to an hour after the last reading or landing (see `TimeBounds.of`). `snapshot` must have the
    table CURSORS.
    """
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
    """Counts the batches that are not counted yet, and commits the result. Calls `report` before the work.

    `window`: width in ms, which divides a day; None: that of the existing tables, else 5 minutes. With another width,
    and after a rollup by an older kodoctl, everything is counted again, except days whose rows were removed. Commits
    nothing if nothing is new; a file that no ingest wrote is new to every run. Raises UsageError if nothing was landed,
    LockedError while another run counts, and UsageError (K800) for another width if rows were removed.
    """
    from kodo_pipeline.rollup.counted_files import CountedDays, write_counts

    must_hold(landing, "TOPOLOGY", messages=True)
    with landing.alone(ROLLUP_RUN) as alone:
        landing.recover()
        landing.sweep(ROLLUP_RUN, alone=alone)
        snapshot = landing.snapshot(EVENTS, TRANSITIONS)
        state = RollupState.of(snapshot.commits)
        wide = window or state.window or WINDOW
        removed = RemovalRecord.of(snapshot.commits)
        if removed and state.window not in (0, wide):
            detail = f"rows of before {day_of(removed.before)} were removed: windows stay {Duration(state.window)} wide"
            raise UsageError(error("K800", "width of windows", detail))
        is_upgrade = state.window == wide and state.recorded is None
        again = is_upgrade or state.window != wide
        landed = batches_with_messages(snapshot.commits)
        fresh = landed if again else landed - state.batches
        report(RollupScope(wide, fresh, again and bool(state.window), is_upgrade))
        happened = _new_days(spark, landing, snapshot, -1 if again else state.batch)
        anew = again and not (removed and is_upgrade)  # else days before the removal stay as they were counted
        closed = "" if removed is None or anew else day_of(removed.before)
        days = [one for one in happened.days if one >= closed]
        if days or anew or fresh:
            after = _state_after(state, happened, expansion, snapshot, wide)
            near = [one for one in _near_days(happened, snapshot) if one >= closed]
            work = CountedDays(days, sorted({*days, *near}), wide, anew)
            landing.start(run, ROLLUP_RUN)
            made = write_counts(landing, snapshot, topics_table(spark, after.topics), work, f"rollup-{run}")
            facts = after.to_facts(run)
            commit = LandingCommit(ROLLUP_RUN, int(time.time() * 1000), tables=made, facts=facts)
            landing.commit(commit, behind=state.number)
            landing.end(run, ROLLUP_RUN)
    return RollupResult(wide, fresh, tuple(days))


@dataclass(frozen=True, slots=True)
class _Happened:
    """Facts about rows that landed. `days`: on which anything happened; `caused`: days on which messages with a cause
    were stored; `topics`: level and state by topic; `pairs`: subscriptions with a message on one of their own state
    topics; `recorded`: subscriptions with an audit record.
    """

    days: list[str]
    topics: dict[str, Place]
    caused: list[str]
    pairs: set[Pair]
    recorded: set[Pair]


def _new_days(spark: SparkSession, landing: Landing, snapshot: LandingSnapshot, counted_to: int) -> _Happened:
    """Returns the days of the rows that landed after batch `counted_to`, in order, and the topics of their events. Runs
    one query with few result rows. A file that no ingest wrote may have rows of any batch. Rows without a day, which an
    ingest landed before LATEST was its bound, are counted on no day.
    """
    query: DataFrame | None = None
    for table in (EVENTS, TRANSITIONS):
        fresh = [one for one in snapshot.files[table.name] if one.batch > counted_to or one.batch < 0]
        if fresh:
            rows = landing.read_files(spark, table, fresh)
            place = (
                ("msg_topic", "level", "state", "cause IS NOT NULL AS has_cause")
                if table is EVENTS
                else ("NULL AS msg_topic", "NULL AS level", "NULL AS state", "false AS has_cause")
            )
            moment = table.moment or ""
            columns = (f"CAST({moment} AS DATE) AS day", "topic", "subscription", *place)
            found = rows.where(is_dated(moment)).selectExpr(*columns)
            query = found if query is None else query.unionByName(found)
    happened = query.distinct().collect() if query is not None else []
    events = [row for row in happened if row["state"] not in {None, AUDIT}]
    return _Happened(
        sorted({row["day"].isoformat() for row in happened}),
        {row["msg_topic"]: (row["level"], row["state"]) for row in events},
        sorted({row["day"].isoformat() for row in events if row["has_cause"]}),
        {(row["topic"], row["subscription"]) for row in events if row["state"] != State.READY.value},
        {(row["topic"], row["subscription"]) for row in happened if row["state"] is None},
    )


def _near_days(happened: _Happened, snapshot: LandingSnapshot) -> list[str]:
    """Days with audit records that may be about one of these messages with a cause: their own day and its neighbours."""
    dates = {one.partition[DATE] for one in snapshot.files[TRANSITIONS.name]}  # None: of any days
    return [one for one in with_neighbours(happened.caused) if None in dates or one in dates]


def _state_after(
    state: RollupState, happened: _Happened, expansion: Expansion, snapshot: LandingSnapshot, window: int
) -> RollupState:
    """Returns the state after a rollup. Subscriptions that neither the topology file nor a message names are left out,
    because any sender of a record can name one.
    """
    topics = {**state.topics, **happened.topics, **_declared_topics(expansion)}
    grounds = expansion.topology.spec.topics.items()
    pairs = happened.pairs.union((topic, name) for topic, ground in grounds for name in ground.subscriptions)
    recorded = (happened.recorded & pairs).union(state.recorded or ())
    landed = batches_with_messages(snapshot.commits)
    return RollupState(window, newest_batch(snapshot.commits), landed, topics, recorded=frozenset(recorded))


def topics_table(spark: SparkSession, places: Mapping[str, Place]) -> DataFrame:
    """Table of topics: (msg_topic, level, state). `places`: level and state by topic."""
    listed = [(name, level, state) for name, (level, state) in places.items()]
    return small_table(spark, listed, "msg_topic string, level string, state string")


def _declared_topics(expansion: Expansion) -> dict[str, Place]:
    """Level and state of each topic in the topology file, without audit topics."""
    return {
        one.name.full: (one.level.value if one.level else None, one.state.value)
        for one in expansion.topics
        if one.state
    }
