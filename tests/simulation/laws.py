"""The table of outcomes, read from outside: when a handler may start, and where a message may go with which counters.

Written from docs/explanation/consumer.md, not from kodo_consumer.core.state_machine: it does not say where a
message goes, but what no message may do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kodo_consumer.core.state_machine import ISOLATED_REASON, PUT_BACK_REASON
from kodo_consumer.core.values.envelope import HEADER_NAMES, Level, Outgoing, State, position
from kodo_consumer.core.values.outcomes import (
    DONE,
    DeadLettered,
    DependencyUnavailable,
    Discarded,
    Failed,
    MoveAsked,
    PostponeAsked,
    RetryAsked,
    StateAsked,
    TransferAsked,
)
from kodo_consumer.core.values.policy import Lane, Policy

from kodoctl.protocol import properties as names
from kodoctl.topology.names import RouteMoment
from kodoctl.topology.route_facts import RouteFacts

if TYPE_CHECKING:
    from kodo_consumer.testing import StoredMessage

    from tests.simulation.book import Book, Work
    from tests.simulation.process import Process

_JITTER = 3_000  # ms
_GATHERED = 20  # ms that a message may wait for others to be published with, after its due time was settled
_ASIDE = 60_000, 3_600_000  # ms that an isolated message stays away, at least and at most
_MOST_ROUTES = 8
_MEMORY = 5_000  # ms: longer waits have jitter
_COUNTERS = {
    State.RETRYING: names.ATTEMPTS_RETRYING,
    State.PENDING: names.ATTEMPTS_PENDING,
    State.BLOCKING: names.ATTEMPTS_BLOCKING,
    None: names.ATTEMPTS_BACKUP,
}


def is_aside(message: Outgoing) -> bool:
    """Whether a worker moves it aside because its tenant floods. Moves that carry the word on have no due time."""
    return message.properties.get(names.REASON) == ISOLATED_REASON and names.DUE in message.properties


def is_for(stored: StoredMessage, policy: Policy) -> bool:
    """Whether a message is meant for the subscription."""
    return stored.message.properties.get(names.FOR, policy.subscription) == policy.subscription


def may_start(book: Book, process: Process, lane: Lane, work: Work) -> None:
    """Before the handler: for us? due? not sent elsewhere by a route?"""
    properties, fail, policy = work.stored.message.properties, book.world.fail, book.policy
    if not is_for(work.stored, policy):
        fail("for us", f"{work.case} runs and is for {properties[names.FOR]}")
    if work.case.forged:
        return
    due = min(
        int(properties.get(names.DUE, 0)), work.stored.publish_time + policy.horizon
    )  # later: another clock is wrong
    wall = process.clock.wall()
    if wall < due and wall < work.wall + policy.horizon and not process.jumped and not _hurried(process, lane):
        fail("I5 early", f"{work.case} starts {due - wall} ms before it is due")
    last = min(int(properties.get(names.DUE, 0)), policy.latest(work.stored.publish_time, work.wall))
    if not work.refused and wall >= last:  # one that is started before it is due has not waited
        route = _route(policy, lane, work)
        if route is not None and not (work.wall < last and _hurried(process, lane)):  # queued before it was due
            fail("routes", f"{work.case} runs on {lane.name}, a route sends it to {route}; {dict(properties)} {work}")


def _hurried(process: Process, lane: Lane) -> bool:
    """Whether the worker counts one more message of a ready lane that it started early: a fifth of its look-ahead waits so."""
    process.hurried += lane.state is State.READY
    return lane.state is State.READY and process.hurried <= process.worker.counts.hurried


def _route(policy: Policy, lane: Lane, work: Work) -> Level | None:
    """Where the first route that holds sends it: when it first comes, and when a wait is over. Drawn routes go by sizes."""
    properties = work.stored.message.properties
    moment = _moment(lane, work)
    if lane.ordered or moment is None or int(properties.get(names.ROUTES, 0)) >= _MOST_ROUTES:
        return None
    facts = RouteFacts(properties, "", "", "", 0, lane.level, lane.state)
    to = next((route.to for route in policy.routes if moment in route.at and route.holds(facts)), lane.level)
    return None if to is lane.level or (to, State.READY) not in policy.targets else to


def _moment(lane: Lane, work: Work) -> RouteMoment | None:
    properties = work.stored.message.properties
    if lane.state is not State.READY:
        return RouteMoment(lane.state.value)
    hops = names.HOP in properties
    stuck = sum(isinstance(outcome, DeadLettered) for outcome in work.outcomes)  # there are no dead letters: no attempt
    failed = work.failures > stuck or names.ATTEMPTS_BACKUP in properties
    if lane.level.is_backup and (failed or (hops and names.DUE in properties)):
        return RouteMoment.BACKUP
    return None if hops else RouteMoment.DISPATCH


def may_move(book: Book, process: Process, work: Work, to: Outgoing) -> None:
    """After it: the same message, one hop further, counted once, due as declared, and only where the table sends it."""
    problem = _Move(book, process, work, to).problem()
    if problem:
        book.world.fail("table", f"{work.case} to {to.topic} {dict(to.properties)}: {problem}; {work}")


class _Move:
    def __init__(self, book: Book, process: Process, work: Work, to: Outgoing) -> None:
        self.book, self.policy, self.process, self.work, self.to = book, book.policy, process, work, to
        self.lane = next(lane for lane in self.policy.lanes if lane.index == to.payload.lane)  # type: ignore[union-attr]
        self.old, self.new = work.stored.message.properties, to.properties
        self.target = next((target for target in self.policy.targets.values() if target.topic == to.topic), None)
        self.dies = self.policy.dead_letter is not None and to.topic == self.policy.dead_letter.topic

    def problem(self) -> str:
        """What is wrong with it, empty when nothing is."""
        if isinstance(self.work.last, TransferAsked) and self.to.topic in self.policy.produces.values():
            return self._transferred()
        if self.target is None and not self.dies:
            return "not a place it may go to"
        return self._altered() or ("" if self.work.case.forged else self._hop() or self._counted() or self._placed())

    def _number(self, properties: object, name: str) -> int:
        return int(properties.get(name, 0))  # type: ignore[attr-defined]

    def _transferred(self) -> str:
        own = {name for name in self.new if name.startswith(names.PREFIX)}
        case = self.work.case
        case.transferred_as = case.transferred_as or self.new.get(names.ID, "")
        if own != {names.PARENT, names.ID}:
            return f"a new message with {sorted(own)}"
        return "" if self.new[names.ID] == case.transferred_as else f"it was {case.transferred_as} before"

    def _altered(self) -> str:
        was, now = self.work.stored.message, self.to
        kept = (was.payload, was.key, was.ordering_key, was.event_time)
        if kept != (now.payload, now.key, now.ordering_key, now.event_time):
            return "I2: payload, key or event time altered"
        if _plain(self.old) != _plain(self.new):
            return "I2: properties altered"
        return ""

    def _hop(self) -> str:
        hop, most = self._number(self.new, names.HOP), self.policy.max_hops + self._number(self.new, names.POSTPONED)
        before = self._number(self.old, names.HOP)
        early = (
            self._number(self.new, names.RESERVED) > self._number(self.new, names.DUE) - _JITTER
        )  # comes back to ask anew
        at_limit = hop == before == most and self.new.get(names.REASON) == PUT_BACK_REASON  # a full lane is no death
        if hop != before + 1 and not (early and hop == max(1, before)) and not at_limit:
            return "I4: its hop is not one more"
        if hop > most and not self.dies:
            return f"I4: more than {most} hops"
        ready = self.target is not None and self.target.state is State.READY
        if self.new.get(names.FOR) != (self.policy.subscription if ready else None):
            return "it does not say whom it is for"
        origin = self.work.stored
        first = names.ORIGIN_ID not in self.old
        if first and (self.new[names.ORIGIN_TOPIC], self.new[names.ORIGIN_TIME]) != (
            self.lane.topic,
            str(origin.publish_time),
        ):
            return "its origin is wrong"
        if first and self.new[names.ORIGIN_ID] != position(self.book.world.broker.token(origin)):
            return "its identity is not where it was first stored"
        if not first and any(self.new[name] != self.old[name] for name in (names.ORIGIN_ID, names.ORIGIN_TIME)):
            return "its origin changed"
        return ""

    def _counted(self) -> str:
        """At most one attempt more, and never more than declared; the counter of the state it goes to counts every failure."""
        grown = {
            state: self._number(self.new, name) - self._number(self.old, name) for state, name in _COUNTERS.items()
        }
        for state, name in _COUNTERS.items():
            if self._number(self.new, name) > self.policy.waits[state].attempts:
                return f"I4: more than {self.policy.waits[state].attempts} attempts of {state}"
        if any(more < 0 for more in grown.values()):
            return "a counter was reset"
        backup = grown.pop(None)
        if backup and not (self.lane.level.is_backup and backup <= self.work.failures):
            return "a backup attempt that was none"
        in_memory = self.work.failures if self.lane.ordered else 1
        if sum(grown.values()) > in_memory:
            return "counted more than once"
        return ""

    def _to(self) -> tuple[Level, State] | None:
        return (self.target.level, self.target.state) if self.target else None

    def _placed(self) -> str:
        lane, policy = self.lane, self.policy
        why = self.new.get(names.REASON, "")
        if is_aside(self.to):
            return self._aside()
        if why == PUT_BACK_REASON and self.old.get(names.REASON) == ISOLATED_REASON:
            return self._put_back()
        if names.ROUTES in self.new and self.new[names.ROUTES] != self.old.get(names.ROUTES):
            return self._routed()
        limited = names.RESERVED in self.new or ("limit" in why and why != self.old.get(names.REASON))
        if policy.limits and limited and not self.work.refused:
            return self._before_the_handler()  # turned back when it came for another run
        if self.work.refused:
            return "" if self.dies else "refused by its target and sent anywhere but to the dead"
        match self.work.last:
            case DeadLettered():
                return "" if self.dies else "dead, and sent on"
            case Discarded():
                return "discarded, and sent on"
            case None | DependencyUnavailable():
                return self._before_the_handler()
            case outcome if outcome is DONE:
                return "done, and sent on"
            case MoveAsked(level) if (level, State.READY) == self._to() != (lane.level, lane.state):
                return ""
            case StateAsked(state) if self.target is not None and self.target.state is state:
                return self._due(state, grown=1)
            case PostponeAsked() if self._number(self.new, names.POSTPONED) > self._number(self.old, names.POSTPONED):
                return self._postponed()
            case Failed() | RetryAsked() | StateAsked() | MoveAsked() | PostponeAsked() | TransferAsked():
                return self._failed()
            case outcome:
                return f"nobody knows why: {outcome}"

    def _routed(self) -> str:
        """By the first route that holds, counted, and with no handler at work."""
        route = _route(self.policy, self.lane, self.work)
        if route is None or self._to() != (route, State.READY):
            return "I4: a route taken by a message that was moved before, or another than the first that matches"
        if self._number(self.new, names.ROUTES) != self._number(self.old, names.ROUTES) + 1:
            return "moves by routes are counted otherwise than by one"
        return "routed though its handler had it" if self.work.running else ""

    def _aside(self) -> str:
        """Of a tenant that has held its part of a full look-ahead: to the declared place, later, counting nothing."""
        policy, lane, work = self.policy, self.lane, self.work
        isolate = policy.isolate
        if isolate is None or lane.state is not State.READY or lane.ordered or lane.level.is_backup:
            return "isolated out of a lane whose messages stay"
        pending = {(lane.level, State.PENDING), (Level.L1, State.PENDING)}
        if self._to() not in ({(Level.B1, State.READY)} if isolate.to == "B1" else pending):
            return f"isolated, and not to {isolate.to}"
        if any(self._number(self.new, name) != self._number(self.old, name) for name in _COUNTERS.values()):
            return "isolation counted as an attempt"
        if work.running or work.last is DONE or isinstance(work.last, Discarded):
            return "isolated though its handler had it"
        due = self._number(self.new, names.DUE) - self.process.clock.wall()
        if not _ASIDE[0] - _GATHERED <= due <= _ASIDE[1] + _JITTER:
            return f"isolated, and due in {due} ms"
        if self.to.deliver_at is not None:
            return "isolated in a batch of its own"
        return self.book.crowds.too_small(self.process, work.stored)

    def _put_back(self) -> str:
        """Of what was moved aside, more than its lane holds: to the end of the same lane, once, due as before, by the broker."""
        policy, lane, work, due = self.policy, self.lane, self.work, self._number(self.new, names.DUE)
        if self._to() != (lane.level, lane.state) or work.running or work.stored.message.deliver_at is not None:
            return "put back elsewhere, out of a handler, or twice"
        if any(self._number(self.new, name) != self._number(self.old, name) for name in _COUNTERS.values()):
            return "put back, and counted as an attempt"
        before = self._number(self.old, names.DUE)
        # A clock that differs, here or where it was moved aside, makes a wait look longer than any that is declared: it is
        # cut to the longest, by the clock that puts it back, which may have jumped since.
        wait = due - self.process.clock.wall()
        cut = self.process.jumped or policy.horizon - _GATHERED <= wait <= policy.horizon + _JITTER
        if due - before > _JITTER or (due < before and not cut) or self.to.deliver_at != due:
            return f"put back, and due at {due}"
        return "" if wait > _MEMORY - _GATHERED else "put back, and due soon"

    def _postponed(self) -> str:
        """On its level, to a waiting state or its own lane, due within the longest wait, counting no attempt."""
        lane, policy = self.lane, self.policy
        if lane.ordered and policy.on_failure != "leave":
            return "postponed out of a lane that keeps order"
        if any(self._number(self.new, name) != self._number(self.old, name) for name in _COUNTERS.values()):
            return "postponed, and counted as an attempt"
        if self.target is None or self.target.level not in (lane.level, Level.L1):
            return "postponed to another level"
        if (
            lane.state is not State.READY
            and self.target.state is not lane.state
            and policy.target(lane.level, lane.state)
        ):
            return "postponed out of its waiting state"
        due = self._number(self.new, names.DUE) - self.process.clock.wall()
        return "" if due <= policy.horizon + _JITTER else f"postponed, and due in {due} ms"

    def _before_the_handler(self) -> str:
        policy, lane = self.policy, self.lane
        ready = self.target is not None and self.target.state is State.READY
        if not policy.limits:
            return "moved before its handler ran, and there are no limits"
        if lane.ordered or lane.level.is_backup:
            return "a limit moved it out of a lane whose messages stay"
        comes = self.target is not None and self.target.state is State.RETRYING and lane.state is not State.RETRYING
        if comes and self._number(self.new, names.ATTEMPTS_RETRYING) != self._number(self.old, names.ATTEMPTS_RETRYING):
            return "a refusal of a limit, which no handler saw, counted as an attempt of RETRYING"
        due = self._number(self.new, names.DUE) - self.process.clock.wall()
        if not ready and not self.dies and not 0 < due <= max(policy.horizon, 3_600_000) + _JITTER:
            return f"over a limit, and due in {due} ms"
        return ""

    def _failed(self) -> str:
        """RETRYING of its level while attempts are left, then B1, then dead; backup levels and ordered lanes keep their own."""
        policy, lane, work = self.policy, self.lane, self.work
        tries = work.failures
        if lane.level.is_backup:
            used, waits = self._number(self.old, names.ATTEMPTS_BACKUP) + tries, policy.waits[None]
            if self.dies:
                return "" if used == waits.attempts + 1 or self._circling() else f"dead after {used} attempts in backup"
            if self._number(self.new, names.ATTEMPTS_BACKUP) != used:
                return f"failed {used} times in backup, counted otherwise"
            return self._due(None, grown=tries) if self.to.topic == lane.topic else "left its backup level"
        in_place = len(policy.in_place)
        if lane.ordered and policy.on_failure != "leave":
            used, most = self._number(self.old, names.ATTEMPTS_RETRYING) + tries, policy.waits[State.RETRYING].attempts
            fits = most + 1 <= used <= most + 1 + in_place and policy.on_failure == "park"
            return "" if self.dies and fits else f"left its key after {used} failures"
        if tries - 1 > in_place:
            return f"{tries} runs in place, {in_place} waits are declared"
        if isinstance(work.last, Failed) and tries - 1 < in_place and self._stays_in_place():
            return f"{tries} runs in place, {in_place} waits are declared and there is room"
        if self.target is not None and self.target.state is State.RETRYING:
            return self._due(State.RETRYING, grown=1)
        return "" if (self.dies or self._escalated()) and self._retried_enough() else "gave up with attempts left"

    def _stays_in_place(self) -> bool:
        roomy = self.policy.lookahead_messages // 5 >= 500
        return (
            roomy
            and self.lane.state is State.READY
            and len(self.work.outcomes) == self.work.failures
            and all(isinstance(outcome, Failed) for outcome in self.work.outcomes)
        )

    def _escalated(self) -> bool:
        return self._to() == (Level.B1, State.READY) and not self.lane.level.is_backup

    def _circling(self) -> bool:
        return self._number(self.new, names.HOP) > self.policy.max_hops + self._number(self.new, names.POSTPONED)

    def _retried_enough(self) -> bool:
        """No RETRYING, or no attempt left; and for the dead: no B1 either."""
        used = self._number(self.old, names.ATTEMPTS_RETRYING)
        spent = self.policy.target(self.lane.level, State.RETRYING) is None
        spent = spent or used == self.policy.waits[State.RETRYING].attempts
        last = (Level.B1, State.READY) not in self.policy.targets or self.lane.level.rank >= Level.B1.rank
        return self._circling() or (spent and (last or not self.dies))

    def _due(self, state: State | None, *, grown: int) -> str:
        name, waits = _COUNTERS[state], self.policy.waits[state]
        count = self._number(self.new, name)
        if count != self._number(self.old, name) + grown:
            return f"its attempts of {state} grew otherwise than by {grown}"
        delay = waits.delay(count)
        if isinstance(self.work.last, RetryAsked) and self.work.last.after is not None:
            delay = min(self.work.last.after, self.policy.horizon)
        due = self._number(self.new, names.DUE) - self.process.clock.wall()
        late = _JITTER if delay > _MEMORY else 0
        if not delay - _GATHERED <= due <= delay + late:
            return f"I5: due in {due} ms, {delay} (+{late}) are declared"
        return "" if self.to.deliver_at == self._number(self.new, names.DUE) else "not delivered when it is due"


def _plain(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in HEADER_NAMES}
