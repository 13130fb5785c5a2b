"""A landing of two batches and a rollup in a folder, without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kodo_pipeline.landing.landing_store import Landing

from tests.spark.other_readers import fill


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six events, two records, one window."""
    folder = tmp_path_factory.mktemp("filled") / "land"
    fill(Landing(str(folder), "trade", None))
    return folder


@pytest.fixture
def landing(filled: Path, tmp_path: Path) -> Landing:
    """A copy for one test: to fill one takes ten times as long."""
    return Landing(str(shutil.copytree(filled, tmp_path / "land")), "trade", None)
