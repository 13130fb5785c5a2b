"""Fixtures of the tests of the forge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.workspace import isolated
from tests.forge.gitlab_stand_in import GitLabStandIn
from tests.forge.stand_in import StandIn
from tests.unit.forge.gitlab_jobs import GitLabJob
from tests.unit.forge.jobs import HEAD, Job


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    forge = StandIn()
    forge.pull(HEAD)
    with isolated(tmp_path):
        yield Job(forge, tmp_path, monkeypatch)
    forge.close()


@pytest.fixture
def gitlab_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitLabJob]:
    forge = GitLabStandIn()
    forge.pull(HEAD)
    with isolated(tmp_path):
        yield GitLabJob(forge, tmp_path, monkeypatch)
    forge.close()
