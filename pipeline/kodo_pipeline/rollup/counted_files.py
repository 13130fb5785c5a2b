"""Files of the counted tables for some days: Spark counts the rows, or this process if few rows have landed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from kodo_pipeline.audit.deduplicate import without_duplicates
from kodo_pipeline.landing.landing_commits import TableFiles
from kodo_pipeline.landing.landing_store import FEW
from kodo_pipeline.landing.table_writer import TableWriter, write_frame
from kodo_pipeline.landing.tables import DATE, EVENTS, FAILURES, LATENCIES, ROLLUP, SENT, TRANSITIONS, Table
from kodo_pipeline.rollup import transforms
from kodo_pipeline.rollup.failure_counts import failed_records, failures_by_day
from kodo_pipeline.rollup.landed_days import SPANS, is_on_days, rows_of_days, with_neighbours
from kodo_pipeline.spark.concurrent_queries import run_queries

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from kodo_pipeline.landing.data_files import DataFile
    from kodo_pipeline.landing.landing_store import Landing, LandingSnapshot


@dataclass(frozen=True, slots=True)
class CountedDays:
    """Days that a rollup counts. `days`: days of windows, in order; `failure_days`: days of failures, in order;
    `window`: width of a window in ms; `anew`: everything is counted again, so the files of all days are replaced.
    """

    days: list[str]
    failure_days: list[str]
    window: int
    anew: bool

    def replaced(self, table: Table) -> list[str]:
        """Days whose files of the table are replaced. [] means all files with `anew`; without it, that no day of the
        table is counted.
        """
        return [] if self.anew else self.failure_days if table is FAILURES else self.days


def write_counts(
    landing: Landing, snapshot: LandingSnapshot, topics: DataFrame, work: CountedDays, attempt: str
) -> dict[str, TableFiles]:
    """Counts the rows of these days and writes files, which no commit names yet. Returns the files by table name, each
    with the days whose files they replace (all with `anew`). A day without rows has no file, and a table without a day
    to count is left out, except with `anew`. `topics`: see kodo_pipeline.rollup.job.topics_table; `attempt`: folder of
    the files.
    """
    if not work.failure_days and not work.anew:
        return {}
    landed = sum(one.rows for table in (EVENTS, TRANSITIONS) for one in snapshot.files[table.name])
    few = len(work.days) <= SPANS and landed <= FEW  # each is at most a row of either table

    every_day = with_neighbours(work.failure_days)

    def read_days(table: Table, days: list[str]) -> DataFrame:
        return rows_of_days(topics.sparkSession, landing, table, snapshot.files[table.name], days)

    # Of few rows, to plan another reading takes longer than to choose among those of one.
    wide = {table: read_days(table, every_day) for table in (EVENTS, TRANSITIONS) if few}

    def of_days(table: Table, days: list[str]) -> DataFrame:
        return wide[table].where(is_on_days(table, days)) if few else read_days(table, days)

    failed = failed_records(of_days(TRANSITIONS, work.failure_days))
    with (
        without_duplicates(of_days(TRANSITIONS, work.days), few=few) as transitions,
        without_duplicates(failed, few=few) as failed_once,
    ):
        events, window = of_days(EVENTS, work.days), f"{work.window} milliseconds"
        targets = wide[EVENTS] if few else read_days(EVENTS, every_day)
        failures = failures_by_day(of_days(EVENTS, work.failure_days), failed_once, targets)
        if few:
            detailed = transforms.detailed_counts(events, transitions, window=window, topics=topics)
            rows, failure_rows = run_queries(detailed.toArrow, failures.toArrow)
            made = {**small_counts(rows), FAILURES: failure_rows}
            files = {table: _write_rows(landing, table, one, attempt) for table, one in made.items()}
        else:
            frames = {
                ROLLUP: transforms.rollup(events, transitions, window=window, topics=topics),
                LATENCIES: transforms.latencies(events, transitions, window=window, topics=topics),
                SENT: transforms.sent_counts(events, window=window),
                FAILURES: failures,
            }
            write = partial(_write_frame, landing, attempt)
            files = dict(zip(frames, run_queries(*(partial(write, *one) for one in frames.items())), strict=True))
    return {
        table.name: TableFiles.of(found, work.replaced(table))
        for table, found in files.items()
        if work.anew or work.replaced(table)  # else no day is asked for, and none named would replace all
    }


def _write_rows(landing: Landing, table: Table, rows: pa.Table, attempt: str) -> list[DataFile]:
    with TableWriter(landing.table(table).folder, table, attempt) as writer:
        for batch in rows.combine_chunks().to_batches():
            writer.write(batch)
    return writer.files


def _write_frame(landing: Landing, attempt: str, table: Table, frame: DataFrame) -> list[DataFile]:
    dated = frame.select(*table.names, F.to_date("window_ts").alias(DATE)).hint("rebalance", DATE)
    return write_frame(dated, landing.table(table).folder, table, attempt)


_KEYS: Final = LATENCIES.names[:-2]


def small_counts(detailed: pa.Table) -> dict[Table, pa.Table]:
    """Sums up `detailed`, the result of kodo_pipeline.rollup.transforms.detailed_counts, to the rows of each counted
    table of windows (ROLLUP, LATENCIES, SENT), and returns these by table. Arrow does it, because for few rows Spark
    takes longer to plan a query for each table.
    """
    import pyarrow.compute as pc

    counts = {name: name for name in ROLLUP.names if name not in _KEYS}
    return {
        ROLLUP: _sums(detailed, _KEYS, counts),
        LATENCIES: _sums(detailed.filter(pc.field("bucket").is_valid()), LATENCIES.names[:-1], {"messages": "done"}),
        SENT: _sums(detailed.filter(pc.field("sent") > 0), SENT.names[:-1], {"messages": "sent"}),
    }


def _sums(rows: pa.Table, keys: Sequence[str], counts: Mapping[str, str]) -> pa.Table:
    """Sums the rows of each key into one. `counts`: name of the summed column, by name of the sum."""
    added = rows.group_by(list(keys), use_threads=False).aggregate([(name, "sum") for name in counts.values()])
    return added.select([*keys, *(f"{name}_sum" for name in counts.values())]).rename_columns([*keys, *counts])
