"""Holes in numbers that count up from 1 within a key, whatever order and however often they were seen.

64 neighbouring numbers become one row with a bit for each, so that neither a sort nor a state of all numbers is needed:
a million numbers without a hole are 16,000 rows before anything is compared with its neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls them

_WORD = 64


def counted(numbers: DataFrame, keys: Sequence[str], number: str) -> DataFrame:
    """(keys, first, last, rows): ranges of numbers that were seen, and in how many rows. Numbers below 1 are left out."""
    words = (
        numbers.where(F.col(number) >= 1)
        .select(
            *keys,
            F.expr(f"`{number}` div {_WORD}").alias("word"),
            F.expr(f"shiftleft(1L, cast(`{number}` % {_WORD} as int))").alias("bit"),
        )
        .groupBy(*keys, "word")
        .agg(F.bit_or("bit").alias("bits"), F.count("*").alias("rows"))
    )
    whole = words.where(F.bit_count("bits") == _WORD).select(
        *keys,
        (F.col("word") * _WORD).alias("first"),
        (F.col("word") * _WORD + _WORD - 1).alias("last"),
        "rows",
    )
    return whole.unionByName(_single(words, keys))


def _single(words: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Words with holes, number by number; the rows of a word are told with its first number."""
    places = F.filter(F.sequence(F.lit(0), F.lit(_WORD - 1)), lambda place: F.getbit(F.col("bits"), place) == F.lit(1))
    return (
        words.where(F.bit_count("bits") < _WORD)
        .select(*keys, "word", "rows", F.posexplode(places).alias("nth", "place"))
        .select(
            *keys,
            (F.col("word") * _WORD + F.col("place")).alias("first"),
            (F.col("word") * _WORD + F.col("place")).alias("last"),
            F.when(F.col("nth") == 0, F.col("rows")).otherwise(F.lit(0)).alias("rows"),
        )
    )


def holes(ranges: DataFrame, keys: Sequence[str]) -> DataFrame:
    """(keys, first, last) of every run of numbers from 1 up to the highest `last` that no range has. `ranges`: (keys, first,
    last), which may overlap; one with `last` below `first` only says that its key is there.
    """
    before = Window.partitionBy(*keys).orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
    return (
        ranges.select(*keys, "first", "last")
        .withColumn("known", F.coalesce(F.max("last").over(before), F.lit(0)))
        .where(F.col("first") > F.col("known") + 1)
        .select(*keys, (F.col("known") + 1).alias("first"), (F.col("first") - 1).alias("last"))
    )
