"""The state machine: an envelope and an outcome make one decision. Pure and total: every state, every outcome.

A failed message goes to the first place that is declared, not draining, and has attempts left: its waiting state, the
backup, the dead letters. The last place is always its present lane, in memory, with a growing backoff. Nothing is ever
dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, assert_never

from kodo_consumer.core.values.delay_schedule import MAX_MEMORY_WAIT
from kodo_consumer.core.values.envelope import Envelope, Headers, Level, State
from kodo_consumer.core.values.limit_policy import Limit, Quota, Rate
from kodo_consumer.core.values.outcomes import (
    CorruptHeaders,
    DeadLettered,
    Deferred,
    DependencyUnavailable,
    Discarded,
    Done,
    ErrorDetails,
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
    ended_run,
    error_of,
)
from kodo_consumer.core.values.policy import MAX_RATE_DUE, Policy, Target
from kodoctl.protocol.properties import OVER_LIMIT_REASON, POSTPONED_REASON

STUCK_FIRST: Final = 5_000  # ms: first backoff of a message that has nowhere to go
STUCK_MOST: Final = 300_000
UNAVAILABLE_FIRST: Final = 1_000  # ms: first backoff while a dependency is down
UNAVAILABLE_MOST: Final = 30_000
ISOLATED_LEAST: Final = 60_000  # ms: an isolated message stays away at least so long
ISOLATED_MOST: Final = 3_600_000
ISOLATED_REASON: Final = "isolated"  # of a message that was moved aside, for its lane to wait with it
PUT_BACK_REASON: Final = "isolated, and its lane was full"  # of the same once the broker waits with it
NOT_STARTED_WAIT: Final = 1_000  # ms: until a message that could not be started is tried again
MAX_POSTPONED: Final = 900_000  # beyond it, postponements count as moves: one that circles for ever is found


class Rule(StrEnum):
    """The rule behind a decision: names of counters and of records. Public: dashboards and reports use them.

    NOT_FOR_US: meant for another subscription, or a mark. PARKED: a failed message of an ordered lane waits in memory,
    and its key with it; it is no dead letter. STUCK: a message waits in memory as it has nowhere to go, or as it is out
    of attempts where `on_failure` is "block". NOT_STARTED: tried again in a second, because it could not be started.
    ADOPTED: the Go library left it to wait. PUT_BACK: published to the end of its lane, where the broker waits.
    ESCALATED: to B1. BACKUP: tried again on its backup level. RETRYING, PENDING, BLOCKING: published there after a
    failure, because the handler asked for it, or because of a limit.
    """

    DONE = "done"
    DISCARDED = "discarded"
    REPEATED = "repeated"
    NOT_FOR_US = "not_for_me"
    IN_PLACE = "in_place"
    PARKED = "parked"
    BACKUP = "backup"
    STUCK = "stuck"
    UNAVAILABLE = "unavailable"
    NOT_STARTED = "not_started"
    OVER_LIMIT = "over_limit"
    EARLY = "early"
    RETRYING = "retrying"
    PENDING = "pending"
    BLOCKING = "blocking"
    ESCALATED = "escalated"
    DEAD = "dead"
    ISOLATED = "isolated"
    ADOPTED = "adopted"
    PUT_BACK = "put_back"
    ROUTED = "routed"
    MOVED = "moved"
    POSTPONED = "postponed"
    TRANSFERRED = "transferred"


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Decision: the message is complete, and is acknowledged. `reason`: for records."""

    why: Rule
    reason: str = ""


@dataclass(slots=True)
class Delay:
    """Decision: the message stays in its lane, in memory, for `delay` ms (for UNAVAILABLE up to a quarter longer).
    `headers` replaces its headers.
    """

    delay: int
    why: Rule
    headers: Headers


@dataclass(slots=True)
class Reroute:
    """Decision: publish to `target`, await the receipt, acknowledge. Due time and counters are in `headers`. `note`:
    reason in records; empty: that of `headers`. `lane_waits`: the worker that reads the target waits until the message
    is due, so the broker need not, and it may be sent in a batch.
    """

    target: Target
    headers: Headers
    why: Rule
    note: str = ""
    lane_waits: bool = False


@dataclass(frozen=True, slots=True)
class TransferOut:
    """Decision: publish the new message that the handler requested to `topic`, await the receipt, acknowledge."""

    topic: str
    asked: TransferAsked


