"""Fixtures of the tests that break things on purpose."""

import pytest

from kodoctl.pulsar import confirmed_write
from tests.brokers.workspace import proxy, workspace

__all__ = ["proxy", "workspace"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a broker refused does not come, however long one waits for it."""
    monkeypatch.setattr(confirmed_write, "PATIENCE_S", 1.0)
