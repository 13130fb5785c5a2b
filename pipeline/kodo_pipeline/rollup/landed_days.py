"""Landed rows by the days (UTC) of their time columns."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from kodoctl.topology.units import LATEST

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from kodo_pipeline.landing.data_files import DataFile
    from kodo_pipeline.landing.landing_store import Landing
    from kodo_pipeline.landing.tables import Table

SPANS: Final = 50  # a sender may choose any days, and Spark's stack ends in an expression of thousands
_DAY: Final = timedelta(days=1)


def is_dated(moment: str) -> str:
    """SQL condition: the time in the column `moment` is from the epoch to LATEST (9999-12-30). An older kodoctl landed
    other times.
    """
    return f"{moment} BETWEEN timestamp_millis(0) AND timestamp_millis({LATEST})"


def day_of(ms: int) -> str:
    """Day (such as 2026-01-31, UTC) of a time in ms since the epoch."""
    return datetime.fromtimestamp(ms / 1000, UTC).date().isoformat()


def with_neighbours(days: Iterable[str]) -> list[str]:
    """Returns the days (such as 2026-01-31) and, of each, the day before and the day after, sorted, each once. Days
    before 1970 or after LATEST are left out.
    """
    steps = (-_DAY, timedelta(), _DAY)
    every = {(date.fromisoformat(day) + step).isoformat() for day in days for step in steps}
    return sorted(one for one in every if day_of(0) <= one <= day_of(LATEST))


def rows_of_days(
    spark: SparkSession, landing: Landing, table: Table, files: Iterable[DataFile], days: list[str]
) -> DataFrame:
    """Rows of `files` whose time is on these days, which are sorted. Files whose times are all on other days are not
    read.
    """
    spans = _spans(days)
    if not spans:
        return landing.read_files(spark, table, ())
    bounds = int(spans[0][0].timestamp() * 1000), int(spans[-1][1].timestamp() * 1000)
    rows = landing.read_files(spark, table, (one for one in files if one.touches(*bounds)))
    return rows.where(is_on_days(table, days))


def is_on_days(table: Table, days: list[str]) -> Column:
    """Condition on rows of a table: their time is on one of these days."""
    from pyspark.sql import functions as F

    moment, spans = F.col(table.moment or ""), _spans(days)
    if len(spans) > SPANS:
        return F.to_date(moment).isin([date.fromisoformat(day) for day in days])
    return reduce(or_, ((moment >= F.lit(begin)) & (moment < F.lit(end)) for begin, end in spans), F.lit(False))


def _spans(days: Iterable[str]) -> list[tuple[datetime, datetime]]:
    """Beginning and end of each sequence of neighbouring days; comparing with these costs less than computing the day
    of each message.
    """
    spans: list[tuple[datetime, datetime]] = []
    for begin in map(_begin, days):
        since = spans.pop()[0] if spans and spans[-1][1] == begin else begin
        spans.append((since, begin + _DAY))
    return spans


def _begin(day: str) -> datetime:
    return datetime.combine(datetime.fromisoformat(day), datetime.min.time(), UTC)
