"""A lane over three partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.consumer.adapters.pulsar.lane_stand import Stand


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.client_consumer._message", lambda raw: raw)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.partition_consumer._AGAIN", 0.01)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.lane_reader._NAMES_AGAIN", 0.01)
    found = Stand()
    yield found
    if hasattr(found, "lane"):
        found.lane.close()
    assert found.sink.problems == []
