"""One process: a worker, its slots, its timekeeper and its clock, as kodo_consumer.runtime.supervisor and kodo_consumer.runtime drive them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, cast

from kodo_consumer.core.values.handler_executor import WorkSource
from kodo_consumer.core.values.outcomes import Outcome
from kodo_consumer.message import Message
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing.manual_clock import START_WALL

from tests.simulation.network import Connection

if TYPE_CHECKING:
    from tests.simulation.book import Book
    from tests.simulation.world import World

_NAP = 60.0  # seconds: the real timekeeper comes every 5; the longer it sleeps, the more it shows when nobody rings


class Clock:
    """A machine's clock: the same span of time everywhere, a wall that jumps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ahead = 0  # ms

    def now(self) -> float:
        return self._world.now

    def wall(self) -> int:
        return START_WALL + int(self._world.now * 1000) + self.ahead


class Process:
    """Alive until it is killed or has left."""

    def __init__(self, world: World, book: Book, name: str, *, frozen: bool) -> None:
        self.world, self.book, self.policy, self.name = world, book, book.policy, name
        self.alive, self.draining = True, False
        self.clock = Clock(world)
        self.slots = Slots(self, self.policy.concurrency, frozen=frozen)
        self.jumped = False
        self.hurried = 0  # starts before a due time that too many messages of ready lanes claimed
        self.connection = Connection(self)
        self._tick_at = float("inf")
        book.opened(self)
        self.worker = Worker(
            self.policy, cast("Any", self.connection), self.slots, self.clock, Random(world.rng.getrandbits(32))
        )
        self.worker.supervise(self._ring, self._broke)
        self.worker.open(name)
        self._ring()
        for lane in self.policy.lanes:
            world.poke(lane.topic)

    def _ring(self) -> None:
        self._plan(self.world.now + 0.0001)

    def _plan(self, at: float) -> None:
        if at < self._tick_at:
            self._tick_at = at
            self.world.at(at, self._tick, at)

    def _tick(self, at: float) -> None:
        if self.alive and at == self._tick_at:
            self._tick_at = float("inf")
            nap = self.policy.handler_timeout / 4000 if self.slots.busy else _NAP
            self._plan(self.world.now + max(min(self.worker.tick(), nap), 0.0001))

    def _broke(self) -> None:
        if self.worker.problem is not None:
            self.world.fail("worker", f"{self.name} broke: {self.worker.problem!r}")

    def kill(self) -> None:
        """`kill -9`."""
        self.book.killed(self)
        self.alive = False
        for reader in self.connection.readers:
            reader.cut()

    def jump(self, milliseconds: int) -> None:
        """Its machine's wall clock jumps."""
        self.clock.ahead += milliseconds
        self.jumped = True

    def drain(self) -> None:
        """SIGTERM."""
        self.draining = True
        self.worker.drain()
        self.world.after(0.05, self._leave, self.world.now + 60)

    def _leave(self, deadline: float) -> None:
        if not self.alive:
            return
        if self.worker.busy and self.world.now < deadline:
            self.world.after(0.05, self._leave, deadline)
            return
        self.book.killed(self)  # what still runs will be handled again; on a clean end nothing does
        self.worker.close()
        self.alive = False


class Slots:
    """kodo_consumer.core.values.handler_executor.HandlerExecutor: sleeps and is woken as the runners with threads and tasks are."""

    def __init__(self, process: Process, most: int, *, frozen: bool) -> None:
        self.process, self.world, self._most = process, process.world, most
        self.frozen = frozen  # nothing starts yet
        self._made = self._parked = 0
        self.busy: dict[Message, float] = {}
        self._source: WorkSource | None = None

    def start(self, source: WorkSource) -> None:
        self._source = source

    def thaw(self) -> None:
        self.frozen = False
        self.wake()

    def wake(self) -> None:
        if self.frozen:
            return
        if self._parked:
            self._parked -= 1
        elif self._made < self._most:
            self._made += 1
        else:
            return
        self.world.after(self.world.rng.random() * 0.001, self._turn, None, None)

    def time_out(self, message: Message) -> None:
        if self.busy.pop(message, None) is not None:
            self.world.opening.end()
            self.process.book.timed_out(self.process, message)
            self._made -= 1
            self.wake()

    def stop(self) -> None:
        self._most = 0

    def _turn(self, finished: Message | None, outcome: Outcome | None) -> None:
        process, source = self.process, self._source
        if not process.alive:
            return
        assert source is not None
        seen = source.version
        message = source.next(finished, outcome)
        if message is None:
            if source.version == seen:
                self._parked += 1
            else:
                self.world.after(0.0005, self._turn, None, None)
            return
        if self._parked or self._made < self._most:
            self.wake()
        seconds, outcome = process.book.begins(process, message)
        self.busy[message] = self.world.now
        self.world.after(seconds, self._ended, message, outcome)

    def _ended(self, message: Message, outcome: Outcome) -> None:
        if not self.process.alive:
            return
        if self.busy.pop(message, None) is not None:
            self.process.book.ends(self.process, message, outcome)
        elif self.world.rng.random() < 0.9:
            return  # given up, and replaced
        else:
            self._made += 1  # given up in the same moment as it ended: it comes back all the same
        self._turn(message, outcome)
