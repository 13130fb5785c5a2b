"""Policy values in an order that the broker accepts at every step, and under which no topic keeps less for a moment
than before or after.

Pulsar refuses a retention that is not above the backlog quota. It compares the values that apply to the written object
only: sizes for namespaces and topics, times for topics; each type of quota is inherited on its own
(docs/explanation/pulsar.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kodoctl.topology.model.policies import BacklogQuota, InactiveTopic, PolicyValue, Retention
from kodoctl.topology.quota_conflicts import quota_conflicts
from kodoctl.topology.units import UNLIMITED, Duration, Size, Unlimited, as_limit

if TYPE_CHECKING:
    from kodoctl.plan.changes import PolicyChange

Changed = Mapping[str, tuple[PolicyValue | None, PolicyValue | None]]  # policy -> before, after; None is unset
# What holds where no value is set, and the broker's configuration may not be read: Pulsar's own defaults.
PULSAR_DEFAULTS: Mapping[str, PolicyValue] = {
    "retention": Retention(time=Duration(0), size=Size(0)),
    "ttl": UNLIMITED,
    "subscription_expiry": UNLIMITED,
    "backlog_quota": BacklogQuota(size=UNLIMITED, time=UNLIMITED),
}
_NO_QUOTA = BacklogQuota(size=UNLIMITED, time=UNLIMITED)


@dataclass(frozen=True, slots=True)
class PolicyWrite:
    """The write of one policy. `before`, `after`: value that the write replaces, and value that it sets; None: the
    policy is not set. A value may be temporary, because a policy can be written twice.
    """

    name: str
    before: PolicyValue | None
    after: PolicyValue | None


def write_order(changed: Changed, beneath: Mapping[str, PolicyValue | None], *, by_time: bool) -> list[PolicyWrite]:
    """Returns the writes of one object, in their order. `changed`: policy -> (before, after), None is unset; `beneath`:
    retention and backlog_quota that the object inherits (a topic from its namespace), for values that it does not set
    itself; `by_time`: the broker compares the times of the two as well as their sizes, as it does for topics.

    Retention and backlog quota come last; the others are sorted by name, but `allowed_clusters` is the last of them if
    it loses a cluster. Retention comes before the quota if the broker accepts it beside the earlier quota; else the
    quota comes first if the broker accepts it beside the earlier retention; else the quota is written twice: before the
    retention as unlimited, and after it with its value.
    """
    pair = {name: changed[name] for name in ("retention", "backlog_quota") if name in changed}
    writes = [PolicyWrite(name, *values) for name, values in sorted(changed.items(), key=_rank) if name not in pair]
    if len(pair) < 2:
        return [*writes, *(PolicyWrite(name, *values) for name, values in pair.items())]
    retention, quota = (
        PolicyWrite("retention", *pair["retention"]),
        PolicyWrite("backlog_quota", *pair["backlog_quota"]),
    )
    if _is_accepted(quota.before, retention.after, beneath, by_time=by_time):
        return [*writes, retention, quota]
    if _is_accepted(quota.after, retention.before, beneath, by_time=by_time):
        return [*writes, quota, retention]
    none, back = PolicyWrite(quota.name, quota.before, _NO_QUOTA), PolicyWrite(quota.name, _NO_QUOTA, quota.after)
    return [*writes, none, retention, back]


def _rank(change: tuple[str, tuple[PolicyValue | None, PolicyValue | None]]) -> tuple[bool, str]:
    """Order of a write: allowed clusters come last where some go, because those of `replication` must be among them."""
    name, (before, after) = change
    return name == "allowed_clusters" and not set(before or ()) <= set(after or ()), name


def _is_accepted(
    quota: PolicyValue | None,
    retention: PolicyValue | None,
    beneath: Mapping[str, PolicyValue | None],
    *,
    by_time: bool,
) -> bool:
    kept = retention if retention is not None else beneath.get("retention")
    limits = inherited_quota(quota, beneath.get("backlog_quota"))
    if limits is None or not isinstance(kept, Retention):
        return True
    return not list(quota_conflicts(limits, kept, by_time=by_time))


def inherited_quota(own: PolicyValue | None, beneath: PolicyValue | None) -> BacklogQuota | None:
    """The limits that apply to a topic or namespace: each of size and time that `own` does not set comes from
    `beneath`, the level from which it inherits. None: neither level has a quota that is a BacklogQuota. Only the limits
    of the result apply, not its actions.
    """
    if not isinstance(own, BacklogQuota):
        return beneath if isinstance(beneath, BacklogQuota) else None
    if not isinstance(beneath, BacklogQuota):
        return own
    size, time = (own.size, own.time)
    return BacklogQuota(
        size=beneath.size if size is None else size,
        time=beneath.time if time is None else time,
        when_full=own.when_full,
    )


def intermediate_value(change: PolicyChange) -> PolicyValue | None:
    """The value that a policy of a namespace has while the namespace's topics change; None is unset. A retention, TTL
    or subscription expiry keeps at least as much as before and after; a backlog quota is the one of both that refuses
    fewer retentions (unlimited if neither does in size and time), so that the broker accepts the writes of each topic;
    `inactive_topic` has its value before. Any other policy has its new value, and so has a retention, quota, TTL or
    expiry with a `Foreign` value before or after.
    """
    before, after = counting_value(change, after=False), counting_value(change, after=True)
    match before, after:
        case Retention(), Retention():
            return _wider(change, before, after)
        case BacklogQuota(), BacklogQuota():
            return _freer(change, before, after)
        case (int() | str(), int() | str()) if change.policy in PULSAR_DEFAULTS:
            return change.before if as_limit(after) < as_limit(before) else change.after  # type: ignore[arg-type]
        case _, InactiveTopic() | None if change.policy == "inactive_topic":
            return change.before  # topics that say for themselves what counted so far go first
        case _:
            return change.after


def counting_value(change: PolicyChange, *, after: bool) -> PolicyValue | None:
    """The value that applies before or after a change (`PolicyChange.counting`); if none is known, that of
    PULSAR_DEFAULTS, None if PULSAR_DEFAULTS does not have the policy either.
    """
    value = change.counting(after=after)
    return value if value is not None else PULSAR_DEFAULTS.get(change.policy)


def _limit(value: int | Unlimited | None) -> float:
    """The limit as a number. A merged retention always has both limits."""
    assert value is not None
    return as_limit(value)


def _freer(change: PolicyChange, before: BacklogQuota, after: BacklogQuota) -> PolicyValue | None:
    """The quota with the lower demands on a retention, in both limits; an unlimited quota if neither has both limits
    lower.
    """
    pairs = list(zip(_quota_limits(before), _quota_limits(after), strict=True))
    if all(new <= old for old, new in pairs):
        return change.after
    return change.before if all(old <= new for old, new in pairs) else _NO_QUOTA


def _quota_limits(quota: BacklogQuota) -> tuple[float, float]:
    """Size and time that a retention must exceed; 0 for an unlimited quota."""
    size, time = ((0.0 if limit in (None, UNLIMITED) else float(limit)) for limit in (quota.size, quota.time))
    return size, time


def _wider(change: PolicyChange, before: Retention, after: Retention) -> PolicyValue | None:
    """Both limits at their larger value: the earlier or the later value if it has both, else a new one."""
    times, sizes = (before.time, after.time), (before.size, after.size)
    both = Retention(time=max(times, key=_limit), size=max(sizes, key=_limit))
    return change.after if both == after else change.before if both == before else both
