"""Fixtures of the tests of the forge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.workspace import isolated
from tests.forge.stand_in import StandIn
from tests.unit.forge.jobs import HEAD, Job


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    forge = StandIn()
    forge.pull(HEAD)
    with isolated(tmp_path):
        yield Job(forge, tmp_path, monkeypatch)
    forge.close()
