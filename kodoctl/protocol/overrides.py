"""Live orders to the workers of a subscription (overrides): changes that an on-call engineer makes for a limited time
without touching the file.

They are JSON in the property `kodo-steer` of the subscription on the ground topic, each with its author and its end.
Workers read them together with the topic's statistics; apply leaves them unchanged; plan and status show them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Final, assert_never

from kodoctl.protocol.slot_bounds import SlotBounds
from kodoctl.text.formatting import time_text
from kodoctl.topology.names import Level
from kodoctl.topology.units import LATEST, Rate, UnitError

FORMAT: Final = 1
MAX_OVERRIDES: Final = 200
MAX_TEXT: Final = 200  # characters of any text in an order
MAX_SPAN: Final = 30 * 86_400_000  # ms an order may last
MAX_AHEAD: Final = 3_600_000  # ms by which the clock of whoever gave an order may be ahead of the reader's
STAY: Final = "stay"  # of a move: what waits already stays on its level
LEAVE: Final = "leave"  # of the pause of a lane: workers also leave a ready lane, whose cursor is about to move


class OverrideKind(StrEnum):
    """Kinds of live orders: to pause a lane or tenant, to change a tenant's weight, a limit or slots, to move a
    tenant.
    """

    PAUSE = "pause"
    WEIGHT = "weight"
    LIMIT = "limit"
    SLOTS = "slots"
    MOVE = "move"


class InvalidOverridesError(ValueError):
    """The value of the property `kodo-steer`, or of its history, is not valid. The text of the exception says what is
    wrong.
    """


@dataclass(frozen=True, slots=True)
class Override:
    """A live order. `since`: when it was given and begins, because no order can be scheduled; `until`: when it ends.
    Both are ms since the epoch. `who` gave it because of `why`. Unused fields are "".

    pause: no messages of a `lane` such as `L1/retrying`, or of a `tenant`; with `to` LEAVE workers also leave a ready
    lane, and forget which of its messages they have acknowledged, because its cursor is about to move. `first`: when
    the pause began that this order continues without a gap, in ms since the epoch, "": with this order. weight: a
    `tenant` gets `to` turns while one of weight 1 gets one. limit: the file's limit of kind `limit` (rate,
    concurrency, quota), property `by` ("": one limit for all) and lanes `within` (such as `L2/retrying`; "": all)
    becomes `to`, for one `value` of the property or ("") for all without a limit of their own. slots: the bulkhead of
    the lanes `within` (`retrying`, `L2` or `L2/retrying`) becomes `to`, such as `max 8 min 2`; a bound that `to`
    lacks stays as in the file. move: messages of a `tenant` that are sent after `since` go to the level `to`; those
    that wait already go too (`waiting` "") or stay (STAY).
    """

    what: OverrideKind
    since: int
    until: int
    who: str
    why: str = ""
    lane: str = ""
    tenant: str = ""
    limit: str = ""
    by: str = ""
    value: str = ""
    to: str = ""
    within: str = ""
    waiting: str = ""
    first: str = ""

    @property
    def began(self) -> int:
        """Begin of the pause that this order gives or continues, in ms since the epoch."""
        return int(self.first) if self.first else self.since

    @property
    def concerns(self) -> tuple[str, ...]:
        """Subject of the order: values that identify what it is about, namely its kind and its lane, tenant, limit
        (with its lanes and value) or lanes with slots. They leave out what the order says of its subject, such as `to`
        and `until`. A later order with the same subject replaces this one.
        """
        return (self.what, self.lane, self.tenant, self.limit, self.by, self.within, self.value)

    def __str__(self) -> str:
        match self.what:
            case OverrideKind.PAUSE:
                left = " and left" if self.to else ""
                return f"lane {self.lane} paused{left}" if self.lane else f"tenant {self.tenant} paused"
            case OverrideKind.WEIGHT:
                return f"tenant {self.tenant} weighs {self.to}"
            case OverrideKind.LIMIT:
                of = f" of {self.by} {self.value}".rstrip() if self.by else ""
                where = f" in {self.within}" if self.within else ""
                return f"{self.limit} limit{of}{where} {self.to}"
            case OverrideKind.SLOTS:
                return f"slots of {self.within} {self.to}"
            case OverrideKind.MOVE:
                return f"tenant {self.tenant} moved to {self.to}{', what waits stays' if self.waiting else ''}"
            case _:
                assert_never(self.what)


def parse(text: str) -> tuple[Override, ...]:
    """Parses the value of the property `kodo-steer` (JSON) into orders, expired ones included; those after the first
    200 (MAX_OVERRIDES) are ignored. Raises InvalidOverridesError, also if one of the 200 is invalid (`why_invalid`).
    """
    try:
        found = json.loads(text)
        form, given = found["format"], found["orders"]
        orders = tuple(_order(one) for one in given[:MAX_OVERRIDES]) if form == FORMAT else ()
    except InvalidOverridesError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise InvalidOverridesError(f"{type(problem).__name__}: {problem}"[:MAX_TEXT]) from None
    if form != FORMAT:
        raise InvalidOverridesError(f"form {form!r}: a newer kodoctl reads it"[:MAX_TEXT])
    return orders


def overrides_text(orders: Iterable[Override]) -> str:
    """Makes the value of the property `kodo-steer` (JSON) for these orders, which are neither checked nor counted."""
    unsaid = {field.name: field.default for field in fields(Override)}
    kept = [{name: value for name, value in asdict(order).items() if value != unsaid[name]} for order in orders]
    return json.dumps({"format": FORMAT, "orders": kept}, separators=(",", ":"), sort_keys=True)


def active_overrides(orders: Iterable[Override], now: int) -> tuple[Override, ...]:
    """The orders in force at `now` (ms since the epoch): their end is later, and `begins_late` is false for them. So an
    order that begins within the next hour is in force.
    """
    return tuple(order for order in orders if order.until > now and not begins_late(order, now))


def begins_late(order: Override, now: int) -> bool:
    """True if an order begins more than an hour after `now` (ms since the epoch). Clocks do not differ so much, and
    such an order could be in force for longer than the greatest allowed span, so it is not followed.
    """
    return order.since - now > MAX_AHEAD


def with_override(orders: Iterable[Override], new: Override) -> tuple[Override, ...]:
    """The orders with `new` at the end and without any order of the same subject (`Override.concerns`), which it
    replaces.
    """
    return (*(order for order in orders if order.concerns != new.concerns), new)


def until_text(orders: Iterable[Override]) -> str:
    """Latest end of one order or more, as text for people: `2026-11-21 20:00 UTC`."""
    return time_text(max(order.until for order in orders))


def steered_text(value: str, now: int) -> str | None:
    """Text for people about a value of the property `kodo-steer`: orders in force at `now` (ms since the epoch), orders
    that begin too late to be followed, or an error if the value is invalid. None if there are no such orders. It has no
    line breaks but those in names.
    """
    try:
        given = parse(value)
    except InvalidOverridesError as problem:
        return f"steered by something workers cannot read ({problem})"
    active, late = active_overrides(given, now), tuple(order for order in given if begins_late(order, now))
    parts = [f"steered until {until_text(active)}: {', '.join(map(str, active))}"] if active else []
    parts += [f"not steered by what begins at {time_text(order.since)}: {order}" for order in late]
    return "; ".join(parts) or None


_TYPES: Final = {field.name: int if field.name in ("since", "until") else str for field in fields(Override)}


def _order(found: dict[str, Any]) -> Override:
    for name, value in found.items():
        kind = _TYPES.get(name)
        if kind is None or type(value) is not kind or len(str(value)) > MAX_TEXT:
            raise InvalidOverridesError(
                f"{str(name)[:40]!r} of an order is none, or no {kind.__name__ if kind else 'key'}"
            )
    order = Override(**{**found, "what": OverrideKind(found["what"])})
    if problem := why_invalid(order):
        raise InvalidOverridesError(f"{order}: {problem}")
    return order


def why_invalid(order: Override) -> str:
    """Reason why an order is invalid in every topology, such as an unknown level or a span of more than 30 days; "" if
    there is none. An order that is over is valid. Workers take nothing from a property with an invalid order: they keep
    the orders that they have.
    """
    if order.first and not _is_number(order.first, LATEST, digits=len(str(LATEST))):
        return "its pause began at a time that no calendar has"
    if not (0 <= order.since <= LATEST and 0 <= order.until <= LATEST):
        return "it begins or ends at a time that no calendar has"
    if order.until - order.since > MAX_SPAN:
        return "an order lasts 30 days at most: change the file"
    if long := [name for name, kind in _TYPES.items() if kind is str and len(getattr(order, name)) > MAX_TEXT]:
        return f"{', '.join(long)}: longer than {MAX_TEXT} characters, which workers do not read"
    match order.what:
        case OverrideKind.PAUSE:
            if bool(order.lane) == bool(order.tenant):
                return "name a lane or a tenant"
            return (
                "" if order.to == "" or (order.to == LEAVE and order.lane) else "a pause of a lane goes to nothing else"
            )
        case OverrideKind.WEIGHT:
            fits = order.tenant and not order.lane and _is_number(order.to, 1_000)
            return "" if fits else "name a tenant and a weight from 1 to 1000"
        case OverrideKind.LIMIT:
            return _problem_of_limit(order)
        case OverrideKind.SLOTS:
            fits = order.within and SlotBounds.parse(order.to) is not None
            return "" if fits else "name lanes, and a max from 1 on or a min, such as max 8 min 2"
        case OverrideKind.MOVE:
            fits = order.tenant and not order.lane and order.to in set(Level) and order.waiting in ("", STAY)
            return "" if fits else f"name a tenant and a level: {', '.join(Level)}"
        case _:
            assert_never(order.what)


def _is_number(text: str, most: int, *, digits: int = 9) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= digits and 1 <= int(text) <= most


def _problem_of_limit(order: Override) -> str:
    if order.limit == "concurrency":
        return "" if _is_number(order.to, 1_000_000) else "a concurrency is a whole number from 1 on"
    if order.limit not in ("rate", "quota") or order.lane or order.tenant:
        return "a limit is a rate, a concurrency or a quota"
    try:
        rate = Rate.parse(order.to)
    except UnitError as problem:
        return str(problem)
    return "" if rate.amount else "a limit lets at least one through: pause the tenant instead"
