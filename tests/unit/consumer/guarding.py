"""Workers with a guard and a store, on a broker in memory and a clock moved by hand."""

from __future__ import annotations

from random import Random
from typing import Any

from kodo_consumer.adapters.stores.memory_store import MemoryStore, Shelf
from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.core.values.handler_executor import WorkSource
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.core.values.store import Exchange, StoreAnswer, StoreDownError
from kodo_consumer.message import Message
from kodo_consumer.runtime.idempotency_guard import IdempotencyGuard
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing import ManualClock, MemoryBroker
from kodo_consumer.testing.harness import InlineExecutor

from tests.unit.consumer.engine_bench import policy


def names(count: int) -> list[str]:
    """Of so many messages: m0, m1 and so on."""
    return [f"m{number}" for number in range(count)]


class FragileStore(MemoryStore):
    """A store in memory that is down when told to be."""

    down = False

    def _or_down(self) -> None:
        if self.down:
            raise StoreDownError("told to be")

    def create(self) -> None:
        self._or_down()

    def exchange(self, told: Exchange) -> StoreAnswer:
        self._or_down()
        return super().exchange(told)

    def beat(self) -> Any:
        self._or_down()
        return super().beat()

    def take_over(self, *arguments: Any) -> bool:
        self._or_down()
        return super().take_over(*arguments)

    def leave(self) -> None:
        self._or_down()
        super().leave()


class _Inline:
    """The guard before handlers that run where they are called, `slots` of them at once: each ends when the test says so."""

    def __init__(self, guard: IdempotencyGuard, inner: InlineExecutor) -> None:
        self.guard, self.inner = guard, inner

    def start(self, desk: WorkSource) -> None:
        self.guard.start(desk, lambda: None, lambda: None)
        self.inner.start(self.guard)

    def wake(self) -> None:
        """Steps are made by hand."""

    def time_out(self, message: Message) -> None:
        self.guard.time_out(message)

    def stop(self) -> None:
        self.inner.stop()
        self.guard.leave()


class Bench:
    """One worker. `handler` is called with each message; `crash` ends the worker as a crash of its process would."""

    def __init__(
        self,
        handler: Any,
        broker: MemoryBroker | None = None,
        shelf: Shelf | None = None,
        run: str = "a",
        of: Policy | None = None,
        *,
        clock: ManualClock | None = None,
        go_on: bool = False,
    ) -> None:
        self.clock = clock or ManualClock()
        self.policy = of or policy(concurrency=4, in_place=())
        self.broker = broker or MemoryBroker(self.clock)
        self.broker.create_for(self.policy)
        self.store = FragileStore(run, shelf)
        self.guard = IdempotencyGuard(self.store, self.policy, self.clock, go_on=go_on)
        self.runner = _Inline(self.guard, InlineExecutor(handler))
        self.worker = Worker(self.policy, self.broker, self.runner, self.clock, Random(1))
        self.topic = next(lane.topic for lane in self.policy.lanes if lane.level == "L1" and lane.state == "ready")

    def open(self) -> Bench:
        self.worker.open("bench")
        return self

    def send(self, *names: str, **properties: str) -> None:
        """Messages with these ids, on the ground topic."""
        for name in names:
            self.broker.send(Outgoing(self.topic, name.encode(), {"kodo-id": name, **properties}))

    def run(self) -> None:
        """Everything that can happen without time passing."""
        for _ in range(100_000):
            self.worker.tick()
            if not (self.broker.step() | self.guard.step() | self.runner.inner.step()):
                return
        raise AssertionError("it never comes to rest")

    def later(self, seconds: float, every: float = 0.5) -> None:
        """Time passes, with signs of life."""
        for _ in range(round(seconds / every)):
            self.clock.advance(every)
            self.guard.session.maintain()
            self.run()

    def left(self) -> list[bytes]:
        """What the subscription has not acknowledged on the ground topic."""
        return [stored.payload for stored in self.broker.backlog(self.topic, "s")]

    def crash(self) -> None:
        """The process is gone: connections break, marks stay, nobody says goodbye."""
        for subscription in self.broker._topics[self.topic].subscriptions.values():
            subscription.take_back(list(subscription.unacknowledged))
            subscription.lanes.clear()


class CrashError(BaseException):
    """Stands in for the end of a process."""
