"""The ledger outside of what is tested: what was sent, what ran, what was published, what was acknowledged, for one
subscription. Whatever breaks a promise is told the moment it happens.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kodo_consumer.core.values.broker import Confirmed, Receipt, Rejected
from kodo_consumer.core.values.envelope import Outgoing, State
from kodo_consumer.core.values.outcomes import DONE, DependencyUnavailable, Discarded, Failed, Outcome, PostponeAsked
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.message import Message
from kodo_consumer.testing import StoredMessage

from tests.simulation import laws
from tests.simulation.cases import Case
from tests.simulation.network import Payload
from tests.simulation.pace import Paces

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

_REMEMBERED = 60.0  # seconds a worker knows what it finished with
TIMED_OUT = Failed("handler took too long")


@dataclass(slots=True, eq=False)
class Work:
    """A stored message in the hands of one process."""

    stored: StoredMessage
    case: Case
    generation: int
    wall: int  # of the process, when it came
    epoch: int  # of its topic, when it came
    started: int = 0
    began: float = 0.0
    running: bool = False
    outcomes: list[Outcome] = field(default_factory=list)
    sent: Outgoing | None = None
    refused: bool = False
    parked: bool = False  # refused by the dead letters too: nobody handles it in this process any more
    finished: float | None = None
    acked: bool = False
    known: bool = False  # its process was finished with it once before, and may remember

    @property
    def last(self) -> Outcome | None:
        return self.outcomes[-1] if self.outcomes else None

    @property
    def failures(self) -> int:
        """Runs that count: neither a dependency that is down nor a message that is postponed is a failure."""
        return sum(not isinstance(outcome, DependencyUnavailable | PostponeAsked) for outcome in self.outcomes)


class Crowds:
    """How many messages of a tenant a process held at once, where a subscription isolates; at least so many were never fewer."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._held: dict[Process, Counter[str]] = {}
        self._most: dict[Process, Counter[str]] = {}

    def came(self, process: Process, stored: StoredMessage, before: Work | None) -> None:
        if self._policy.isolate is None or (before is not None and before.finished is None):
            return
        held, most = self._held.setdefault(process, Counter()), self._most.setdefault(process, Counter())
        for name in (stored.message.properties["uid"], ""):
            held[name] += 1
            most[name] = max(most[name], held[name])

    def went(self, process: Process, work: Work) -> None:
        if self._policy.isolate is not None and work.finished is not None:
            self._held[process].subtract([work.stored.message.properties["uid"], ""])

    def too_small(self, process: Process, stored: StoredMessage) -> str:
        """Why the tenant of a message may not be isolated; empty when it may."""
        isolate, fits = self._policy.isolate, self._policy.max_held
        assert isolate is not None
        tenant, most = stored.message.properties["uid"], self._most[process]
        least = max(1, min(isolate.least, int(isolate.share * fits)))
        if most[tenant] < least:
            return f"{tenant} is isolated and never held more than {most[tenant]}, {least} are declared"
        return f"isolated with {most['']} messages held, {fits} fit" if 2 * most[""] < fits else ""


