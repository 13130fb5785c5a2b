"""Sending: a client of its own, whose producers have a thread, and another thread that hands receipts over."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pulsar

from kodo_consumer.adapters.pulsar.partition_producers import Producers
from kodo_consumer.adapters.pulsar.producer_factory import ProducerFactory, ProducerOptions
from kodo_consumer.adapters.pulsar.refusals import FULL, cannot_publish, producer_refusal
from kodo_consumer.adapters.pulsar.send_calls import NativeResults
from kodo_consumer.runtime.threads import Broke, begin, log_end

if TYPE_CHECKING:
    from kodo_fast import NativeBorder

    from kodo_consumer.core.values.broker import OnReceipts, Receipt
    from kodo_consumer.core.values.envelope import Outgoing

log = logging.getLogger("kodo.consumer")
_GATHER: Final = 0.003  # seconds a receipt waits for others
_WAIT: Final = 0.5  # seconds that the native border waits for receipts in one call


class PulsarPublisher:
    """kodo_consumer.core.values.broker.Publisher over one client at a time. `connect` makes a client; `on_receipts`
    gets bundles of receipts, on a thread of their own. The constructor opens the producer of the first partition of
    each of `topics`, and raises ClusterError where it cannot (the client is closed then); only a topic whose backlog
    quota is used up is logged, and opened by its first message. Producers of the other partitions are opened
    afterwards, without waiting. `on_broken`: called with the error of a thread that ends too early. `border`: native
    border; None: sends go by the client's own binding.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        topics: Sequence[str],
        on_receipts: OnReceipts,
        options: ProducerOptions | None = None,
        *,
        on_broken: Broke = log_end,
        border: NativeBorder | None = None,
    ) -> None:
        self._options = options or ProducerOptions()
        self._connect, self._on_receipts, self._on_broken = connect, on_receipts, on_broken
        self._receipts: deque[Sequence[tuple[int, Receipt]]] = deque()
        self._some = threading.Event()
        self._over = False
        self._results = NativeResults(border) if border is not None else None
        self._changing = threading.Lock()  # around sending by the producers, and replacing them
        self._producers = self._new_producers(self._new_factory())
        try:
            for topic in topics:
                self._open(topic)
        except pulsar.PulsarException as problem:
            self._producers.close()
            raise cannot_publish(topic, problem) from None
        except BaseException:  # a client that is left open can end the process
            self._producers.close()
            raise
        self._thread = begin(self._hand_over, "kodo-receipts", on_broken, over=lambda: self._over)

    def _open(self, topic: str) -> None:
        """A topic that is full is opened by its first message: this worker may be the one that empties it."""
        try:
            self._producers.open(topic)
        except FULL as problem:
            log.warning("%s: %s; what is sent there waits", topic, producer_refusal(problem))

    def publish(self, messages: Sequence[tuple[int, Outgoing]]) -> None:
        """Queues messages; each ticket gets its receipt by `on_receipts`, unless `renew` or `close` comes first. Never
        waits, never raises.
        """
        with self._changing:
            self._producers.send(messages)

    def renew(self) -> None:
        """Starts afresh with a new client; returns at once. Messages that have no receipt yet are dropped: the caller
        publishes them again, with new tickets, because receipts of the old ones may still come until the old client is
        closed. The new client sends nothing until the old one is closed, because the old one might send it as well, or
        for about 5 s if that does not close. Each producer then sends one message, and others when that one is stored,
        because the fault may be the broker's. Raises ClusterError if `connect` does, and changes nothing then.
        """
        factory = self._new_factory()
        with self._changing:
            self._producers = self._new_producers(factory, before=self._producers.abandon)

    def close(self) -> None:
        """Tries to send the queued messages, waits 5 s at most for receipts, closes the client, within 5 s more, and
        ends both threads (see Producers.close). Messages without a receipt by then get none.
        """
        self._producers.close()
        self._over = True
        self._wake()
        self._thread.join()

    def _new_factory(self) -> ProducerFactory:
        return ProducerFactory(self._connect(), self._options)

    def _new_producers(self, factory: ProducerFactory, before: Callable[[], None] | None = None) -> Producers:
        return Producers(factory, self._take_receipts, self._on_broken, before, self._results)

    def _take_receipts(self, receipts: Sequence[tuple[int, Receipt]]) -> None:
        self._receipts.append(receipts)
        if not self._some.is_set():
            self._wake()

    def _wake(self) -> None:
        self._some.set()
        if self._results is not None:
            self._results.wake()

    def _hand_over(self) -> None:
        """Receipts come on the client's own threads, which must not be held up; and one by one where messages have a due
        time: a bundle of them costs the worker one turn of its lock.
        """
        over = False
        while not over:
            over = self._over  # first: what came before the end is handed over
            self._await(over=over)
            self._some.clear()
            found: list[tuple[int, Receipt]] = []
            for _ in range(len(self._receipts)):
                found += self._receipts.popleft()
            if found:
                self._on_receipts(found)

    def _await(self, *, over: bool) -> None:
        """Waits for receipts, and a moment for others; if it is `over`, takes those that are there."""
        if self._results is not None:
            results = self._results.wait(0.0 if over else _WAIT, 0.0 if over else _GATHER)
            self._some.set()  # what comes now need not wake anybody
            self._results.take(results)
            return
        if not over:
            self._some.wait()
        if not self._over:
            time.sleep(_GATHER)
