"""Rollup job: counts landed messages and audit records by time window, into the tables `rollup` and `latencies`.

The unit of work is a day (UTC), which consists of whole windows. A run reads which batches are not counted yet and
the days of their rows; it counts these days again from all landed rows, into folders of its own, and then replaces one
document atomically, which names the folder of each day. So a repeated run finds nothing to do, a killed run leaves the
earlier result, and no message is counted twice. Duplicates of an audit record have the same event time: both are on a
day that is counted, and one of them counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final, Self

from kodoctl.errors import UsageError, error
from kodoctl.pipeline.ingest.landing_store import Landing, Manifest, TableFiles, files_of, must_hold
from kodoctl.pipeline.ingest.tables import AUDIT, COUNTED, EVENTS, LATENCIES, ROLLUP, TRANSITIONS, Table
from kodoctl.pipeline.rollup.report import WINDOW
from kodoctl.pipeline.spark.spark_session import small_table
from kodoctl.topology.units import LATEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kodoctl.topology.expand import Expansion

_RUN: Final = "rollup"  # its manifest is run-rollup.json: one, which the next run replaces
_DATE: Final = "date"
Place = tuple[str | None, str | None]  # level, state


@dataclass(frozen=True, slots=True)
class RollupManifest:
    """Index of the counted tables. `window`: ms; 0: nothing was counted yet. `batches`: folders of landed batches
    that are counted. `days`: by table and day (2026-01-31) the folder, below the landing, of its rows. `left`:
    folders of runs that no longer count; the next run removes them, so that current readers can finish. `topics`:
    level and state of every topic with any event so far.
    """

    window: int = 0
    batches: frozenset[str] = frozenset()
    days: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    topics: Mapping[str, Place] = field(default_factory=dict)

    @classmethod
    def read(cls, landing: Landing) -> Self:
        """As the last run left it."""
        facts = next((one.facts for one in landing.manifests() if one.batch is None and one.run == _RUN), None)
        if facts is None:
            return cls()
        topics = {name: (level, state) for name, (level, state) in facts["topics"].items()}
        return cls(facts["window"], frozenset(facts["batches"]), facts["days"], tuple(facts["left"]), topics)

    def write(self, landing: Landing, run: str) -> None:
        """From now on it counts."""
        days = {name: {**folders} for name, folders in self.days.items()}
        facts = {
            "run": run,
            "window": self.window,
            "batches": sorted(self.batches),
            "days": days,
            "left": list(self.left),
            "topics": {name: list(place) for name, place in self.topics.items()},
        }
        landing.commit(Manifest(_RUN, int(time.time() * 1000), facts=facts))

    def folders(self, table: Table) -> Mapping[str, str]:
        """Day -> the table's folder with its rows, below the landing; empty before the first rollup."""
        return self.days.get(table.name, {})


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
    """Everything counted so far; `window`: the width of its windows in ms."""

    window: int
    rollup: DataFrame
    latencies: DataFrame


def check_counted(landing: Landing) -> None:
    """Raises UsageError when nothing was counted, or not even landed. Starts no Spark, makes no folder."""
    must_hold(landing, "TOPOLOGY", messages=True)
    if not RollupManifest.read(landing).window:
        raise UsageError(error("K802", "nothing has been counted", f"{landing.root.uri} has no windows yet"))


def counted(spark: SparkSession, landing: Landing) -> CountedTables:
    """The tables as the last run left them. Raises UsageError when nothing was counted."""
    check_counted(landing)
    book = RollupManifest.read(landing)
    rollup, latencies = (landing.read_folders(spark, table, book.folders(table).values()) for table in COUNTED)
    return CountedTables(book.window, rollup, latencies)


def count(
    spark: SparkSession,
    landing: Landing,
    expansion: Expansion,
    run: str,
    window: int | None = None,
    told: Callable[[RollupScope], None] = lambda _: None,
) -> RollupResult:
    """Counts the batches that are not counted yet. `window`: ms, a whole part of a day; None: the width of the existing
    tables, else 5 minutes. Another width counts everything again. Raises UsageError when nothing was landed,
    LockedError while another run counts.
    """
    must_hold(landing, "TOPOLOGY", messages=True)
    with landing.alone(_RUN) as alone:
        book, manifests = RollupManifest.read(landing), landing.manifests()
        _sweep(landing, book, alone=alone)
        parts = {table: files_of(manifests, table) for table in (EVENTS, TRANSITIONS)}
        wide = window or book.window or WINDOW
        anew = wide != book.window
        fresh = {
            table: [one for one in found if anew or one.folder not in book.batches] for table, found in parts.items()
        }
        told(RollupScope(wide, len(fresh[EVENTS]), anew and bool(book.window)))
        happened = _happened(spark, landing, fresh)
        topics = {**book.topics, **happened.topics, **_declared(expansion)}
        days = happened.days
        kept: Mapping[str, Mapping[str, str]] = {} if anew else book.days
        made = {**kept, **_write(spark, landing, parts, topics, days, wide, run, kept)} if days else kept
        batches = frozenset(part.folder for found in parts.values() for part in found)
        _commit(landing, book, RollupManifest(wide, batches, made, topics=topics), run)
    return RollupResult(wide, len(fresh[EVENTS]), tuple(days))


