"""Several queries of one Spark session at the same time: each in a thread, or combined into one query. For few rows
Spark takes longer to plan a query than to run it, and plans the queries of one thread one after another.
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
    """Context in which each of these functions (at least one), which run queries, runs in a thread of its own. Its
    value is their futures, in order. The end of the block waits for all of them; their errors are raised only by
    `result()` of the futures.
    """
    with ThreadPoolExecutor(len(queries), thread_name_prefix="kodo-query") as pool:
        yield [pool.submit(query) for query in queries]


def run_queries(*queries: Callable[[], Any]) -> list[Any]:
    """Runs each function in a thread, waits for all, and returns their results in order. If some failed, raises the
    error of the first of them in order.
    """
    with query_futures(*queries) as results:
        return [one.result() for one in results]


def collect_all(*frames: DataFrame) -> list[list[Row]]:
    """Collects the rows of several frames (at least one), which have few, by one query. Returns a list for each frame,
    in the order of the frames; the rows in it have no order.
    """
    from pyspark.sql import DataFrame

    named = [f"of_{at}" for at in range(len(frames))]
    parts = [frame.selectExpr(f"struct(*) AS {name}") for frame, name in zip(frames, named, strict=True)]
    found: list[list[Row]] = [[] for _ in frames]
    for row in reduce(lambda one, other: DataFrame.unionByName(one, other, allowMissingColumns=True), parts).collect():
        for at, part in enumerate(row):
            if part is not None:
                found[at].append(part)
    return found
