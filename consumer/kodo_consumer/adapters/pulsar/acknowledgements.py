"""Acknowledgements of one partition: with or without results, and kept while there is no consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kodo_consumer.adapters.pulsar.ack_results import AckResults
    from kodo_consumer.adapters.pulsar.client_consumer import ClientConsumer
    from kodo_consumer.core.values.broker import LaneSink


class Acknowledgements:
    """Acknowledgements of a partition. `results`: hands results over to `sink`; None: acknowledgements have no results.
    `keep` and `take_kept` need the lock of the partition.
    """

    def __init__(self, results: AckResults | None, sink: LaneSink) -> None:
        self._results = None if results is None else (results, results.add(sink))
        self._kept: list[tuple[Sequence[object], Sequence[int]]] = []

    def send(self, consumer: ClientConsumer, tokens: Sequence[object], tickets: Sequence[int]) -> None:
        """Queues acknowledgements at a consumer."""
        if self._results is None:
            consumer.acknowledge(tokens)
        else:
            consumer.acknowledge_with(tokens, tickets, *self._results)

    def keep(self, tokens: Sequence[object], tickets: Sequence[int]) -> None:
        """Keeps acknowledgements until `take_kept`, because there is no consumer."""
        self._kept.append((tokens, tickets))

    def take_kept(self) -> list[tuple[Sequence[object], Sequence[int]]]:
        """Returns the kept acknowledgements, tokens with tickets, for a new consumer, and keeps them no longer."""
        kept, self._kept = self._kept, []
        return kept
