"""Defaults of a topology file: levels, states, waits, weights, budgets, horizons of one subscription.

Used by expand, lint, the consumer and the drawings, so that a default exists once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kodoctl.topology.model.subscription import ErrorText, Isolate, QuotaLimit, RateLimit, Waits
from kodoctl.topology.model.topology import Audit, DeadLetter, GroundTopic, Subscription, Topology
from kodoctl.topology.names import WAITING_STATES, Level, State
from kodoctl.topology.units import Duration

_S, _M, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
MAX_IN_MEMORY_WAIT: Final = Duration(5 * _S)  # longer waits use the broker's delayed delivery
LIMIT_WAIT: Final = Duration(_H)  # a rate's refusal or an isolation is due within this
JITTER: Final = Duration(3 * _S)  # added at random to waits beyond memory: equal delays stall a topic
RATE_WAIT: Final = Duration(_H)

_DEFAULT_WAITS: Final = {
    State.RETRYING: ((10 * _S, _M, 5 * _M), 12),
    State.PENDING: ((_M,), 60),
    State.BLOCKING: ((_H,), 24),
    None: ((_M, 5 * _M, 30 * _M, _H), 24),
}
_CLASS_WEIGHTS: Final = {"S": 30, "L": 20, "B": 5, "D": 2}

# Broker defaults (ServiceConfiguration, measured as `applied` values): written only when more is needed.
BROKER_UNACKED_PER_CONSUMER: Final = 50_000
BROKER_UNACKED_PER_SUBSCRIPTION: Final = 200_000


@dataclass(frozen=True, slots=True)
class ResolvedWaits:
    """Delays and attempts of one state with defaults filled in."""

    delays: tuple[Duration, ...]
    attempts: int

    def delay(self, attempt: int) -> Duration:
        """Delay before attempt number `attempt` (from 1); the last delay repeats."""
        return self.delays[min(attempt, len(self.delays)) - 1]

    @property
    def total(self) -> Duration:
        """The longest a message can wait here: every delay, the last one repeated up to `attempts`."""
        return Duration(sum(self.delay(attempt) for attempt in range(1, self.attempts + 1)))


def waits(subscription: Subscription, state: State | None) -> ResolvedWaits:
    """Waits of a waiting state, or (None) of backup levels."""
    declared: Waits = getattr(subscription, state.value if state else "backup")
    delays, attempts = _DEFAULT_WAITS[state]
    return ResolvedWaits(
        declared.delays if declared.delays is not None else tuple(Duration(d) for d in delays),
        declared.attempts if declared.attempts is not None else attempts,
    )


def active_levels(ground: GroundTopic) -> tuple[Level, ...]:
    """Levels messages are written to, highest first."""
    match ground.levels:
        case "single":
            named: tuple[Level, ...] = (Level.L1,)
        case "double":
            named = (Level.L1, Level.L2)
        case levels:
            named = levels
    return _sort_levels((*named, Level.B1) if ground.backup else named)


def read_levels(ground: GroundTopic) -> tuple[Level, ...]:
    """Levels that exist: active ones and those on their way out, highest first."""
    return _sort_levels((*active_levels(ground), *ground.draining))


@lru_cache(maxsize=1024)
def _sort_levels(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    return tuple(level for level in Level if level in levels)


def read_states(subscription: Subscription) -> tuple[State, ...]:
    """Waiting states that have topics: declared ones and those on their way out."""
    return tuple(s for s in WAITING_STATES if s in subscription.states or s in subscription.draining)


def partitions(topology: Topology, ground: GroundTopic) -> int:
    """Partitions of a ground topic's family, dead letters apart."""
    return ground.partitions or topology.defaults.partitions


def number_of_topics(topology: Topology) -> int:
    """Number of topics of the file, without expanding it."""
    total = 0
    for ground in topology.topics.values():
        levels = read_levels(ground)
        total += len(levels)
        with_states = sum(not level.is_backup for level in levels)
        for subscription in ground.subscriptions.values():
            total += with_states * len(read_states(subscription))
            total += (subscription.dead_letter is not False) + (subscription.audit is not False)
    return total


def dead_letter(subscription: Subscription) -> DeadLetter | None:
    """The dead letter settings, None where there is no such topic."""
    if isinstance(subscription.dead_letter, bool):
        return DeadLetter.model_construct() if subscription.dead_letter else None
    return subscription.dead_letter


