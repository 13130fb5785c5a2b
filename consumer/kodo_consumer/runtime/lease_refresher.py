"""Lease refresher: one thread exchanges leases between the limits of a worker and the store, so that no other thread
waits for the store.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.store import LeaseStore, StoreDownError
from kodo_consumer.runtime.idempotent_executor import IdempotentExecutor

if TYPE_CHECKING:
    from kodo_consumer.core.limits.limiters import Limiter
    from kodo_consumer.core.values.handler_executor import HandlerExecutor
    from kodo_consumer.core.values.lease_protocol import LeaseRequest
    from kodo_consumer.runtime.worker import Worker

log = logging.getLogger("kodo.consumer")
_BREATH: Final = 0.01  # seconds between two exchanges: what is wanted meanwhile goes together
_LONGEST_NAP: Final = 0.25
_PROBE_EVERY: Final = 1.0


class LeaseRefresher:
    """Lease refresher of one worker: requests leases, which are tokens of shared limits, from the store and returns
    unused ones. Its construction makes the worker's limits use leases. One thread calls `step`.
    """

    def __init__(self, worker: Worker, store: LeaseStore) -> None:
        self._worker, self._store = worker, store
        self._bell = threading.Event()
        self._leases = worker.engine.scheduler.limits.use_leases(self._bell.set)

    def run(self, over: threading.Event) -> None:
        """Exchanges leases with the store until `over` is set, then returns the remaining ones. Blocks all this time,
        and goes on while the store is down: see `step` and `leave`.
        """
        while not over.is_set():
            nap = self._leases.due - self._worker.clock.now()
            self._bell.wait(max(0.0, min(nap, _LONGEST_NAP)))
            self.step()
            over.wait(_PROBE_EVERY if self._leases.down else _BREATH)
        self.leave()

    @property
    def next_exchange(self) -> float:
        """Time of the next exchange of leases, in seconds of the worker's clock: now if a limiter asked for one, else
        the time at which one is due; infinite if none is.
        """
        return self._worker.clock.now() if self._bell.is_set() else self._leases.due

    def step(self) -> None:
        """Exchanges leases with the store once, if any limit needs it. If the store does not answer, logs that; each
        worker then has its part of each limit (limit ÷ live workers), and the next calls try whether the store answers
        again.
        """
        self._bell.clear()
        if self._leases.down and not self._is_back():
            return
        asked = self._worker.clock.now()
        if not (requests := self._requests(self._leases.collect)):
            return
        try:
            grants = self._store.grant(requests)
        except StoreDownError as problem:
            text = "limits: the store cannot be asked, each worker takes limit ÷ live workers until it is back: %s"
            log.error(text, problem)  # noqa: TRY400  # a person needs no traceback of a database
            self._worker.update_leases(self._leases.fall_back)
        else:
            self._worker.update_leases(lambda now: self._leases.accept(grants, asked, now))

    def leave(self) -> None:
        """Returns the remaining leases to the store. If the store is down, they are not returned, and expire."""
        requests = self._requests(self._leases.leave)
        if requests and not self._leases.down:
            try:
                self._store.grant(requests)
            except StoreDownError as problem:
                log.debug("limits: what was borrowed could not be given back: %s", problem)

    def _requests(self, collect: Callable[[float], list[LeaseRequest]]) -> list[LeaseRequest]:
        requests: list[LeaseRequest] = []

        def step(now: float) -> Sequence[Limiter]:
            requests.extend(collect(now))
            return ()

        self._worker.update_leases(step)
        return requests

    def _is_back(self) -> bool:
        try:
            self._store.create()
            self._store.grant(())
        except StoreDownError as problem:
            log.debug("limits: the store cannot be asked: %s", problem)
            return False
        log.warning("limits: the store is back, workers share through it again")
        self._worker.update_leases(self._leases.come_back)
        return True


def lease_refresher_of(worker: Worker, runner: HandlerExecutor) -> LeaseRefresher | None:
    """New lease refresher of the worker, whose shared limits use leases from then on; None, without any change, if its
    executor has no store that grants leases. Call it once, before the worker starts; the caller has to run the
    refresher.
    """
    store = runner.store if isinstance(runner, IdempotentExecutor) else None
    return LeaseRefresher(worker, store) if isinstance(store, LeaseStore) else None
