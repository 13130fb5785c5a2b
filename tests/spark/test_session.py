"""The session factory, and that a table's two schemas are one."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kodoctl.pipeline.schema import COUNTED, MESSAGES, TABLES, Table
from kodoctl.pipeline.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOUD = """
from kodoctl.errors import KodoctlError
from kodoctl.pipeline.session import SparkSettings, open_session
try:
    session = open_session(SparkSettings(master="local[1]", extra={"spark.driver.memory": MEMORY}))
except KodoctlError as problem:
    print(problem)
else:
    print(session.range(10).count(), session.conf.get("spark.sql.session.timeZone"))
    session.stop()
"""


@pytest.mark.parametrize(("memory", "said"), [("512m", "10 UTC"), ("1m", "Too small maximum heap")])
def test_spark_says_nothing_of_its_own_and_why_it_does_not_start(memory: str, said: str) -> None:
    program = LOUD.replace("MEMORY", repr(memory))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert said in done.stdout
    assert done.stderr == ""


def test_a_session_that_runs_is_used_and_left_as_it_is(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        ours = open_session()
        assert ours.sparkContext is spark.sparkContext
        assert ours.conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("table", [MESSAGES, *TABLES, *COUNTED], ids=lambda table: table.name)
def test_a_table_means_the_same_to_arrow_and_spark(table: Table) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    of_arrow = from_arrow_schema(table.arrow())
    assert of_arrow.simpleString() == table.spark().simpleString()
    assert [column.kind for column in table.columns] == [field.dataType.simpleString() for field in table.spark()]
    assert table.arrow().empty_table().num_rows == 0
    assert isinstance(table.arrow(), pa.Schema)
    assert len(set(table.names)) == len(table.names)
    assert all(column.about for column in table.columns)
