"""K006, K201 to K203, K205 to K207, K212, K213, K216, K222: policies that lose or refuse messages, or keep them too
short.

"Effective" is the topic's own value, else its namespace's if a file has one. Plan checks live values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kodoctl.errors import Severity
from kodoctl.topology import defaults
from kodoctl.topology.lint.registry import LintScope, RuleMatch, rule
from kodoctl.topology.model.policies import BacklogQuota, InactiveTopic, Persistence, Retention, what_is_missing
from kodoctl.topology.names import WAITING_STATES, State
from kodoctl.topology.quota_conflicts import quota_conflicts
from kodoctl.topology.units import UNLIMITED, Duration, Size, as_limit

if TYPE_CHECKING:
    from kodoctl.errors import Where
    from kodoctl.topology.expand import Expansion, FamilyTopic
    from kodoctl.topology.model.policies import PolicyValue
    from kodoctl.topology.model.topology import GroundTopic

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = Duration(24 * HOUR)
WEEK = Duration(7 * DAY)
MAX_PARTITIONS = 1024
MIN_MESSAGE_SIZE = Size(64 << 10)
CONTROL_ROOM = Size(4 << 10)  # what our properties may add to a message on its way (K213)


def distinct_topics(scope: LintScope) -> Iterator[tuple[Expansion, FamilyTopic]]:
    """Yields (expansion, topic) for the first topic of each group that has one object of policies in common, such as
    the levels of a ground topic. Groups whose policies are merely equal each have a topic here.
    """
    for expansion in scope.expansions:
        for topic in expansion.distinct:
            yield expansion, topic


@rule("K006", Severity.ERROR, "missing field")
def incomplete(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds policies of topics and namespaces that, with all layers merged, lack a member or have members that exclude
    each other, and `allowed_clusters` without a cluster of `replication`.
    """
    for expansion, topic in distinct_topics(scope):
        for policy, value in topic.resource.policies.items():
            if reason := what_is_missing(value):
                yield RuleMatch(scope.where(expansion, topic, policy), f"{policy}: {reason}", topic.name.local)
    for expansion, namespace in scope.namespaces.values():
        for policy, value in namespace.policies.items():
            if reason := what_is_missing(value):
                yield RuleMatch(
                    expansion.topology.where_key("namespace_policies", policy), f"{namespace.name}: {policy}: {reason}"
                )
        allowed, replicated = (namespace.policies.get(name, ()) for name in ("allowed_clusters", "replication"))
        if allowed and (barred := sorted(set(replicated) - set(allowed))):
            where = expansion.topology.where_key("namespace_policies", "allowed_clusters")
            detail = f"allowed_clusters: {', '.join(barred)} is missing, a cluster of `replication`"
            yield RuleMatch(where, f"{namespace.name}: {detail}")