Decision = Acknowledge | Delay | Reroute | TransferOut
_STATE_WHY: Final = {State.RETRYING: Rule.RETRYING, State.PENDING: Rule.PENDING, State.BLOCKING: Rule.BLOCKING}


def decide(envelope: Envelope, outcome: Outcome, policy: Policy, now: int) -> Decision:
    """Returns the decision about a message; changes nothing. `now`: ms since the epoch. Due times have no jitter yet,
    and most waits are cut to `Policy.horizon`.
    """
    if ended_run(outcome):
        envelope = _with_error(envelope, error_of(outcome))
    match outcome:  # those first of which there may be many
        case RetryAsked(after, reason, code):
            if after is None and code:
                used = envelope.headers.backup if envelope.level.is_backup else envelope.headers.retrying
                after = policy.delay_of(code, used + 1)
            return _on_failure(envelope, reason, policy, now, in_place=False, after=after)
        case TransferAsked(topic=topic):
            if topic not in policy.produces:
                return _on_failure(envelope, f"Transfer: {topic} is not in produces", policy, now)
            return TransferOut(policy.produces[topic], outcome)
        case Done():
            return Acknowledge(Rule.DONE)
        case Discarded(reason):
            return Acknowledge(Rule.DISCARDED, reason)
        case OtherSubscription():
            return Acknowledge(Rule.NOT_FOR_US)
        case Repeated():
            return Acknowledge(Rule.REPEATED)
        case Failed(reason):
            return _on_failure(envelope, reason, policy, now)
        case StateAsked(state, reason):
            return _state_asked(envelope, state, reason, policy, now)
        case OverRate(slot):
            return _on_limit_refusal(envelope, Rate, slot, policy, now, most=MAX_RATE_DUE)
        case OverQuota(slot):
            return _on_limit_refusal(envelope, Quota, slot, policy, now, most=policy.horizon)
        case Isolated(due):
            return _on_isolation(envelope, due, policy, now)
        case DeadLettered(reason) | CorruptHeaders(reason) | RejectedByTarget(reason):
            return _dead_letter(envelope, reason, policy)
        case Routed(level, route):
            return _on_route(envelope, level, route, policy, now)
        case MoveAsked(level):
            return _to_level(envelope, level, Rule.MOVED, policy, now)
        case PostponeAsked(after, until, reason):
            return _postpone(envelope, now + after if until is None else until, reason, policy, now)
        case DependencyUnavailable():
            delay = min(UNAVAILABLE_MOST, UNAVAILABLE_FIRST << min(envelope.unavailable, 16))
            return Delay(delay, Rule.UNAVAILABLE, envelope.headers)
        case Deferred():
            return Delay(NOT_STARTED_WAIT, Rule.NOT_STARTED, envelope.headers)
        case TooEarly(due):
            return Delay(max(0, min(due - now, policy.horizon)), Rule.EARLY, envelope.headers)
        case TakenOverFromSoften(due):
            return _wait_in_broker(envelope, due, policy, now, Rule.ADOPTED, envelope.headers.reason)
        case LaneFull(due):  # once for each time it is moved aside, so that a full lane need not be its death
            headers = envelope.headers.replace(hop=min(envelope.headers.hop, _most_hops(envelope.headers, policy) - 1))
            return _wait_in_broker(envelope.with_headers(headers), due, policy, now, Rule.PUT_BACK, PUT_BACK_REASON)
        case _:
            assert_never(outcome)


def _with_error(envelope: Envelope, error: ErrorDetails | None) -> Envelope:
    """Envelope with the error of the run that ended, which replaces the error of an earlier run. None: the run has no
    error.
    """
    headers = envelope.headers
    text, stack = (error.text or None, error.stack or None) if error is not None else (None, None)
    if headers.error == text and headers.error_stack == stack:
        return envelope
    return envelope.with_headers(headers.replace(error=text, error_stack=stack))


