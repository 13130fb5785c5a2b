"""Orders that move tenants: the moves that follow from them, and why a subscription cannot follow one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kodo_consumer.core.values.envelope import MAX_REASON, Level
from kodo_consumer.core.values.tenant_moves import TenantMove
from kodoctl.protocol.overrides import STAY, Override, OverrideKind, until_text
from kodoctl.text.escaping import printable

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Policy


def tenant_moves(policy: Policy, orders: Iterable[Override]) -> dict[str, TenantMove]:
    """Moves by tenant, of those of the `orders` that move a tenant and that this subscription can follow by its present
    policy; of two about one tenant the later one in the sequence counts. All `orders` are taken to be in force.
    """
    return {
        order.tenant: TenantMove(Level(order.to), order.since, order.waiting != STAY, _name(order))
        for order in orders
        if order.what is OverrideKind.MOVE and not why_not_moved(order, policy)
    }


def _name(order: Override) -> str:
    why = f": {order.why}" if order.why else ""
    return printable(f"moved by hand by {order.who} until {until_text([order])}{why}")[:MAX_REASON]


def why_not_moved(order: Override, policy: Policy) -> str:
    """Reasons why this subscription cannot follow a move, in words; "" if it can."""
    return "; ".join(_obstacles(order, policy))


def _obstacles(order: Override, policy: Policy) -> Iterator[str]:
    if not policy.fair_by:
        yield "there are no tenants: the ground topic has no fair_by"
    if policy.subscription_type != "shared":
        yield (
            f"{policy.subscription} is {policy.subscription_type}: on another level a message would overtake others of its"
            " key; give the tenant a weight, or pause it"
        )
    if missing := why_no_level(order.to, policy):
        yield missing
        return
    level = Level(order.to)
    if policy.is_draining(level):
        yield f"{level} is draining and takes no messages; there is {_levels(policy)}"
    elif problem := policy.exclusive.why_not_admitted(order.tenant, level):
        yield f"{problem}: `exclusive_levels` of the file says so"


def why_no_level(name: str, policy: Policy) -> str:
    """Reason, in words, why messages cannot move to the level `name`, which a user wrote; "" if the topic has this
    level.
    """
    if any(lane.level == name for lane in policy.every_lane):
        return ""
    return f"{policy.ground} has no level {name}; there is {_levels(policy)}: to add one, write it into `levels` of the file"


def _levels(policy: Policy) -> str:
    levels = dict.fromkeys(lane.level for lane in policy.every_lane)
    return ", ".join(level for level in levels if not policy.is_draining(level))


def share_lines(policy: Policy, order: Override) -> Iterator[str]:
    """Yields one line for people that compares the slot time of the level to which the order moves a tenant with that
    of L1; no line if that level is L1.
    """
    level = Level(order.to)
    shares = {one: sum(lane.share for lane in policy.every_lane if lane.level is one) for one in (level, Level.L1)}
    if level is not Level.L1:
        way = "up" if shares[level] > shares[Level.L1] else "down"
        yield (
            f"That is {way}: where all lanes have messages, {level} has {shares[level]:.0%} of the slot time for its tenants,"
            f" and L1 {shares[Level.L1]:.0%}."
        )
