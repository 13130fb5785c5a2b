"""Ports between the worker and handlers: the source of work, and the executor that fetches from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kodo_consumer.core.values.outcomes import Outcome
    from kodo_consumer.message import Message


class WorkSource(Protocol):
    """Source of work for handlers, which takes the results back."""

    @property
    def version(self) -> int:
        """Changes whenever there may be more to take: read it before `next`, compare before going to sleep."""

    def next(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
        """Hands back a message with its outcome and takes the next; None when there is none now. Never blocks for long."""

    def next_batch(self, ended: Sequence[tuple[Message, Outcome]], most: int) -> list[Message]:
        """The same for many at once: hands back what ended and takes up to `most`."""

    def fail(self, problem: BaseException) -> None:
        """The worker itself has failed."""


class HandlerExecutor(Protocol):
    """Runs handlers: at most as many at once as it has slots."""

    def start(self, source: WorkSource) -> None:
        """Begins to take turns."""

    def wake(self) -> None:
        """There may be something to take. Called often, from any thread; returns at once."""

    def time_out(self, message: Message) -> None:
        """This message's handler took too long: its slot is needed, its outcome is not."""

    def stop(self) -> None:
        """Takes no more turns; handlers still running are left alone."""
