"""A landing in a folder, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from kodo_pipeline.landing.landing_store import Landing


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """Empty."""
    return Landing(str(tmp_path), "trade", None)
