"""Recorded traffic through a worker under a topology file, in virtual time: what would happen, before anyone applies
it.

The engine is the one that works on a cluster, with its scheduler, limits, routes, isolation and waiting states; only
the broker is in memory and the handlers take as long as they are said to. One worker stands for all that the file
expects.

`python -m kodo_consumer.simulator` reads a request, then an arrival a line, and writes one document: for programs
that may not import this package.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from math import ceil
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, assert_never

from kodo_consumer.core.envelope import Outgoing, State
from kodo_consumer.core.lane_set import in_proportion
from kodo_consumer.core.limit_policy import Concurrency, Limit, Pace, Quota, Rate
from kodo_consumer.core.outcomes import DONE, Failed, Outcome
from kodo_consumer.policy_builder import policy_of
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing.manual_clock import ManualClock
from kodo_consumer.testing.memory_broker import MemoryBroker
from kodoctl.errors import InvalidFileError, KodoctlError
from kodoctl.topology.load import load_set, source_of

if TYPE_CHECKING:
    from kodo_consumer.core.handler_executor import WorkSource
    from kodo_consumer.core.policy import Policy
    from kodo_consumer.message import Message
    from kodoctl.topology.loaded_topology import LoadedTopology

PATIENCE: Final = 86_400.0  # seconds behind the last arrival in which everything should have ended
TOLD: Final = 10  # tenants told one by one
_SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_STEP: Final = 0.0001  # seconds that time goes on at least where the worker asks for a moment that has come
_NEVER: Final = float("inf")


class SimulatedArrival(NamedTuple):
    """A message as its producer sent it, `at` seconds after the first one. Its handler takes `seconds` a run, and `fails`
    times it fails until the message leaves its lane. `properties`: those that the file asks for.
    """

    at: float
    level: str
    key: str
    properties: Mapping[str, str]
    size: int
    seconds: float
    fails: int


class SimulatedResult(NamedTuple):
    """Result of an arrival: seconds until a handler first started, until it was done; None: never."""

    tenant: str
    wait: float | None
    done: float | None
    dead: bool


class _Payload(bytes):
    """Says that it is as long as the recorded one was, and knows which that is."""

    arrival: int
    size: int

    def __new__(cls, arrival: int, size: int) -> Self:
        made = super().__new__(cls)
        made.arrival, made.size = arrival, size
        return made

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True


def one_worker(policy: Policy, slots: int | None = None) -> Policy:
    """One worker with what all have together. It neither records nor signs, and knows no schema: that costs no turns."""
    workers = policy.expected_workers
    total = slots or policy.concurrency * workers
    ratio = (workers, 1) if policy.adaptive else (total, policy.concurrency)
    return replace(
        policy,
        expected_workers=1,
        concurrency=total,
        bulkheads=in_proportion(policy.bulkheads, *ratio),
        adaptive=False,
        limits=tuple(limit if limit.shared else _times(limit, workers) for limit in policy.limits),
        lookahead_messages=policy.lookahead_messages * workers,
        lookahead_bytes=policy.lookahead_bytes * workers,
        audit=None,
        signer=None,
        compat=None,
        payload_schema=None,
    )


def _times(limit: Limit, workers: int) -> Limit:
    """A limit of each worker, for all of them."""
    match limit:
        case Rate():
            more = {value: _paces(pace, workers) for value, pace in limit.overrides.items()}
            return replace(limit, pace=_paces(limit.pace, workers), overrides=more)
        case Concurrency():
            caps = {value: cap * workers for value, cap in limit.overrides.items()}
            return replace(limit, limit=limit.limit * workers, overrides=caps)
        case Quota():
            counts = {value: (amount * workers, period) for value, (amount, period) in limit.overrides.items()}
            return replace(limit, amount=limit.amount * workers, overrides=counts)
        case _:
            assert_never(limit)


def _paces(pace: Pace, workers: int) -> Pace:
    return replace(pace, amount=pace.amount * workers, burst=pace.burst * workers)


class _Slots:
    """Handlers at work: see kodo_consumer.core.handler_executor.HandlerExecutor."""

    def __init__(self, replay: Simulation, most: int) -> None:
        self._replay, self._most = replay, most
        self._ends: list[tuple[float, int, Message]] = []
        self._numbers = count()
        self._running = 0
        self._source: WorkSource | None = None

    def start(self, source: WorkSource) -> None:
        """See Runner."""
        self._source = source

    def wake(self) -> None:
        """See Runner."""

    def time_out(self, message: Message) -> None:
        """See Runner. No handler takes that long here."""

    def stop(self) -> None:
        """See Runner."""

    @property
    def next_end(self) -> float:
        """When the first one ends."""
        return self._ends[0][0] if self._ends else _NEVER

    def step(self, now: float) -> bool:
        """Ends what is due and starts what may. False: nothing to do."""
        source, busy = self._source, False
        assert source is not None
        while self._ends and self._ends[0][0] <= now:
            _, _, message = heappop(self._ends)
            busy = True
            self._running -= 1
            self._begin(source.next(message, self._replay.ended(message, now)), now)
        while self._running < self._most:
            seen = source.version
            if (taken := source.next(None, None)) is not None:
                busy = True
                self._begin(taken, now)
            elif source.version == seen:
                break
        return busy

    def _begin(self, message: Message | None, now: float) -> None:
        if message is not None:
            self._running += 1
            heappush(self._ends, (now + self._replay.started(message, now), next(self._numbers), message))


class Simulation:
    """One subscription's traffic under one policy, from the first arrival until all is ended."""

    def __init__(self, policy: Policy, arrivals: Sequence[SimulatedArrival]) -> None:
        self.policy, self.arrivals = policy, arrivals
        self.counts: Counter[str] = Counter()  # what happened to messages, by rule
        self._topics = {lane.level.value: lane.topic for lane in policy.lanes if lane.state is State.READY}
        self._clock = ManualClock()
        self._broker = MemoryBroker(self._clock)
        self._broker.create_for(policy)
        self._slots = _Slots(self, policy.concurrency)
        rng = Random(0)  # noqa: S311  # the same jitter in every run
        self._worker = Worker(policy, self._broker, self._slots, self._clock, rng)
        self._starts: dict[int, float] = {}
        self._done: dict[int, float] = {}
        self._failures: Counter[int] = Counter()
        self._tries = 1 + len(policy.in_place)  # runs of the handler before a failed message leaves its lane

    def run(self) -> list[SimulatedResult]:
        """Results of all arrivals, in their order."""
        self._worker.open("lab")
        coming, last = 0, (self.arrivals[-1].at if self.arrivals else 0.0) + PATIENCE
        while True:
            now = self._clock.now()
            while coming < len(self.arrivals) and self.arrivals[coming].at <= now:
                self._send(coming)
                coming += 1
            self._settle(now)
            if coming == len(self.arrivals) and not self._left():
                break
            next_at = self.arrivals[coming].at if coming < len(self.arrivals) else _NEVER
            if (moment := self._moment(now, next_at)) > last:
                break
            self._clock.advance(moment - now)
        self.counts = Counter({str(rule): times for rule, times in self._worker.counts.finished.items()})
        return self._fates()

    def started(self, message: Message, now: float) -> float:
        """A handler starts: seconds it will take, less than would end it for hanging."""
        number = _number(message)
        arrival = self.arrivals[number]
        self._starts.setdefault(number, now - arrival.at)
        return min(arrival.seconds, self.policy.handler_timeout / 1000 - 0.001)

    def ended(self, message: Message, now: float) -> Outcome:
        """It ends: what comes of it."""
        number = _number(message)
        if self._failures[number] < self.arrivals[number].fails * self._tries:
            self._failures[number] += 1
            return Failed("as recorded")
        self._done[number] = now - self.arrivals[number].at
        return DONE

    def _send(self, number: int) -> None:
        """Sends an arrival to its level, and to the ground topic where the level is no more: as producers would have to."""
        arrival = self.arrivals[number]
        payload = _Payload(number, arrival.size)
        topic = self._topics.get(arrival.level, self.policy.ground_lane.topic)
        self._broker.send(Outgoing(topic, payload, dict(arrival.properties), key=arrival.key))

    def _settle(self, now: float) -> None:
        """Everything that can happen at this moment."""
        while True:
            if self._worker.due_in <= 0:
                self._worker.tick()
            if not (self._slots.step(now) | self._broker.step()):
                break
        if self._worker.problem is not None:
            raise self._worker.problem

    def _moment(self, now: float, next_at: float) -> float:
        """When something happens next."""
        due = self._broker.next_due
        held_back = _NEVER if due is None else now + max((due - self._clock.wall()) / 1000, 0.001)
        return min(next_at, self._slots.next_end, held_back, now + max(self._worker.due_in, _STEP))

    def _left(self) -> int:
        return sum(self._broker.left(lane.topic, self.policy.subscription) for lane in self.policy.lanes)

    def _fates(self) -> list[SimulatedResult]:
        dead: set[int] = set()
        if self.policy.dead_letter is not None:
            letters = [stored.message.payload for stored in self._broker.messages(self.policy.dead_letter.topic)]
            dead = {payload.arrival for payload in letters if isinstance(payload, _Payload)}
        return [
            SimulatedResult(
                self.policy.tenant(arrival.properties, arrival.key),
                self._starts.get(number),
                self._done.get(number),
                number in dead,
            )
            for number, arrival in enumerate(self.arrivals)
        ]


