"""Batch handlers: one call for many messages, one outcome for each. This module gathers batches; executors of single
messages run them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from kodo_consumer.core.values.exception_groups import spokesman
from kodo_consumer.core.values.exceptions import InvalidPayloadError, Repeat
from kodo_consumer.core.values.outcomes import DONE, Failed, Outcome
from kodo_consumer.runtime.threads import begin

if TYPE_CHECKING:
    from kodo_consumer.core.values.handler_executor import HandlerExecutor, WorkSource
    from kodo_consumer.message import Message

log = logging.getLogger("kodo.consumer")
Failure = Callable[[BaseException, "Message | Batch"], Outcome]
"""Returns the outcome of an exception that a batch handler returned for a message, or raised for a part of a batch."""
Result = BaseException | None
"""Result of a message in a batch: None or True for done, else the exception that a handler of one message would raise.
"""
_RING_AGAIN: Final = 0.5  # seconds
_JUNK: Final = Failed("batch handler returned no outcomes")


@dataclass(frozen=True, slots=True)
class Batching:
    """Batch sizes: at most `most` messages in a call. A batch that is not full waits `wait` seconds for more, counted
    from its first message.
    """

    most: int
    wait: float


class Batch:
    """Messages handled in one call. `outcomes`: one for each message, in order; None before the call has ended, if the
    call failed, or if all messages are done.
    """

    __slots__ = ("messages", "outcomes")

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.outcomes: list[Outcome] | None = None

    def message_outcomes(self, outcome: Outcome) -> list[tuple[Message, Outcome]]:
        """Each message with its outcome: its own if the call's `outcome` is DONE, else that of the call."""
        if outcome is DONE and self.outcomes is not None:
            return list(zip(self.messages, self.outcomes, strict=True))
        return [(message, outcome) for message in self.messages]


def on_batches(function: Callable[[list[Message]], Any], failed: Failure) -> Callable[[Batch], None]:
    """Returns a function for an executor that calls a plain batch handler with a batch's messages, and stores their
    outcomes in the batch. The handler returns None (all are done), one Result for each message in order, or a mapping
    of messages to Results, where a message that is missing is done. A Result is None or True for done, or an exception,
    whose outcome `failed` returns. Any other value, or a message that is not in the batch, fails all messages.

    Repeat and InvalidPayloadError are about one message: if the handler raises one of them for several messages, it is
    called again with the first half of them, then with the other half, and so on. Another Exception that it raises for
    such a part fails the messages of that part alone.
    """

    def run(batch: Batch) -> None:
        try:
            batch.outcomes = _outcomes(function(list(batch.messages)), batch.messages, failed)
        except Exception as problem:
            if not (halves := _halves(batch, problem)):
                raise
        else:
            return
        batch.outcomes = []
        for half in halves:
            outcome: Outcome = DONE
            try:
                run(half)
            except Exception as problem:  # noqa: BLE001  # a failure of this half
                outcome = failed(problem, half)
            batch.outcomes += [one for _, one in half.message_outcomes(outcome)]

    return run


def on_batches_later(function: Callable[[list[Message]], Any], failed: Failure) -> Callable[[Batch], Any]:
    """Returns an async function for an executor that calls an async batch handler, and stores the outcomes in the
    batch. Results and exceptions count as with `on_batches`.
    """

    async def run(batch: Batch) -> None:
        try:
            batch.outcomes = _outcomes(await function(list(batch.messages)), batch.messages, failed)
        except Exception as problem:
            if not (halves := _halves(batch, problem)):
                raise
        else:
            return
        batch.outcomes = []
        for half in halves:
            outcome: Outcome = DONE
            try:
                await run(half)
            except Exception as problem:  # noqa: BLE001  # a failure of this half
                outcome = failed(problem, half)
            batch.outcomes += [one for _, one in half.message_outcomes(outcome)]

    return run


def _halves(batch: Batch, problem: Exception) -> Sequence[Batch]:
    """Two batches with half of the messages each, if the exception is about one message of several; else empty."""
    middle = len(batch.messages) // 2
    if not middle or not isinstance(spokesman(problem), Repeat | InvalidPayloadError):
        return ()
    return Batch(batch.messages[:middle]), Batch(batch.messages[middle:])


def _outcomes(result: Any, messages: Sequence[Message], failed: Failure) -> list[Outcome] | None:
    """One outcome for each message; None: all are done. An invalid result fails all messages, so that none counts as
    done by mistake.
    """
    if result is None:
        return None
    if isinstance(result, Mapping):
        unknown = [found for found in result if not any(found is message for message in messages)]
        results = [result.get(message) for message in messages]
    elif isinstance(result, Sequence) and not isinstance(result, str | bytes) and len(result) == len(messages):
        unknown, results = [], list(result)
    else:
        unknown, results = [result], []
    outcomes = [_outcome(one, message, failed) for one, message in zip(results, messages, strict=False)]
    if unknown or None in outcomes:
        log.error("a batch handler must return None, an outcome for each message, or a mapping of its messages")
        return [_JUNK] * len(messages)
    return cast("list[Outcome]", outcomes)


