"""Several queries of one session: each in a thread of its own, or all as one. Of few rows, Spark takes longer to plan a
query than to run it, and plans one after another where one thread asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


@contextmanager
def query_futures(*queries: Callable[[], Any]) -> Iterator[list[Future[Any]]]:
    """Results to come of functions that run queries, in their order; all have ended behind the block."""
    with ThreadPoolExecutor(len(queries), thread_name_prefix="kodo-query") as pool:
        yield [pool.submit(query) for query in queries]


def run_queries(*queries: Callable[[], Any]) -> list[Any]:
    """Results of one or more functions that run queries, in their order. Raises what the first of them that failed has
    raised, when all have ended.
    """
    with query_futures(*queries) as results:
        return [one.result() for one in results]


def collect_all(*frames: DataFrame) -> list[list[Row]]:
    """Rows of each frame, few of each, by one query. In any order."""
    from pyspark.sql import DataFrame

    named = [f"of_{at}" for at in range(len(frames))]
    parts = [frame.selectExpr(f"struct(*) AS {name}") for frame, name in zip(frames, named, strict=True)]
    found: list[list[Row]] = [[] for _ in frames]
    for row in reduce(lambda one, other: DataFrame.unionByName(one, other, allowMissingColumns=True), parts).collect():
        for at, part in enumerate(row):
            if part is not None:
                found[at].append(part)
    return found
