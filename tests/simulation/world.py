"""One seed's world: virtual time, one source of chance, some processes, a broker, faults. Two runs of a seed are the same."""

from __future__ import annotations

import logging
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from random import Random
from typing import Any

from kodo_consumer.core.values.envelope import Outgoing, State
from kodo_consumer.testing import MemoryBroker, StoredMessage
from kodo_consumer.testing.manual_clock import START_WALL

from kodoctl.protocol import properties as names
from tests.simulation.book import Book
from tests.simulation.cases import Case
from tests.simulation.drawn import TOPOLOGIES, shape
from tests.simulation.faults import Faults
from tests.simulation.flood import Flood
from tests.simulation.opening import Opening
from tests.simulation.process import Process

MESSAGES = 500
_GIVE_UP = 400_000  # events: it goes round in circles
_SHARE_EVERY = 5.0
_BURST = 25  # messages sent at most at once


class BrokenPromise(AssertionError):  # noqa: N818
    """What the consumer promises was not kept; says which promise, when, and how to see it again."""


class BrokerClock:
    """The broker's machine. A wall that is ahead delivers early."""

    def __init__(self, world: World) -> None:
        self._world, self.ahead = world, 0

    def now(self) -> float:
        return self._world.now

    def wall(self) -> int:
        return START_WALL + int(self._world.now * 1000) + self.ahead


class Broker(MemoryBroker):
    """The broker in memory, with a look at single messages."""

    def at(self, topic: str, number: int) -> StoredMessage:
        return self._topic(topic).messages[number]

    def token(self, stored: StoredMessage) -> str:
        return self._topic(stored.message.topic).token(stored)


