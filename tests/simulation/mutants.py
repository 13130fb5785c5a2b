"""The worker deliberately broken, each time in one place: what the simulation has to catch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kodo_consumer.core import state_machine
from kodo_consumer.core.engine import engine, message_flow, publishing
from kodo_consumer.core.engine.publishing import PendingPublishes
from kodo_consumer.core.engine.tenant_isolation import TenantIsolation
from kodo_consumer.core.limits.limiters import ConcurrencyLimiter, QuotaLimiter, RateLimiter
from kodo_consumer.core.state.fairness import StartTimeFairQueue
from kodo_consumer.core.state.in_flight import BatchEntry, LaneState
from kodo_consumer.core.state.tenant_ring import _Rounds
from kodo_consumer.core.state_machine import Acknowledge, Rule
from kodo_consumer.core.values.broker import Confirmed, Unconfirmed
from kodo_consumer.core.values.envelope import Headers, State
from kodo_consumer.core.values.outcomes import OtherSubscription

Made = Callable[..., Any]
Mutant = tuple[Any, str, Callable[[Made], Any]]
"""Where it stands, its name, and what makes the broken one of the right one."""


def _acknowledged_at_once(right: Made) -> Made:
    def begin(self: Any, in_flight: Any, *given: Any) -> None:
        right(self, in_flight, *given)
        in_flight.lane.acks.append(in_flight.ack_token)
        self._context.unsent += 1

    return begin


def _lost_is_stored(right: Made) -> Made:
    def receipt(self: Any, ticket: int, receipt: Any, now: float) -> None:
        right(self, ticket, Confirmed("(0,0,0,0)") if isinstance(receipt, Unconfirmed) else receipt, now)

    return receipt


def _one_more(right: Made) -> Made:
    def init(self: Any, weights: list[int], *given: Any) -> None:
        heaviest = max(range(len(weights)), key=lambda index: weights[index])
        right(self, [weight + (index == heaviest) for index, weight in enumerate(weights)], *given)

    return init


def _hops_stand_still(right: Made) -> Made:
    def move(envelope: Any, target: Any, headers: Any, *given: Any, **named: Any) -> Any:
        hop = headers.hop  # a copy for this move alone, which it changes
        moved = right(envelope, target, headers, *given, **named)
        if not isinstance(moved, state_machine.Reroute):
            return moved
        return state_machine.Reroute(moved.target, moved.headers.replace(hop=hop), moved.why)

    return move


def _for_everybody(right: Made) -> Made:
    def on_arrival(*given: Any) -> Any:
        outcome = right(*given)
        return None if isinstance(outcome, OtherSubscription) else outcome

    return on_arrival


def _moved_aside_at_once(right: Made) -> Made:
    def begin(self: Any, in_flight: Any, decision: Any, *given: Any) -> None:
        right(self, in_flight, decision, *given)
        if getattr(decision, "why", None) is Rule.ISOLATED:
            in_flight.lane.acks.append(in_flight.ack_token)
            self._context.unsent += 1

    return begin


def _isolation_counts(right: Made) -> Made:
    def isolated(*given: Any) -> Any:
        decision = right(*given)
        if not isinstance(decision, state_machine.Reroute):
            return decision
        return dataclasses.replace(decision, headers=decision.headers.with_attempt(State.PENDING))

    return isolated


def _altered(right: Made) -> Made:
    def rewritten(*given: Any, **named: Any) -> Any:
        message = right(*given, **named)
        return message._replace(properties={k: v for k, v in message.properties.items() if k != "kodo-unknown"})

    return rewritten


def _forgets_to_send(_: Made) -> Made:
    def renew(self: Any, now: float) -> None:
        self._context.effects.renew_publishing = True
        self._out.clear()

    return renew


MUTANTS: dict[str, Mutant] = {
    "acknowledged before it is published": (PendingPublishes, "start", _acknowledged_at_once),
    "no receipt is taken for a receipt": (PendingPublishes, "receipt", _lost_is_stored),
    "isolated: acknowledged before the copy is stored": (PendingPublishes, "start", _moved_aside_at_once),
    "isolated: what leaves is forgotten": (TenantIsolation, "publish_pending", lambda _: lambda self, _now: self.leaving.clear()),
    "isolated: an attempt is counted": (state_machine, "_on_isolation", _isolation_counts),
    "isolated: back too soon": (state_machine, "ISOLATED_LEAST", lambda _: 0),
    "isolated: whoever has anything": (TenantIsolation, "_noisy", lambda _: lambda self: (
        [(tenant, 1.0) for tenant in self._holdings() if tenant not in self.tenants]
    )),
    "hanging sends are forgotten": (PendingPublishes, "restart", _forgets_to_send),
    "what is released stays in the books": (LaneState, "take_unstarted", lambda _: lambda *_given: []),
    "a disconnection is not heeded": (engine.Engine, "on_disconnect", lambda _: lambda *_given: None),
    "a copy is taken for another message": (LaneState, "entry", lambda _: lambda _self, key, _now: BatchEntry(key)),
    "a failure counts twice": (
        Headers, "with_attempt", lambda right: lambda self, state, by=1, **more: right(self, state, 2 * by, **more),
    ),
    "a failure does not count": (
        Headers, "with_attempt", lambda right: lambda self, state, by=1, **more: right(self, state, 0 * by, **more),
    ),
    "one attempt too few": (state_machine, "_retry", lambda right: lambda envelope, *given: (
        None if envelope.headers.retrying == 1 else right(envelope, *given)
    )),
    "hops are not counted": (state_machine, "_move", _hops_stand_still),
    "dead letters are dropped": (state_machine, "_dead_letter", lambda _: lambda *_given: Acknowledge(Rule.DEAD)),
    "a weight is off by one": (StartTimeFairQueue, "__init__", _one_more),
    "tenants have no turns": (_Rounds, "end_turn", lambda _: lambda self, **_named: setattr(self.current[0], "used", 0)),
    "due times are not heeded": (message_flow, "check_before_queueing", lambda right: lambda in_flight, policy, wall: (
        right(in_flight, policy, wall + 10**12)
    )),
    "it handles what is for others": (message_flow, "check_on_receipt", _for_everybody),
    "routes are taken twice": (Headers, "first_receipt", lambda _: property(lambda _self: True)),
    "a slot is never given back": (ConcurrencyLimiter, "finish", lambda _: lambda _self: None),
    "a rate is not heeded": (RateLimiter, "free_at", lambda _: lambda _self, now: now),
    "a quota is one too large": (QuotaLimiter, "free_at", lambda right: lambda self, now: (
        right(self, now) if self._total > self.amount else now
    )),
    "order within a key is lost": (LaneState, "enqueue_by_key", lambda _: lambda _self, _held: True),
    "a key never goes on": (LaneState, "next_for_key", lambda _: lambda _self, _held: None),
    "properties get lost": (publishing, "reroute_message", _altered),
    "lanes are never read again": (engine.Engine, "resume_lanes", lambda _: lambda _self: None),
    "delays are too short": (publishing, "add_jitter", lambda right: lambda due, *given: right(due and due - 500, *given)),
}  # fmt: skip


CAUGHT_BY: dict[str, int] = {
    "acknowledged before it is published": 0,
    "no receipt is taken for a receipt": 0,
    "isolated: acknowledged before the copy is stored": 7,
    "isolated: what leaves is forgotten": 7,
    "isolated: an attempt is counted": 5,
    "isolated: back too soon": 5,
    "isolated: whoever has anything": 18,
    "hanging sends are forgotten": 0,
    "what is released stays in the books": 3,
    "a disconnection is not heeded": 3,
    "a copy is taken for another message": 3,
    "a failure counts twice": 1,
    "a failure does not count": 1,
    "one attempt too few": 2,
    "hops are not counted": 1,
    "dead letters are dropped": 0,
    "a weight is off by one": 11,
    "tenants have no turns": 11,
    "due times are not heeded": 3,
    "it handles what is for others": 0,
    "routes are taken twice": 1,
    "a slot is never given back": 39,
    "a rate is not heeded": 10,
    "a quota is one too large": 30,
    "order within a key is lost": 3,
    "a key never goes on": 8,
    "properties get lost": 1,
    "lanes are never read again": 6,
    "delays are too short": 1,
}
"""A seed that catches each, of the first few that do the one that is played soonest."""


@contextmanager
def broken(name: str) -> Iterator[None]:
    """The worker with this one thing wrong."""
    owner, attribute, make = MUTANTS[name]
    right = owner.__dict__[attribute]
    setattr(owner, attribute, make(right))
    try:
        yield
    finally:
        setattr(owner, attribute, right)
