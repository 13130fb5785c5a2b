# pure: every branch is tested
"""Tenant that causes a backlog: most of the waiting messages, or of the handlers' time, are of this tenant; and the
command that sets the tenant apart from the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kodo_consumer.core.upkeep.override_state import why_not_followed
from kodo_consumer.core.values.limit_policy import NOBODY, Concurrency
from kodoctl.protocol.overrides import Override, OverrideKind, why_invalid
from kodoctl.text.escaping import one_line, shell_line
from kodoctl.topology.names import Level

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Policy

MOST: Final = 2 / 3  # of the waiting messages or of the handlers' time, on the average
_MAX_SHOWN: Final = 60  # characters of a tenant


class TenantShare(NamedTuple):
    """Tenant with the largest part, and that part, up to 1. The tenant is empty if no tenant has any."""

    tenant: str = ""
    share: float = 0.0

    @classmethod
    def largest(cls, counts: Mapping[str, int], total: int) -> TenantShare:
        """The largest of the counts by tenant, as a part of `total`, which may count tenants that `counts` lacks."""
        if not counts:
            return cls()
        tenant = max(counts, key=counts.__getitem__)
        return cls(tenant, min(1.0, counts[tenant] / max(1, total)))


NO_TENANT: Final = TenantShare()


class TenantCause(NamedTuple):
    """Tenant that causes a backlog. `waiting`: its part of the waiting messages, 0 to 1; `working`: its part of the
    handlers' time, 0 to 1.
    """

    tenant: str
    waiting: float
    working: float

    @property
    def share(self) -> float:
        """The larger one of `waiting` and `working`, 0 to 1."""
        return max(self.waiting, self.working)

    def text(self, policy: Policy) -> str:
        """The tenant's parts that are more than two thirds, and the command that helps (if no order can be followed,
        a declaration for the file), on one line of printable characters.
        """
        parts = (
            (self.waiting, "the waiting messages"),
            (self.working, "the handlers' time"),
        )
        has = " and ".join(f"{part:.0%} of {what}" for part, what in parts if part > MOST)
        return f"tenant {one_line(repr(self.tenant), _MAX_SHOWN)} has {has}: {_remedy(self.tenant, policy)}"


def tenant_cause(waiting: Sequence[TenantShare], working: Sequence[TenantShare]) -> TenantCause | None:
    """Finds the tenant that causes a backlog, by samples over time of the waiting messages and of the handlers' time:
    it has more than two thirds, on average, of the one or of the other. None: no tenant has that much, or no other
    tenant has messages. Messages without a tenant (NOBODY) are never the cause.
    """
    seen = {one.tenant for one in (*waiting, *working) if one.tenant}
    if len(seen) < 2 and all(one.share == 1.0 for one in (*waiting, *working) if one.tenant):  # there are others
        return None
    found = (TenantCause(tenant, _mean(waiting, tenant), _mean(working, tenant)) for tenant in sorted(seen - {NOBODY}))
    return max((one for one in found if one.share > MOST), key=lambda one: one.share, default=None)


def _mean(samples: Sequence[TenantShare], tenant: str) -> float:
    return sum(one.share for one in samples if one.tenant == tenant) / max(1, len(samples))


def _remedy(tenant: str, policy: Policy) -> str:
    """The command of the first order that this subscription can follow and that sets the tenant apart; without one, the
    declarations that the file lacks.
    """
    base = Override(OverrideKind.PAUSE, 0, 1, "-", tenant=tenant)
    for order, effect in _candidates(base, policy):
        if not why_invalid(order) and not why_not_followed(order, policy):
            return f"`{_command(order, policy)}` {effect}"
    level = policy.ground_lane.level
    return f"declare a level below {level} to move it to, a concurrency limit by {policy.fair_by}, or `isolate`"


def _candidates(base: Override, policy: Policy) -> Iterator[tuple[Override, str]]:
    """Orders about a tenant, each with its effect in words, the mildest first. `base`: a pause of the tenant."""
    tenant = base.tenant
    for limit in policy.limits:
        if not isinstance(limit, Concurrency) or limit.by != policy.fair_by:
            continue
        if less := limit.overrides.get(tenant, limit.limit) // 2:
            by, within = policy.fair_by or "", str(limit.within or "")
            order = replace(base, what=OverrideKind.LIMIT, tenant="", limit="concurrency", by=by, within=within)
            yield replace(order, value=tenant, to=str(less)), "gives it fewer slots"
    for level in Level:
        if level.rank > policy.ground_lane.level.rank:
            yield replace(base, what=OverrideKind.MOVE, to=level), "lets the others go first"
    if policy.isolation_target(policy.ground_lane.level) is not None:
        yield base, "lets it wait"


def _command(order: Override, policy: Policy) -> str:
    """The command that gives an order, to be copied."""
    options = {"tenant": order.tenant, "kind": order.limit, "by": order.by, "in": order.within, "value": order.value}
    options["to"] = order.to
    words = ["kodo-consumer", str(order.what), "FILE", "--topic", policy.ground, "--subscription", policy.subscription]
    for name, value in options.items():
        if value:
            words += [f"--{name}={value}"]
    return shell_line(words)
