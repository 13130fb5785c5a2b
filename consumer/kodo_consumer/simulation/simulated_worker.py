"""Simulated worker: the product's worker, with handlers, broker and store in memory, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from kodo_consumer.adapters.stores.memory_store import MemoryStore, Shelf
from kodo_consumer.core.values.lane_set import in_proportion
from kodo_consumer.core.values.outcomes import TOOK_TOO_LONG, Outcome
from kodo_consumer.runtime.lease_refresher import LeaseRefresher
from kodo_consumer.runtime.supervisor import longest_nap
from kodo_consumer.runtime.worker import Worker

if TYPE_CHECKING:
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.handler_executor import WorkSource
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.message import Message
    from kodo_consumer.testing.memory_broker import MemoryBroker

NEVER: Final = float("inf")
_STEP: Final = 0.0001  # seconds that time goes on at least where a worker asks for a moment that has come
_BREATH: Final = 0.01  # seconds between two exchanges with the store, as the lease refresher's thread leaves


class SimulatedHandlers(Protocol):
    """Handlers of all workers: they determine how long each run takes, and its outcome."""

    def on_start(self, message: Message) -> tuple[float, Outcome]:
        """Called when a run begins. Returns the seconds that it takes, and its outcome."""

    def on_end(self, message: Message, outcome: Outcome) -> None:
        """Called once for each run: when it has ended, or when the worker gives it up (`outcome`: TOOK_TOO_LONG), and
        then not at its end.
        """


class VirtualSlots:
    """Implementation of kodo_consumer.core.values.handler_executor.HandlerExecutor in virtual time, without threads:
    `step` starts and ends runs. A slot whose handler hangs is replaced, as a thread is, however many hang. `total`:
    number of slots.
    """

    def __init__(self, handlers: SimulatedHandlers, total: int) -> None:
        self._handlers, self._total = handlers, total
        self._ends: list[tuple[float, int, Message, Outcome]] = []
        self._hanging: set[Message] = set()
        self._numbers = count()
        self._running = 0
        self._empty_at = -1  # version of the source at which there was nothing to take
        self._source: WorkSource | None = None

    def start(self, source: WorkSource) -> None:
        """Sets the source from which `step` takes messages. To be called before `step`."""
        self._source = source

    def wake(self) -> None:
        """Does nothing: `step` sees a new version of the source."""

    def time_out(self, message: Message) -> None:
        """Frees the slot of a message whose handler took too long, and reports it as TOOK_TOO_LONG to the handlers; the
        end of its run is ignored.
        """
        self._hanging.add(message)
        self._running -= 1
        self._handlers.on_end(message, TOOK_TOO_LONG)

    def stop(self) -> None:
        """Does nothing: there are no threads."""

    @property
    def next_end(self) -> float:
        """Time (seconds) at which the first run ends, even if it was given up; infinite if there is none."""
        return self._ends[0][0] if self._ends else NEVER

    def step(self, now: float) -> bool:
        """Ends runs that are due at `now`, and starts messages that may start while slots are free. Never waits.
        Returns False if it started no run, and no run ended, not even one that was given up.
        """
        source, busy = self._source, False
        assert source is not None
        while self._ends and self._ends[0][0] <= now:
            _, _, message, outcome = heappop(self._ends)
            busy = True
            if message in self._hanging:
                self._hanging.discard(message)
                continue
            self._running -= 1
            self._handlers.on_end(message, outcome)
            self._begin(source.next(message, outcome), now)
        while self._running < self._total and (seen := source.version) != self._empty_at:
            if (taken := source.next(None, None)) is not None:
                busy = True
                self._begin(taken, now)
            else:
                self._empty_at = seen
        return busy

    def _begin(self, message: Message | None, now: float) -> None:
        if message is not None:
            self._running += 1
            seconds, outcome = self._handlers.on_start(message)
            heappush(self._ends, (now + seconds, next(self._numbers), message, outcome))


class SimulatedWorker:
    """One worker with its slots (`worker`: the product's worker); the constructor connects it to the broker. `shelf`:
    store from which the workers lease shared limits; None: each has its part of them, by the number of expected
    workers.
    """

    def __init__(
        self,
        name: str,
        policy: Policy,
        broker: MemoryBroker,
        clock: Clock,
        handlers: SimulatedHandlers,
        rng: Random,
        shelf: Shelf | None = None,
    ) -> None:
        self._clock = clock
        self._slots = VirtualSlots(handlers, policy.concurrency)
        self.worker = Worker(policy, broker, self._slots, clock, rng)
        self._leases = None if shelf is None else LeaseRefresher(self.worker, MemoryStore(name, shelf))
        self._leases_from = 0.0
        self._nap, self._tick_at = longest_nap(policy), 0.0
        self.worker.open(name)

    @property
    def next_call(self) -> float:
        """Time (seconds) at which `step` has to be called, or before: whenever the broker has delivered something."""
        tick = self._clock.now() + max(self.worker.due_in, _STEP)
        return min(self._slots.next_end, tick, self._tick_at, self._leases_due)

    def step(self, now: float) -> bool:
        """Exchanges leases, lets the worker tick, and ends and starts runs, each if it is due at `now`, the time of the
        clock. Returns False if no run ended or started. Raises the error that broke the worker.
        """
        worker = self.worker
        if self._leases is not None and self._leases_due <= now:
            self._leases_from = now + _BREATH
            self._leases.step()
        if worker.due_in <= 0 or now >= self._tick_at:
            self._tick_at = now + self._nap
            worker.tick()
        busy = self._slots.step(now)
        if worker.problem is not None:
            raise worker.problem
        return busy

    @property
    def _leases_due(self) -> float:
        return NEVER if self._leases is None else max(self._leases.next_exchange, self._leases_from)


def worker_policies(policy: Policy, workers: int, slots: int | None) -> list[Policy]:
    """Policies of that many `workers`. `slots`: slots of all together, of which each worker gets an equal part (or one
    more than others), but one at least, also if there are more workers than slots; None or 0: each has those of the
    file, the most that there may be if the file lets the number adapt. The number is fixed in each case. Bulkheads are
    in proportion to the slots, unless the file lets the number adapt. The workers neither record nor sign nor validate,
    and read no headers of other libraries, because that does not change who gets a slot.
    """
    total = slots or policy.concurrency * workers
    shares = [max(1, total // workers + (number < total % workers)) for number in range(workers)]
    return [
        replace(
            policy,
            expected_workers=workers,
            concurrency=share,
            bulkheads=policy.bulkheads
            if policy.adaptive
            else in_proportion(policy.bulkheads, share, policy.concurrency),
            adaptive=False,
            audit=None,
            signer=None,
            compat=None,
            payload_schema=None,
        )
        for share in shares
    ]
