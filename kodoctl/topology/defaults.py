"""Defaults of a topology file: levels, states, waits, weights, budgets and horizons of one subscription.

Expand, lint, the consumer and the drawings use them, so that each default is defined once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

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
    """Delays and number of attempts of one waiting state, or of the backup levels, with defaults filled in."""

    delays: tuple[Duration, ...]
    attempts: int

    def delay(self, attempt: int) -> Duration:
        """Delay before attempt number `attempt`, from 1. The last delay repeats."""
        return self.delays[min(attempt, len(self.delays)) - 1]

    @property
    def total(self) -> Duration:
        """Longest time that a message can wait in the state: the sum of the delays before all its attempts. Neither
        jitter nor the delays of `by_code` count.
        """
        return self.total_of_at_least(0)

    def total_of_at_least(self, least: int) -> Duration:
        """The same sum, with `least` ms in place of each shorter delay."""
        named = [max(delay, least) for delay in self.delays[: self.attempts]]
        return Duration(sum(named) + (self.attempts - len(named)) * max(self.delays[-1], least))


def waits(subscription: Subscription, state: State | None) -> ResolvedWaits:
    """Delays and attempts of messages that wait in a state, from the file or the defaults. `state`: one of the waiting
    states; None: the backup levels.
    """
    declared: Waits = getattr(subscription, state.value if state else "backup")
    delays, attempts = _DEFAULT_WAITS[state]
    return ResolvedWaits(
        declared.delays if declared.delays is not None else tuple(Duration(d) for d in delays),
        declared.attempts if declared.attempts is not None else attempts,
    )


def active_levels(ground: GroundTopic) -> tuple[Level, ...]:
    """Levels of a ground topic that new messages are written to, highest first; with `backup`, B1 is one of them.
    Levels that are only drained are not.
    """
    named = named_levels(ground.levels)
    return _sort_levels((*named, Level.B1) if ground.backup else named)


def named_levels(levels: Literal["single", "double"] | tuple[Level, ...]) -> tuple[Level, ...]:
    """Levels that a value of the key `levels` stands for, in its order; without those of `backup`."""
    match levels:
        case "single":
            return (Level.L1,)
        case "double":
            return (Level.L1, Level.L2)
        case _:
            return levels


def read_levels(ground: GroundTopic) -> tuple[Level, ...]:
    """Levels that have topics: the active ones, and the draining ones, which are only read. Highest first."""
    return _sort_levels((*active_levels(ground), *ground.draining))


@lru_cache(maxsize=1024)
def _sort_levels(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    return tuple(level for level in Level if level in levels)


def read_states(subscription: Subscription) -> tuple[State, ...]:
    """Waiting states that have topics: the declared ones, and the draining ones, which are only read."""
    return tuple(s for s in WAITING_STATES if s in subscription.states or s in subscription.draining)


def partitions(topology: Topology, ground: GroundTopic) -> int:
    """Number of partitions of every topic of a family, except dead letter topics, which have their own number; 0 for
    plain topics.
    """
    return (ground.partitions or topology.defaults.partitions) if ground.partitioned else 0


def owners(topology: Topology, ground: GroundTopic) -> tuple[str, ...]:
    """Owners of a ground topic: its own, else those of the file."""
    return ground.owners or topology.owners


def labels(topology: Topology, ground: GroundTopic) -> dict[str, str]:
    """Labels of a ground topic: those of the file, with its own over them."""
    return {**topology.labels, **ground.labels}


def dead_letter_partitions(dead: DeadLetter) -> int:
    """Number of partitions of a dead letter topic; 0 for a plain topic."""
    return dead.partitions if dead.partitioned else 0


def number_of_topics(topology: Topology) -> int:
    """Number of topics that the file stands for, a partitioned topic counted once; computed without expanding the file."""
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
    """Settings of the dead letter topic; None if the subscription has no such topic."""
    if isinstance(subscription.dead_letter, bool):
        return DeadLetter.model_construct() if subscription.dead_letter else None
    return subscription.dead_letter


def audit(subscription: Subscription) -> Audit | None:
    """Settings of the audit topic; None if the subscription has no such topic."""
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
    """Settings of error texts that travel with failed messages; None if they do not travel."""
    if isinstance(subscription.error_text, bool):
        return ErrorText.model_construct() if subscription.error_text else None
    return subscription.error_text


def isolation(ground: GroundTopic, subscription: Subscription) -> Isolate | None:
    """Settings of the isolation of tenants, with `to` filled in; None if there is none: no `fair_by`, isolation `off`,
    or no lane to move messages to. The type of the subscription does not count, but a worker isolates nobody in lanes
    that keep order.
    """
    if ground.fair_by is None or isinstance(subscription.isolate, str):
        return None
    target = isolation_target(ground, subscription, subscription.isolate)
    return subscription.isolate.model_copy(update={"to": target}) if target else None


def isolation_target(ground: GroundTopic, subscription: Subscription, isolate: Isolate) -> str | None:
    """Lane that messages of an isolated tenant go to: as the file says, else `B1` if that level is active, else
    `pending`. None if that lane does not exist or is draining.
    """
    there = [
        *(["B1"] if Level.B1 in active_levels(ground) else []),
        *(["pending"] if State.PENDING in subscription.states and State.PENDING not in subscription.draining else []),
    ]
    if isolate.to is not None:
        return isolate.to if isolate.to in there else None
    return there[0] if there else None


def level_weight(subscription: Subscription, level: Level) -> int:
    """Weight of a level: as declared, else by its class (S 30, L 20, but L1 10, B 5, D 2)."""
    if level in subscription.level_weights:
        return subscription.level_weights[level]
    return 10 if level is Level.L1 else _CLASS_WEIGHTS[level.value[0]]


def state_weight(subscription: Subscription, level: Level, state: State) -> int:
    """Weight of a state within its level. It is 1 for a backup level, which has only its ready lane."""
    if level.is_backup:
        return 1
    return int(getattr(subscription.weights, state.value))


def waiting_states(ground: GroundTopic, subscription: Subscription) -> tuple[State | None, ...]:
    """States in which messages of a subscription can wait: the declared and the draining ones, and None, which stands
    for the backup levels, if the topic has some.
    """
    has_backup = any(level.is_backup for level in read_levels(ground))
    return (*read_states(subscription), None) if has_backup else read_states(subscription)


def horizon(ground: GroundTopic, subscription: Subscription) -> Duration:
    """Longest time from now until a message can be due: the maximum of all delays (declared, by default, and by code),
    of 1 h with a rate limit or isolation, and of the windows of quotas (docs/explanation/consumer.md#delays).
    """
    spans: list[int] = [0]
    for state in waiting_states(ground, subscription):
        spans += waits(subscription, state).delays
    if State.RETRYING in read_states(subscription):
        spans += [delay for delays in subscription.retrying.by_code.values() for delay in delays]
    if any(isinstance(limit, RateLimit) for limit in subscription.limits) or isolation(ground, subscription):
        spans.append(LIMIT_WAIT)
    spans += [limit.limit.period for limit in subscription.limits if isinstance(limit, QuotaLimit)]
    return Duration(max(spans))


def max_lifetime(ground: GroundTopic, subscription: Subscription) -> Duration:
    """Longest time until a message is done or dead (K212): the sum of all waits of all states and of a backup level,
    without delays by code. In pending an attempt counts at least 1 h with a rate limit, in blocking at least the
    longest window of a quota, if there is one.
    """
    least: dict[State | None, int] = {
        State.PENDING: RATE_WAIT if any(isinstance(limit, RateLimit) for limit in subscription.limits) else 0,
        State.BLOCKING: max(
            (limit.limit.period for limit in subscription.limits if isinstance(limit, QuotaLimit)), default=0
        ),
    }
    states = waiting_states(ground, subscription)
    return Duration(sum(waits(subscription, state).total_of_at_least(least.get(state, 0)) for state in states))


def unacked_budget(subscriptions: Collection[Subscription]) -> tuple[int, int]:
    """(per consumer, per subscription): limits of unacknowledged messages that a topic with these subscriptions needs
    for their look-ahead, never below the broker's defaults.
    """
    consumer = max((s.lookahead.messages for s in subscriptions), default=0)
    together = max((s.lookahead.messages * 2 * s.expected_workers for s in subscriptions), default=0)
    return max(BROKER_UNACKED_PER_CONSUMER, consumer), max(BROKER_UNACKED_PER_SUBSCRIPTION, together)