def audit(subscription: Subscription) -> Audit | None:
    """The audit settings, None where there is no such topic."""
    match subscription.audit:
        case False:
            return None
        case True:
            return Audit.model_construct()
        case "best_effort":
            return Audit.model_construct(mode="best_effort")
        case settings:
            return settings


def error_text(subscription: Subscription) -> ErrorText | None:
    """The part of error texts that travels with failed messages; None if error texts do not travel."""
    if isinstance(subscription.error_text, bool):
        return ErrorText.model_construct() if subscription.error_text else None
    return subscription.error_text


def isolation(ground: GroundTopic, subscription: Subscription) -> Isolate | None:
    """Isolation of a tenant, None if it is never isolated (no fair_by, off, or no lane to move to)."""
    if ground.fair_by is None or isinstance(subscription.isolate, str):
        return None
    target = isolation_target(ground, subscription, subscription.isolate)
    return subscription.isolate.model_copy(update={"to": target}) if target else None


def isolation_target(ground: GroundTopic, subscription: Subscription, isolate: Isolate) -> str | None:
    """B1 if there is one, else pending, unless the file says which; None when that lane does not exist."""
    there = [
        *(["B1"] if Level.B1 in active_levels(ground) else []),
        *(["pending"] if State.PENDING in subscription.states and State.PENDING not in subscription.draining else []),
    ]
    if isolate.to is not None:
        return isolate.to if isolate.to in there else None
    return there[0] if there else None


def level_weight(subscription: Subscription, level: Level) -> int:
    """Share of a level: as declared, else by class (S 30, L 20 with L1 10, B 5, D 2)."""
    if level in subscription.level_weights:
        return subscription.level_weights[level]
    return 10 if level is Level.L1 else _CLASS_WEIGHTS[level.value[0]]


def state_weight(subscription: Subscription, level: Level, state: State) -> int:
    """Share of a state within its level; a backup level has only its ready lane, with all of the level's share."""
    if level.is_backup:
        return 1
    return int(getattr(subscription.weights, state.value))


def horizon(ground: GroundTopic, subscription: Subscription) -> Duration:
    """The latest a message can be due from now: the largest declared delay, 1 h with a rate limit or isolation, and the
    window of the longest quota (docs/explanation/consumer.md#delays).
    """
    spans: list[int] = [0]
    for state in (*read_states(subscription), None):
        if state is not None or any(level.is_backup for level in read_levels(ground)):
            spans += waits(subscription, state).delays
    if State.RETRYING in read_states(subscription):
        spans += [delay for delays in subscription.retrying.by_code.values() for delay in delays]
    if any(isinstance(limit, RateLimit) for limit in subscription.limits) or isolation(ground, subscription):
        spans.append(LIMIT_WAIT)
    spans += [limit.limit.period for limit in subscription.limits if isinstance(limit, QuotaLimit)]
    return Duration(max(spans))


def max_lifetime(ground: GroundTopic, subscription: Subscription) -> Duration:
    """The longest a message can stay undecided (K212): all waits of all states and backup levels, limits counted."""
    total = 0
    for state in read_states(subscription):
        resolved = waits(subscription, state)
        wait: int = 0
        if state is State.PENDING and any(isinstance(limit, RateLimit) for limit in subscription.limits):
            wait = RATE_WAIT
        if state is State.BLOCKING:
            wait = max(
                (limit.limit.period for limit in subscription.limits if isinstance(limit, QuotaLimit)), default=0
            )
        total += resolved.attempts * wait if wait else resolved.total
    if any(level.is_backup for level in read_levels(ground)):
        total += waits(subscription, None).total
    return Duration(total)


def unacked_budget(subscriptions: Collection[Subscription]) -> tuple[int, int]:
    """(per consumer, per subscription) unacknowledged messages that these subscriptions'
    look-ahead needs on a topic.
    """
    consumer = max((s.lookahead.messages for s in subscriptions), default=0)
    together = max((s.lookahead.messages * 2 * s.expected_workers for s in subscriptions), default=0)
    return max(BROKER_UNACKED_PER_CONSUMER, consumer), max(BROKER_UNACKED_PER_SUBSCRIPTION, together)
