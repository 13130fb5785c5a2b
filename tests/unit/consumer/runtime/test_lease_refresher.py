"""Workers whose limits are shared through a store, on a broker in memory: moved by hand, and once with its thread."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
from kodo_consumer.adapters.stores.memory_store import MemoryStore, Shelf
from kodo_consumer.adapters.stores.mmap_marks import open_file_store
from kodo_consumer.core.state.in_flight import Stage
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.envelope import Level, Outgoing, State
from kodo_consumer.core.values.lease_protocol import LeaseGrant, LeaseRequest
from kodo_consumer.core.values.limit_policy import Concurrency, Pace, Quota, Rate
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.core.values.store import StoreDownError
from kodo_consumer.message import Message
from kodo_consumer.runtime.idempotency_guard import IdempotencyGuard
from kodo_consumer.runtime.idempotent_executor import IdempotentExecutor
from kodo_consumer.runtime.lease_refresher import LeaseRefresher, lease_refresher_of
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing import ManualClock, MemoryBroker
from kodo_consumer.testing.harness import InlineExecutor

from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import lane_of, policy


class Fragile(MemoryStore):
    """A store that is down when told to be."""

    down = False

    def create(self) -> None:
        if self.down:
            raise StoreDownError("told to be")

    def grant(self, requests: Sequence[LeaseRequest]) -> Sequence[LeaseGrant]:
        if self.down:
            raise StoreDownError("told to be")
        return super().grant(requests)


class Shop:
    """Workers of one subscription, each with its store on one shelf."""

    def __init__(self, of: Policy, workers: int) -> None:
        self.clock, self.policy = ManualClock(), of
        self.broker = MemoryBroker(self.clock)
        self.broker.create_for(of)
        shelf = Shelf(clock=lambda: 1_000.0 + self.clock.now())
        self.handled: Counter[str] = Counter()
        self.stores = [Fragile(f"w{number}", shelf) for number in range(workers)]
        self.runners, self.workers, self.lessees = [], [], []
        for store in self.stores:
            runner = InlineExecutor(partial(self._handle, store.run))
            worker = Worker(of, self.broker, runner, self.clock, Random(1))
            self.lessees.append(LeaseRefresher(worker, store))
            worker.open(store.run)
            self.runners.append(runner)
            self.workers.append(worker)
        self.topic = of.lanes[lane_of(of, Level.L1, State.READY)].topic

    def _handle(self, run: str, _: Message) -> None:
        self.handled[run] += 1

    def send(self, messages: int, **properties: str) -> None:
        for number in range(messages):
            self.broker.send(Outgoing(self.topic, str(number).encode(), properties))

    def run(self) -> None:
        """Everything that can happen now."""
        for _ in range(100_000):
            for worker in self.workers:
                worker.tick()
            stepped = [runner.step() for runner in self.runners]
            if not (self.broker.step() or any(stepped)):
                return

    def later(self, seconds: float, every: float = 0.05) -> None:
        for _ in range(round(seconds / every)):
            self.clock.advance(every)
            for lessee in self.lessees:
                self.run()
                lessee.step()
            self.run()


def _shop(limit: Any, workers: int = 2, **more: Any) -> Shop:
    return Shop(policy(limits=(limit,), expected_workers=workers, in_place=(), **more), workers)


def test_two_workers_take_what_one_limit_allows_and_no_less() -> None:
    shop = _shop(Rate(None, Pace(10, 1_000, 10), shared=True), states=())
    shop.send(200)
    shop.run()
    assert not shop.handled, "nobody has borrowed yet"
    shop.later(5)
    assert 58 <= shop.handled.total() <= 60
    assert len(shop.handled) == 2, "a rate is not divided evenly, but nobody goes without"
    shop.later(5)
    assert 108 <= shop.handled.total() <= 110


def test_one_of_two_takes_it_all_when_the_other_has_nothing_to_do() -> None:
    shop = _shop(Concurrency("uid", 1, shared=True))
    shop.workers[1].drain()
    shop.send(5, uid="a")
    shop.later(1)
    assert shop.handled == {"w0": 5}


def test_who_finds_a_shared_quota_full_waits_elsewhere_until_it_has_room() -> None:
    shop = _shop(Quota("uid", 6, 60_000, shared=True))
    shop.send(10, uid="a")
    shop.later(1)
    assert shop.handled.total() == 6
    blocking = shop.broker.backlog(shop.policy.targets[Level.L1, State.BLOCKING].topic, "s")
    assert len(blocking) == 4
    shop.later(66, every=0.5)
    assert shop.handled.total() == 10


def test_who_cannot_leave_waits_at_a_shared_quota() -> None:
    shop = _shop(Quota("uid", 6, 60_000, shared=True), states=())
    shop.send(10, uid="a")
    shop.later(1)
    assert shop.handled.total() == 6
    assert shop.workers[0].engine.check_invariants() == shop.workers[1].engine.check_invariants() == []
    shop.later(62, every=0.5)
    assert shop.handled.total() == 10


def test_while_the_store_is_down_each_takes_its_part_and_that_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    shop = _shop(Rate(None, Pace(10, 1_000, 10), shared=True), states=())
    shop.send(200)
    with caplog.at_level(logging.WARNING):
        for store in shop.stores:
            store.down = True
        shop.later(5)
        assert 50 <= shop.handled.total() <= 62
        for store in shop.stores:
            store.down = False
        shop.later(5)
        assert 80 <= shop.handled.total() <= 120
    said = [record.getMessage() for record in caplog.records]
    assert sum("each worker takes limit ÷ live workers" in text for text in said) == 2
    assert sum("the store is back" in text for text in said) == 2


def test_a_released_message_keeps_no_token_for_later() -> None:
    shop = _shop(Rate(None, Pace(1, 60_000, 1), shared=True), states=())
    shop.send(3)
    shop.later(1)
    assert shop.handled.total() == 1
    clients = [lessee._leases for lessee in shop.lessees]
    (holder,) = [number for number, client in enumerate(clients) if any(one.lease_size for one in client.active)]
    shop.workers[holder].on_disconnect(lane_of(shop.policy, Level.L1, State.READY))
    for _ in range(15):
        shop.clock.advance(0.1)
        shop.lessees[holder].step()
    assert not clients[holder].active
    assert not shop.workers[holder].engine.scheduler.shut


def test_a_waiter_that_went_another_way_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = _shop(Rate(None, Pace(1, 60_000, 1), shared=True), states=())
    shop.send(4)
    shop.later(1)
    scheduler = next(one.engine.scheduler for one in shop.workers if one.engine.scheduler.shut)
    (limiter,) = scheduler.shut
    gone = limiter.waiters[0]
    gone.stage = Stage.QUEUED
    monkeypatch.setattr(type(limiter), "room", lambda *_: 9)
    scheduler.let_through(limiter, shop.clock.now())
    assert not limiter.waiters
    assert gone.stage is Stage.QUEUED


def test_what_is_left_is_given_back_at_the_end() -> None:
    shop = _shop(Concurrency(None, 2, shared=True), workers=2)
    shop.send(2)
    shop.later(0.2)
    shop.lessees[0].leave()
    accounts = shop.stores[0]._shelf.accounts
    assert all("w0" not in account.holders for account in accounts.values())
    shop.stores[1].down = True
    shop.lessees[1].leave()


def test_only_a_store_that_workers_have_in_common_lends(tmp_path: Any) -> None:
    of = policy()
    broker = MemoryBroker(ManualClock())
    store = open_file_store(tmp_path / "marks", "p/n/t:s")
    inner = InlineExecutor(print)
    worker = Worker(of, broker, inner, ManualClock(), Random(1))
    assert lease_refresher_of(worker, inner) is None
    assert (
        lease_refresher_of(
            worker, IdempotentExecutor(inner, IdempotencyGuard(store, of, ManualClock(), go_on=False), store)
        )
        is None
    )
    store.close()
    shared = MemoryStore("a")
    runner = IdempotentExecutor(inner, IdempotencyGuard(shared, of, ManualClock(), go_on=False), shared)
    assert lease_refresher_of(worker, runner) is not None


def test_its_thread_borrows_when_somebody_waits_and_leaves_at_the_end() -> None:
    of = policy(limits=(Rate(None, Pace(1_000, 1_000, 1_000), shared=True),), in_place=())
    clock, shelf = SystemClock(), Shelf()
    broker, store = MemoryBroker(clock), MemoryStore("a", shelf)
    broker.create_for(of)
    seen: list[str] = []
    runner = InlineExecutor(lambda message: seen.append(message.text()))
    worker = Worker(of, broker, runner, clock, Random(1))
    lessee, over = LeaseRefresher(worker, store), threading.Event()
    worker.open("a")
    thread = threading.Thread(target=lessee.run, args=(over,))
    thread.start()
    for number in range(50):
        broker.send(Outgoing(of.lanes[lane_of(of, Level.L1, State.READY)].topic, str(number).encode(), {}))

    def all_seen() -> bool:
        worker.tick()
        broker.step()
        runner.step()
        return len(seen) == 50

    eventually(all_seen, every=0.01)
    over.set()
    thread.join(60)
    assert not thread.is_alive()
    assert shelf.accounts["rate::(none)"].back
