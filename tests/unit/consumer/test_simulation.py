"""The real worker code under a seeded scheduler and virtual time: handlers end in any order, connections break, receipts
get lost, workers leave. Whatever happens, nothing is lost and every unacknowledged message is in one place.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumer.broker import Lost, NeverTaken
from consumer.envelope import Level, Outgoing, State
from consumer.message import Message
from consumer.outcomes import DONE, DependencyDown, Died, Failed, Outcome, RetryAsked, StateAsked
from consumer.policy import Concurrency, Pace, Policy, Quota, Rate
from consumer.testing import ManualClock, MemoryBroker
from consumer.worker import Desk, Worker
from tests.unit.consumer.making import policy

LIMITS = (
    Concurrency("uid", 2, shared=False), Rate("uid", Pace(5, 1_000, 3), shared=False), Quota(None, 50, 60_000, shared=False),
)  # fmt: skip
OUTCOMES: tuple[Outcome, ...] = (
    DONE, DONE, DONE, DONE, Failed("boom"), RetryAsked(2_000, "later"), StateAsked(State.PENDING, "wait"),
    DependencyDown("psp"), Died("bad"),
)  # fmt: skip


class SteppedRunner:
    """Handlers that run until told: `begin` fills the slots, `end` finishes one of them."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.running: list[Message] = []
        self.stopped = False
        self._desk: Desk | None = None

    def start(self, desk: Desk) -> None:
        self._desk = desk

    def wake(self) -> None:
        pass

    def abandon(self, message: Message) -> None:
        self.running.remove(message)

    def stop(self) -> None:
        self.stopped = True

    def begin(self) -> None:
        assert self._desk is not None
        while len(self.running) < self.slots and (message := self._desk.turn(None, None)) is not None:
            self.running.append(message)

    def end(self, index: int, outcome: Outcome) -> str:
        assert self._desk is not None
        ended = self.running.pop(index % len(self.running))
        message = self._desk.turn(ended, outcome)
        if message is not None:
            self.running.append(message)
        return ended.id


class World:
    """One broker, some workers of one subscription, one clock, one source of chance."""

    def __init__(self, of: Policy, seed: int, workers: int) -> None:
        self.policy, self.rng, self.clock = of, Random(seed), ManualClock()
        self.broker = MemoryBroker(self.clock)
        self.broker.create_for(of)
        self.pairs = [self._worker(number) for number in range(workers)]
        self.done: Counter[str] = Counter()  # the ledger: kept outside of what is tested
        self.sent: set[str] = set()

    def _worker(self, number: int) -> tuple[Worker, SteppedRunner]:
        runner = SteppedRunner(self.policy.concurrency)
        worker = Worker(self.policy, self.broker, runner, self.clock, self.rng)
        worker.open(f"w{number}")
        return worker, runner

    def send(self, count: int) -> None:
        for _ in range(count):
            name = f"m{len(self.sent)}"
            self.sent.add(name)
            properties = {"uid": self.rng.choice(["a", "a", "a", "b", "c"]), "kodo-id": name}
            topic = next(lane.topic for lane in self.policy.lanes if lane.name == "L1/ready")
            self.broker.send(Outgoing(topic, b"x", properties, key=name[-1]))

    def step(self) -> None:
        """Something happens."""
        worker, runner = self.rng.choice(self.pairs)
        match self.rng.randrange(12):
            case 0:
                self.clock.advance(self.rng.choice([0.01, 0.5, 3.0, 20.0]))
            case 1:
                self.broker.disconnect(self.rng.choice(self.policy.lanes).topic)
            case 2:
                fault = self.rng.choice([Lost("Timeout"), NeverTaken("too big")])
                self.broker.fail_sends(self.rng.choice(list(self.policy.targets.values())).topic, fault)
            case 3 if len(self.pairs) > 1 and self.rng.random() < 0.1:
                self._leave(worker, runner)
            case 4 | 5 | 6 if runner.running:
                self.end(runner, self.rng.randrange(100), self.rng.choice(OUTCOMES))
            case 7 | 8:
                runner.begin()
            case 9:
                worker.tick()
            case _:
                self.broker.step()
        self.check()

    def end(self, runner: SteppedRunner, index: int, outcome: Outcome) -> None:
        name = runner.end(index, outcome)
        self.done[name] += outcome is DONE

    def _leave(self, worker: Worker, runner: SteppedRunner) -> None:
        """As if killed: its running handlers never end, its connections close."""
        self.pairs.remove((worker, runner))
        worker.close()

    def check(self) -> None:
        for worker, runner in self.pairs:
            assert worker.engine.misplaced() == []
            ids = [id(message) for message in runner.running]
            assert len(ids) == len(set(ids)) <= self.policy.concurrency
            keys = [message._delivery.key for message in runner.running if message._lane.ordered]
            assert len(keys) == len(set(keys))

    def settle(self) -> None:
        """No more faults, every handler succeeds: it all comes to an end."""
        for _ in range(20_000):
            progress = self.broker.step()
            for worker, runner in self.pairs:
                worker.tick()
                runner.begin()
                while runner.running:
                    progress = True
                    self.end(runner, 0, DONE)
            if progress:
                continue
            if not any(self.broker.backlog(lane.topic, "s") for lane in self.policy.lanes):
                return
            self.clock.advance(1.0)
        pytest.fail(f"never settled: {[(n, len(self.broker.backlog(n.topic, 's'))) for n in self.policy.lanes]}")

    def dead(self) -> set[str]:
        assert self.policy.dead_letter is not None
        return {dead.properties["kodo-id"] for dead in self.broker.messages(self.policy.dead_letter.topic)}


@pytest.mark.parametrize("ordered", [False, True])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), workers=st.integers(1, 3), limited=st.booleans())
def test_nothing_is_lost_whatever_happens(ordered: bool, seed: int, workers: int, limited: bool) -> None:
    of = policy(
        fair_by="uid", ordered=ordered, limits=LIMITS if limited else (), concurrency=4, lookahead_messages=60,
        subscription_type="failover" if ordered else "shared",
    )  # fmt: skip
    world = World(of, seed, workers)
    for _ in range(10):
        world.send(world.rng.randrange(8))
        for _ in range(25):
            world.step()
    world.settle()
    finished = {name for name, count in world.done.items() if count}
    assert finished | world.dead() == world.sent


def test_the_same_seed_gives_the_same_run() -> None:
    def run() -> list[tuple[str, int]]:
        world = World(policy(fair_by="uid", limits=LIMITS, levels=(Level.L1, Level.B1)), 7, 2)
        world.send(30)
        for _ in range(400):
            world.step()
        return [(lane.topic, len(world.broker.messages(lane.topic))) for lane in world.policy.lanes]

    assert run() == run()
