"""What tests of traces share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.consumer.tracing import Spans, exported


@pytest.fixture
def spans() -> Iterator[Spans]:
    with exported() as found:
        yield found
