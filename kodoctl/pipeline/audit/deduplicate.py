"""Audit records that are stored twice: a worker sends a bundle again whose receipt was lost. Whoever counts takes
each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from kodoctl.pipeline.audit.sequence_gaps import WORD, worded

_RECORD: Final = ("worker_run", "number")
_WORD: Final = ("worker_run", "word")


@contextmanager
def without_duplicates(transitions: DataFrame) -> Iterator[DataFrame]:
    """Audit records without duplicates: of the rows with one number of one run, the one that was stored first. Runs a
    query over two columns.

    Duplicates carry the same event time, so both fall into the same day, whenever they landed. Duplicates are rare:
    only blocks of sequence numbers with more rows than distinct numbers are shuffled.
    """
    words = worded(transitions, ["worker_run"], "number")
    crowded = words.where(F.col("rows") > F.bit_count("bits")).select(*_WORD).persist()
    try:
        yield _first(transitions, crowded) if crowded.count() else transitions
    finally:
        crowded.unpersist()


def _first(transitions: DataFrame, crowded: DataFrame) -> DataFrame:
    records, some = transitions.withColumn("word", F.expr(f"number div {WORD}")), F.broadcast(crowded)
    order = Window.partitionBy(*_RECORD).orderBy("publish_ts", "audit_topic", "audit_id")
    first = (
        records.join(some, list(_WORD), how="left_semi").withColumn("nth", F.row_number().over(order)).where("nth = 1")
    )
    alone = records.join(some, list(_WORD), how="left_anti")
    return alone.unionByName(first.drop("nth")).drop("word")
