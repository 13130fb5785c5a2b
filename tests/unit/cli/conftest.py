"""Every test of the command line runs in a folder of its own, without any configuration of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kodoctl.pulsar.admin_http import HttpAdmin
from tests.cluster import isolated


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """The working folder."""
    with isolated(tmp_path):
        yield tmp_path


@pytest.fixture
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that fails is not tried again, and nobody waits between tries."""
    monkeypatch.setitem(HttpAdmin.__init__.__kwdefaults__, "tries", 1)
