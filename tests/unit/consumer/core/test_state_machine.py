"""The state machine: the table of docs/explanation/consumer.md row by row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kodo_consumer.core.state_machine import (
    MAX_POSTPONED,
    Acknowledge,
    Decision,
    Delay,
    Reroute,
    Rule,
    TransferOut,
    decide,
)
from kodo_consumer.core.values.envelope import Envelope, Headers, Level, State
from kodo_consumer.core.values.lane_set import LaneSet
from kodo_consumer.core.values.limit_policy import Pace, Quota, Rate
from kodo_consumer.core.values.outcomes import (
    DONE,
    CorruptHeaders,
    DeadLettered,
    Deferred,
    DependencyUnavailable,
    Discarded,
    Failed,
    Isolated,
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
from kodo_consumer.core.values.policy import IsolationPolicy, Policy

from tests.unit.consumer.engine_bench import policy

NOW = 1_800_000_000_000
READY = Envelope(Level.L1, State.READY, local_retries=3)
FAILED = Failed("ValueError")


def _move(decision: Decision) -> Reroute:
    assert isinstance(decision, Reroute)
    return decision


def _wait(decision: Decision) -> Delay:
    assert isinstance(decision, Delay)
    return decision


def _place(decision: Decision) -> tuple[Level, State]:
    return _move(decision).target.level, _move(decision).target.state


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (DONE, Rule.DONE),
        (Discarded("old"), Rule.DISCARDED),
        (OtherSubscription(), Rule.NOT_FOR_US),
        (Repeated(), Rule.REPEATED),
    ],
)
def test_what_is_finished_is_acknowledged(outcome: Outcome, why: Rule) -> None:
    decision = decide(READY, outcome, policy(), NOW)
    assert isinstance(decision, Acknowledge)
    assert decision.why is why


def test_a_failure_first_waits_in_place() -> None:
    waits = [_wait(decide(replace(READY, local_retries=used), FAILED, policy(), NOW)).delay for used in range(3)]
    assert waits == [2_000, 3_000, 5_000]


def test_without_room_in_memory_a_failure_leaves_at_once() -> None:
    assert _place(decide(Envelope(Level.L1, State.READY, may_wait=False), FAILED, policy(), NOW)) == ("L1", "retrying")


def test_state_lanes_have_no_in_place_waits() -> None:
    assert _place(decide(Envelope(Level.L1, State.RETRYING), FAILED, policy(), NOW)) == ("L1", "retrying")


def test_failures_go_to_retrying_of_their_level_with_growing_delays() -> None:
    for used, delay in enumerate((10_000, 60_000, 300_000)):
        decision = _move(decide(replace(READY, level=Level.L2, headers=Headers(retrying=used)), FAILED, policy(), NOW))
        assert (decision.target.level, decision.target.state) == ("L2", "retrying")
        assert decision.headers.due == NOW + delay
        assert decision.headers.retrying == used + 1
        assert decision.headers.reason == "ValueError"


def test_after_the_last_attempt_a_failure_goes_to_backup_then_to_the_dead_letters() -> None:
    spent = Headers(retrying=3)
    escalated = _move(decide(replace(READY, headers=spent), FAILED, policy(), NOW))
    assert (_place(escalated), escalated.headers.due, escalated.why) == (("B1", "ready"), None, Rule.ESCALATED)
    assert escalated.headers.meant_for == "s"
    alone = policy(levels=(Level.L1,))
    assert _place(decide(replace(READY, headers=spent), FAILED, alone, NOW)) == ("L1", "dead")


def test_a_level_below_backup_is_not_escalated_upwards() -> None:
    below = replace(READY, level=Level.D1, headers=Headers(retrying=3))
    assert _place(decide(below, FAILED, policy(levels=(Level.L1, Level.B1, Level.D1)), NOW)) == ("L1", "dead")


def test_with_nowhere_to_go_a_message_stays_with_growing_backoff() -> None:
    nowhere = policy(levels=(Level.L1,), states=(), dead=False)
    delays = [_wait(decide(replace(READY, undeliverable_retries=n), FAILED, nowhere, NOW)).delay for n in (0, 1, 2, 50)]
    assert delays == [5_000, 10_000, 20_000, 300_000]


def test_short_backup_waits_are_in_memory_and_long_ones_on_the_same_topic() -> None:
    in_backup = Envelope(Level.B1, State.READY)
    first = _wait(decide(in_backup, FAILED, policy(), NOW))
    assert (first.delay, first.headers.backup) == (1_000, 1)
    second = _move(decide(replace(in_backup, headers=first.headers), FAILED, policy(), NOW))
    assert (_place(second), second.headers.due, second.headers.backup) == (("B1", "ready"), NOW + 60_000, 2)
    assert second.headers.meant_for == "s"
    spent = replace(in_backup, headers=Headers(backup=3))
    assert _place(decide(spent, FAILED, policy(), NOW)) == ("L1", "dead")


def test_a_wait_in_backup_of_up_to_five_seconds_is_in_memory() -> None:
    in_backup = Envelope(Level.B1, State.READY)
    assert _wait(decide(in_backup, RetryAsked(5_000, "later"), policy(), NOW)).delay == 5_000
    assert _move(decide(in_backup, RetryAsked(5_001, "later"), policy(), NOW)).headers.due == NOW + 5_001


def test_a_draining_backup_cannot_be_written_again() -> None:
    draining = policy(draining=(Level.B1,))
    message = Envelope(Level.B1, State.READY, headers=Headers(backup=1))
    assert _place(decide(message, FAILED, draining, NOW)) == ("L1", "dead")


def test_retry_after_leaves_memory_out_and_is_clamped_to_the_horizon() -> None:
    decision = _move(decide(Envelope(Level.L1, State.READY), RetryAsked(7_000, "later"), policy(), NOW))
    assert (decision.headers.due, decision.headers.retrying) == (NOW + 7_000, 1)
    late = _move(decide(READY, RetryAsked(10**12, "later"), policy(), NOW))
    assert late.headers.due == NOW + 3_600_000
    in_backup = decide(Envelope(Level.B1, State.READY), RetryAsked(9_000, "later"), policy(), NOW)
    assert _move(in_backup).headers.due == NOW + 9_000


@pytest.mark.parametrize(("state", "delay"), [(State.PENDING, 60_000), (State.BLOCKING, 3_600_000)])
def test_pending_and_blocking_may_be_asked_for(state: State, delay: int) -> None:
    decision = _move(decide(READY, StateAsked(state, "wait"), policy(), NOW))
    assert _place(decision) == ("L1", state)
    assert decision.headers.due == NOW + delay
    assert decision.headers.attempts(state) == 1
    spent = replace(READY, headers=Headers(pending=2, blocking=2))
    assert _place(decide(spent, StateAsked(state, "wait"), policy(), NOW)) == ("L1", "retrying")
    exhausted = replace(READY, headers=Headers(pending=2, blocking=2, retrying=3))
    assert _place(decide(exhausted, StateAsked(state, "wait"), policy(), NOW)) == ("B1", "ready")


def test_an_undeclared_state_or_one_asked_for_in_backup_counts_as_failed() -> None:
    asked = StateAsked(State.PENDING, "wait")
    assert _place(decide(READY, asked, policy(states=(State.RETRYING,)), NOW)) == ("L1", "retrying")
    assert _wait(decide(Envelope(Level.B1, State.READY), asked, policy(), NOW)).why is Rule.BACKUP


def test_over_a_rate_a_message_waits_in_memory_up_to_5_s_and_in_pending_beyond() -> None:
    assert _wait(decide(READY, OverRate(NOW + 5_000), policy(), NOW)).delay == 5_000
    decision = _move(decide(READY, OverRate(NOW + 61_000), policy(), NOW))
    assert _place(decision) == ("L1", "pending")
    assert (decision.headers.due, decision.headers.reserved) == (NOW + 61_000, NOW + 61_000)
    assert decision.headers.pending == 0
    far = _move(decide(READY, OverRate(NOW + 10**9), policy(horizon=10**10), NOW))
    assert (far.headers.due, far.headers.reserved) == (NOW + 3_600_000, NOW + 10**9)


def test_a_refusal_counts_only_after_the_reserved_moment() -> None:
    back = Envelope(Level.L1, State.PENDING, headers=Headers(reserved=NOW))
    assert _move(decide(back, OverRate(NOW + 60_000), policy(), NOW)).headers.pending == 1
    early = Envelope(Level.L1, State.PENDING, headers=Headers(reserved=NOW + 1))
    assert _move(decide(early, OverRate(NOW + 60_000), policy(), NOW)).headers.pending == 0


def test_over_a_limit_exhausted_states_go_on_to_retrying_then_backup_then_dead() -> None:
    spent = Headers(pending=2, blocking=2, reserved=NOW)
    first = _move(decide(replace(READY, headers=spent), OverQuota(NOW + 60_000), policy(), NOW))
    assert (_place(first), first.headers.retrying) == (("L1", "retrying"), 0), "no handler has seen it"
    there = Envelope(Level.L1, State.RETRYING, headers=first.headers.replace(reserved=NOW))
    again = _move(decide(there, OverQuota(NOW + 60_000), policy(), NOW))
    assert (_place(again), again.headers.retrying) == (("L1", "retrying"), 1)
    uncounted = Envelope(
        Level.L1, State.RETRYING, headers=first.headers.replace(pending=3, blocking=3, reserved=NOW + 1)
    )
    assert _move(decide(uncounted, OverQuota(NOW + 60_000), policy(), NOW)).headers.retrying == 0
    ended = replace(there, headers=spent.replace(retrying=3))
    assert _place(decide(ended, OverQuota(NOW + 60_000), policy(), NOW)) == ("B1", "ready")
    last = _move(decide(replace(READY, headers=spent.replace(retrying=2)), OverQuota(NOW + 60_000), policy(), NOW))
    assert (_place(last), last.headers.retrying) == (("L1", "retrying"), 2)
    exhausted = replace(READY, headers=spent.replace(retrying=3))
    assert _place(decide(exhausted, OverQuota(NOW + 60_000), policy(), NOW)) == ("B1", "ready")
    assert _place(decide(exhausted, OverQuota(NOW + 60_000), policy(levels=(Level.L1,)), NOW)) == ("L1", "dead")
    stays = decide(exhausted, OverQuota(NOW + 60_000), policy(levels=(Level.L1,), dead=False), NOW)
    assert _wait(stays) == Delay(60_000, Rule.OVER_LIMIT, exhausted.headers)


def test_over_a_limit_with_no_retrying_a_message_that_used_up_its_state_goes_to_backup() -> None:
    spent = replace(READY, headers=Headers(pending=2, reserved=NOW))
    assert _place(decide(spent, OverRate(NOW + 60_000), policy(states=(State.PENDING,)), NOW)) == ("B1", "ready")


def test_isolation_takes_out_of_ready_lanes_without_order_only_and_counts_nothing() -> None:
    of = policy(isolate=IsolationPolicy(0.5, 10, "pending"))
    for due, away in ((NOW, 60_000), (NOW + 90_000, 90_000), (NOW + 10**9, 3_600_000)):
        moved = _move(decide(READY, Isolated(due), of, NOW))
        assert (_place(moved), moved.why, moved.headers.due) == (("L1", "pending"), Rule.ISOLATED, NOW + away)
        assert moved.headers.attempts(State.PENDING) == 0
        assert moved.lane_waits, "a due time would cost the broker an entry of its own"
    assert _place(decide(READY, Isolated(NOW), policy(isolate=IsolationPolicy(0.5, 10, "B1")), NOW)) == ("B1", "ready")
    for stays, by in (
        (replace(READY, ordered=True), of),
        (replace(READY, state=State.RETRYING), of),
        (replace(READY, level=Level.B1), of),
        (READY, policy(states=(), isolate=IsolationPolicy(0.5, 10, "pending"))),
        (READY, policy()),
    ):
        assert decide(stays, Isolated(NOW), by, NOW) == Delay(0, Rule.ISOLATED, stays.headers)


def test_an_isolated_message_that_moved_too_often_dies_and_delays_no_lane() -> None:
    of = policy(isolate=IsolationPolicy(0.5, 10, "B1"))
    dead = _move(decide(replace(READY, headers=Headers(hop=of.max_hops)), Isolated(NOW), of, NOW))
    assert (dead.target.state, dead.headers.reason, dead.lane_waits) == (State.DEAD, "too many moves", False)


def test_over_a_quota_blocking_comes_before_pending() -> None:
    assert _place(decide(READY, OverQuota(NOW + 60_000), policy(), NOW)) == ("L1", "blocking")
    attempts = policy().waits[State.BLOCKING].attempts
    last = replace(READY, headers=Headers(blocking=attempts - 1, reserved=NOW))
    found = _move(decide(last, OverQuota(NOW + 60_000), policy(), NOW))
    assert (_place(found), found.headers.blocking) == (("L1", "blocking"), attempts)
    spent = replace(READY, headers=Headers(blocking=attempts, reserved=NOW))
    assert _place(decide(spent, OverQuota(NOW + 60_000), policy(), NOW)) == ("L1", "pending")
    early = replace(
        READY, headers=Headers(blocking=attempts, reserved=NOW + 1)
    )  # counts nothing: it may wait there again
    assert _place(decide(early, OverQuota(NOW + 60_000), policy(), NOW)) == ("L1", "blocking")
    beyond = replace(READY, headers=Headers(blocking=attempts + 1))
    assert _place(decide(beyond, OverQuota(NOW + 60_000), policy(), NOW)) == ("L1", "pending")
    no_blocking = policy(states=(State.PENDING,))
    assert _place(decide(READY, OverQuota(NOW + 60_000), no_blocking, NOW)) == ("L1", "pending")


def test_a_message_that_comes_back_before_its_moment_at_a_limit_counts_nothing_not_even_a_move() -> None:
    """A backlog of many windows would otherwise die of its moves."""
    of = policy(horizon=60_000)
    bounced = Envelope(Level.L1, State.BLOCKING, headers=Headers(hop=7, reserved=NOW + 1))
    again = _move(decide(bounced, OverQuota(NOW + 10**7), of, NOW))
    assert (again.headers.hop, again.headers.due, again.headers.blocking) == (7, NOW + 60_000, 0)
    assert _move(decide(READY, OverQuota(NOW + 10**7), of, NOW)).headers.hop == 1
    assert _move(decide(bounced, OverQuota(NOW + 60_000), of, NOW)).headers.hop == 8
    counted = replace(bounced, headers=Headers(hop=7, reserved=NOW))
    assert _move(decide(counted, OverQuota(NOW + 10**7), of, NOW)).headers.hop == 8


def test_where_no_state_is_declared_or_in_backup_a_message_over_its_limit_stays_queued() -> None:
    assert _wait(decide(READY, OverRate(NOW + 60_000), policy(states=()), NOW)).delay == 60_000
    in_backup = Envelope(Level.B1, State.READY, headers=Headers(reserved=NOW))
    assert _wait(decide(in_backup, OverRate(NOW + 60_000), policy(), NOW)).headers == in_backup.headers


@pytest.mark.parametrize("outcome", [DeadLettered("no"), CorruptHeaders("no"), RejectedByTarget("no")])
def test_what_no_try_can_help_dies_with_its_reason(outcome: Outcome) -> None:
    decision = _move(decide(replace(READY, level=Level.L2, headers=Headers(meant_for="s")), outcome, policy(), NOW))
    assert (decision.target.state, decision.why) == ("dead", Rule.DEAD)
    assert (decision.headers.reason, decision.headers.died_in, decision.headers.meant_for) == ("no", "L2", None)
    assert _wait(decide(READY, outcome, policy(dead=False), NOW)).why is Rule.STUCK


def test_routes_and_moves_go_to_the_ready_lane_of_a_level() -> None:
    for outcome, why in ((Routed(Level.B1), Rule.ROUTED), (MoveAsked(Level.B1), Rule.MOVED)):
        decision = _move(decide(READY, outcome, policy(), NOW))
        assert (_place(decision), decision.why, decision.headers.meant_for) == (("B1", "ready"), why, "s")
        assert decision.headers.hop == 1
    assert _place(decide(READY, MoveAsked(Level.S1), policy(), NOW)) == ("L1", "retrying")
    assert _place(decide(READY, MoveAsked(Level.L1), policy(), NOW)) == ("L1", "retrying")
    assert _place(decide(replace(READY, state=State.PENDING), MoveAsked(Level.L1), policy(), NOW)) == ("L1", "ready")


def test_a_transfer_needs_a_declared_topic() -> None:
    asked = TransferAsked("other", b"new")
    assert decide(READY, asked, policy(), NOW) == TransferOut("persistent://p/n/other", asked)
    assert _place(decide(READY, TransferAsked("elsewhere"), policy(), NOW)) == ("L1", "retrying")


def test_what_cannot_be_is_told_in_the_reason() -> None:
    def reason(envelope: Envelope, outcome: Outcome, of: Policy) -> str | None:
        return _move(decide(envelope, outcome, of, NOW)).headers.reason

    assert reason(READY, MoveAsked(Level.S1), policy()) == "MoveTo: S1 takes no messages"
    assert reason(READY, MoveAsked(Level.L1), policy()) == "MoveTo: it is on L1"
    assert reason(READY, TransferAsked("elsewhere"), policy()) == "Transfer: elsewhere is not in produces"


def test_a_missing_dependency_counts_nothing_and_backs_off() -> None:
    delays = [
        _wait(decide(replace(READY, unavailable=n), DependencyUnavailable("psp"), policy(), NOW)).delay
        for n in (0, 1, 4, 60)
    ]
    assert delays == [1_000, 2_000, 16_000, 30_000]
    assert _wait(decide(READY, DependencyUnavailable("psp"), policy(), NOW)).headers == READY.headers


def test_a_message_that_could_not_be_started_waits_a_second_and_counts_nothing() -> None:
    for envelope in (READY, Envelope(Level.B1, State.READY), replace(READY, ordered=True)):
        assert decide(envelope, Deferred("elsewhere"), policy(), NOW) == Delay(
            1_000, Rule.NOT_STARTED, envelope.headers
        )


def test_an_early_message_is_held_until_due_within_the_horizon() -> None:
    assert _wait(decide(READY, TooEarly(NOW + 3_000), policy(), NOW)).delay == 3_000
    assert _wait(decide(READY, TooEarly(NOW + 10**12), policy(), NOW)).delay == 3_600_000
    assert _wait(decide(READY, TooEarly(NOW - 1), policy(), NOW)).delay == 0


def test_a_message_running_in_circles_dies() -> None:
    hops = policy().max_hops
    assert hops == 3 + 2 + 2 + 3 + 16
    last = _move(decide(replace(READY, headers=Headers(hop=hops - 1)), MoveAsked(Level.L2), policy(), NOW))
    assert (last.target.state, last.headers.hop) == ("ready", hops)
    decision = _move(decide(replace(READY, headers=Headers(hop=hops)), MoveAsked(Level.L2), policy(), NOW))
    assert (decision.target.state, decision.headers.reason) == ("dead", "too many moves")


def test_a_draining_state_is_no_target_and_a_draining_level_uses_the_waits_of_l1() -> None:
    assert _place(decide(READY, FAILED, policy(draining=(State.RETRYING,)), NOW)) == ("B1", "ready")
    leaving = replace(READY, level=Level.L2)
    assert _place(decide(leaving, FAILED, policy(draining=(Level.L2,)), NOW)) == ("L1", "retrying")
    assert _place(decide(READY, MoveAsked(Level.L2), policy(draining=(Level.L2,)), NOW)) == ("L1", "retrying")


def test_on_an_ordered_lane_the_key_waits_in_memory() -> None:
    ordered = policy(ordered=True)
    first = Envelope(Level.L1, State.READY, ordered=True, may_wait=False)
    assert _wait(decide(first, FAILED, ordered, NOW)).why is Rule.IN_PLACE
    spent = replace(first, local_retries=3)
    parked = _wait(decide(spent, FAILED, ordered, NOW))
    assert (parked.why, parked.delay, parked.headers.retrying) == (Rule.PARKED, 10_000, 1)
    over = replace(spent, headers=Headers(retrying=3))
    assert _place(decide(over, FAILED, ordered, NOW)) == ("L1", "dead")
    assert _wait(decide(over, FAILED, policy(ordered=True, on_failure="block"), NOW)).why is Rule.STUCK
    assert _place(decide(over, FAILED, policy(ordered=True, on_failure="leave"), NOW)) == ("B1", "ready")


def test_on_an_ordered_backup_level_the_key_waits_in_memory_however_long() -> None:
    """A long wait was at the end of the topic, behind later messages of the key."""
    for on_failure in ("park", "block"):
        of = policy(ordered=True, on_failure=on_failure)
        in_backup = Envelope(Level.B1, State.READY, Headers(backup=1), ordered=True)
        first = _wait(decide(in_backup, FAILED, of, NOW))
        assert (first.why, first.delay, first.headers.backup) == (Rule.BACKUP, 60_000, 2)
        assert _wait(decide(in_backup, RetryAsked(9_000, "x"), of, NOW)).delay == 9_000
    spent = replace(in_backup, headers=Headers(backup=3))
    assert _place(decide(spent, FAILED, policy(ordered=True), NOW)) == ("L1", "dead")
    again = _wait(decide(spent, FAILED, policy(ordered=True, on_failure="block"), NOW))
    assert (again.why, again.delay) == (Rule.STUCK, 60_000)
    leaves = policy(ordered=True, on_failure="leave")
    assert _place(decide(in_backup, FAILED, leaves, NOW)) == ("B1", "ready")


def test_on_an_ordered_lane_nothing_moves_but_the_dead() -> None:
    ordered, message = policy(ordered=True), Envelope(Level.L1, State.READY, ordered=True, local_retries=3)
    for outcome in (
        StateAsked(State.PENDING, "x"),
        MoveAsked(Level.L2),
        RetryAsked(9_000, "x"),
        OverRate(NOW + 60_000),
    ):
        assert isinstance(decide(message, outcome, ordered, NOW), Delay)
    assert _wait(decide(message, RetryAsked(9_000, "x"), ordered, NOW)).delay == 9_000
    assert _wait(decide(replace(message, local_retries=0), RetryAsked(9_000, "x"), ordered, NOW)).delay == 9_000
    assert _wait(decide(message, RetryAsked(400 * 86_400_000, "x"), ordered, NOW)).delay == ordered.horizon
    assert _wait(decide(message, RetryAsked(-1, "x"), ordered, NOW)).delay == 0
    leave = policy(ordered=True, on_failure="leave")
    assert _place(decide(message, StateAsked(State.PENDING, "x"), leave, NOW)) == ("L1", "pending")
    assert isinstance(decide(message, OverRate(NOW + 60_000), leave, NOW), Delay)


def test_a_wait_that_a_handler_asks_for_in_order_needs_no_topic_of_a_state() -> None:
    """Without one the horizon is 0: the handler ran again at once, thousands of times a second."""
    ordered, message = policy(ordered=True, states=()), Envelope(Level.L1, State.READY, ordered=True, local_retries=3)
    ordered = replace(ordered, horizon=0)
    longest = ordered.longest_in_order
    assert longest == max(*ordered.waits[State.RETRYING].delays, *ordered.waits[None].delays) > 5_000
    alone = replace(policy((Level.L1,), ordered=True, states=()), horizon=0)
    assert alone.longest_in_order == max(alone.waits[State.RETRYING].delays)
    assert _wait(decide(message, RetryAsked(5_000, "x"), ordered, NOW)).delay == 5_000
    assert _wait(decide(message, PostponeAsked(5_000, None, ""), ordered, NOW)).delay == 5_000
    assert _wait(decide(message, PostponeAsked(9 * 86_400_000, None, ""), ordered, NOW)).delay == longest
    by_code = replace(ordered, delays_by_code={"busy": (longest + 1,)})
    assert _wait(decide(message, RetryAsked(longest + 9, "x"), by_code, NOW)).delay == longest + 1


def test_on_a_backup_level_that_keeps_an_order_waits_are_as_declared_whatever_the_broker_delays() -> None:
    ordered = replace(policy(ordered=True), horizon=0)
    message = Envelope(Level.B1, State.READY, ordered=True)
    assert _wait(decide(message, Failed("x"), ordered, NOW)).delay == ordered.waits[None].delay(1) > 0


def test_what_the_go_library_left_early_goes_to_the_same_lane_with_a_due_time_and_counts_nothing() -> None:
    headers = Headers(retrying=2, hop=1)
    found = decide(Envelope(Level.L1, State.RETRYING, headers), TakenOverFromSoften(NOW + 60_000), policy(), NOW)
    assert isinstance(found, Reroute)
    assert (found.target.state, found.why) == (State.RETRYING, Rule.ADOPTED)
    assert found.headers == headers.replace(hop=2, due=NOW + 60_000)
    assert _wait(decide(READY, TakenOverFromSoften(NOW + 4_000), policy(), NOW)).delay == 4_000
    draining = policy(draining=(State.RETRYING,))
    assert (
        _wait(decide(Envelope(Level.L1, State.RETRYING), TakenOverFromSoften(NOW + 60_000), draining, NOW)).why
        is Rule.EARLY
    )


def test_a_wait_that_a_handler_asks_for_holds_in_b1_too() -> None:
    of = policy((Level.L1, Level.B1), states=())
    here = Envelope(Level.L1, State.READY)
    for asked, due in ((7_000, 8_000), (None, None)):
        decision = decide(here, RetryAsked(asked, "later"), of, 1_000)
        assert isinstance(decision, Reroute)
        assert (decision.why, decision.headers.due) == (Rule.ESCALATED, due)


def test_what_a_limit_refuses_waits_only_where_the_limit_holds_as_well() -> None:
    """Else it would come back past the limit."""
    ready = LaneSet((State.READY,))
    rate, quota = Rate(None, Pace(1, 1_000, 1), shared=False), Quota(None, 1, 60_000, shared=False)
    for limit, outcome, to in (
        (rate, OverRate(NOW + 60_000), State.PENDING), (quota, OverQuota(NOW + 60_000), State.BLOCKING)
    ):  # fmt: skip
        for within, place in (
            (ready, None),
            (LaneSet((State.READY, State.PENDING, State.BLOCKING)), to),
            (LaneSet(levels=(Level.L1,)), to),
            (LaneSet((State.RETRYING,)), to),  # not met on the ready lane
        ):
            of = policy(limits=(replace(limit, within=within),))
            decision = decide(READY, outcome, of, NOW)
            assert (_place(decision)[1] if place else _wait(decision).delay) == (place or 60_000)
    later = (replace(quota, within=LaneSet((State.READY, State.BLOCKING))),)
    assert _wait(decide(READY, OverQuota(NOW + 60_000), policy(limits=later), NOW)).delay == 60_000, "pending is next"
    without = policy(states=(State.RETRYING, State.BLOCKING), limits=later)
    assert _place(decide(READY, OverQuota(NOW + 60_000), without, NOW)) == (Level.L1, State.BLOCKING)


def test_a_postponed_message_waits_where_its_level_waits_and_counts_nothing() -> None:
    asked = PostponeAsked(60_000, None, "closed")
    tried = Headers(retrying=2, pending=99, blocking=99, backup=1, hop=5, postponed=7)
    for level, state, place in (
        (Level.L1, State.READY, ("L1", "pending")), (Level.L1, State.RETRYING, ("L1", "retrying")),
        (Level.L2, State.BLOCKING, ("L2", "blocking")), (Level.B1, State.READY, ("B1", "ready")),
    ):  # fmt: skip
        decision = _move(decide(Envelope(level, state, tried), asked, policy(), NOW))
        assert (_place(decision), decision.why, decision.headers.due) == (place, Rule.POSTPONED, NOW + 60_000)
        meant_for = "s" if state is State.READY and level is Level.B1 else None
        assert decision.headers == tried.replace(
            postponed=8, hop=6, due=NOW + 60_000, reason="postponed: closed", meant_for=meant_for
        )
    only = policy(states=(State.RETRYING,))
    assert _place(decide(READY, PostponeAsked(0, NOW + 60_000, ""), only, NOW)) == ("L1", "retrying")
    latest = _move(decide(READY, PostponeAsked(0, NOW + 10**12, ""), only, NOW))
    assert (latest.headers.due, latest.headers.reason) == (NOW + only.horizon, "postponed")


def test_postponements_are_no_moves_of_a_message_that_runs_in_circles() -> None:
    asked, of = PostponeAsked(1, None, ""), policy()
    assert _move(decide(replace(READY, headers=Headers(hop=500_000, postponed=499_999)), asked, of, NOW)).why is (
        Rule.POSTPONED
    )
    circling = Headers(hop=of.max_hops + 5, postponed=5)
    assert _move(decide(replace(READY, headers=circling), MoveAsked(Level.L2), of, NOW)).why is Rule.DEAD
    endless = Headers(hop=MAX_POSTPONED + of.max_hops, postponed=MAX_POSTPONED)
    assert _move(decide(replace(READY, headers=endless), asked, of, NOW)).headers.reason == "too many moves"


def test_a_message_is_postponed_in_order_or_not_at_all() -> None:
    ordered = Envelope(Level.L1, State.READY, ordered=True)
    kept = _wait(decide(ordered, PostponeAsked(60_000, None, ""), policy(ordered=True), NOW))
    assert (kept.delay, kept.why, kept.headers.postponed, kept.headers.hop) == (60_000, Rule.POSTPONED, 1, 0)
    leaves = policy(ordered=True, on_failure="leave")
    assert _place(decide(ordered, PostponeAsked(60_000, None, ""), leaves, NOW)) == ("L1", "pending")
    bare = policy((Level.L1,), (), in_place=())
    dead = _move(decide(READY, PostponeAsked(60_000, None, ""), bare, NOW))
    assert dead.headers.reason == "Postpone: L1 has no waiting state that takes messages"
