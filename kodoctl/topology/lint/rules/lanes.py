"""K103, K104, K204, K208, K214, K215, K219, K220, K221: lanes, weights, waits, limits and error texts that contradict
each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kodoctl.errors import Severity
from kodoctl.topology import defaults
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.model.subscription import ROUTE_OPERATORS, ConcurrencyLimit, Isolate, Limit, RateLimit
from kodoctl.topology.names import LEVELS_CONTRADICT, Level, State, partition_numbers
from kodoctl.topology.units import UNLIMITED

if TYPE_CHECKING:
    from kodoctl.topology.expand import FamilyTopic

Path = tuple[str | int, ...]
ORDERED = ("key_shared", "failover", "exclusive")


@rule("K103", Severity.ERROR, LEVELS_CONTRADICT)
def levels(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds lists of levels without L1, entries of `levels` and `states` that are listed twice, backups without a level
    above, levels and states that are both active and draining, and L1 draining.
    """
    for expansion, path, ground in scope.grounds():
        where = expansion.topology.where
        active = defaults.active_levels(ground)
        if isinstance(ground.levels, tuple):
            for index, level in enumerate(ground.levels):
                if level in ground.levels[:index]:
                    yield RuleMatch(where(*path, "levels", index), f"{level} is listed twice")
        if Level.L1 not in active:
            yield RuleMatch(
                where(*path, "levels"), "L1 is missing: it is the ground topic itself, and always part of the list"
            )
        for level in active:
            if level.is_backup and not any(other.rank < level.rank for other in active):
                yield RuleMatch(where(*path, "levels"), f"{level} is a backup with no level above it")
        for index, level in enumerate(ground.draining):
            if level is Level.L1:
                yield RuleMatch(where(*path, "draining", index), "L1 is the ground topic itself and cannot drain")
            elif level in active:
                detail = (
                    f"{level} drains and is in use: take it out of `levels` (or `backup`), then nobody writes to it"
                )
                yield RuleMatch(where(*path, "draining", index), detail)
    for expansion, path, _, subscription in scope.subscriptions():
        for index, state in enumerate(subscription.states):
            if state in subscription.states[:index]:
                yield RuleMatch(expansion.topology.where(*path, "states", index), f"{state} is listed twice")
        for index, state in enumerate(subscription.draining):
            if state in subscription.states and "states" in subscription.model_fields_set:
                detail = f"{state} drains and is in use: take it out of `states`, then nobody writes to it"
                yield RuleMatch(expansion.topology.where(*path, "draining", index), detail)
            elif state in subscription.states:
                rest = ", ".join(s for s in subscription.states if s is not state)
                detail = f"{state} drains but `states` has it by default: write `states: [{rest}]`"
                yield RuleMatch(expansion.topology.where(*path, "draining", index), detail)


def _adding(level: Level) -> str:
    """Advice on how to add a level to a topic."""
    usual = {Level.B1: "`backup: true`", Level.L2: "`levels: double`"}
    return f"{usual[level]} adds it" if level in usual else "written into the list `levels` it is added"


