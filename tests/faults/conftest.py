"""Fixtures of the tests that break things on purpose."""

import pytest

from kodoctl.pulsar.admin import confirmed_write
from kodoctl.pulsar.connection import wait_monitor
from tests.brokers.workspace import proxy, workspace

__all__ = ["proxy", "workspace"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a broker refused does not come, however long one waits for it."""
    monkeypatch.setattr(confirmed_write, "PATIENCE_S", 1.0)


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the pause between two tries: a fault that is met once at every request is gone by the next one."""
    gap = wait_monitor._gap
    monkeypatch.setattr(wait_monitor, "_gap", lambda tries: gap(tries) / 10)