@rule("K201", Severity.ERROR, "dead letters that would not be kept")
def dead_letters(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds dead letter topics whose messages may expire within a week, because people need that time at least, or
    whose subscription or topic the broker may ever delete.
    """
    for expansion, topic in distinct_topics(scope):
        if topic.state is not State.DEAD:
            continue
        ttl = scope.effective(topic, "ttl")
        if ttl is not None and as_limit(ttl) < WEEK:
            detail = f"ttl {ttl}: at least 7d, better unlimited (remove the line)"
            yield RuleMatch(scope.where(expansion, topic, "ttl"), detail, topic.name.local)
        expiry = scope.effective(topic, "subscription_expiry")
        if expiry is not None and expiry != UNLIMITED:
            detail = f"subscription_expiry {expiry} would delete the holder, then the letters: unlimited"
            yield RuleMatch(scope.where(expansion, topic, "subscription_expiry"), detail, topic.name.local)
        inactive = scope.effective(topic, "inactive_topic")
        if isinstance(inactive, InactiveTopic) and inactive.delete != "never":
            detail = f"inactive_topic {inactive.delete} would delete the topic: never"
            yield RuleMatch(scope.where(expansion, topic, "inactive_topic", "delete"), detail, topic.name.local)


@rule("K202", Severity.ERROR, "messages would expire before they are due")
def horizons(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds waiting topics, and ready topics of families with a backup level, whose messages, subscription or topic may
    expire before the longest wait (horizon) and 3 s of jitter end.
    """
    for expansion, topic in distinct_topics(scope):
        bounds = list(_bounds(scope, topic))
        ground = expansion.topology.spec.topics[topic.ground]
        if not bounds or not _holds_waiting(topic, ground):
            continue
        horizon = Duration(max((defaults.horizon(ground, s) for s in expansion.readers(topic)), default=0))
        # in whole minutes, which every policy can store
        enough = Duration(-(-(horizon + defaults.JITTER) // MINUTE) * MINUTE)
        for policy, member, bound, way_out in bounds:
            if bound < horizon + defaults.JITTER:
                detail = f"{policy} {bound}: messages wait up to {horizon} there; at least {enough}, or {way_out}"
                yield RuleMatch(scope.where(expansion, topic, policy, member), detail, topic.name.local)


def _holds_waiting(topic: FamilyTopic, ground: GroundTopic) -> bool:
    """True for waiting topics, and for ready topics if there is a backup level, whose policies all of them share."""
    if topic.state is State.READY:
        return any(level.is_backup for level in defaults.read_levels(ground))
    return topic.state in WAITING_STATES


def _bounds(scope: LintScope, topic: FamilyTopic) -> Iterator[tuple[str, str, Duration, str]]:
    for policy in ("ttl", "subscription_expiry"):
        value = scope.effective(topic, policy)
        if isinstance(value, Duration):
            yield policy, "", value, "unlimited"
    inactive = scope.effective(topic, "inactive_topic")
    if isinstance(inactive, InactiveTopic) and inactive.delete == "caught_up" and inactive.after is not None:
        yield "inactive_topic", "after", inactive.after, "`delete: never`"


@rule("K203", Severity.ERROR, "evict on a topic that must not lose messages")
def evictions(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds backlog quotas with `evict` and a limit, beyond which the oldest unacknowledged messages are dropped."""
    for expansion, topic in distinct_topics(scope):
        quota = scope.effective(topic, "backlog_quota")
        if not isinstance(quota, BacklogQuota):
            continue
        limits = zip(("when_full", "when_old" if quota.when_old else "when_full"), quota.evicts, strict=True)
        for member in dict.fromkeys(member for member, limit in limits if limit != UNLIMITED):
            detail = "evict drops unread messages; hold_producers and fail_producers do not"
            yield RuleMatch(scope.where(expansion, topic, "backlog_quota", member), detail, topic.name.local)


@rule("K205", Severity.ERROR, "durability below what is promised")
def durability(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds production topics whose `persistence` has fewer than 3 copies or fewer than 2 confirmed ones, production
    topics for which no file declares `persistence` (unless it is ignored), and quorums, also of namespaces, that Pulsar
    refuses.
    """
    for expansion, topic in distinct_topics(scope):
        persistence = scope.effective(topic, "persistence")
        production = expansion.topology.production
        if persistence is None:
            if production and "persistence" not in topic.ignore:
                detail = (
                    "production, and nothing gives `persistence`: write {ensemble: 3, write_quorum: 3, ack_quorum: 2}"
                )
                path = "namespace_policies" if expansion.topology.spec.namespace_policies is not None else "topics"
                yield RuleMatch(expansion.topology.where_key(path), detail)
            continue
        yield from _copies(persistence, scope.where(expansion, topic, "persistence"), production=production)
    for expansion, namespace in scope.namespaces.values():  # topics of its own files may all have another value
        where = expansion.topology.where("namespace_policies", "persistence")
        yield from _copies(namespace.policies.get("persistence"), where, production=False)


def _copies(persistence: PolicyValue | None, where: Where, *, production: bool) -> Iterator[RuleMatch]:
    if not isinstance(persistence, Persistence) or what_is_missing(persistence):
        return
    ensemble, write, ack = persistence.ensemble or 0, persistence.write_quorum or 0, persistence.ack_quorum or 0
    if not ack <= write <= ensemble:
        yield RuleMatch(
            where, f"ack_quorum {ack} ≤ write_quorum {write} ≤ ensemble {ensemble} does not hold: Pulsar refuses it"
        )
    elif production and (ensemble < 3 or write < 3 or ack < 2):
        detail = f"production keeps 3 copies and confirms 2; this is ensemble {ensemble}, write {write}, ack {ack}"
        yield RuleMatch(where, detail)


@rule("K216", Severity.WARNING, "topics that come by themselves in production")
def automatic_topics(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds production namespaces in which no file turns automatic topic creation off: a misspelt name would lose
    messages, and a deleted topic would come back.
    """
    reported = set()
    for expansion in scope.expansions:
        owner, namespace = scope.namespaces.get(expansion.namespace, (expansion, None))
        off = namespace is not None and namespace.policies.get("auto_topic_creation") is False
        if off or not expansion.topology.production or expansion.namespace in reported:
            continue
        reported.add(expansion.namespace)
        where = owner.topology.where_key(*(["namespace_policies", "auto_topic_creation"] if namespace else ["topics"]))
        detail = (
            f"{expansion.namespace}: production, and no file turns automatic topic creation off: a misspelt name is a new"
            " topic that nobody reads; write `namespace_policies: {auto_topic_creation: false}`"
        )
        yield RuleMatch(where, detail)


@rule("K206", Severity.ERROR, "backlog quota not below retention")
def quotas(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds limited backlog quotas that are not below the retention, unless the retention is unlimited or off: the
    broker refuses such a pair.
    """
    for expansion, topic in distinct_topics(scope):
        quota, retention = scope.effective(topic, "backlog_quota"), scope.effective(topic, "retention")
        own = {"backlog_quota", "retention"} & topic.resource.policies.keys()
        for conflict in quota_conflicts(quota, retention, by_time=True) if own else ():
            policy = "backlog_quota" if "backlog_quota" in own else "retention"
            detail = f"{conflict}: lower the quota or raise retention"
            yield RuleMatch(scope.where(expansion, topic, policy, conflict.measure), detail, topic.name.local)
    for expansion, namespace in scope.namespaces.values():
        policies = namespace.policies
        for conflict in quota_conflicts(policies.get("backlog_quota"), policies.get("retention"), by_time=False):
            detail = f"{namespace.name}: {conflict}: lower the quota or raise retention"
            yield RuleMatch(expansion.topology.where_key("namespace_policies", "backlog_quota"), detail)


@rule("K207", Severity.WARNING, "a value Pulsar accepts but cannot handle well")
def regrets(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds values that Pulsar accepts and cannot handle: too many partitions (clients cannot connect), tiny message
    sizes (clients reconnect for ever), backlog quotas that one message fills.
    """
    for expansion, topic in distinct_topics(scope):
        if topic.resource.partitions > MAX_PARTITIONS:
            detail = f"{topic.resource.partitions} partitions: above {MAX_PARTITIONS} clients fail to connect"
            yield RuleMatch(expansion.topology.where(*expansion.partitions_path(topic)), detail, topic.name.local)
        size = topic.resource.policies.get("max_message_size")
        if size is not None and size < MIN_MESSAGE_SIZE:
            detail = f"max_message_size {size}: a producer's batch beyond it reconnects for ever; at least 64KiB"
            yield RuleMatch(scope.where(expansion, topic, "max_message_size"), detail, topic.name.local)
        quota, largest = scope.effective(topic, "backlog_quota"), (size or MIN_MESSAGE_SIZE) + CONTROL_ROOM
        if (
            isinstance(quota, BacklogQuota)
            and quota.size is not None
            and quota.size != UNLIMITED
            and quota.size < largest
        ):
            detail = (
                f"backlog_quota {quota.size}: one message fills it, and whoever publishes stands still, workers that move"
                f" messages there too; at least {Size(largest)}"
            )
            yield RuleMatch(scope.where(expansion, topic, "backlog_quota", "size"), detail, topic.name.local)


@rule("K222", Severity.WARNING, "encryption that workers do not have")
def encryption(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds namespaces with `encryption_required`: the broker refuses messages that are not encrypted, and the
    consumer, recalls and moves of waiting messages have no keys.
    """
    for expansion, namespace in scope.namespaces.values():
        if namespace.policies.get("encryption_required") is True:
            detail = (
                f"{namespace.name}: encryption_required: the broker refuses whatever kodo-consumer, Producer, recalls and"
                " moves of waiting messages publish; they have no keys"
            )
            yield RuleMatch(expansion.topology.where("namespace_policies", "encryption_required"), detail)


@rule("K212", Severity.ERROR, "audit records would go before the message's life ends")
def audit_retention(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds audit topics whose retention time is less than the longest life of a message plus one day: the pipeline
    needs all of a message's records.
    """
    for expansion, topic in distinct_topics(scope):
        if topic.state is not None or topic.subscription is None:
            continue
        ground = expansion.topology.spec.topics[topic.ground]
        life = defaults.max_lifetime(ground, ground.subscriptions[topic.subscription])
        needed = Duration(-(-(life + DAY) // HOUR) * HOUR)  # in whole hours, for people
        retention = scope.effective(topic, "retention")
        if isinstance(retention, Retention) and retention.time is not None and as_limit(retention.time) < needed:
            detail = f"retention {retention.time}: a message's longest life and a day more are {needed}; at least that"
            yield RuleMatch(scope.where(expansion, topic, "retention", "time"), detail, topic.name.local)


@rule("K213", Severity.ERROR, "a reroute would not fit")
def message_sizes(scope: LintScope) -> Iterator[RuleMatch]:
    """Finds state and dead letter topics whose own `max_message_size` is less than that of the ready topic plus 4 KiB,
    or whose ready topic has none: moves add properties to a message.
    """
    for expansion in scope.expansions:
        ready = {
            topic.ground: topic.resource.policies.get("max_message_size")
            for topic in expansion.topics
            if topic.state is State.READY
        }
        for topic in expansion.distinct:
            size = topic.resource.policies.get("max_message_size")
            if topic.state in (State.READY, None) or size is None:
                continue
            source = ready[topic.ground]
            if source is None or size < source + CONTROL_ROOM:
                least = (
                    f"the ready topic's {source} + 4KiB" if source else "what the broker's own limit lets in, + 4KiB"
                )
                detail = f"max_message_size {size} is less than {least}: raise it in `state_policies` or `dead_letter`"
                yield RuleMatch(scope.where(expansion, topic, "max_message_size"), detail, topic.name.local)
