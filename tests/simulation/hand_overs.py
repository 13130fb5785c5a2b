"""A failover topic whose partitions change hands, in virtual time: a broker that names active consumers, clients with
queues and wires, workers that join, leave, and cannot ask for a while. Rates of arrival from one message in a few
seconds to hundreds a second.

The laws: no partition with an active reader and stored messages rests for longer than documented; of each key the first
starts are in order; nothing is lost.
"""

from __future__ import annotations

from collections import defaultdict, deque
from random import Random

from kodo_consumer.core.engine.engine import Engine
from kodo_consumer.core.state.failover_partitions import ASK_EVERY, RESTS_AT_MOST, ActivePartitions
from kodo_consumer.core.values.envelope import Delivery
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.message import Message
from kodo_consumer.testing import ManualClock

from tests.simulation.world import BrokenPromise
from tests.unit.consumer.engine_bench import L1, delivery, policy

STEP = 0.02  # seconds
_SWITCH = 1.0  # seconds that a broker waits until it sends to a new active consumer
_KEYS = 64
_PATIENCE = 30.0
_SLOW = 0.25  # of the worlds
_READ_AT_ONCE = 32


class Partition:
    """A partition at its broker. `sent`: the next number to send to the active consumer."""

    def __init__(self, number: int, a_second: float) -> None:
        self.number, self.a_second = number, a_second
        self.stored = self.first = self.sent = 0
        self.acknowledged: set[int] = set()
        self.readers: list[Worker] = []
        self.active: Worker | None = None
        self.sends_from = 0.0
        self.disturbed = self.last_start = 0.0
        self.anew = False  # since it was disturbed
        self._due = 0.0

    def publish(self, passed: float) -> None:
        """What has come by now."""
        self._due += passed * self.a_second
        self.stored = max(self.stored, int(self._due))

    def acknowledge(self, number: int) -> None:
        self.acknowledged.add(number)
        while self.first in self.acknowledged:
            self.first += 1

    def change(self, reader: Worker, now: float, *, joins: bool) -> None:
        """A consumer comes or goes; the broker chooses by the order of their names."""
        self.readers = sorted([*self.readers, reader] if joins else [one for one in self.readers if one is not reader])
        active = self.readers[self.number % len(self.readers)] if self.readers else None
        if active is not self.active:
            self.active, self.sends_from, self.sent = active, now + _SWITCH, -1

    def send(self, now: float) -> None:
        """To the active consumer, as many as it has room for; to a new one all that is unacknowledged."""
        if self.active is None or now < self.sends_from:
            return
        if self.sent < 0:
            self.sent = self.first
        while self.sent < self.stored and self.active.has_permits(self.number):
            if self.sent not in self.acknowledged:
                self.active.send(self.number, self.sent, now)
            self.sent += 1


