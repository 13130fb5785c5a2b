"""The guard at work with threads: those of handlers and the one that asks the store."""

from __future__ import annotations

import logging
import threading
from random import Random

import pytest
from kodo_consumer.adapters.stores.memory_store import MemoryStore, Shelf
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.core.values.store import Exchange, StoreAnswer, StoreDownError
from kodo_consumer.runtime.idempotency_guard import IdempotencyGuard
from kodo_consumer.runtime.idempotent_executor import IdempotentExecutor
from kodo_consumer.runtime.thread_executor import ThreadExecutor
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing import MemoryBroker

from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import policy
from tests.unit.consumer.guarding import FragileStore, names
from tests.unit.consumer.pump import Pump


@pytest.mark.parametrize("slots", [1, 8])
def test_threads_of_handlers_and_of_the_store_work_together(slots: int) -> None:
    seen: list[str] = []
    of = policy(concurrency=slots, in_place=())
    clock, shelf = SystemClock(), Shelf()
    broker = MemoryBroker(clock)
    broker.create_for(of)
    store = MemoryStore("a", shelf)
    runner = IdempotentExecutor(
        ThreadExecutor(lambda message: seen.append(message.text()), slots),
        IdempotencyGuard(store, of, clock, go_on=False),
        store,
    )
    worker = Worker(of, broker, runner, clock, Random(1))
    worker.open("w")
    pump = Pump(broker)
    for name in names(500):
        broker.send(Outgoing(of.lanes[0].topic, name.encode(), {"kodo-id": name}))
    eventually(lambda: len(shelf.done) == 500)
    eventually(lambda: not broker.backlog(of.lanes[0].topic, "s"))
    pump.stop()
    worker.drain()
    worker.close()
    assert sorted(seen) == sorted(names(500))
    assert (shelf.marks, shelf.beats) == ({}, {})


def test_a_failure_of_the_stores_own_code_ends_the_worker() -> None:
    of = policy()
    broker = MemoryBroker(SystemClock())
    broker.create_for(of)
    store = MemoryStore("a")
    guard = IdempotencyGuard(store, of, SystemClock(), go_on=False)
    worker = Worker(of, broker, IdempotentExecutor(ThreadExecutor(print, 1), guard, store), SystemClock(), Random(1))
    worker.open("w")
    store.exchange = None  # type: ignore[assignment, method-assign]
    broker.send(Outgoing(of.lanes[0].topic, b"m1", {"kodo-id": "m1"}))
    pump = Pump(broker)
    eventually(lambda: isinstance(worker.problem, TypeError))
    pump.stop()
    worker.close()


def test_a_store_that_hangs_is_cut_off(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.idempotent_executor._HANGS", 0.0)
    monkeypatch.setattr("kodo_consumer.runtime.idempotent_executor._BEAT", 0.02)
    cut = threading.Event()
    store = FragileStore("a")
    of = policy()

    class Hanging(IdempotencyGuard):
        def step(self) -> bool:
            return not cut.wait(10)

    store.interrupt = cut.set  # type: ignore[method-assign]
    guard = Hanging(store, of, SystemClock(), go_on=False)
    runner = IdempotentExecutor(ThreadExecutor(print, 1), guard, store)
    with caplog.at_level(logging.ERROR):
        runner.start(None)  # type: ignore[arg-type]
        runner.wake()
        assert cut.wait(10)
    runner.stop()
    assert "the store does not answer" in caplog.text


class _FrozenStore(FragileStore):
    """A store whose calls hang once it is frozen, until they are interrupted as often as `cuts` says."""

    def __init__(self, cuts: int) -> None:
        super().__init__("a")
        self.frozen = False
        self._cuts = threading.Semaphore(0)
        self._needed = cuts

    def exchange(self, told: Exchange) -> StoreAnswer:
        if self.frozen:
            for _ in range(self._needed):
                assert self._cuts.acquire(timeout=10)
            raise StoreDownError("interrupted")
        return super().exchange(told)

    def interrupt(self) -> None:
        self._cuts.release()


@pytest.mark.parametrize("cuts", [1, 2])
def test_a_store_that_does_not_answer_keeps_no_worker_from_ending(
    cuts: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls that hang were not ended any more once the worker stopped, and only once before."""
    monkeypatch.setattr("kodo_consumer.runtime.idempotent_executor._HANGS", 0.05)
    monkeypatch.setattr("kodo_consumer.runtime.idempotent_executor._BEAT", 0.02)
    store, of = _FrozenStore(cuts), policy()
    guard = IdempotencyGuard(store, of, SystemClock(), go_on=False)
    runner = IdempotentExecutor(ThreadExecutor(print, 1), guard, store)
    worker = Worker(of, MemoryBroker(SystemClock()), runner, SystemClock(), Random(1))
    runner.start(worker)
    store.frozen = True
    guard.session.unsaved.add(done=["m1"])
    stopping = threading.Thread(target=runner.stop, daemon=True)
    stopping.start()
    stopping.join(8)
    assert not stopping.is_alive()
    assert "the store did not take the last messages" in caplog.text or guard.session.down
    runner.stop()
    assert worker.problem is None