@rule("K103", Severity.ERROR, LEVELS_CONTRADICT)
def targets(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds routes and `isolate.to` that name a level or state that does not exist or is draining, and `level_weights`
    of levels that do not exist (a draining level may have a weight).
    """
    for expansion, path, ground, subscription in scope.subscriptions():
        where = expansion.topology.where
        active, there = defaults.active_levels(ground), defaults.read_levels(ground)
        for index, route in enumerate(subscription.routes):
            if route.to not in active:
                state = "is draining" if route.to in there else "is no level of this topic"
                more = "" if route.to in there else f"; {_adding(route.to)}"
                detail = f"{route.to} {state}: the levels are {', '.join(active)}{more}"
                yield RuleMatch(where(*path, "routes", index, "to"), detail)
        for level in subscription.level_weights:
            if level not in there:
                where_key = expansion.topology.where_key(*path, "level_weights", level.value)
                yield RuleMatch(
                    where_key, f"{level} is no level of this topic: the levels are {', '.join(there)}; {_adding(level)}"
                )
        isolate = subscription.isolate
        if isinstance(isolate, Isolate) and isolate.to and not defaults.isolation_target(ground, subscription, isolate):
            yield RuleMatch(where(*path, "isolate", "to"), f"there is no {isolate.to} to isolate to")


@rule("K103", Severity.ERROR, LEVELS_CONTRADICT)
def one_operator(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds route conditions written as a map (of one property) that do not have exactly one operator. Conditions in
    text are not checked.
    """
    for expansion, path, _, subscription in scope.subscriptions():
        for index, route in enumerate(subscription.routes):
            if isinstance(route.when, str):
                continue
            used = [name.rstrip("_") for name in ROUTE_OPERATORS if getattr(route.when, name) is not None]
            if len(used) != 1:
                names = ", ".join(name.rstrip("_") for name in ROUTE_OPERATORS)
                detail = f"it has {' and '.join(used)}" if used else "it has none"
                yield RuleMatch(
                    expansion.topology.where_key(*path, "routes", index, "when"),
                    f"one operator is needed ({names}): {detail}",
                )


@rule("K104", Severity.ERROR, "weights or waits that cannot work")
def weights(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds weights that are not from 0 to 200, and subscriptions in which all levels, or all states, have weight 0."""
    for expansion, path, ground, subscription in scope.subscriptions():
        where = expansion.topology.where
        for state, weight in subscription.weights:
            if not 0 <= weight <= 200:
                yield RuleMatch(where(*path, "weights", state), f"{weight}: a weight is 0 to 200")
        for level, weight in subscription.level_weights.items():
            if not 0 <= weight <= 200:
                yield RuleMatch(where(*path, "level_weights", level.value), f"{weight}: a weight is 0 to 200")
        states = (State.READY, *defaults.read_states(subscription))
        levels = defaults.read_levels(ground)
        if not any(defaults.level_weight(subscription, level) for level in levels):
            yield RuleMatch(where(*path, "level_weights"), "all levels have weight 0: no message would ever be handled")
        if not any(defaults.state_weight(subscription, Level.L1, state) for state in states):
            yield RuleMatch(where(*path, "weights"), "all states have weight 0: no message would ever be handled")


@rule("K104", Severity.ERROR, "weights or waits that cannot work")
def rising_delays(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds delays of a state or the backup that are 0 or do not rise, fewer attempts than delays, and waits of
    `in_place` (in memory) that are not above 0 and at most 5 s. Delays of `by_code` may have any order.
    """
    for expansion, path, _, subscription in scope.subscriptions():
        where = expansion.topology.where
        for index, wait in enumerate(subscription.in_place):
            if not 0 < wait <= defaults.MAX_IN_MEMORY_WAIT:
                detail = f"{wait}: a wait in memory is above 0 and at most 5s; longer ones belong in `retrying.delays`"
                yield RuleMatch(where(*path, "in_place", index), detail)
        for key, state in (
            ("retrying", State.RETRYING),
            ("pending", State.PENDING),
            ("blocking", State.BLOCKING),
            ("backup", None),
        ):
            resolved = defaults.waits(subscription, state)
            for index, delay in enumerate(resolved.delays):
                if delay <= (resolved.delays[index - 1] if index else 0):
                    detail = f"{delay} does not rise above {resolved.delays[index - 1] if index else '0s'}: put the delays in rising order; the last one repeats by itself"
                    yield RuleMatch(where(*path, key, "delays", index), detail)
            if resolved.attempts < len(resolved.delays):
                few, number = resolved.attempts, len(resolved.delays)
                reach = f"{few} attempt{'s' * (few != 1)} never reach{'es' * (few == 1)} the last of {number} delays"
                detail = f"{key}: {reach}: write `attempts: {number}` or more, or fewer delays"
                yield RuleMatch(where(*path, key, "attempts"), detail)


@rule("K204", Severity.ERROR, "a wait or reaction that this subscription type cannot have")
def ordered_subscriptions(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds `on_failure` on shared subscriptions, which keep no order; routes on all other types, which keep one; and
    backup delays above 5 s on failover and exclusive subscriptions, for which Pulsar delays no message.
    """
    for expansion, path, ground, subscription in scope.subscriptions():
        where = expansion.topology.where_key
        if subscription.on_failure is not None and subscription.type not in ORDERED:
            detail = f"on_failure means nothing on a {subscription.type} subscription: messages have no order to keep"
            yield RuleMatch(where(*path, "on_failure"), detail)
        if subscription.routes and subscription.type in ORDERED:
            detail = (
                f"routes on a {subscription.type} subscription: a message on another level would overtake others of its"
                " key, so that none is ever taken; leave them out, or use shared"
            )
            yield RuleMatch(where(*path, "routes"), detail)
        backups = [level for level in defaults.read_levels(ground) if level.is_backup]
        if backups and subscription.type in ("failover", "exclusive"):
            long = [delay for delay in defaults.waits(subscription, None).delays if delay > defaults.MAX_IN_MEMORY_WAIT]
            if long:
                detail = (
                    f"backup delay {long[0]} in {backups[0]}: Pulsar delays no message of a {subscription.type} subscription;"
                    " write delays of at most 5s, or use shared or key_shared"
                )
                yield RuleMatch(where(*path, "backup", "delays"), detail)


@rule("K208", Severity.WARNING, "look-ahead starved by an unacknowledged limit")
def starved_lookahead(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds limits of unacknowledged messages, for a consumer or a subscription, below the number of messages that one
    worker, or all expected workers, may read ahead: beyond such a limit the broker delivers no more, so that workers
    handle messages first in, first out.
    """
    for expansion in scope.expansions:
        for topic in expansion.distinct:
            if topic.state in (State.DEAD, None):
                continue
            for policy, all_workers in (("max_unacked_per_consumer", False), ("max_unacked_per_subscription", True)):
                limit = scope.effective(topic, policy)
                if limit is None or limit == UNLIMITED:
                    continue
                readers = expansion.readers(topic)
                need = max(
                    (s.lookahead.messages * (s.expected_workers if all_workers else 1) for s in readers), default=0
                )
                if limit < need:
                    detail = (
                        f"{policy} {limit} is less than the {need} messages the look-ahead holds:"
                        " raise it, or lower `lookahead.messages`"
                    )
                    yield RuleMatch(scope.where(expansion, topic, policy), detail, topic.name.local)


@rule("K219", Severity.WARNING, "a limit below what workers and producers need")
def crowded_out(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds limits of a topic on consumers, producers and subscriptions below the number that the declared
    subscriptions and their expected workers need: each worker subscribes to every topic that it reads, and has a
    producer on each topic that it moves messages to. One more producer is counted, except on audit topics.
    """
    for expansion in scope.expansions:
        for topic in expansion.distinct:
            readers = expansion.readers(topic)
            for policy, need, what in _seats(topic, [reader.expected_workers for reader in readers]):
                limit = scope.effective(topic, policy)
                if limit is not None and limit != UNLIMITED and limit < need:
                    detail = f"{policy} {limit}: {what} are {need}, and the broker refuses whoever comes last"
                    yield RuleMatch(scope.where(expansion, topic, policy), detail, topic.name.local)


def _seats(topic: FamilyTopic, workers: list[int]) -> Iterator[tuple[str, int, str]]:
    """Yields (policy that limits clients, least value that the topic needs, description of the clients)."""
    total = sum(workers)
    if topic.state is None:
        yield "max_producers", total, "the workers"
        return
    yield "max_producers", total + 1, "the workers and one more producer"
    if topic.state is State.DEAD:
        return
    yield "max_consumers", total, "the workers of all subscriptions"
    yield "max_consumers_per_subscription", max(workers, default=0), "the workers of a subscription"
    yield "max_subscriptions", len(workers), "the subscriptions of the file"


@rule("K220", Severity.ERROR, "more topics than the namespace may have")
def too_many_topics(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds namespaces whose `max_topics` is below the number of declared topics, each partition counted: an apply
    would create some of them, and fail at the others again and again.
    """
    for name, (expansion, namespace) in scope.namespaces.items():
        limit = namespace.policies.get("max_topics")
        if limit is None or limit == UNLIMITED:
            continue
        need = sum(
            len(partition_numbers(topic.resource.partitions))
            for topic in scope.topics.values()
            if topic.name.namespace == name
        )
        if limit < need:
            detail = f"{name}: max_topics {limit}, and the files declare {need}, each partition counted"
            yield RuleMatch(expansion.topology.where("namespace_policies", "max_topics"), detail)


@rule("K214", Severity.WARNING, "isolation that never looks at its least number")
def unreachable_least(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds isolation whose `min` (messages) exceeds `share` (a percentage) of `lookahead.messages`, so that the share
    alone decides. Reports nothing if the file does not set `min`.
    """
    for expansion, path, ground, subscription in scope.subscriptions():
        isolate = defaults.isolation(ground, subscription)
        if isolate is None or "min" not in isolate.model_fields_set:
            continue
        most = int(float(isolate.share.rstrip("%")) / 100 * subscription.lookahead.messages)
        if isolate.min > most:
            detail = (
                f"min {isolate.min} is more than {isolate.share} of a look-ahead of {subscription.lookahead.messages} messages:"
                f" a tenant is isolated from its share on; write a min of at most {max(1, most)}, or raise `lookahead.messages`"
            )
            yield RuleMatch(expansion.topology.where(*path, "isolate", "min"), detail)


@rule("K221", Severity.WARNING, "error texts that nobody would get")
def idle_error_texts(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds `error_text` that is lost, because no message leaves its lane, and `error_text.audit` of a subscription
    without audit records.
    """
    for expansion, path, ground, subscription in scope.subscriptions():
        texts = defaults.error_text(subscription)
        if texts is None:
            continue
        where = expansion.topology.where
        leaves = subscription.states or defaults.dead_letter(subscription) or Level.B1 in defaults.active_levels(ground)
        if not leaves:
            detail = "no message leaves its lane here: there are no states, no backup and no dead letters"
            yield RuleMatch(where(*path, "error_text"), detail)
        if texts.audit and defaults.audit(subscription) is None:
            yield RuleMatch(
                where(*path, "error_text", "audit"),
                "this subscription keeps no audit records: write `audit: true` beside it",
            )


@rule("K215", Severity.WARNING, "a limit too small to be shared out")
def indivisible_limits(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds limits with `scope: subscription` whose number (of a rate its burst) is below `expected_workers`: without a
    store, which no file shows, the workers divide the limit, and each takes at least one.
    """
    for expansion, path, _, subscription in scope.subscriptions():
        workers = subscription.expected_workers
        for index, limit in enumerate(subscription.limits):
            what, least = _least(limit)
            if limit.scope == "subscription" and least < workers:
                detail = (
                    f"{what} {least} is less than the {workers} workers expected: without a store each takes one, together more"
                    f" than declared; write {workers} or more, give the consumers a store, or expect fewer workers"
                )
                yield RuleMatch(expansion.topology.where_key(*path, "limits", index, "limit"), detail)


def _least(limit: Limit) -> tuple[str, int]:
    """(text, number): smallest value of a limit that workers divide. Of a rate the burst: the rate divides exactly."""
    if isinstance(limit, RateLimit):
        rates = (limit.limit, *limit.overrides.values())
        return "a burst of", limit.burst or min(max(1, int(rate.per_second)) for rate in rates)
    if isinstance(limit, ConcurrencyLimit):
        return "a concurrency of", min((limit.limit, *limit.overrides.values()))
    return "a quota of", min(rate.amount for rate in (limit.limit, *limit.overrides.values()))
