"""What the tests of a consumer share without asking for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kodo_consumer.producer import Producer
from kodo_consumer.sending import program_end


@pytest.fixture(autouse=True)
def _abandoned_producers_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A relay that a test kills leaves a producer behind; a process would take it along, and not complain for ever."""
    made: list[Producer] = []
    begin = Producer.__init__

    def noted(self: Producer, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        made.append(self)

    monkeypatch.setattr(Producer, "__init__", noted)
    yield
    for one in made:
        one._sender._out._over.set()  # `close` would wait for receipts that never come
    program_end.forget_all()