class Worker:
    """One worker with its client library. `speed`: messages a second that its reading thread takes."""

    def __init__(self, world: HandOvers, name: str) -> None:
        self.world, self.name, rng = world, name, world.rng
        self.engine = Engine(world.policy, world.clock, rng)
        self.active = ActivePartitions(world.policy, name)
        self.engine.lanes[0].start_as_named(self.active)
        self.deaf_until = self.asked = 0.0
        self._speed = rng.choice([2_000, 20_000])
        self._queues: dict[int, deque[int]] = {one.number: deque() for one in world.partitions}
        self._turns = deque(self._queues)
        self._wire: deque[tuple[float, int, int]] = deque()
        self._empty_at: dict[str, float] = {}
        self._answers: deque[tuple[float, float, dict[str, str] | None]] = deque()
        self._ask_at = world.now
        self._opening: dict[int, float] = {}
        self.running: list[tuple[float, Message]] = []
        self._acks: deque[tuple[float, int, int]] = deque()
        self.joins()

    def __lt__(self, other: Worker) -> bool:
        return self.name < other.name

    def joins(self) -> None:
        for partition in self.world.partitions:
            partition.change(self, self.world.now, joins=True)

    def leaves(self) -> None:
        """As a worker that drains: what runs ends, and is acknowledged."""
        self.engine.drain()
        for _, message in self.running:
            self.engine.finish(message, DONE)
        for _, tokens in self.engine.acknowledgements():
            for token in tokens:
                self.world.acknowledge(str(token))
        for partition in self.world.partitions:
            partition.change(self, self.world.now, joins=False)

    # ---- the client

    def has_permits(self, partition: int) -> bool:
        on_its_way = sum(1 for _, to, _ in self._wire if to == partition)
        return len(self._queues[partition]) + on_its_way < max(1, self.world.policy.queue // len(self._queues))

    def send(self, partition: int, number: int, now: float) -> None:
        arrives = now + self.world.rng.random() * self.world.latency
        self._wire.append((max(arrives, self._wire[-1][0] if self._wire else 0.0), partition, number))

    def read(self, now: float) -> None:
        while self._wire and self._wire[0][0] <= now:
            _, partition, number = self._wire.popleft()
            if partition not in self._opening:
                self._queues[partition].append(number)
        budget, engine = self._speed * STEP, self.engine
        empty = 0  # partitions in a row of which there is nothing
        while empty < len(self._turns) and budget > 0 and engine.room(0):
            queue = self._queues[partition := self._turns[0]]
            self._turns.rotate(-1)
            taken = [queue.popleft() for _ in range(min(len(queue), _READ_AT_ONCE))]
            budget -= len(taken)
            empty = 0 if taken else empty + 1
            engine.deliver(0, [_delivery(partition, number) for number in taken])
            if not queue:
                self._empty_at[str(partition)] = now

    # ---- asking

    def ask(self, now: float) -> None:
        if now >= self._ask_at:
            self._ask_at = now + ASK_EVERY
            named: dict[str, str] | None = {
                str(one.number): one.active.name if one.active is not None else "" for one in self.world.partitions
            }
            if now < self.deaf_until:
                named = None
            self._answers.append((now + self.world.rng.random() * 0.3, now, named))
        while self._answers and self._answers[0][0] <= now:
            _, asked, named = self._answers.popleft()
            self.engine.on_active_consumers(0, named, asked, self._empty_at)
        for _, text in self.engine.context.effects.anew:
            self._reads_anew(self.world.partitions[int(text)], now)
        self.engine.context.effects.anew.clear()

    def _reads_anew(self, partition: Partition, now: float) -> None:
        partition.anew |= bool(self._queues[partition.number]) or now < self.deaf_until + _PATIENCE
        partition.change(self, now, joins=False)
        self._queues[partition.number].clear()
        self._wire = deque(one for one in self._wire if one[1] != partition.number)
        self._opening[partition.number] = now + 0.05 + self.world.rng.random() * 0.5
        self.engine.on_disconnect(0, str(partition.number))

    def open(self, now: float) -> None:
        for number in [number for number, at in self._opening.items() if at <= now]:
            del self._opening[number]
            self.world.partitions[number].change(self, now, joins=True)

    # ---- handlers

    def handle(self, now: float) -> None:
        self.engine.tick()
        for ended in [one for one in self.running if one[0] <= now]:
            self.running.remove(ended)
            self.engine.finish(ended[1], DONE)
        while len(self.running) < self.world.policy.concurrency and (message := self.engine.take()) is not None:
            self.world.started(self, message)
            self.running.append((now + self.world.rng.random() * self.world.handler_seconds, message))
        for _, tokens in self.engine.acknowledgements():
            for token in tokens:
                self.world.acknowledge(str(token))


class HandOvers:
    """One seed's world. `rests`: the longest that a partition rested, in seconds. `slow`: handlers take so long that
    look-aheads and clients are full; then a partition rests behind what others hold, and only order and losses are judged.
    """

    def __init__(self, seed: int, seconds: float = 60.0) -> None:
        self.seed, self.rng = seed, Random(seed)
        self.clock = ManualClock()
        self.began = self.clock.now()
        self.seconds, self.rests = seconds, 0.0
        self.latency = self.rng.choice([0.005, 0.05])
        self.slow = self.rng.random() < _SLOW
        rates = [5, 20] if self.slow else [0.3, 2, 15, 40, 200, 500]
        self.policy = policy(
            (L1,),
            (),
            ordered=True,
            subscription_type="failover",
            lookahead_messages=self.rng.choice([400] if self.slow else [400, 2_000, 10_000]),
            concurrency=8 if self.slow else 64,
        )
        self.handler_seconds = 0.6 if self.slow else 0.03
        self.partitions = [Partition(number, self.rng.choice(rates)) for number in range(self.rng.choice([1, 2, 4]))]
        self._firsts: defaultdict[tuple[int, int], int] = defaultdict(lambda: -1)
        self.workers: list[Worker] = []
        self._named = 0
        for _ in range(self.rng.choice([1, 2, 3])):
            self._joins()
        self._next = self.now + 5.0

    @property
    def now(self) -> float:
        return self.clock.now() - self.began

    def run(self) -> HandOvers:
        """Plays the seed. Raises BrokenPromise."""
        while self.now < self.seconds:
            if self.now >= self._next:
                self._disturb()
            for partition in self.partitions:
                partition.publish(STEP)
            self._step()
        while any(partition.first < partition.stored for partition in self.partitions):
            if self.now - max(partition.last_start for partition in self.partitions) > _PATIENCE:
                self.fail(f"nothing starts: {[one.stored - one.first for one in self.partitions]}")
            self._step()
        return self

    def _step(self) -> None:
        for partition in self.partitions:
            partition.send(self.now)
        for worker in list(self.workers):
            worker.open(self.now)
            worker.read(self.now)
            worker.ask(self.now)
            worker.handle(self.now)
        self._judge()
        self.clock.advance(STEP)

    def _judge(self) -> None:
        for partition in self.partitions:
            active = partition.active
            is_deaf = active is None or self.now < active.deaf_until
            if (
                active is None
                or is_deaf
                or all(self._firsts[partition.number, key] >= partition.stored - _KEYS for key in range(_KEYS))
            ):
                partition.disturbed = max(partition.disturbed, self.now) if is_deaf else partition.disturbed
                partition.last_start = self.now
                continue
            rest = self.now - max(partition.last_start, partition.disturbed)
            self.rests = max(self.rests, rest)
            if not self.slow and rest > RESTS_AT_MOST * (2 if partition.anew else 1):
                self.fail(f"partition {partition.number} rests for {rest:.1f} s, {active and active.name} is active")

    def fail(self, text: str) -> None:
        raise BrokenPromise(f"seed {self.seed}, {self.now:.2f} s in: {text}")

    # ---- what goes on

    def _disturb(self) -> None:
        rng = self.rng
        self._next = self.now + rng.choice([0.3, 1.0, 4.0, 12.0])
        match rng.choice(["joins", "leaves", "joins and leaves", "deaf"]):
            case "joins" if len(self.workers) < 5:
                self._joins()
            case "leaves" if len(self.workers) > 1:
                self._leaves(rng.choice(self.workers))
            case "joins and leaves" if len(self.workers) > 1:
                self._leaves(rng.choice(self.workers))
                self._joins()
            case "deaf":
                rng.choice(self.workers).deaf_until = self.now + rng.choice([1.0, 3.0, 6.0])

    def _joins(self) -> None:
        self._named += 1
        self.workers.append(Worker(self, f"{self.rng.choice('abc')}{self._named}"))
        self._disturbed()

    def _leaves(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.leaves()
        self._disturbed()

    def _disturbed(self) -> None:
        for partition in self.partitions:
            partition.disturbed, partition.anew = self.now, False

    def started(self, worker: Worker, message: Message) -> None:
        number, partition = (int(part) for part in message.id.split(":")[1:3])
        key = partition, number % _KEYS
        self.partitions[partition].last_start = self.now
        if number > self._firsts[key] + _KEYS and self._firsts[key] + _KEYS >= 0:
            self.fail(
                f"{worker.name} starts {number} of partition {partition} after {self._firsts[key]}: some are missing"
            )
        self._firsts[key] = max(self._firsts[key], number)

    def acknowledge(self, token: str) -> None:
        _, number, partition, _ = token.strip("()").split(",")
        self.partitions[int(partition)].acknowledge(int(number))


def _delivery(partition: int, number: int) -> Delivery:
    one = delivery(number, key=f"k{number % _KEYS}-{partition}")
    return one._replace(entry=(7, number, partition), token=f"(7,{number},{partition},-1)")
