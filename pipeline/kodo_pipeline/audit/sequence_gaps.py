"""Search for holes in consecutive numbers that begin at 1 for each key, in whatever order and however often the numbers
were seen.

64 neighbouring numbers become one row with a bit for each, so that neither a sort nor a state of all numbers is needed:
a million numbers without a hole are 16,000 rows before anything is compared with its neighbour.

Anybody who can write to a topic chooses numbers: no sum or difference here overflows, up to the largest number of 64
bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

WORD: Final = 64  # numbers in one row


def number_ranges(numbers: DataFrame, keys: Sequence[str], number: str) -> DataFrame:
    """Ranges of the values in the column `number`, for each combination of values of the columns `keys`: (keys, first,
    last, rows), both ends included; `rows`: number of rows, exact only in the sum over a combination (see
    `word_ranges`). Null and numbers below 1 are left out. Ranges may touch each other: `merge_ranges` joins these.
    """
    return word_ranges(number_words(numbers, keys, number), keys)


def word_ranges(words: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Converts the result of `number_words` to ranges: (keys, first, last, rows). A word all of whose WORD numbers were
    seen is one range; in any other word each number is a range, and the first of them has all rows of the word. The
    word 0 is never one range, because its number 0 is never seen.
    """
    begin = f"word * {WORD}"
    whole = f"array(struct({begin} AS first, {begin} + {WORD - 1} AS last, `rows`))"
    places = f"filter(sequence(0, {WORD - 1}), place -> getbit(bits, place) = 1)"
    number = f"{begin} + place AS first, {begin} + place AS last, if(nth = 0, `rows`, 0L) AS `rows`"
    single = f"transform({places}, (place, nth) -> struct({number}))"
    return words.selectExpr(*keys, f"inline(if(bit_count(bits) = {WORD}, {whole}, {single}))")


def merge_ranges(ranges: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Joins ranges of the same `keys` (null equals null) that overlap or touch. `ranges`: (keys, first, last, rows) in
    any order, `last` included. Returns these columns alone; `rows` is the sum over the joined ranges.
    """
    before = Window.partitionBy(*keys).orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
    upwards = Window.partitionBy(*keys).orderBy("first", "last").rowsBetween(Window.unboundedPreceding, 0)
    apart = F.col("first") - 1 > F.max("last").over(before)
    return (
        ranges.select(*keys, "first", "last", "rows", F.when(apart, 1).otherwise(0).alias("apart"))
        .withColumn("island", F.sum("apart").over(upwards))
        .groupBy(*keys, "island")
        .agg(F.min("first").alias("first"), F.max("last").alias("last"), F.sum("rows").alias("rows"))
        .select(*keys, "first", "last", "rows")
    )


def number_words(numbers: DataFrame, keys: Sequence[str], number: str) -> DataFrame:
    """Groups numbers into words of WORD neighbours. Returns (keys, word, bits, rows, highest) of each word with a
    number: `word` is the number divided by WORD, rounded down; `bits` has the bit `number % WORD` of each number that
    was seen; `rows`: number of rows; `highest`: largest number of the word. Null and numbers below 1 are left out.
    """
    bit = f"shiftleft(1L, cast(`{number}` % {WORD} as int))"
    return (
        numbers.where(f"`{number}` >= 1")
        .groupBy(*keys, F.expr(f"`{number}` div {WORD}").alias("word"))
        .agg(F.bit_or(F.expr(bit)).alias("bits"), F.count("*").alias("rows"), F.max(number).alias("highest"))
    )


def holes(ranges: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Adds to each range the hole directly before it: `from` and `to`, its first and its last number, both null if
    there is no hole. The numbers of each combination of `keys` begin at 1. `ranges`: (keys, first, last, …), which may
    overlap; a range whose `last` is `first` - 1 is empty, and only marks that the numbers below `first` were given.
    """
    before = Window.partitionBy(*keys).orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
    hole = F.col("first") - 1 > F.col("known")
    return (
        ranges.withColumn("known", F.coalesce(F.max("last").over(before), F.lit(0)))
        .withColumn("from", F.when(hole, F.col("known") + 1))
        .withColumn("to", F.when(hole, F.col("first") - 1))
        .drop("known")
    )