def _number(message: Message) -> int:
    payload = message.data
    assert isinstance(payload, _Payload), "payloads travel as they came"
    return payload.arrival


def _group_figures(fates: Sequence[SimulatedResult]) -> dict[str, Any]:
    """Counts of one tenant, or of several, and percentiles in ms; null where none was."""
    waits = sorted(fate.wait for fate in fates if fate.wait is not None)
    times = sorted(fate.done for fate in fates if fate.done is not None)
    return {
        "messages": len(fates),
        "done": len(times),
        "dead": sum(fate.dead for fate in fates),
        "wait_ms": _percentiles(waits),
        "latency_ms": _percentiles(times),
    }


def figures(fates: Sequence[SimulatedResult], told: int = TOLD) -> dict[str, Any]:
    """Of all, and of the tenants with most messages; what others have together has `tenant` null."""
    by_tenant: dict[str, list[SimulatedResult]] = {}
    for fate in fates:
        by_tenant.setdefault(fate.tenant, []).append(fate)
    ordered = sorted(by_tenant, key=lambda name: (-len(by_tenant[name]), name))
    rows = [{"tenant": name, **_group_figures(by_tenant[name])} for name in ordered[:told]]
    if rest := [fate for name in ordered[told:] for fate in by_tenant[name]]:
        rows.append({"tenant": None, "tenants": len(ordered) - told, **_group_figures(rest)})
    return {"all": _group_figures(fates), "tenants": rows}


