"""The landing's tables by the readers that others have: DuckDB and Polars on a folder and on a store, Spark on a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kodo_pipeline.landing.landing_store import Landing

from tests.services.object_stores import BUCKET, object_store
from tests.spark.other_readers import COUNTS, by_duckdb, by_polars, by_spark, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAID = {"events": COUNTS, "pruned": 2, "joined": 8, "rollup": [(7,)]}
NESTED = {"nested": [("1", 2, 2)]}


@pytest.mark.parametrize(("ask", "said"), [(by_duckdb, SAID | NESTED), (by_polars, SAID)])
def test_duckdb_and_polars_read_a_folder(tmp_path: Path, ask: Callable[..., Any], said: dict[str, Any]) -> None:
    landing = Landing(str(tmp_path), "trade", None)
    fill(landing)
    assert ask(landing) == said


@pytest.mark.full
def test_duckdb_and_polars_read_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_store(tmp_path / "log") as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        landing = Landing(f"s3a://{BUCKET}/land", "trade", None)
        fill(landing)
        options = {**store.environment, "AWS_ALLOW_HTTP": "true"}
        assert by_duckdb(landing, options) == SAID | NESTED
        assert by_polars(landing, options) == SAID


def test_spark_reads_a_folder_without_kodoctl(spark: SparkSession, tmp_path: Path) -> None:
    landing = Landing(str(tmp_path), "trade", None)
    fill(landing)
    assert by_spark(spark, landing) == SAID
