"""Results of acknowledgements, on their way from threads of the client library to the sinks of the lanes."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol

from kodo_consumer.runtime.threads import Broke, begin

if TYPE_CHECKING:
    from kodo_fast import NativeBorder
    from kodo_fast._native import Sender

    from kodo_consumer.core.values.broker import LaneSink

_WAIT: Final = 10_000  # ms that a thread waits for results in one call
_GATHER: Final = 3  # ms that a result waits for others
_JOIN: Final = 2.0  # seconds
Results = Sequence[tuple[int, Sequence[tuple[int, Any]], Sequence[tuple[int, int, Any]]]]
"""Results of several sinks: (number of the sink, nothing, its results). A result is (ticket, code, None); the code 0
says that the broker has the acknowledgement. The form is that of receipts in kodo_fast._native.Sender.
"""


class _Source(Protocol):
    """Source of results: see kodo_fast._native.Sender."""

    def receipts(self, wait_ms: int, gather_ms: int, /) -> Results: ...

    def wake(self) -> None: ...


class BindingResults:
    """Results of acknowledgements by the client library's Python binding, one for a list of tickets."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[int, Sequence[int], int] | None] = SimpleQueue()

    def put(self, number: int, tickets: Sequence[int], result: int) -> None:
        """Queues the common result of the acknowledgements with these tickets, for the sink with this number.
        `result`: 0 if the broker has all of them. Called on threads of the client, or within an acknowledgement.
        """
        self._queue.put((number, tickets, result))

    def receipts(self, wait_ms: int, gather_ms: int, /) -> Results:
        """Waits `wait_ms` at most for a result, then `gather_ms` for others, and returns all that came, by sink; empty
        if none came. `wake` ends the first wait early.
        """
        found: list[tuple[int, Sequence[int], int] | None] = []
        with suppress(Empty):
            found.append(self._queue.get(timeout=wait_ms / 1000))
            time.sleep(gather_ms / 1000)
            while True:
                found.append(self._queue.get_nowait())
        results: dict[int, list[tuple[int, int, Any]]] = {}
        for one in found:
            if one is not None:
                number, tickets, result = one
                results.setdefault(number, []).extend([(ticket, result, None) for ticket in tickets])
        return [(number, (), of_sink) for number, of_sink in results.items()]

    def wake(self) -> None:
        """Ends a wait."""
        self._queue.put(None)


class AckResults:
    """Results of the acknowledgements of one client, for any number of sinks. `native`: source of the results of native
    acknowledgements; None without a border, and with one that has none. `binding`: results of all others. `broke`: see
    kodo_consumer.runtime.threads. Threads begin with the first sink.
    """

    def __init__(self, border: NativeBorder | None, broke: Broke) -> None:
        self.binding = BindingResults()
        has_results = border is not None and hasattr(border.reader, "acknowledge_with")  # not in earlier releases
        self.native: Sender | None = border.sender() if border is not None and has_results else None
        self._sinks: list[LaneSink] = []
        self._adding = threading.Lock()
        self._broke, self._over = broke, False
        self._threads: list[threading.Thread] = []

    def add(self, sink: LaneSink) -> int:
        """Adds a sink, and returns its number. The sink gets the results of the acknowledgements that name this number,
        on threads of this object.
        """
        with self._adding:  # lanes open more consumers on threads of their own
            self._sinks.append(sink)
            if not self._threads:
                sources: list[_Source] = [self.binding, *([self.native] if self.native is not None else [])]
                self._threads = [
                    begin(partial(self._serve, source), "kodo-acks", self._broke, over=lambda: self._over)
                    for source in sources
                ]
            return len(self._sinks) - 1

    def close(self) -> None:
        """Hands over the results that are there, and ends the threads; waits 2 s at most for each."""
        self._over = True
        self.binding.wake()
        if self.native is not None:
            self.native.wake()
        for thread in self._threads:
            thread.join(_JOIN)

    def _serve(self, source: _Source) -> None:
        over = False
        while not over:
            over = self._over  # first: what came before the end is handed over
            for number, _, results in source.receipts(0 if over else _WAIT, _GATHER):
                confirmed = [ticket for ticket, result, _ in results if not result]
                unknown = [ticket for ticket, result, _ in results if result]
                self._sinks[number].on_acknowledged(confirmed, unknown)
