"""A landing of two batches and a rollup in a folder, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from kodo_pipeline.landing.landing_store import Landing

from tests.spark.other_readers import fill


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """Six events, two records, one window."""
    found = Landing(str(tmp_path / "land"), "trade", None)
    fill(found)
    return found
