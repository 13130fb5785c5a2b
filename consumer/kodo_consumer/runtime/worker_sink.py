"""Sink of a lane: hands what its reader receives to the worker, with the index of the lane. Called by broker threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kodo_consumer.core.envelope import Delivery

if TYPE_CHECKING:
    from kodo_consumer.runtime.worker import Worker


@dataclass(slots=True)
class WorkerSink:
    """See LaneSink."""

    worker: Worker
    index: int

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """See LaneSink."""
        self.worker.deliver(self.index, deliveries)

    def room(self) -> int:
        """See LaneSink."""
        return self.worker.room(self.index)

    def disconnected(self, partition: str | None = None) -> None:
        """See LaneSink."""
        self.worker.disconnected(self.index, partition)

    def broke(self, problem: BaseException) -> None:
        """See LaneSink."""
        self.worker.broke(problem)