def _on_failure(
    envelope: Envelope, reason: str, policy: Policy, now: int, *, in_place: bool = True, after: int | None = None
) -> Decision:
    if envelope.level.is_backup:
        return _on_failure_in_backup(envelope, reason, policy, now, after)
    if _must_keep_order(envelope, policy):
        return _on_failure_in_order(envelope, reason, policy, in_place=in_place, after=after)
    ready = envelope.state is State.READY
    if in_place and ready and envelope.may_wait and envelope.local_retries < len(policy.in_place):
        return Delay(policy.in_place[envelope.local_retries], Rule.IN_PLACE, envelope.headers)
    due = None if after is None else now + _clamp(after, policy)  # what a handler asks for holds wherever it goes
    return _retry(envelope, reason, policy, now, after) or _escalate(envelope, reason, policy, due)


def _retry(envelope: Envelope, reason: str, policy: Policy, now: int, after: int | None) -> Decision | None:
    """RETRYING of its level while attempts are left."""
    target = policy.target(envelope.level, State.RETRYING)
    waits = policy.waits[State.RETRYING]
    used = envelope.headers.retrying
    if target is None or used >= waits.attempts:
        return None
    delay = waits.delay(used + 1) if after is None else after
    due = now + _clamp(delay, policy)
    headers = envelope.headers.copy()
    headers.retrying, headers.due, headers.reason = used + 1, due, reason
    return _move(envelope, target, headers, policy)


def _on_failure_in_backup(envelope: Envelope, reason: str, policy: Policy, now: int, after: int | None) -> Decision:
    """Short waits in memory, longer ones by publishing to the same topic; out of attempts the message dies. Where order
    is kept all waits are in memory, and out of attempts the message may wait again (`block`).
    """
    waits, in_order = policy.waits[None], _must_keep_order(envelope, policy)
    used = envelope.headers.backup
    why = Rule.BACKUP if used < waits.attempts else Rule.STUCK
    if why is Rule.STUCK and not (in_order and policy.on_failure == "block"):
        return _dead_letter(envelope, reason, policy)
    delay = _clamp(waits.delay(used + 1) if after is None else after, policy, in_order=in_order)
    headers = envelope.headers.replace(backup=used + 1, reason=reason)
    if delay <= MAX_MEMORY_WAIT or in_order:
        return Delay(delay, why, headers)
    target = policy.targets.get((envelope.level, State.READY))
    if target is None:
        return _dead_letter(envelope, reason, policy)
    headers.due = now + delay
    return _move(envelope, target, headers, policy, Rule.BACKUP)


def _on_failure_in_order(
    envelope: Envelope, reason: str, policy: Policy, *, in_place: bool, after: int | None
) -> Decision:
    """Delays the message in memory, and with it its key, so that messages stay in order. Out of attempts it dies
    (`park`), or waits again (`block`).
    """
    if in_place and envelope.local_retries < len(policy.in_place):
        return Delay(policy.in_place[envelope.local_retries], Rule.IN_PLACE, envelope.headers)
    waits = policy.waits[State.RETRYING]
    used = envelope.headers.retrying
    if used >= waits.attempts and policy.on_failure == "park":
        return _dead_letter(envelope, reason, policy)
    delay = waits.delay(used + 1) if after is None else _clamp(after, policy, in_order=True)
    why = Rule.PARKED if used < waits.attempts else Rule.STUCK
    return Delay(delay, why, envelope.headers.with_attempt(State.RETRYING))


def _state_asked(envelope: Envelope, state: State, reason: str, policy: Policy, now: int) -> Decision:
    target = (
        None if envelope.level.is_backup or _must_keep_order(envelope, policy) else policy.target(envelope.level, state)
    )
    if target is None:
        return _on_failure(envelope, reason, policy, now)
    waits = policy.waits[state]
    used = envelope.headers.attempts(state)
    if used >= waits.attempts:
        return _retry(envelope, reason, policy, now, None) or _escalate(envelope, reason, policy)
    headers = envelope.headers.with_attempt(state)
    headers.due, headers.reason = now + waits.delay(used + 1), reason
    return _move(envelope, target, headers, policy)


