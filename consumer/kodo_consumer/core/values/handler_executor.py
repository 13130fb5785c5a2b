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
        """Number that changes whenever there may be more to take: read it before `next`, and compare before going to
        sleep.
        """

    def next(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
        """Takes the message `finished` back with its outcome (both None: no handler ended), and returns the next
        message to handle; None if no message may start now. Returns soon; any thread may call.
        """

    def next_batch(self, ended: Sequence[tuple[Message, Outcome]], most: int) -> list[Message]:
        """Takes many messages back with their outcomes, and returns up to `most` messages to handle; [] if none may
        start now. Otherwise as `next`.
        """

    def fail(self, problem: BaseException) -> None:
        """Reports that the executor has failed with `problem`: the worker ends."""


class HandlerExecutor(Protocol):
    """Runs handlers: at most as many at once as it has slots."""

    def start(self, source: WorkSource) -> None:
        """Lets the executor take messages from `source`, after each `wake` and whenever a handler ends. Handlers run on
        its threads, on its event loop or in its processes. Called once; raises KodoctlError if it cannot start.
        """

    def wake(self) -> None:
        """Reports that `source` may have a message. Called often, from any thread; returns at once."""

    def time_out(self, message: Message) -> None:
        """Frees the slot of a message whose handler took too long; its later outcome does not count. A handler in a
        thread runs on, one of an event loop is cancelled. A pool of processes times handlers out, and kills their
        processes, by itself. If too many threads hang, or the event loop does, the executor calls `WorkSource.fail`.
        """

    def stop(self) -> None:
        """Starts no more messages, and may wait a limited time for its threads. Handlers in threads run on, and their
        results still reach the source, which must give out nothing more; tasks are cancelled and processes ended, and
        the broker delivers their messages again.
        """
