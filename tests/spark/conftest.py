"""One Spark session for a test run: it costs ten seconds and half a gigabyte (tests/conftest.py keeps these files together)."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from kodo_pipeline.spark.spark_session import SparkSettings, open_session

from tests.brokers.authentication import closed, guarded
from tests.brokers.workspace import workspace
from tests.spark.standalone import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["closed", "guarded", "workspace"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, nothing left in the working folder; light, as commands have it for few rows, and with the memory that they
    have. KODOCTL_TEST_SPARK=full has it as they do for many (make test-full-spark).
    """
    extra = {
        "spark.sql.shuffle.partitions": "2",  # whatever is shuffled may meet others, or not
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    light = os.environ.get("KODOCTL_TEST_SPARK") != "full"
    session = open_session(SparkSettings(master="local[2]", extra=extra, light=light))
    yield session
    gc.unfreeze()
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def _yielding() -> None:
    """Beside other processes of a run, some of which are judged by time, Spark takes less of the cores, but a share that
    starts Python within the 10 s that Spark gives it: with 10 for 4, four busy processes made an ingest fail ten times.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.nice(4)


@pytest.fixture(autouse=True)
def _released_plans() -> Iterator[None]:
    """An object of Java that pyspark has called is part of a cycle, and each table of a query keeps its plan in Java: what the
    collector has not found fills Spark's heap, 3,400 plans in one test that judges a history again and again. What other tests
    left is set aside, and the collector counts anew: it looks at the oldest objects when there are a quarter more than it left.
    """
    gc.collect()
    gc.freeze()
    gc.collect()
    yield
    gc.collect()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A standalone cluster for one file."""
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("cluster"), stack)
