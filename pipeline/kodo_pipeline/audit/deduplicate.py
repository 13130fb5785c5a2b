"""Removal of audit records that are stored twice. A worker that gets no receipt sends its records again, and each
record must count once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from kodo_pipeline.audit.sequence_gaps import WORD, number_words

_RECORD: Final = ("worker_run", "number")
_WORD: Final = ("worker_run", "word")


@contextmanager
def without_duplicates(transitions: DataFrame, *, few: bool = False) -> Iterator[DataFrame]:
    """Context with audit records without duplicates: of rows with the same run and number, only the one that was stored
    first, by the publish time of the message that has it. Records without a number from 1 on all stay. Use the frame
    inside the block.

    To find duplicates, it runs a query over two columns; with `few` (few rows) it runs none, and the frame sorts all
    rows instead. Only blocks of numbers with more rows than distinct numbers are shuffled, because duplicates are rare.
    Both copies have the same `at_ts`, so they are on the same day, whenever they landed.
    """
    if few:
        yield _first(transitions)
        return
    words = number_words(transitions, ["worker_run"], "number")
    crowded = words.where(F.col("rows") > F.bit_count("bits")).select(*_WORD).persist()
    try:
        yield _without(transitions, crowded) if crowded.count() else transitions
    finally:
        crowded.unpersist()


def _without(transitions: DataFrame, crowded: DataFrame) -> DataFrame:
    records, some = transitions.withColumn("word", F.expr(f"number div {WORD}")), F.broadcast(crowded)
    first = _first(records.join(some, list(_WORD), how="left_semi"))
    return records.join(some, list(_WORD), how="left_anti").unionByName(first).drop("word")


def _first(records: DataFrame) -> DataFrame:
    """Keeps the first stored of the records with one run and number, and all records whose number is null or below 1,
    which no worker gives.
    """
    order = Window.partitionBy(*_RECORD).orderBy("publish_ts", "audit_topic", "audit_id")
    return records.withColumn("nth", F.row_number().over(order)).where("nth = 1 OR coalesce(number, 0) < 1").drop("nth")
