"""Commands of the pages that start in a moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.forked_commands import forked_commands


@pytest.fixture(scope="session")
def commands() -> Iterator[Path]:
    """The folder of `kodoctl`, `kodo-consumer` and `python`, for PATH."""
    with forked_commands() as folder:
        yield folder
