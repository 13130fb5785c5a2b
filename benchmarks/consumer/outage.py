"""Cost of an outage of some customers for all others: a worker's decisions in virtual time, no broker.

    python benchmarks/consumer/outage.py [--seconds 60] [--slots 16] [--out FILE]

One worker of 16 slots; handlers of 100 ready messages a second of 50 customers take 10 ms. From second 10 on, messages
of 1 to 200 other customers take 1, 5 or 30 s each, in one state; there are always some of each to start. Each case is a
line: ready messages started of those sent, how long they waited for a slot, the slots that the slow ones had, and how
often the breaker noticed them and opened for them. Of the 15 slots that the ready ones leave, max-min fairness would give
them all.

--opens: as if the breaker opened for slow handlers that end well, too. The slow ones get next to nothing then.
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count, product
from pathlib import Path
from random import Random

from kodo_consumer.core.engine.engine import Engine
from kodo_consumer.core.values.delay_schedule import DelaySchedule
from kodo_consumer.core.values.envelope import Delivery, Level, State
from kodo_consumer.core.values.outcomes import DONE, TOOK_TOO_LONG
from kodo_consumer.core.values.policy import Lane, Policy, Target
from kodo_consumer.message import Message
from kodo_consumer.testing import ManualClock
from kodo_consumer.testing.manual_clock import START_WALL

QUICK = 0.01  # seconds a ready message takes
READY_EACH = 0.01  # one ready message in so many seconds
READY_TENANTS = 50
BEGIN = 10.0  # of the outage
MOST_NAP = 5.0  # seconds between two ticks of a worker
PLACES = ((Level.L1, State.READY), (Level.L1, State.RETRYING), (Level.L1, State.PENDING), (Level.B1, State.READY))
WEIGHTS = {State.READY: 50, State.RETRYING: 30, State.PENDING: 15}


@dataclass(frozen=True)
class Case:
    """An outage: so many slow customers, where their messages are, how long each takes (seconds)."""

    customers: int
    place: tuple[Level, State]
    seconds: float
    fair_by: str | None = "customer"
    slots: int = 16
    weights: tuple[int, int, int, int] = (50, 30, 15, 5)  # of PLACES

    def policy(self) -> Policy:
        """Returns the policy of a worker that reads ready, retrying, pending and backup messages."""
        weights = self.weights
        lanes = tuple(
            Lane(index, *place, f"persistent://p/n/t-{index}", weights[index], weights[index] / sum(weights))
            for index, place in enumerate(PLACES)
        )
        return Policy(
            ground="t",
            subscription="s",
            lanes=lanes,
            targets={(lane.level, lane.state): Target(lane.level, lane.state, lane.topic) for lane in lanes},
            dead_letter=None,
            waits={state: DelaySchedule((10_000,), 3) for state in (State.RETRYING, State.PENDING, None)},
            fair_by=self.fair_by,
            concurrency=self.slots,
            handler_timeout=600_000,
        )


@dataclass(frozen=True)
class Figures:
    """Figures of one case. Waits (`p50`, `p99`, `most`) are in seconds; `slow_slots` is the mean over the outage;
    `notices` and `opened` count how often breakers of lanes noticed slow tenants and opened.
    """

    sent: int
    started: int
    p50: float
    p99: float
    most: float
    slow_slots: float
    notices: int
    opened: int


def outage(case: Case, seconds: float = 60.0, seed: int = 1, *, opens: bool = False) -> Figures:
    """Runs the case for so long after its begin. `opens`: handlers that were slow count as failed for the breakers."""
    return _Run(case, BEGIN + seconds, seed, opens=opens).figures()


class _Run:
    """One worker: arrivals and ends of handlers in the order of time."""

    def __init__(self, case: Case, until: float, seed: int, *, opens: bool) -> None:
        self._case, self._until, self._slow_outcome = case, until, TOOK_TOO_LONG if opens else DONE
        self._clock = ManualClock()
        self._engine = Engine(case.policy(), self._clock, Random(seed))
        self._number = count()
        self._events: list[tuple[float, int, Message | None, int, str]] = []
        self._came: dict[int, float] = {}
        self._running = 0
        self._waits: list[float] = []
        self._sent = 0
        self._slow_time = 0.0
        self._place = PLACES.index(case.place)
        rng = Random(seed)
        at = rng.random() * READY_EACH
        while at < until:
            self._arrives(at, 0, f"quick{rng.randrange(READY_TENANTS)}")
            at += rng.expovariate(1 / READY_EACH)
        for number in range(case.customers):
            for _ in range(max(2, 2 * case.slots // case.customers)):
                self._arrives(BEGIN + number / 1e6, self._place, f"slow{number}")

    def figures(self) -> Figures:
        """Runs to the end."""
        tick = 0.0
        while self._events or tick < self._until:
            at = min(self._events[0][0], tick) if self._events else tick
            if at >= self._until:
                break
            self._clock.advance(max(0.0, at - self._clock.now()))
            if at == tick:
                tick = at + min(MOST_NAP, max(0.001, self._engine.tick()))
            while self._events and self._events[0][0] <= at:
                self._happens(*heapq.heappop(self._events))
                self._fill()
            self._fill()
        waits = sorted(self._waits)
        share = self._slow_time / (self._until - BEGIN)
        slots = self._engine.scheduler.slots
        breakers = slots.breakers.lanes if slots is not None else []
        return Figures(
            self._sent, len(waits), waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1], share,
            sum(one.notices for one in breakers), sum(one.breaker.opened for one in breakers),
        )  # fmt: skip

    def _arrives(self, at: float, lane: int, tenant: str) -> None:
        heapq.heappush(self._events, (at, next(self._number), None, lane, tenant))

    def _happens(self, at: float, number: int, message: Message | None, lane: int, tenant: str) -> None:
        if message is not None:
            self._running -= 1
            self._engine.finish(message, self._slow_outcome if tenant.startswith("slow") else DONE)
            if tenant.startswith("slow"):
                self._arrives(at, self._place, tenant)
            return
        token = f"(7,{number},0,-1)"
        self._came[number] = at
        self._sent += tenant.startswith("quick") and at >= BEGIN
        properties = {"customer": tenant}
        self._engine.deliver(lane, [Delivery(number, token, b"x", properties, "", "", 0, START_WALL)])

    def _fill(self) -> None:
        now = self._clock.now()
        while self._running < self._case.slots and (message := self._engine.take()) is not None:
            self._running += 1
            tenant = message.properties["customer"]
            slow = tenant.startswith("slow")
            came = self._came.pop(int(message.id.split(":")[1]))
            if not slow and came >= BEGIN:
                self._waits.append(now - came)
            end = now + (self._case.seconds if slow else QUICK)
            if slow:
                self._slow_time += min(end, self._until) - now
            heapq.heappush(self._events, (end, next(self._number), message, 0, tenant))


def cases(slots: int) -> Iterator[Case]:
    """All outages, and those of the first row: without `fair_by`."""
    for place, customers, seconds in product(PLACES, (1, 5, 20, 50, 200), (1.0, 5.0, 30.0)):
        yield Case(customers, place, seconds, slots=slots)
    for place in PLACES[1:]:
        yield Case(50, place, 30.0, None, slots, (100, 5, 5, 5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "outage.jsonl")
    parser.add_argument("--opens", action="store_true", help="as if the breaker opened for what is slow and ends well")
    options = parser.parse_args()
    heads = f"{'p50':>8} {'p99':>8} {'most':>8} {'slow slots':>10} {'noticed':>8} {'opened':>7}"
    print(f"{'slow customers':<32} {'started':>15} {heads}")
    with options.out.open("a", encoding="utf-8") as out:
        for case in cases(options.slots):
            found = outage(case, options.seconds, opens=options.opens)
            place = f"{case.place[0]}/{case.place[1]}"
            name = f"{case.customers} in {place}, {case.seconds:g} s{'' if case.fair_by else ', no fair_by'}"
            ms = [f"{wait * 1000:.0f} ms" for wait in (found.p50, found.p99, found.most)]
            print(
                f"{name:<32} {f'{found.started:,}/{found.sent:,}':>15} {ms[0]:>8} {ms[1]:>8} {ms[2]:>8}"
                f" {found.slow_slots:>10.1f} {found.notices:>8} {found.opened:>7}"
            )
            about = {"case": asdict(case), "seconds": options.seconds, "opens": options.opens}
            out.write(json.dumps(about | asdict(found)) + "\n")


if __name__ == "__main__":
    main()