class World:
    """See the module. `run` plays it to its end."""

    def __init__(self, seed: int, messages: int = MESSAGES) -> None:
        self.seed, self.rng = seed, Random(seed)
        self.now = 0.0
        self.healed = self.healed_long_ago = False
        self.digest = 0
        self.epochs: Counter[str] = Counter()  # of topics: grows when who reads what changes
        self.slow = 0.0  # seconds everything on the network takes longer
        self._failure = ""
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0
        self._progress = 0.0
        self._planned: dict[str, float] = {}
        self.clock = BrokerClock(self)
        self.broker = Broker(self.clock)
        self.shape = shape(seed % TOPOLOGIES)
        self.opening = Opening(self)
        self.books = [Book(self, self.opening.policy(policy)) for policy in self.shape.policies]
        for book in self.books:
            self.broker.create_for(book.policy)
        self.ready = [
            lane.topic for lane in self.books[0].policy.lanes if lane.state is State.READY and not lane.draining
        ]
        self.faults = Faults(self)
        self.flood = Flood(self, self.shape.policies)
        self.processes: list[Process] = []
        self._sent = self._started = 0
        self._messages = messages // len(self.books)

    # ---- time

    def at(self, moment: float, action: Callable[..., object], *given: Any) -> None:
        self._count += 1
        heappush(self._events, (moment, self._count, action, given))

    def after(self, seconds: float, action: Callable[..., object], *given: Any) -> None:
        self.at(self.now + seconds, action, *given)

    def latency(self) -> float:
        """Seconds a message takes on the wire."""
        return 0.0005 + self.rng.random() ** 2 * 0.01 + self.slow

    def trace(self, *what: object) -> None:
        """Goes into the digest by which two runs are compared. Also: something gets on."""
        self._progress = self.now
        self.digest = zlib.crc32(f"{self.now:.6f} {what}".encode(), self.digest)

    def fail(self, rule: str, text: str) -> None:
        """A promise was broken: the first one is told."""
        if not self._failure:
            self._failure = f"{rule}: {text}"

    # ---- the run

    def run(self) -> int:
        """Plays the seed. Answers the digest of all that happened. Raises BrokenPromise."""
        with _quiet():
            self.opening.begin()
            self.after(0.0, self._share)
            self.faults.plan()
            for events in range(_GIVE_UP):
                self._one()
                if self._failure:
                    raise BrokenPromise(self._told())
                if events % 16 == 0 and self.healed and self._is_over():
                    break
            else:
                self.fail("I4 loops", f"still busy after {_GIVE_UP} events")
            self._audit()
        return self.digest

    def _one(self) -> None:
        if not self._events:
            self.fail("I7 liveness", "nothing is left to happen, and not all is done")
            return
        self.now, _, action, given = heappop(self._events)
        if self.healed and self.now - self._progress > self._patience:
            left = {book.policy.subscription: book.left for book in self.books}
            self.fail("I7 liveness", f"nothing has happened for {self._patience:.0f} s, and there is left: {left}")
        action(*given)

    @property
    def _patience(self) -> float:
        """Seconds in which something must happen once all is well: the longest that anything may have to wait for."""
        return max(book.policy.horizon for book in self.books) / 1000 * 2 + 500 + self.faults.jumped

    def _is_over(self) -> bool:
        return not self.unsent and not any(book.left for book in self.books)

    def _audit(self) -> None:
        for process in self.processes:
            if process.alive and (problems := process.worker.engine.check_invariants()):
                self.fail("watchdog", f"{process.name}: {problems}")
        for book in self.books:
            book.audit()
        self.opening.audit()
        if self._failure:
            raise BrokenPromise(self._told())

    def _told(self) -> str:
        return (
            f"seed {self.seed}, {self.now:.3f} s in: {self._failure}\n"
            f"See it again: python -m tests.simulation --seed {self.seed}"
        )

    # ---- what goes on

    def start_process(self, book: Book, *, frozen: bool = False) -> Process:
        self._started += 1
        process = Process(self, book, f"{book.policy.subscription}-{self._started}", frozen=frozen)
        self.processes.append(process)
        self.trace("start", process.name)
        return process

    def _share(self) -> None:
        """As every worker learns how many live."""
        for process in self.processes:
            if process.alive:
                live = sum(other.alive for other in self.processes if other.book is process.book)
                process.book.shared(process, live)
                process.worker.share_limits(live)
        self.processes = [process for process in self.processes if process.alive]
        self.after(_SHARE_EVERY, self._share)

    def send_some(self) -> None:
        """A producer sends; comes again until all is sent."""
        if self.unsent:
            count = min(self.rng.randint(1, _BURST), self.unsent)
            self.send(self.ready[0] if self.rng.random() < 0.5 else self.rng.choice(self.ready), count)
        if self.unsent:
            self.after(self.rng.random() * 3, self.send_some)

    @property
    def unsent(self) -> int:
        """Messages that producers have still to send."""
        return self._messages - self._sent

    def send(self, topic: str, count: int, tenant: str = "") -> None:
        """New messages, mostly as batches; of one tenant or of any."""
        messages = [self.message(topic, tenant) for _ in range(count)]
        if self.rng.random() < 0.5:
            for message in messages:
                self.broker.send(message)
        elif any(book.policy.subscription_type == "key_shared" for book in self.books):  # producers batch by key for it
            for key in sorted({message.key for message in messages}):
                self.broker.send_batch([message for message in messages if message.key == key])
        else:
            self.broker.send_batch(messages)
        self.poke(topic)

    def message(self, topic: str, tenant: str = "") -> Outgoing:
        """A new message of that tenant or of any, known to all books."""
        name, rng = str(self._sent), self.rng
        self._sent += 1
        properties = {
            "n": name,
            "uid": tenant or rng.choice("aaabcd"),
            "size": str(rng.randrange(1_000)),
            "kodo-unknown": "kept",
        }
        forged = self.faults.forged() if topic in self.ready and self.processes else {}
        for book in self.books:
            case = book.cases[name] = Case(name, rng)
            case.forged = bool(forged)
            case.foreign = forged.get(names.FOR, book.policy.subscription) != book.policy.subscription
        key = rng.choice(["", "k1", "k2", "k3", "k4"])
        return Outgoing(topic, b"%d" % self._sent, properties | forged, key=key, event_time=rng.randrange(10))

    def store(self, book: Book, message: Outgoing) -> str:
        """A worker's message has arrived at the broker. Answers what a receipt names."""
        stored = self.broker.send(message)
        self.trace("stored", message.topic)
        book.arrived(message)
        self.poke(message.topic)
        return self.broker.token(stored)

    def poke(self, topic: str) -> None:
        """There may be something to deliver."""
        self._deliver_at(topic, self.now + self.latency())

    def _deliver_at(self, topic: str, moment: float) -> None:
        if moment < self._planned.get(topic, float("inf")):
            self._planned[topic] = moment
            self.at(moment, self._deliver, topic, moment)

    def _deliver(self, topic: str, moment: float) -> None:
        if self._planned.get(topic) != moment:
            return
        del self._planned[topic]
        if self.broker.deliver(topic):
            self.poke(topic)
        elif (due := self.broker.next_due_of(topic)) is not None:
            seconds = max(0.0, (due - self.clock.wall()) / 1000)
            self._deliver_at(topic, self.now + seconds + self.rng.random() * 0.1)


@contextmanager
def _quiet() -> Iterator[None]:
    """The worker's alarms are for people; here they would be thousands."""
    log = logging.getLogger("kodo.consumer")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)