def _moment(table: Table) -> str:
    """Name of the column with the time that decides the window of a row."""
    return "publish_ts" if table is EVENTS else "at_ts"


@dataclass(frozen=True, slots=True)
class _Happened:
    days: list[str]
    topics: dict[str, Place]


def _happened(spark: SparkSession, landing: Landing, fresh: Mapping[Table, list[TableFiles]]) -> _Happened:
    """On which days what these batches hold happened, in order, and the topics of their events: one query, few rows.
    What an ingest before LATEST was its bound landed without a day, is counted on none.
    """
    query: DataFrame | None = None
    for table, parts in fresh.items():
        if parts:
            rows = landing.read_folders(spark, table, (part.folder for part in parts))
            place = (
                ("msg_topic", "level", "state")
                if table is EVENTS
                else ("NULL AS msg_topic", "NULL AS level", "NULL AS state")
            )
            dated = f"{_moment(table)} BETWEEN timestamp_millis(0) AND timestamp_millis({LATEST})"
            found = rows.where(dated).selectExpr(f"CAST({_moment(table)} AS DATE) AS day", *place)
            query = found if query is None else query.unionByName(found)
    told = query.distinct().collect() if query is not None else []
    topics = {row["msg_topic"]: (row["level"], row["state"]) for row in told if row["state"] not in {None, AUDIT}}
    return _Happened(sorted({row["day"].isoformat() for row in told}), topics)


def _declared(expansion: Expansion) -> dict[str, Place]:
    """Topics of the topology file as it is now."""
    return {
        one.name.full: (one.level.value if one.level else None, one.state.value)
        for one in expansion.topics
        if one.state
    }


def _of_days(
    spark: SparkSession, landing: Landing, table: Table, parts: Iterable[TableFiles], days: list[str]
) -> DataFrame:
    """Everything landed that happened on these days. Batches are passed over by the bounds their manifests name,
    files by their own.
    """
    from pyspark.sql import functions as F

    spans = _spans(days)
    since, until = spans[0][0], spans[-1][1]
    bounds = (int(since.timestamp() * 1000), int(until.timestamp() * 1000)) if table is EVENTS else (None, None)
    rows = landing.read_folders(spark, table, (part.folder for part in parts if part.touches(*bounds)))
    moment = F.col(_moment(table))
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


def _write(  # noqa: PLR0913, PLR0917 - a step of `count`, with what it found
    spark: SparkSession,
    landing: Landing,
    parts: Mapping[Table, list[TableFiles]],
    places: Mapping[str, Place],
    days: list[str],
    window: int,
    run: str,
    kept: Mapping[str, Mapping[str, str]],
) -> dict[str, dict[str, str]]:
    """Counts these days; by table and day the folders that have them now. A day without rows has none."""
    from pyspark.sql import functions as F

    from kodoctl.pipeline.audit.deduplicate import without_duplicates
    from kodoctl.pipeline.rollup import transforms as rollup

    listed = [(name, level, state) for name, (level, state) in places.items()]
    topics = small_table(spark, listed, "msg_topic string, level string, state string")
    events = _of_days(spark, landing, EVENTS, parts[EVENTS], days)
    made: dict[str, dict[str, str]] = {}
    with without_duplicates(_of_days(spark, landing, TRANSITIONS, parts[TRANSITIONS], days)) as transitions:
        for table, transform in ((ROLLUP, rollup.rollup), (LATENCIES, rollup.latencies)):
            rows = transform(events, transitions, window=f"{window} milliseconds", topics=topics).select(*table.names)
            dated = rows.withColumn(_DATE, F.date_format("window_ts", "yyyy-MM-dd")).hint("rebalance", _DATE)
            dated.write.mode("overwrite").partitionBy(_DATE).parquet(landing.folder(table, run)[1])
    for table in COUNTED:
        below, _ = landing.folder(table, run)
        names = {name.partition("=")[2]: f"{below}/{name}" for name in (landing.root / below).folders()}
        before = {day: name for day, name in kept.get(table.name, {}).items() if day not in days}
        made[table.name] = dict(sorted({**before, **{day: names[day] for day in days if day in names}}.items()))
    return made


def _commit(landing: Landing, before: RollupManifest, after: RollupManifest, run: str) -> None:
    live = _runs(after)
    left = tuple(sorted(_runs(before) - live))
    if (before.window, before.batches, before.days) != (after.window, after.batches, after.days):
        RollupManifest(after.window, after.batches, after.days, left, after.topics).write(landing, run)


def _runs(book: RollupManifest) -> set[str]:
    """Folders of runs below the landing, such as rollup/RUN, that have a day which counts."""
    return {folder.rpartition("/")[0] for folders in book.days.values() for folder in folders.values()}


def _sweep(landing: Landing, book: RollupManifest, *, alone: bool) -> None:
    """Removes what counts no more, and where no other run can be under way (`alone`), what killed runs left."""
    gone = set(book.left)
    if alone:
        gone |= {f"{table.name}/{name}" for table in COUNTED for name in (landing.root / table.name).folders()}
    for below in sorted(gone - _runs(book)):
        (landing.root / below).remove()


def _begin(day: str) -> datetime:
    return datetime.combine(datetime.fromisoformat(day), datetime.min.time(), UTC)