def _outcome(result: Any, message: Message, failed: Failure) -> Outcome | None:
    if result is None or result is True:
        return DONE
    return failed(result, message) if isinstance(result, BaseException) else None


class Gatherer:
    """Source of batches for an executor, gathered from the worker's source. Thread-safe. `units`: batches at work by
    message. `ring`: called when a batch may be taken.
    """

    def __init__(self, source: WorkSource, batching: Batching, ring: Callable[[], None]) -> None:
        self._source, self._batching, self._ring = source, batching, ring
        self._lock = threading.Condition()
        self._gathered: list[Message] = []
        self._since = 0.0
        self._due = 0  # grows when a batch has waited long enough
        self._over = False
        self.units: dict[Message, Batch] = {}

    @property
    def version(self) -> int:
        """Number that changes whenever `next` may return more."""
        return self._source.version + self._due

    def fail(self, problem: BaseException) -> None:
        """Reports to the worker that its executor failed."""
        self._source.fail(problem)

    def next(self, finished: Batch | None, outcome: Outcome | None) -> Batch | None:
        """Takes a finished batch back with the outcome of its call (both None: no batch ended), and returns the next
        batch; None if no batch is full or has waited long enough.
        """
        ended: list[tuple[Message, Outcome]] = []
        if finished is not None:
            assert outcome is not None
            ended = finished.message_outcomes(outcome)
        most = self._batching.most
        room = max(0, most - len(self._gathered))
        taken = self._source.next_batch(ended, room) if room or ended else []
        with self._lock:
            for message, _ in ended:
                self.units.pop(message, None)
            if taken and not self._gathered:
                self._since = time.monotonic()
                self._lock.notify()
            self._gathered += taken
            if not self._gathered or (len(self._gathered) < most and not self._ripe()):
                return None
            batch = Batch(self._gathered[:most])
            self._gathered = self._gathered[most:]
            self.units.update(dict.fromkeys(batch.messages, batch))
        return batch

    def keep_time(self) -> None:
        """Calls `ring` when a batch has waited long enough, and each 0.5 s until it is taken; until `close`. For a
        thread of its own.
        """
        with self._lock:
            while not self._over:
                if not self._gathered:
                    self._lock.wait()
                elif not self._ripe():
                    self._lock.wait(self._since + self._batching.wait - time.monotonic())
                else:
                    self._due += 1
                    self._ring()
                    self._lock.wait(_RING_AGAIN)  # every slot may be at work: those that end look by themselves

    def given_up(self, message: Message) -> Batch | None:
        """Drops a message that took too long. Returns its batch if that is at work, else None; a batch that has not
        started goes without the message.
        """
        with self._lock:
            self._gathered = [other for other in self._gathered if other is not message]
            return self.units.pop(message, None)

    def close(self) -> None:
        """Ends `keep_time`."""
        with self._lock:
            self._over = True
            self._lock.notify()

    def _ripe(self) -> bool:
        return time.monotonic() - self._since >= self._batching.wait


class BatchRunner:
    """Implementation of kodo_consumer.core.values.handler_executor.HandlerExecutor, in which `inner` runs batches
    instead of messages.
    """

    def __init__(self, inner: HandlerExecutor, batching: Batching) -> None:
        self._inner, self._batching = inner, batching
        self._gatherer: Gatherer | None = None
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> object:
        """Event loop of the async handlers; None if the handlers are plain functions."""
        return getattr(self._inner, "loop", None)

    def start(self, source: WorkSource) -> None:
        """Starts `inner`, which gathers batches from `source` and runs them, and a thread that wakes it when a batch
        has waited long enough.
        """
        self._gatherer = Gatherer(source, self._batching, self._inner.wake)
        self._thread = begin(self._gatherer.keep_time, "kodo-gather", source.fail)
        self._inner.start(cast("WorkSource", self._gatherer))

    def wake(self) -> None:
        """Wakes a slot because there may be messages to take. Thread-safe; returns at once."""
        self._inner.wake()

    def time_out(self, message: Message) -> None:
        """Frees the slot of the batch of a message that took too long. The worker times the batch's other messages out
        as well, because they started together.
        """
        assert self._gatherer is not None
        batch = self._gatherer.given_up(message)
        if batch is not None:
            self._inner.time_out(cast("Message", batch))

    def stop(self) -> None:
        """Ends the thread that wakes `inner`, then stops `inner`."""
        if self._gatherer is not None and self._thread is not None:
            self._gatherer.close()
            self._thread.join()
        self._inner.stop()
