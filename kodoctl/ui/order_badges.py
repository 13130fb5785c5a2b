# pure: every branch is tested
"""Badges of a subscription: the live orders in force, those of one kind together where there are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kodoctl.protocol.overrides import (
    InvalidOverridesError,
    Override,
    OverrideKind,
    active_overrides,
    parse,
    steered_text,
    until_text,
)
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.status.lane_status import LaneStatus

_NAMED: Final = 3  # orders of one kind that are named
_TOGETHER: Final = {
    OverrideKind.PAUSE: "paused",
    OverrideKind.WEIGHT: "weighted",
    OverrideKind.LIMIT: "limited",
    OverrideKind.SLOTS: "slots changed",
    OverrideKind.MOVE: "moved",
}


def order_badges(lanes: Sequence[LaneStatus], now: int) -> Iterator[str]:
    """Yields texts about the live orders of a subscription that are in force at `now` (ms since the epoch): one for
    each order, but a single one for more than three orders of one kind. Only if no order is in force, orders that
    workers cannot read or do not follow have one text that says so.
    """
    for value in dict.fromkeys(lane.steered for lane in lanes if lane.steered):
        active = _active(value, now)
        by_kind: dict[OverrideKind, list[Override]] = {}
        for order in active:
            by_kind.setdefault(order.what, []).append(order)
        for kind, orders in by_kind.items():
            if len(orders) > _NAMED:
                yield f"{many(len(orders), 'order')}: {_TOGETHER[kind]}, the last until {until_text(orders)}"
            else:
                yield from map(_badge, orders)
        if not active and (text := steered_text(value, now)):
            yield text


def paused_tenants(lanes: Sequence[LaneStatus], now: int) -> frozenset[str]:
    """Tenants that orders in force at `now` (ms since the epoch) pause; "" is among them if an order pauses a lane.
    Orders that workers cannot read do not count. `lanes`: lanes of one subscription.
    """
    orders = (order for lane in lanes if lane.steered for order in _active(lane.steered, now))
    return frozenset(order.tenant for order in orders if order.what is OverrideKind.PAUSE)


def _active(value: str, now: int) -> tuple[Override, ...]:
    """Orders in force by the value of a subscription's property; none if workers cannot read the value."""
    try:
        return active_overrides(parse(value), now)
    except InvalidOverridesError:
        return ()


def _badge(order: Override) -> str:
    by = f" by {order.who}" if order.who else ""
    why = f": {order.why}" if order.why else ""
    limited = "limited: " if order.what is OverrideKind.LIMIT else ""
    return f"{limited}{order} until {until_text([order])}{by}{why}"
