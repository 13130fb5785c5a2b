"""The state machine: what must hold for every state and outcome."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.core.state_machine import Acknowledge, Delay, Reroute, Rule, TransferOut, decide
from kodo_consumer.core.values.envelope import FRESH, Envelope, Headers, Level, State
from kodo_consumer.core.values.outcomes import (
    DONE,
    CorruptHeaders,
    DeadLettered,
    Deferred,
    DependencyUnavailable,
    Discarded,
    Failed,
    Isolated,
    LaneFull,
    MoveAsked,
    OtherSubscription,
    Outcome,
    OverQuota,
    OverRate,
    PostponeAsked,
    RejectedByTarget,
    Repeated,
    RetryAsked,
    Routed,
    StateAsked,
    TakenOverFromSoften,
    TooEarly,
    TransferAsked,
)
from kodo_consumer.core.values.policy import Policy

from tests.unit.consumer.engine_bench import policy

NOW = 1_800_000_000_000
OUTCOMES: tuple[Outcome, ...] = (
    DONE, Failed("ValueError"), RetryAsked(None, "r"), RetryAsked(10**12, "r"), StateAsked(State.PENDING, "r"),
    StateAsked(State.BLOCKING, "r"), DeadLettered("r"), Discarded("r"), MoveAsked(Level.B1), MoveAsked(Level.S3),
    TransferAsked("other"), TransferAsked("unknown"), DependencyUnavailable("d"), OtherSubscription(), TooEarly(NOW + 10_000),
    Isolated(NOW), Isolated(NOW + 10**9), LaneFull(NOW + 60_000), Routed(Level.B1), OverRate(NOW + 1), OverRate(NOW + 10**7), OverQuota(NOW + 10**9), CorruptHeaders("r"), RejectedByTarget("r"),
    PostponeAsked(0, None, "r"), PostponeAsked(10**12, None, "r"), PostponeAsked(0, NOW + 60_000, "r"),
    Repeated(), Deferred("r"), TakenOverFromSoften(NOW), TakenOverFromSoften(NOW + 60_000), TakenOverFromSoften(NOW + 10**12),
)  # fmt: skip
POLICIES = tuple(
    policy(levels, states, draining, dead=dead, in_place=in_place, on_failure=on_failure)
    for levels in ((Level.L1,), (Level.S1, Level.L2, Level.L1, Level.B1, Level.B2, Level.D1))
    for states in ((), (State.RETRYING,), (State.PENDING,), (State.BLOCKING, State.RETRYING, State.PENDING))
    for draining in ((), (Level.B1, State.RETRYING), (Level.S1, Level.L2))
    for dead in (True, False)
    for in_place, on_failure in (((), "park"), ((1_000,), "block"), ((), "leave"))
)
HEADERS = (
    FRESH,
    Headers(retrying=99, pending=99, blocking=99, backup=99, hop=1, reserved=NOW - 1),
    Headers(hop=10_000),
)


@pytest.mark.simulated
def test_every_state_and_outcome_has_a_decision_within_the_policy() -> None:
    for of, outcome, headers, ordered in itertools.product(POLICIES, OUTCOMES, HEADERS, (False, True)):
        for lane in of.lanes:
            envelope = Envelope(lane.level, lane.state, headers, ordered=ordered and lane.state is State.READY)
            _check(envelope, outcome, of)


def _check(envelope: Envelope, outcome: Outcome, of: Policy) -> None:
    decision = decide(envelope, outcome, of, NOW)
    match decision:
        case Acknowledge():
            assert outcome in (DONE, OtherSubscription(), Repeated()) or isinstance(outcome, Discarded)
        case Delay(delay=delay):
            assert delay >= 0
        case Reroute(target=target, headers=headers):
            assert target in of.targets.values() or target == of.dead_letter
            most = of.max_hops if isinstance(outcome, LaneFull) and target != of.dead_letter else float("inf")
            assert headers.hop == min(envelope.headers.hop + 1, most), "at its limit a full lane is no hop"
            assert headers.due is None or NOW <= headers.due <= NOW + of.horizon
            assert (headers.meant_for == "s") == (target.state is State.READY)
            if isinstance(outcome, PostponeAsked) and decision.why is Rule.POSTPONED:
                counters = headers.retrying, headers.pending, headers.blocking, headers.backup
                before = envelope.headers
                assert counters == (before.retrying, before.pending, before.blocking, before.backup)
                assert headers.postponed == before.postponed + 1
                assert target.level is envelope.level or of.is_draining(envelope.level)
            elif target.state in of.waits and not isinstance(
                outcome, TakenOverFromSoften | LaneFull
            ):  # that counts nothing, and is where it was
                assert headers.attempts(target.state) <= of.waits[target.state].attempts
        case TransferOut(topic=topic):
            assert topic in of.produces.values()


ADOPTIONS = [outcome for outcome in OUTCOMES if isinstance(outcome, TakenOverFromSoften)]
LATER = [outcome for outcome in OUTCOMES[1:] if outcome not in ADOPTIONS and not isinstance(outcome, PostponeAsked)]


@given(
    st.lists(st.sampled_from(ADOPTIONS), max_size=1),
    st.lists(st.sampled_from(LATER), min_size=1, max_size=5),
    st.sampled_from(POLICIES),
)
def test_a_message_that_never_succeeds_dies_or_stays_in_sight(
    adoption: list[Outcome], later: list[Outcome], of: Policy
) -> None:
    """Whatever the handler says, in whatever order: within the hop limit the message is dead, done, or waits in memory. Only a
    message that no worker of ours has moved yet can be taken over.
    """
    envelope = Envelope(of.lanes[0].level, State.READY)
    now = NOW
    turns = itertools.chain(adoption, itertools.cycle(later))
    for outcome in itertools.islice(
        turns, of.max_hops + 3_000
    ):  # a limit may promise a moment hundreds of horizons away
        decision = decide(envelope, outcome, of, now)
        match decision:
            case Acknowledge() | TransferOut():
                return
            case Delay(headers=headers, why=why):
                envelope = replace(
                    envelope,
                    headers=headers,
                    local_retries=envelope.local_retries + (why is Rule.IN_PLACE),
                    undeliverable_retries=envelope.undeliverable_retries + 1,
                )
            case Reroute(target=target, headers=headers):
                if target.state is State.DEAD:
                    return
                envelope = Envelope(target.level, target.state, headers)
                now = max(now, headers.due or now)
    assert isinstance(decision, Delay)