def _percentiles(ordered: Sequence[float]) -> dict[str, float] | None:
    if not ordered:
        return None
    return {name: round(1000 * ordered[ceil(share * len(ordered)) - 1], 3) for name, share in _SHARES.items()}


def answer(lines: Iterator[str]) -> dict[str, Any]:
    """The first line asks: {text, path, environment, topic, subscription, slots}; each other one is an Arrival, as a list.
    The document has `all` and `tenants` (figures), `moved` (by rule); or `findings` that speak against it.
    """
    try:
        request = json.loads(next(lines))
        topology = _topology(request["text"], request["path"], request["environment"])
        policy = one_worker(policy_of(topology, request["topic"], request["subscription"]), request["slots"])
    except KodoctlError as problem:
        return {"findings": [[one.code, one.summary, one.detail] for one in problem.diagnostics]}
    replay = Simulation(policy, [SimulatedArrival(*json.loads(line)) for line in lines])
    return {**figures(replay.run()), "moved": dict(sorted(replay.counts.items())), "slots": policy.concurrency}


def _topology(text: str, path: str, environment: str | None) -> LoadedTopology:
    loaded = load_set([source_of(text.encode(), path)], environment)
    if loaded.findings or not loaded.topologies:
        raise InvalidFileError(*loaded.findings)
    return loaded.topologies[0]


def main(source: Iterable[str], target: Any) -> None:
    """From a stream of lines to a document."""
    json.dump(answer(iter(source)), target)


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
