"""Overrides in force: the policy that follows from them, and the listener that reads them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.upkeep.move_orders import tenant_moves, why_not_moved
from kodo_consumer.core.values.limit_policy import Concurrency, Limit, Pace, Quota, kind_of, title_of
from kodo_consumer.core.values.slot_overrides import bulkheads_with, why_no_slots
from kodoctl.protocol.overrides import (
    LEAVE,
    InvalidOverridesError,
    Override,
    OverrideKind,
    active_overrides,
    begins_late,
    parse,
)
from kodoctl.protocol.properties import STEER_PROPERTY
from kodoctl.text.escaping import printable
from kodoctl.text.formatting import time_text
from kodoctl.topology.units import Rate as FileRate

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import LaneStats
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.policy import Lane, Policy

log = logging.getLogger("kodo.consumer")
REST_UNREAD: Final = 30_000  # ms
_UNREAD: Final = "live orders cannot be read yet"


def why_not_followed(order: Override, policy: Policy) -> str:
    """Reason why this subscription cannot follow an order, in words; "" if it can."""
    if order.lane:
        names = [lane.name for lane in policy.every_lane]
        return "" if order.lane in names else f"no lane {order.lane}; there is {', '.join(names)}"
    if order.what is OverrideKind.SLOTS:
        return why_no_slots(order, policy)
    if order.what is OverrideKind.MOVE:
        return why_not_moved(order, policy)
    if order.what is not OverrideKind.LIMIT:
        return "" if policy.fair_by else "there are no tenants: the ground topic has no fair_by"
    count = sum(_concerns(limit, order) for limit in policy.limits)
    if count != 1:
        there = ", ".join(map(title_of, policy.limits)) or "none"
        return f"{count or 'no'} limits of this kind and property{order.within and f' in {order.within}'}; there is {there}"
    return "a limit without a property has no values" if order.value and not order.by else ""


def apply_overrides(policy: Policy, orders: Sequence[Override]) -> Policy:
    """The policy with tenant weights, limits, bulkheads and moves of tenants as ordered. Pauses are no part of a
    policy. `orders`: those in force that the policy can follow; of two about the same value the later one in the
    sequence counts.
    """
    weights = {order.tenant: int(order.to) for order in orders if order.what is OverrideKind.WEIGHT}
    limits = tuple(_apply_orders(limit, orders) for limit in policy.limits)
    return replace(
        policy,
        tenant_weights={**policy.tenant_weights, **weights},
        limits=limits,
        bulkheads=bulkheads_with(policy, orders),
        moves=tenant_moves(policy, orders),
    )


def paused_lanes(policy: Policy, orders: Sequence[Override]) -> frozenset[int]:
    """Indices of the lanes that this worker reads and that one of the orders pauses. Orders that pause a tenant do not
    count. All `orders` are taken to be in force.
    """
    names = {order.lane for order in orders if order.what is OverrideKind.PAUSE and order.lane}
    return frozenset(lane.index for lane in policy.lanes if lane.name in names)


def left_lanes(policy: Policy, orders: Sequence[Override]) -> frozenset[int]:
    """Indices of the lanes of this worker that an order pauses with `LEAVE`: workers disconnect from them, even from
    ready lanes, because the subscription's cursor there is about to move. All `orders` are taken to be in force.
    """
    return paused_lanes(policy, [order for order in orders if order.to == LEAVE])


def paused_tenants(orders: Sequence[Override]) -> frozenset[str]:
    """Tenants that one of the orders pauses: their messages stay queued. All `orders` are taken to be in force."""
    return frozenset(order.tenant for order in orders if order.what is OverrideKind.PAUSE and order.tenant)


def _late(order: Override, now: int) -> str:
    return f"it begins at {time_text(order.since)}: orders begin when they are given" if begins_late(order, now) else ""


def _concerns(limit: Limit, order: Override) -> bool:
    named = kind_of(limit), limit.by or "", str(limit.within)
    return order.what is OverrideKind.LIMIT and named == (order.limit, order.by, order.within)


def _apply_orders(limit: Limit, orders: Sequence[Override]) -> Limit:
    for order in orders:
        if _concerns(limit, order):
            limit = _apply_order(limit, order)
    return limit


def _apply_order(limit: Limit, order: Override) -> Limit:
    if isinstance(limit, Concurrency):
        most = int(order.to)
        if order.value:
            return replace(limit, overrides={**limit.overrides, order.value: most})
        return replace(limit, limit=most)
    rate = FileRate.parse(order.to)
    if isinstance(limit, Quota):
        if order.value:
            return replace(limit, overrides={**limit.overrides, order.value: (rate.amount, int(rate.period))})
        return replace(limit, amount=rate.amount, period=int(rate.period))
    pace = Pace(rate.amount, int(rate.period), max(1, int(rate.per_second)))
    if order.value:
        return replace(limit, overrides={**limit.overrides, order.value: pace})
    return replace(limit, pace=pace)


class OverrideListener:
    """Listener of stats that reads the live orders in a property of the ground topic's subscription. It calls `adopt`
    with the orders in force whenever others are in force than before, while it holds its lock.

    Orders end by the worker's clock, even while nothing can be read (`drop_expired`). If the property cannot be read,
    the orders before stay. Orders that the present policy cannot follow have no effect. Thread-safe.
    """

    def __init__(
        self, policy: Callable[[], Policy], clock: Clock, adopt: Callable[[tuple[Override, ...]], None]
    ) -> None:
        self._policy, self._clock, self._adopt = policy, clock, adopt
        self._lock = threading.Lock()  # readings come on one thread, time passes on another
        self._text: str | None = ""  # None: never read
        self._given: tuple[Override, ...] = ()
        self._policy_before: Policy | None = None  # by which those that can be followed were chosen; None: not yet
        self._possible: tuple[Override, ...] = ()
        self._followed: tuple[Override, ...] = ()

    def __call__(self, lane: Lane, stats: LaneStats | None) -> None:
        """Takes the latest stats of a lane, None: no answer. Stats of the ground topic's lane set the orders; those of
        other lanes have no effect.
        """
        if lane.index != self._policy().ground_lane.index:
            return
        with self._lock:
            if stats is not None and (text := stats.properties.get(STEER_PROPERTY, "")) != self._text:
                self._text = text
                self._read_orders(text)
            self._follow()

    def rest_unread(self) -> None:
        """Pauses waiting lanes and backup levels until orders are read once, for `REST_UNREAD` (30,000) ms at most.
        Must be called if the first reading failed: orders that it does not see may pause them, while a command moves
        their messages.
        """
        now = self._clock.wall()
        with self._lock:
            self._text = None
            self._given = tuple(
                Override(OverrideKind.PAUSE, now, now + REST_UNREAD, "this worker", _UNREAD, lane=lane.name)
                for lane in self._policy().lanes
                if lane.is_waiting
            )
            self._policy_before = None
            self._follow()

    def drop_expired(self) -> None:
        """Ends the overrides whose time is over, and calls `adopt` with the others if the orders in force have changed.
        Reads nothing.
        """
        if self._given or self._followed:
            with self._lock:
                self._follow()

    def _follow(self) -> None:
        policy = self._policy()
        if policy is not self._policy_before:  # the file may have what an order names only since, or no more
            self._policy_before = policy
            self._possible = tuple(order for order in self._given if not why_not_followed(order, policy))
        followed = active_overrides(self._possible, self._clock.wall())
        if followed != self._followed:
            self._followed = followed
            for line in self._lines(followed):
                log.warning("steered: %s", printable(line))
            self._adopt(followed)

    def _read_orders(self, text: str) -> None:
        try:
            given = parse(text) if text else ()
        except InvalidOverridesError as problem:
            log.warning("steered: the orders cannot be read, those before stay: %s", printable(str(problem)))
            return
        policy, now = self._policy(), self._clock.wall()
        for order in given:
            if reason := _late(order, now) or why_not_followed(order, policy):
                log.warning("steered: %s", printable(f"{order} is not followed: {reason}"))
        self._given, self._policy_before = given, None

    def _lines(self, orders: Sequence[Override]) -> Iterator[str]:
        if not orders:
            yield "no orders any more, everything is as the file says"
        for order in orders:
            yield f"{order}, by {order.who}{f' ({order.why})' if order.why else ''}"
