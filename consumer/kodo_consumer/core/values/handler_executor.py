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
        """Number that changes when there may be more to take: read it before `next`, and compare before going to sleep.
        The end of a handler alone need not change it, because the caller that reports the end gets the next message.
        """

    def next(self, finished: Message | None, outcome: Outcome | None) -> Message | None:
        """Takes the message `finished` back with its outcome (both None: no handler ended), and returns the next
        message to handle; None if no message may start now, or if `version` has changed and the caller shall ask again.
        An outcome of a message that was timed out has no effect. Returns soon; any thread may call.
        """

    def next_batch(self, ended: Sequence[tuple[Message, Outcome]], most: int) -> list[Message]:
        """Takes messages back with their outcomes (none: no handler ended), and returns up to `most` messages to
        handle, with 0 none. Fewer than `most` mean the same as None of `next`; all else is as there.
        """

    def fail(self, problem: BaseException) -> None:
        """Reports that the executor has failed with `problem`: the worker ends."""


class HandlerExecutor(Protocol):
    """Runs handlers, of one message or of a batch: at most as many at once as it has slots, not counting handlers that
    `time_out` gave up and that run on.
    """

    def start(self, source: WorkSource) -> None:
        """Lets the executor take messages from `source`, after `wake` and when handlers end. Handlers run on its
        threads, on its event loop or in its processes. Called once; raises KodoctlError if its store cannot be reached
        and handlers may not run without it.
        """

    def wake(self) -> None:
        """Reports that `source` may have a message. Called often, from any thread; returns at once."""

    def time_out(self, message: Message) -> None:
        """Frees the slot of a message whose handler took too long (of a batch handler: that of its batch), unless the
        handler has ended by then; the source ignores a later outcome. A handler in a thread runs on, one of an event
        loop is cancelled. A pool of processes times handlers out, and kills their processes, by itself. If too many
        threads hang, or the event loop does, the executor calls `WorkSource.fail`.
        """

    def stop(self) -> None:
        """Ends the executor, and may wait some seconds for each of its threads and processes. The source must give out
        no message any more. Handlers in threads run on, and their results still reach the source, except those of
        threads that run hooks around processes. Tasks are cancelled and processes ended, without results: the broker
        delivers their messages again.
        """
