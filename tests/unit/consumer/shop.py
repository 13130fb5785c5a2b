"""A worker in virtual time: the real engine, slots that are busy for as long as a test says, and waits to look at."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kodo_consumer.core.engine.engine import Engine
from kodo_consumer.core.state.in_flight import InFlight
from kodo_consumer.core.values.envelope import Delivery
from kodo_consumer.core.values.outcomes import DONE, Outcome
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.message import Message
from kodo_consumer.testing import ManualClock

from tests.unit.consumer.engine_bench import delivery


@dataclass
class Started:
    """A handler start: when, whose, and how long the message had waited (seconds)."""

    at: float
    tenant: str
    wait: float


@dataclass
class Shop:
    """`seconds` says how long a message's handler runs, `outcome` what comes of it. `as_threads`: messages are taken only when
    an executor of threads asks: by a slot that hands one back, once, and by others while the engine's version grows.
    """

    policy: Policy
    seconds: Callable[[Message], float] = lambda _: 0.01
    outcome: Callable[[Message, float], Outcome] = lambda _message, _now: DONE
    clock: ManualClock = field(default_factory=ManualClock)
    started: list[Started] = field(default_factory=list)
    busy: Counter[str] = field(default_factory=Counter)  # slots by tenant
    most: Counter[str] = field(default_factory=Counter)  # the most at a time
    as_threads: bool = False

    def __post_init__(self) -> None:
        self.engine = Engine(self.policy, self.clock, Random(1))
        self._events: list[tuple[float, int, Message | Delivery, int]] = []
        self._count = 0
        self._came: dict[object, float] = {}
        self._next_tick = 0.0
        self._empty_at = -1  # the engine's version when nothing was left to take

    def comes(self, at: float, tenant: str, lane: int = 0, **properties: Any) -> None:
        """A message of a tenant arrives."""
        self._count += 1
        self._push(at, delivery(self._count, b"x", u=tenant, **properties), lane)

    def trickle(self, tenants: Iterable[str], each: float, until: float, begin: float = 0.0) -> None:
        """A message of each tenant every `each` seconds, spread evenly."""
        names = list(tenants)
        for number in range(int((until - begin) / each * len(names))):
            self.comes(begin + number * each / len(names), names[number % len(names)])

    def run(self, until: float) -> None:
        """Everything up to a moment, in order."""
        while True:
            at = min(self._events[0][0] if self._events else until, self._next_tick, self.engine.timers.first)
            if at > until or (at == until and not self._events):
                break
            self.clock.advance(max(0.0, at - self.clock.now()))
            while self._events and self._events[0][0] <= at:
                event = heapq.heappop(self._events)
                self._happen(*event)
                if not (self._events and self._events[0][0] <= at and isinstance(self._events[0][2], Delivery)):
                    self._fill(free=isinstance(event[2], Message))
            self._next_tick = self.clock.now() + max(self.engine.tick(), 0.001)
            self._fill()
        self.clock.advance(max(0.0, until - self.clock.now()))

    def _happen(self, at: float, _number: int, what: Message | Delivery, lane: int) -> None:
        if isinstance(what, Message):
            self.busy[what.tenant] -= 1
            self.engine.finish(what, self.outcome(what, at))
        else:
            self._came[what.token] = at
            self.engine.deliver(lane, [what])

    def waits(self, tenant: str, begin: float = 0.0) -> list[float]:
        """Waits of tenants whose name begins so, sorted."""
        return sorted(one.wait for one in self.started if one.tenant.startswith(tenant) and one.at >= begin)

    def _fill(self, *, free: bool = False) -> None:
        """Starts what may start. `free`: a slot handed a message back."""
        while self.busy.total() < self.policy.concurrency:
            version = self.engine.version
            if self.as_threads and not free and version == self._empty_at:
                return
            free = False
            if (message := self.engine.take()) is not None:
                self._start(message)
            elif not self.as_threads:
                return
            else:
                self._empty_at = version

    def _start(self, message: Message) -> None:
        now, tenant = self.clock.now(), message.tenant
        self.busy[tenant] += 1
        self.most[tenant] = max(self.most[tenant], self.busy[tenant])
        in_flight = message._in_flight
        assert isinstance(in_flight, InFlight)
        number = in_flight.delivery.token
        self.started.append(Started(now, tenant, now - self._came[number]))
        self._push(now + self.seconds(message), message, 0)

    def _push(self, at: float, what: Message | Delivery, lane: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, what, lane))


def jain(amounts: Iterable[float]) -> float:
    """1: everybody got the same."""
    values = list(amounts)
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))
