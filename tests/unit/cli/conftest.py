"""Every test of the command line runs in a folder of its own, without any configuration of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kodoctl.pulsar.admin import admin_errors, admin_http
from tests.brokers.workspace import isolated


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """The working folder."""
    with isolated(tmp_path):
        yield tmp_path


@pytest.fixture
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that never answered is not tried again, and what answers in its place is not waited for."""
    monkeypatch.setattr(admin_http, "FIRST_S", 0.0)
    monkeypatch.setattr(admin_errors, "_ASK_S", 0.05)
