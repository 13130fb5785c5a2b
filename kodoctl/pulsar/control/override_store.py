"""Live orders on the cluster, stored in the properties of a subscription. After a write the orders are read again,
because the cluster does not prevent two people from writing at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Final

from kodoctl.errors import ClusterError, UsageError, error
from kodoctl.protocol.override_history import OverrideChange, changes, parse_history, printed_history
from kodoctl.protocol.overrides import (
    MAX_OVERRIDES,
    InvalidOverridesError,
    Override,
    active_overrides,
    overrides_text,
    parse,
)
from kodoctl.protocol.properties import STEER_HISTORY_PROPERTY, STEER_PROPERTY
from kodoctl.pulsar.admin.admin import Admin, LostReplyError, must, subscription_path
from kodoctl.topology.names import TopicName

_SETTLE: Final = 0.5  # seconds after which somebody who read before us must have written
_TRIES: Final = 20
Change = Callable[[tuple[Override, ...]], tuple[Override, ...]]


class OverrideStore:
    """The live orders (temporary instructions to workers) of one subscription, on its ground topic, given by the full
    name. `rng`: spreads the tries of several writers, None: any; `who`: the person who changes the orders, for the
    history; "": no person, and the history does not record the changes.
    """

    def __init__(self, admin: Admin, topic: str, subscription: str, rng: Random | None = None, who: str = "") -> None:
        self._admin, self._who = admin, who
        self._rng = rng or Random()  # noqa: S311  # spreads tries
        self._path = f"{subscription_path(TopicName.parse(topic), subscription)}/properties"
        self._of = f"{subscription} on {topic}"

    def read(self, now: int) -> tuple[Override, ...]:
        """Reads the orders in force at `now`, ms since the epoch. Raises ClusterError if there is no such subscription,
        or the orders cannot be read.
        """
        return self._orders(self._properties(), now)

    def history(self) -> tuple[OverrideChange, ...]:
        """Reads the last changes by people (20 at most), oldest first. Raises ClusterError if there is no such
        subscription, or the history cannot be read.
        """
        try:
            return _history(self._properties())
        except InvalidOverridesError as problem:
            raise ClusterError(error("K781", "orders cannot be read", f"{self._of}: history: {problem}")) from None

    def change(self, change: Change, now: int, *, replace: bool = False) -> tuple[Override, ...]:
        """Writes the orders that `change` makes of those in force at `now` (ms since the epoch), and repeats this, 20
        times at most, until a read shows them. Returns the orders in force then. Orders that are not in force, such as
        expired ones, are removed.

        `change` is called several times, also with orders that it has made, on which it must have no further effect.
        `replace`: `change` gets no orders before a write, which replaces the present ones even if they cannot be read.
        The admin API has no compare-and-set, so this method reads, reads again just before writing, writes all
        properties, waits about 0.6 s and reads again: a writer whose orders were overwritten until then writes again.
        Raises UsageError for more than 200 orders, and the errors of `change`; ClusterError, after which the orders may
        be written or not.
        """
        for _ in range(_TRIES):
            properties = self._properties()
            orders = () if replace else self._orders(properties, now)
            wanted = change(orders)
            if len(wanted) > MAX_OVERRIDES:
                raise UsageError(error("K780", "invalid live order", f"there are {MAX_OVERRIDES} already"))
            if properties != self._properties():
                continue
            written = self._write(self._with_history(properties, wanted, now), wanted)
            time.sleep(_SETTLE * self._rng.uniform(1.0, 1.5))
            if not written:
                continue
            found = self._orders(self._properties(), now)
            if set(change(found)) == set(found):
                return found
        raise ClusterError(error("K782", "orders change all the time", f"{self._of}: given up after {_TRIES} tries"))

    def _with_history(self, properties: Mapping[str, str], wanted: tuple[Override, ...], now: int) -> Mapping[str, str]:
        """The properties with this change added to the history. A history that cannot be read begins anew."""
        if not self._who:
            return properties
        known: tuple[OverrideChange, ...] = ()
        before: tuple[Override, ...] = ()
        with suppress(InvalidOverridesError):
            known = _history(properties)
        with suppress(InvalidOverridesError):
            before = active_overrides(parse(properties[STEER_PROPERTY]), now) if STEER_PROPERTY in properties else ()
        more = changes(before, wanted, self._who, now)
        return {**properties, STEER_HISTORY_PROPERTY: printed_history(known, more)} if more else properties

    def _write(self, properties: Mapping[str, str], orders: tuple[Override, ...]) -> bool:
        """Writes all properties. False: another client wrote at the same moment (the broker answers 500 then), or the
        answer was lost.
        """
        others = {name: value for name, value in properties.items() if name != STEER_PROPERTY}
        body = {**others, STEER_PROPERTY: overrides_text(orders)} if orders else others
        try:
            reply = self._admin.call("PUT", self._path, body)
        except LostReplyError:
            return False
        if reply.status >= 500:
            return False
        must(reply, f"writing the orders for {self._of}")
        return True

    def _properties(self) -> dict[str, str]:
        reply = self._admin.call("GET", self._path)
        if reply.missing:
            raise ClusterError(error("K711", "subscription not found", f"{self._of}: `kodoctl apply FILE` creates it"))
        return dict(must(reply, f"reading the orders for {self._of}") or {})

    def _orders(self, properties: Mapping[str, str], now: int) -> tuple[Override, ...]:
        try:
            return active_overrides(parse(properties[STEER_PROPERTY]), now) if STEER_PROPERTY in properties else ()
        except InvalidOverridesError as problem:
            raise ClusterError(error("K781", "orders cannot be read", f"{self._of}: {problem}")) from None


def _history(properties: Mapping[str, str]) -> tuple[OverrideChange, ...]:
    text = properties.get(STEER_HISTORY_PROPERTY)
    return () if text is None else parse_history(text)
