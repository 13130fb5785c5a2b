"""History of live orders (overrides): the last orders that people gave or took back, as JSON in a property of the
subscription.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kodoctl.protocol.overrides import FORMAT, InvalidOverridesError, Override, overrides_text, parse, until_text
from kodoctl.text.formatting import time_text

MAX_CHANGES: Final = 20
_LATEST: Final = 10**15  # ms since the epoch


@dataclass(frozen=True, slots=True)
class OverrideChange:
    """An order that was given or, if `back`, taken back before its end. `at`: time of the change in ms since the epoch;
    `who`: the person who made it, "" if unknown.
    """

    at: int
    who: str
    order: Override
    back: bool = False

    def __str__(self) -> str:
        by = f", by {self.who}" if self.who else ""
        if self.back:
            return f"{time_text(self.at)}: taken back{by}: {self.order}"
        why = f": {self.order.why}" if self.order.why else ""
        return f"{time_text(self.at)}: {self.order} until {until_text([self.order])}{by}{why}"


def changes(before: Iterable[Override], after: Iterable[Override], who: str, now: int) -> tuple[OverrideChange, ...]:
    """Compares the orders `before` and `after` a command and returns the changes, at the time `now` (ms since the
    epoch): orders that were taken back, then given ones. An order that replaces another one of its subject counts as
    given, and the replaced one not as taken back; an order that is equal before and after is no change. Neither may
    have expired orders, which would count as taken back or given. `who`: person who takes orders back (a given order
    names its own author).
    """
    old, new = tuple(before), tuple(after)
    subjects = {order.concerns for order in new}
    back = [OverrideChange(now, who, order, back=True) for order in old if order.concerns not in subjects]
    return (*back, *(OverrideChange(now, order.who, order) for order in new if order not in old))


def parse_history(text: str) -> tuple[OverrideChange, ...]:
    """Parses the value of the property `kodo-steer-history` (JSON) into changes of live orders, oldest first. Raises
    InvalidOverridesError, also if only one of the changes is invalid.
    """
    try:
        found = json.loads(text)
        rows, orders = found["changes"], parse(json.dumps({"format": found["format"], "orders": found["orders"]}))
        return tuple(_change(row, order) for row, order in zip(rows, orders, strict=True))
    except InvalidOverridesError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise InvalidOverridesError(f"{type(problem).__name__}: {problem}"[:200]) from None


def _change(row: object, order: Override) -> OverrideChange:
    match row:
        case [int(at), str(who), bool(back)] if 0 <= at <= _LATEST and len(who) <= 200:
            return OverrideChange(at, who, order, back)
        case _:
            raise InvalidOverridesError(f"{str(row)[:40]!r} is no change of an order")


def printed_history(known: Iterable[OverrideChange], more: Iterable[OverrideChange]) -> str:
    """Makes the value of the property `kodo-steer-history` (JSON) with the last 20 (MAX_CHANGES) of all changes, which
    are `known` and after them `more`.
    """
    kept = [*known, *more][-MAX_CHANGES:]
    orders = json.loads(overrides_text(change.order for change in kept))["orders"]
    rows = [[change.at, change.who, change.back] for change in kept]
    return json.dumps({"format": FORMAT, "changes": rows, "orders": orders}, separators=(",", ":"), sort_keys=True)
