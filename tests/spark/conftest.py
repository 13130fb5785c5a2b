"""One Spark session for a test run: it costs ten seconds and half a gigabyte (tests/conftest.py keeps these files together)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kodoctl.pipeline.session import JAVA_OPTIONS, SparkSettings, open_session
from tests.cluster import workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["workspace"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, few shuffle partitions, nothing left in the working folder. Brief: queries on a few rows are not worth what
    Spark and Java spend on making them fast; KODOCTL_TEST_SPARK=full has them as users do (make pipeline-full).
    """
    extra = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    if os.environ.get("KODOCTL_TEST_SPARK") != "full":
        extra |= {
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
    session = open_session(SparkSettings(master="local[2]", extra=extra))
    yield session
    session.stop()