def _on_limit_refusal(
    envelope: Envelope, kind: type[Limit], slot: int, policy: Policy, now: int, *, most: int
) -> Decision:
    """Moves to the limit's waiting state until it has room; short waits, ordered lanes and backup levels stay queued. A
    message that has used up these states waits in RETRYING, without counting an attempt there, because no handler has
    seen it; refused again there after the reserved time it counts, so that it comes to an end.
    """
    stay = Delay(max(0, slot - now), Rule.OVER_LIMIT, envelope.headers)
    if slot - now <= MAX_MEMORY_WAIT or envelope.ordered or envelope.level.is_backup:
        return stay
    targets = policy.limit_targets(envelope.level, envelope.state, kind)
    if not targets:
        return stay
    reserved = envelope.headers.reserved
    counts = 1 if reserved is not None and now >= reserved else 0
    due = now + min(slot - now, most, policy.horizon)
    hop = envelope.headers.hop
    if due < slot and not counts:
        hop = max(0, hop - 1)  # back before its moment, to ask anew: a long queue is no running in circles
    headers = envelope.headers.replace(reserved=slot, due=due, reason=OVER_LIMIT_REASON, hop=hop)
    for target in targets:
        if headers.attempts(target.state) + counts <= policy.waits[target.state].attempts:
            return _move(envelope, target, headers.with_attempt(target.state, counts), policy, limited=True)
    retrying, attempts = policy.target(envelope.level, State.RETRYING), policy.waits[State.RETRYING].attempts
    is_there = envelope.state is State.RETRYING
    used = headers.retrying + (counts if is_there else 0)
    if retrying is not None and used < attempts + is_there:  # who comes needs an attempt left, for the handler
        headers.retrying = used
        return _move(envelope, retrying, headers, policy, limited=True)
    escalated = _escalate(envelope, f"{OVER_LIMIT_REASON} for too long", policy)
    return stay if isinstance(escalated, Delay) else escalated


def _on_isolation(envelope: Envelope, due: int, policy: Policy, now: int) -> Decision:
    """Moves a message out of a ready lane that keeps no order, without counting an attempt; without a target it stays.

    The worker that reads its new lane waits until it is due: a flood leaves in batches, and the broker keeps no batch
    until a due time.
    """
    aside = not envelope.ordered and envelope.state is State.READY
    target = policy.isolation_target(envelope.level) if aside else None
    if target is None:
        return Delay(0, Rule.ISOLATED, envelope.headers)
    away = _clamp(min(max(due - now, ISOLATED_LEAST), ISOLATED_MOST), policy)
    headers = envelope.headers.replace(due=now + away, reason=ISOLATED_REASON)
    decision = _move(envelope, target, headers, policy, Rule.ISOLATED)
    if isinstance(decision, Reroute) and decision.why is Rule.ISOLATED:
        decision.lane_waits = True
    return decision


def _wait_in_broker(envelope: Envelope, due: int, policy: Policy, now: int, why: Rule, reason: str | None) -> Decision:
    """Decision to publish a message to the end of its lane, where the broker keeps the message until `due`. A message
    that is due soon, or whose lane has no target, waits in memory.
    """
    delay = _clamp(due - now, policy)
    target = policy.targets.get((envelope.level, envelope.state))
    if delay <= MAX_MEMORY_WAIT or target is None:
        return Delay(delay, Rule.EARLY, envelope.headers)
    return _move(envelope, target, envelope.headers.replace(due=now + delay, reason=reason), policy, why)


def _postpone(envelope: Envelope, due: int, reason: str, policy: Policy, now: int) -> Decision:
    """Moves to where the message waits, without counting an attempt. Where order is kept it waits in memory, and with
    it its key.
    """
    headers = envelope.headers.replace(postponed=min(envelope.headers.postponed + 1, MAX_POSTPONED))
    if _must_keep_order(envelope, policy):
        return Delay(_clamp(due - now, policy, in_order=True), Rule.POSTPONED, headers)
    delay = _clamp(due - now, policy)
    target = postpone_target(envelope.level, envelope.state, policy)
    if target is None:
        return _on_failure(envelope, f"Postpone: {why_not_postponed(envelope, policy)}", policy, now)
    headers.due = now + delay
    headers.reason = f"{POSTPONED_REASON}: {reason}" if reason else POSTPONED_REASON
    return _move(envelope, target, headers, policy, Rule.POSTPONED)


def postpone_target(level: Level, state: State, policy: Policy) -> Target | None:
    """Topic where a postponed message of a lane (`level`, `state`) waits, if it may leave its lane. On a backup level:
    the level's own topic. Else the topic of the first state that has one, of the lane's own state if it is a waiting
    state, then PENDING, RETRYING and BLOCKING, in the same level (of L1 if a draining level has none). None: there is
    none.
    """
    if level.is_backup:
        return policy.targets.get((level, State.READY))
    for waiting in (state, State.PENDING, State.RETRYING, State.BLOCKING):
        if waiting is not State.READY and (target := policy.target(level, waiting)) is not None:
            return target
    return None