class Book:
    """Everything about one subscription."""

    def __init__(self, world: World, policy: Policy) -> None:
        self.world, self.policy = world, policy
        self.cases: dict[str, Case] = {}
        self.works: dict[Process, list[dict[int, Work]]] = {}
        self._generations: dict[Process, list[int]] = {}
        self._paces: dict[Process, Paces] = {}
        self._order: dict[tuple[Process, int, str], tuple[Work, int, int]] = {}
        self.crowds = Crowds(policy)

    # ---- processes

    def opened(self, process: Process) -> None:
        self.works[process] = [{} for _ in self.policy.lanes]
        self._generations[process] = [0 for _ in self.policy.lanes]
        self._paces[process] = Paces(self.policy)

    def shared(self, process: Process, workers: int) -> None:
        self._paces[process].workers = workers

    def killed(self, process: Process) -> None:
        """What it had begun and what it had not yet told the broker will be done again."""
        for lane in range(len(self.policy.lanes)):
            self._excuse(process, lane, kept=self.policy.lanes[lane].partitions > 1)

    def disconnected(self, process: Process, lane: int, *, told: bool) -> None:
        self._excuse(process, lane, kept=not told)
        self._generations[process][lane] += 1
        for work in self.works[process][lane].values():  # what runs or is being published goes on
            if not told or work.running or (work.sent is not None and work.finished is None):
                work.generation += 1
        self.world.epochs[self.policy.lanes[lane].topic] += 1

    def _excuse(self, process: Process, lane: int, *, kept: bool) -> None:
        for work in self.works[process][lane].values():
            again = not work.acked or work.stored.batch is not None
            if again and (work.started or work.sent or work.finished is not None or kept):
                work.case.excuses += 1

    # ---- messages

    def delivered(self, process: Process, lane: int, number: int) -> None:
        generation = self._generations[process][lane]
        works = self.works[process][lane]
        work = works.get(number)
        known = work is not None and (
            work.generation == generation or work.running or (work.sent is not None and work.finished is None)
        )
        now = self.world.now
        if work is not None and work.finished is not None:
            known = True
            if now - work.finished >= _REMEMBERED:
                work.case.excuses += 1
                known = False
        if work is None or not known:
            self.crowds.came(process, self.world.broker.at(self.policy.lanes[lane].topic, number), work)
            stored = self.world.broker.at(self.policy.lanes[lane].topic, number)
            finished_before = work is not None and (work.known or work.finished is not None)
            epoch = self.world.epochs[self.policy.lanes[lane].topic]
            works[number] = work = Work(
                stored, self._case(stored), generation, process.clock.wall(), epoch, known=finished_before
            )
        work.generation = generation

    def _case(self, stored: StoredMessage) -> Case:
        return self.cases[stored.message.properties["n"]]

    def work_of(self, process: Process, payload: bytes | None) -> Work:
        assert isinstance(payload, Payload), "payloads travel as they came"
        return self.works[process][payload.lane][payload.number]

    def begins(self, process: Process, message: Message) -> tuple[float, Outcome]:
        """A handler starts: seconds it will take, and what comes of it."""
        payload = message.data
        work = self.work_of(process, payload)
        lane = self.policy.lanes[payload.lane]  # type: ignore[attr-defined]
        fail = self.world.fail
        self.world.trace("run", work.case.name, process.name, lane.index, work.stored.number)
        if process.draining:
            fail("drain", f"{work.case} starts while its worker drains")
        if work.running or work.parked or work.sent is not None or work.finished is not None:
            fail("I3 repeats", f"{work.case} runs again in {process.name} though it is {work}")
        if work.generation != self._generations[process][lane.index]:
            fail("I3 repeats", f"{work.case} runs from before a disconnection")
        laws.may_start(self, process, lane, work)
        if lane.ordered:
            self._in_order(process, lane.index, work)
        if problem := self._paces[process].started(self.world.now, work.stored.message, again=work.started > 0):
            fail("limits", f"{work.case} in {process.name}: {problem}")
        work.started += 1
        work.running, work.began = True, self.world.now
        self.world.opening.started(process, lane, message.tenant)
        seconds, outcome = work.case.run(self.world, lane)
        return self.world.opening.seconds(seconds), outcome

    def _in_order(self, process: Process, lane: int, work: Work) -> None:
        """I6: within a key (or partition) nothing starts before what came earlier is finished with, or parked: where a dead
        letter would let its key go on, one that cannot be stored does.
        """
        message, stored = work.stored.message, work.stored
        key = message.ordering_key or message.key or f"\0{stored.partition}"
        epoch = self.world.epochs[self.policy.lanes[lane].topic]
        before = self._order.get((process, lane, key))
        if before is not None and before[0].stored is not stored and before[1] == epoch:
            earlier = before[0]
            if earlier.finished is None and not earlier.parked:
                self.world.fail("I6 order", f"{work.case} of {key} starts before {earlier.case} is finished with")
            handed_over = earlier.epoch != work.epoch  # the later one came before whoever had the earlier one was gone
            late = earlier.stored.number > stored.number and not handed_over
            if late and message.deliver_at is None and not work.case.ended:
                self.world.fail("I6 order", f"{work.case} of {key} starts after the later {earlier.case}")
        self._order[process, lane, key] = (work, epoch, stored.number)

    def timed_out(self, process: Process, message: Message) -> None:
        work = self.work_of(process, message.data)
        if work.running:
            self._ends(process, work, TIMED_OUT)

    def ends(self, process: Process, message: Message, outcome: Outcome) -> None:
        if isinstance(outcome, PostponeAsked) and not self._can_wait(message):
            outcome = Failed("Postpone")
        self._ends(process, self.work_of(process, message.data), outcome)

    def _can_wait(self, message: Message) -> bool:
        """Whether a message can be postponed: its lane keeps order or its own messages, or its level has a waiting state."""
        policy, level = self.policy, message.level
        lane = next(one for one in policy.lanes if (one.level, one.state) == (level, message.state))
        if lane.ordered and policy.on_failure != "leave":
            return True
        if level.is_backup:
            return (level, State.READY) in policy.targets
        return any(policy.target(level, state) for state in (State.RETRYING, State.PENDING, State.BLOCKING))

    def _ends(self, process: Process, work: Work, outcome: Outcome) -> None:
        self.world.trace("end", work.case.name, type(outcome).__name__)
        self._paces[process].ended(work.stored.message)
        work.running = False
        work.outcomes.append(outcome)
        if outcome is DONE or isinstance(outcome, Discarded):
            work.finished = self.world.now
            work.case.ended += 1

    def published(self, process: Process, message: Outgoing) -> None:
        """A worker sends a message on."""
        work = self.work_of(process, message.payload)
        self.world.trace("send", work.case.name, message.topic)
        if work.running and self.world.now - work.began >= self.policy.handler_timeout / 1000:
            self._ends(process, work, TIMED_OUT)  # its handler is told afterwards
        if work.sent is not None and not work.refused:
            if message != work.sent:
                self.world.fail("I2 altered", f"{work.case} is sent again as something else")
            return
        work.sent = message
        if laws.is_aside(message):
            self.world.flood.leaves(process, message)
        laws.may_move(self, process, work, message)
        work.refused = False

    def receipt(self, process: Process, message: Outgoing, receipt: Receipt) -> None:
        work = self.work_of(process, message.payload)
        if isinstance(receipt, Confirmed):
            work.finished = self.world.now
        elif isinstance(receipt, Rejected):
            dead = self.policy.dead_letter
            work.refused, work.parked = True, dead is None or message.topic == dead.topic

    def excuse(self, process: Process, message: Outgoing) -> None:
        """Stored, and the worker does not know: it will send it again."""
        self.work_of(process, message.payload).case.excuses += 1

    def acknowledged(self, process: Process, lane: int, number: int) -> None:
        work = self.works[process][lane][number]
        self.world.trace("ack", work.case.name, lane)
        if work.finished is None and not work.known and laws.is_for(work.stored, self.policy):
            self.world.fail("I1 lost", f"{work.case} is acknowledged before it is done or has a receipt: {work}")
        self.crowds.went(process, work)

    def arrived(self, message: Outgoing) -> None:
        """The broker has stored what a worker sent."""
        case = self.cases[message.properties["n"]]
        dead = self.policy.dead_letter
        if dead is not None and message.topic == dead.topic:
            case.ended += 1
            case.dead += 1
        elif message.topic in self.policy.produces.values():
            case.ended += 1

    # ---- the end

    def audit(self) -> None:
        """I1 and I3 over everything, once nothing is left to do."""
        for case in self.cases.values():
            if case.ended < 1 and not case.foreign:
                self.world.fail("I1 lost", f"{case} is nowhere")
            if case.ended > 1 + case.excuses:
                self.world.fail(
                    "I3 repeats", f"{case} ended {case.ended} times, with {case.excuses} faults to excuse it"
                )
            if case.foreign and case.ended:
                self.world.fail("for us", f"{case} was not for {self.policy.subscription}")

    @property
    def left(self) -> int:
        """Messages not acknowledged."""
        return sum(self.world.broker.left(lane.topic, self.policy.subscription) for lane in self.policy.lanes)
