"""What tests of the inbox share: an engine with its table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kodo_consumer.inbox import Inbox
from sqlalchemy import Engine, create_engine


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine of a database with an empty inbox."""
    made = create_engine(database_url)
    Inbox(made).create_table()
    yield made
    made.dispose()