def why_not_postponed(envelope: Envelope, policy: Policy) -> str:
    """Reason why a message cannot be postponed; empty: it can, in memory if it must not leave its lane."""
    if _must_keep_order(envelope, policy) or postpone_target(envelope.level, envelope.state, policy) is not None:
        return ""
    return f"{envelope.level} has no waiting state that takes messages"


def _to_level(
    envelope: Envelope, level: Level, why: Rule, policy: Policy, now: int, *, limited: bool = False
) -> Decision:
    target = policy.targets.get((level, State.READY))
    problem = why_not_level(envelope, level, policy)
    if target is None or problem:
        return _on_failure(envelope, f"MoveTo: {problem}", policy, now)
    return _move(envelope, target, envelope.headers.replace(due=None), policy, why, limited=limited)


def _on_route(envelope: Envelope, level: Level, route: str, policy: Policy, now: int) -> Decision:
    """Moves to the level, with the moment that a limiter set aside: its wait is over, and a refusal there counts."""
    headers = envelope.headers.replace(routes=envelope.headers.routes + 1)
    decision = _to_level(envelope.with_headers(headers), level, Rule.ROUTED, policy, now, limited=True)
    return replace(decision, note=route) if isinstance(decision, Reroute) else decision


def why_not_level(envelope: Envelope, level: Level, policy: Policy) -> str:
    """Reason why a message may not go to the ready lane of a level; empty: there is none. Exclusive levels, which the
    caller checks, and the number of its moves do not count.
    """
    if (level, State.READY) not in policy.targets:
        return f"{level} takes no messages"
    if level is envelope.level and envelope.state is State.READY:
        return f"it is on {level}"
    return "its lane keeps an order" if _must_keep_order(envelope, policy) else ""


def _escalate(envelope: Envelope, reason: str, policy: Policy, due: int | None = None) -> Decision:
    """Moves to B1 if the message's level is before it, else to the dead letters."""
    target = policy.targets.get((Level.B1, State.READY))
    if target is not None and envelope.level.rank < Level.B1.rank:
        return _move(envelope, target, envelope.headers.replace(due=due, reason=reason), policy, Rule.ESCALATED)
    return _dead_letter(envelope, reason, policy)


def _dead_letter(envelope: Envelope, reason: str, policy: Policy) -> Decision:
    if policy.dead_letter is None:
        delay = min(STUCK_MOST, STUCK_FIRST << min(envelope.undeliverable_retries, 16))
        return Delay(delay, Rule.STUCK, envelope.headers)
    headers = envelope.headers.replace(
        due=None,
        reserved=None,
        meant_for=None,
        reason=reason,
        hop=envelope.headers.hop + 1,
        died_in=envelope.level.value,
    )
    return Reroute(policy.dead_letter, headers, Rule.DEAD)


def _move(
    envelope: Envelope,
    target: Target,
    headers: Headers,
    policy: Policy,
    why: Rule | None = None,
    *,
    limited: bool = False,
) -> Decision:
    """A move with its hop counted; one hop too many is a message running in circles. `headers`: a copy for this move.

    On a ready topic every subscription would take it for its own: there it names the one it is meant for. Only a
    limiter's reservation outlives the move.
    """
    headers.hop += 1
    if headers.hop > _most_hops(headers, policy):
        return _dead_letter(envelope, "too many moves", policy)
    headers.meant_for = policy.subscription if target.state is State.READY else None
    if not limited:
        headers.reserved = None
    return Reroute(target, headers, why or _STATE_WHY[target.state])


def _most_hops(headers: Headers, policy: Policy) -> int:
    """Moves after which the message is running in circles; a postponement is none of these."""
    return policy.max_hops + headers.postponed


def _must_keep_order(envelope: Envelope, policy: Policy) -> bool:
    """True if the message must not leave its lane unless it dies."""
    return envelope.ordered and policy.on_failure != "leave"


def _clamp(delay: int, policy: Policy, *, in_order: bool = False) -> int:
    """Delay (ms) within 0 and the longest wait: in memory, where order is kept, else in the broker."""
    return max(0, min(delay, policy.longest_in_order if in_order else policy.horizon))
