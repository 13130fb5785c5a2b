"""Simulation: replays recorded traffic of one subscription through its workers in virtual time, until all messages have
ended.

Messages arrive on the ready lanes as their producers sent them; the workers decide about them on ready lanes, in
RETRYING, PENDING, BLOCKING and backup. Handlers take as long as recorded for the tenant and the state, and end as
recorded for the message; an outage replaces times and ends.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kodo_consumer.adapters.stores.memory_store import Shelf
from kodo_consumer.core.state.in_flight import InFlight
from kodo_consumer.core.values.envelope import Headers, Outgoing, State
from kodo_consumer.core.values.outcomes import DONE, Failed, Outcome, StateAsked
from kodo_consumer.simulation.simulated_worker import NEVER, SimulatedWorker
from kodo_consumer.testing.manual_clock import START_WALL, ManualClock
from kodo_consumer.testing.memory_broker import MemoryBroker

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Lane, Policy
    from kodo_consumer.message import Message

_HANGS: Final = Failed("outage")
PATIENCE: Final = 86_400.0  # seconds behind the last arrival in which everything should have ended
_LEAST: Final = 0.001  # seconds before the time-out in which a handler ends that is not said to hang
WAITING_STATES: Final = ("retrying", "pending", "blocking", "backup")
_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "d": DONE,
    "f": Failed("as recorded"),
    "k": Failed("as recorded"),
    "p": StateAsked(State.PENDING, "as recorded"),
    "b": StateAsked(State.BLOCKING, "as recorded"),
}


class SimulatedArrival(NamedTuple):
    """A message as its producer sent it, `at` seconds after the first one. `level`, `state`: if the file has no such
    lane, L1 in this state counts, else the ready lane of L1. `key`: "": none. `properties`: those that the file uses.
    `size`: bytes of payload. `tenant`: as recorded.

    `outcomes`: a letter for each stay in a lane in which handlers ran: d done, f failed, p and b asked for PENDING or
    BLOCKING, k failed for the last time, and the message died. In the replay each run takes the next letter; but in one
    stay in a ready lane (but of backup) the first run and the attempts of `in_place` have the same letter. Runs after
    the last letter are done, or fail if that letter is k; without letters all are done. A run that an outage decides
    takes no letter.

    `state`, `due` (seconds, as `at`; None: at once) and `attempts` (hops, then attempts in retrying, pending, blocking
    and backup) are those of a message that was waiting already when the replay begins (on backup with the state
    `ready`); other messages have the defaults.
    """

    at: float
    level: str
    key: str
    properties: Mapping[str, str]
    size: int
    tenant: str
    outcomes: str = ""
    state: str = "ready"
    due: float | None = None
    attempts: Sequence[int] = ()


class SimulatedOutage(NamedTuple):
    """An outage of a dependency of these tenants (as recorded), from `since` to before `until` (seconds, as
    SimulatedArrival.at). Messages of the tenants that arrive meanwhile go to the lane of `state` at once, as if they
    had failed before; those that waited already stay in their lanes. Runs of the tenants that begin in this state
    meanwhile take `seconds`, even beyond `until`, and end as done (`done`) or failed. If they fail, runs that begin in
    all other states meanwhile fail, too, after their usual time. A handler that takes longer than the file allows is
    timed out.
    """

    tenants: frozenset[str]
    state: str
    seconds: float
    since: float
    until: float
    done: bool

    def concerns(self, tenant: str, now: float) -> bool:
        """True if the outage affects this tenant's runs that begin, or messages that arrive, at `now` (seconds, as
        SimulatedArrival.at).
        """
        return self.since <= now < self.until and tenant in self.tenants


class SimulatedResult(NamedTuple):
    """Result of an arrival. `wait`: seconds from the arrival until a handler first started, None: never; `done`:
    seconds from the arrival until it was done, None: never. `dead`: it is among the dead letters. `tenant`: by the
    file's `fair_by`, not as recorded.
    """

    tenant: str
    wait: float | None
    done: float | None
    dead: bool


class RunGroup:
    """Handler runs of one state (`backup` for that level), of slow or of all other tenants. `runs`: number of runs that
    began; `waits`: seconds from the time at which a message was in its lane and due until its first run there, whatever
    it waited for, such as a slot or a limit; `slot_time`: seconds in which runs that have ended had slots.
    """

    __slots__ = ("runs", "slot_time", "waits")

    def __init__(self) -> None:
        self.waits = array("d")
        self.runs = 0
        self.slot_time = 0.0


class _Payload(bytes):
    """Empty bytes that report the length of the recorded payload, and have the index of their arrival."""

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


class _Progress:
    """Position of each message in its recorded outcomes: see SimulatedArrival."""

    def __init__(self, arrivals: Sequence[SimulatedArrival]) -> None:
        self._arrivals = arrivals
        self._hops = array("i", [-1]) * len(arrivals)  # of the last run of each
        self._at: dict[int, tuple[int, int]] = {}  # index of the letter, runs that are left of it

    def is_new(self, number: int, hop: int) -> bool:
        """True if this is the first run of the message in its present stay in a lane. `hop`: number of the reroute that
        brought it there.
        """
        last, self._hops[number] = self._hops[number], hop
        return hop != last

    def next(self, number: int, tries: int, *, again: bool) -> Outcome:
        """Outcome of the next run. `again`: in the same stay in a lane as the last one; `tries`: runs that fail before
        a failed message leaves its lane.
        """
        letters = self._arrivals[number].outcomes
        if not letters:
            return DONE
        index, left = self._at.get(number, (-1, 0))
        index, left = (index, left - 1) if again and left > 1 else (index + 1, tries)
        self._at[number] = index, left
        if index < len(letters):
            return _OUTCOMES[letters[index]]
        return _OUTCOMES["k"] if letters.endswith("k") else DONE


class Simulation:
    """Replay of one subscription's traffic, with a worker for each of `policies` (one at least). `seconds`: run time of
    a handler by recorded tenant, then by state (`backup` for that level), for each tenant and state in which a run can
    happen; cut to just below the time-out of the file. `outages`: the first that affects a run or an arrival counts.
    `groups`: runs by (state, True if the worker took the tenant for slow when they began). After `run`: `counts`, how
    often messages left a lane otherwise than as done, by rule (each move of a message counts); `breaker_opened`, how
    often circuit breakers of all handlers opened, of all workers together.
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        arrivals: Sequence[SimulatedArrival],
        seconds: Mapping[str, Mapping[str, float]],
        outages: Sequence[SimulatedOutage] = (),
    ) -> None:
        self.policy, self.arrivals = policies[0], arrivals
        self.counts: Counter[str] = Counter()  # what happened to messages, by rule
        self.breaker_opened = 0  # times, of all workers
        self.groups: defaultdict[tuple[str, bool], RunGroup] = defaultdict(RunGroup)
        self._seconds, self._outages = seconds, outages
        self._topics = {(lane.level.value, lane.state.value): lane.topic for lane in self.policy.lanes}
        self._clock = ManualClock()
        self._broker = MemoryBroker(self._clock, prefetch=True)
        self._broker.create_for(self.policy)
        leased = len(policies) > 1 and any(limit.shared for limit in self.policy.limits)
        shelf = Shelf(clock=self._clock.now) if leased else None
        self._workers = [
            SimulatedWorker(f"worker-{number}", one, self._broker, self._clock, self, Random(number), shelf)  # noqa: S311
            for number, one in enumerate(policies)
        ]
        self._progress = _Progress(arrivals)
        self._running: dict[Message, tuple[float, RunGroup]] = {}
        self._started: dict[int, float] = {}
        self._done: dict[int, float] = {}

    def run(self) -> list[SimulatedResult]:
        """Runs until all messages have ended, or a day (virtual) after the last arrival. Returns the results in order
        of the arrivals, which must be sorted by `at`. To be called once. Raises the error that broke a worker, and
        KeyError if `seconds` lacks the tenant and state of a run.
        """
        coming, last = 0, (self.arrivals[-1].at if self.arrivals else 0.0) + PATIENCE
        while True:
            now = self._clock.now()
            while coming < len(self.arrivals) and self.arrivals[coming].at <= now:
                self._send(coming)
                coming += 1
            self._settle(now)
            if coming == len(self.arrivals) and not self._backlog():
                break
            next_at = self.arrivals[coming].at if coming < len(self.arrivals) else NEVER
            if (moment := self._moment(now, next_at)) > last:
                break
            self._clock.advance(moment - now)
        for one in self._workers:
            self.counts.update({str(rule): times for rule, times in one.worker.counts.finished.items()})
            self.breaker_opened += one.worker.engine.scheduler.throttle.breaker.opened
        return self._results()

    # ---- handlers

    def on_start(self, message: Message) -> tuple[float, Outcome]:
        """Counts a run that begins now. Returns the seconds that it takes, and its outcome, as recorded or by an
        outage.
        """
        in_flight, now = message._in_flight, self._clock.now()  # noqa: SLF001  # the run belongs to the engine's message
        assert isinstance(in_flight, InFlight)
        number, lane = _number(message), in_flight.lane.lane
        arrival, state = self.arrivals[number], _state_of(lane)
        group = self.groups[state, in_flight.queue.slow is True]
        group.runs += 1
        is_new = self._progress.is_new(number, in_flight.headers.hop)
        if is_new:
            group.waits.append(now - self._ready_at(number, in_flight))
        self._started.setdefault(number, now - arrival.at)
        self._running[message] = now, group
        usual = min(self._seconds[arrival.tenant][state], self.policy.handler_timeout / 1000 - _LEAST)
        outage = self._outage(arrival.tenant, now)
        if outage is not None and state == outage.state:
            return outage.seconds, DONE if outage.done else _HANGS
        if outage is not None and not outage.done:
            return usual, _HANGS
        in_memory = len(self.policy.in_place) if state == "ready" else 0
        return usual, self._progress.next(number, 1 + in_memory, again=not is_new)

    def _outage(self, tenant: str, now: float) -> SimulatedOutage | None:
        return next((one for one in self._outages if one.concerns(tenant, now)), None)

    def on_end(self, message: Message, outcome: Outcome) -> None:
        """Records the end of a run."""
        began, group = self._running.pop(message)
        now = self._clock.now()
        group.slot_time += now - began
        if outcome is DONE:
            number = _number(message)
            self._done[number] = now - self.arrivals[number].at

    def _ready_at(self, number: int, in_flight: InFlight) -> float:
        """Time (seconds) from which the message could have started in its lane."""
        headers, arrival = in_flight.headers, self.arrivals[number]
        if not headers.hop:
            return arrival.at
        since = max(headers.due or 0, in_flight.delivery.publish_time)
        return max((since - START_WALL) / 1000, arrival.at)

    # ---- time

    def _send(self, number: int) -> None:
        """Sends an arrival to its lane; if the file has no lane of its level and state, to the one that its producer or
        worker would use instead.
        """
        arrival, properties, due = self.arrivals[number], self.arrivals[number].properties, None
        level, state, attempts = arrival.level, arrival.state, arrival.attempts
        outage = self._outage(arrival.tenant, arrival.at)
        if outage is not None and outage.state != "ready" and not attempts:
            at = WAITING_STATES.index(outage.state)
            attempts = (1, *(int(index == at) for index in range(len(WAITING_STATES))))
            level, state = ("B1", "ready") if outage.state == "backup" else (level, outage.state)
        if attempts:
            due = START_WALL + round(1000 * (arrival.at if arrival.due is None else arrival.due))
            hop, retrying, pending, blocking, backup = attempts
            headers = Headers(retrying, pending, blocking, backup, due, hop=hop, origin_time=START_WALL)
            properties = dict(properties)
            headers.write_to(properties)
        lanes = ((level, state), ("L1", state))
        topic = next((self._topics[lane] for lane in lanes if lane in self._topics), self.policy.ground_lane.topic)
        payload = _Payload(number, arrival.size)
        self._broker.send(Outgoing(topic, payload, properties, key=arrival.key, deliver_at=due))

    def _settle(self, now: float) -> None:
        """Lets workers and broker do everything that can happen at this moment."""
        busy = True
        while busy:
            busy = (sum(worker.step(now) for worker in self._workers) > 0) | self._broker.step()

    def _moment(self, now: float, next_at: float) -> float:
        """Time (seconds) of the next event."""
        due = self._broker.next_due
        held_back = NEVER if due is None else now + max((due - self._clock.wall()) / 1000, 0.001)
        return min(next_at, held_back, *(worker.next_call for worker in self._workers))

    def _backlog(self) -> int:
        return sum(self._broker.left(lane.topic, self.policy.subscription) for lane in self.policy.lanes)

    def _results(self) -> list[SimulatedResult]:
        dead: set[int] = set()
        if self.policy.dead_letter is not None:
            letters = [stored.message.payload for stored in self._broker.messages(self.policy.dead_letter.topic)]
            dead = {payload.arrival for payload in letters if isinstance(payload, _Payload)}
        return [
            SimulatedResult(
                self.policy.tenant(arrival.properties, arrival.key),
                self._started.get(number),
                self._done.get(number),
                number in dead,
            )
            for number, arrival in enumerate(self.arrivals)
        ]


def _state_of(lane: Lane) -> str:
    return "backup" if lane.level.is_backup else lane.state.value


def _number(message: Message) -> int:
    payload = message.data
    assert isinstance(payload, _Payload), "payloads travel as they came"
    return payload.arrival
