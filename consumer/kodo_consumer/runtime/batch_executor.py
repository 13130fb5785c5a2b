"""Batch handlers: one call for many messages, one outcome for each. Gathered here, run by the runners of single messages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from kodo_consumer.core.values.outcomes import DONE, Failed, Outcome
from kodo_consumer.runtime.threads import begin

if TYPE_CHECKING:
    from kodo_consumer.core.values.handler_executor import HandlerExecutor, WorkSource
    from kodo_consumer.message import Message

log = logging.getLogger("kodo.consumer")
Failure = Callable[[BaseException, "Message"], Outcome]
"""The outcome of an exception that was returned for a message."""
Result = BaseException | None
"""Result for a message of a batch: None or True for done, else the exception that a handler of one would raise."""
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
    """Messages handled in one call. `outcomes`: what came of each, unless the whole call failed."""

    __slots__ = ("messages", "outcomes")

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.outcomes: list[Outcome] | None = None

    def message_outcomes(self, outcome: Outcome) -> list[tuple[Message, Outcome]]:
        """Each message with its outcome; `outcome` is that of the call."""
        if outcome is DONE and self.outcomes is not None:
            return list(zip(self.messages, self.outcomes, strict=True))
        return [(message, outcome) for message in self.messages]


def on_batches(function: Callable[[list[Message]], Any], failed: Failure) -> Callable[[Batch], None]:
    """A plain batch handler as a runner calls it."""

    def run(batch: Batch) -> None:
        batch.outcomes = _outcomes(function(list(batch.messages)), batch.messages, failed)

    return run


def on_batches_later(function: Callable[[list[Message]], Any], failed: Failure) -> Callable[[Batch], Any]:
    """An async batch handler as a runner calls it."""

    async def run(batch: Batch) -> None:
        batch.outcomes = _outcomes(await function(list(batch.messages)), batch.messages, failed)

    return run


def _outcomes(result: Any, messages: Sequence[Message], failed: Failure) -> list[Outcome] | None:
    """One outcome for each message; None: all are done. What makes no sense fails all: nothing may count as done by mistake."""
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
    """Work source for an executor of batches: gathers them from the source of the worker. Any thread may call `next`."""

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
        """See WorkSource."""
        return self._source.version + self._due

    def fail(self, problem: BaseException) -> None:
        """See WorkSource."""
        self._source.fail(problem)

    def next(self, finished: Batch | None, outcome: Outcome | None) -> Batch | None:
        """See WorkSource; a batch is a unit."""
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
        """Rings when a batch has waited long enough for more. For a thread of its own."""
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
        """The batch at work that this message is in; one that has not started is done without it."""
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
    """kodo_consumer.core.values.handler_executor.HandlerExecutor: `inner` runs batches where others run messages."""

    def __init__(self, inner: HandlerExecutor, batching: Batching) -> None:
        self._inner, self._batching = inner, batching
        self._gatherer: Gatherer | None = None
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> object:
        """The event loop of async handlers; None for others."""
        return getattr(self._inner, "loop", None)

    def start(self, source: WorkSource) -> None:
        """See HandlerExecutor."""
        self._gatherer = Gatherer(source, self._batching, self._inner.wake)
        self._thread = begin(self._gatherer.keep_time, "kodo-gather", source.fail)
        self._inner.start(cast("WorkSource", self._gatherer))

    def wake(self) -> None:
        """See HandlerExecutor."""
        self._inner.wake()

    def time_out(self, message: Message) -> None:
        """See HandlerExecutor. The batch takes too long: the others of it follow by themselves, taken as they were with it."""
        assert self._gatherer is not None
        batch = self._gatherer.given_up(message)
        if batch is not None:
            self._inner.time_out(cast("Message", batch))

    def stop(self) -> None:
        """See HandlerExecutor."""
        if self._gatherer is not None and self._thread is not None:
            self._gatherer.close()
            self._thread.join()
        self._inner.stop()
