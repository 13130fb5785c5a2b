"""Pause of a waiting lane while its messages are released, moved or discarded: no worker may have a message that is
sent elsewhere at the same time.

The pause is a live order, which workers follow within seconds: they finish what runs, give back what has not started
and leave the lane. It outlives this process: a message that was sent and is not acknowledged yet must not come to a
worker before the next attempt has acknowledged it. What proves that nobody reads is the exclusive consumer that an
attempt then has on each partition; waiting here only makes that likely, and says who is in the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodoctl.errors import KodoctlError, LockedError, RefusedError, error
from kodoctl.formatting import duration_text, time_text
from kodoctl.protocol.overrides import MAX_TEXT, Override, OverrideKind, until_text, with_override
from kodoctl.pulsar.topic_stats import read_stats
from kodoctl.topology.names import TopicName

if TYPE_CHECKING:
    from kodoctl.pulsar.admin import Admin
    from kodoctl.pulsar.override_store import OverrideStore
    from kodoctl.recall.recall_plan import RecallPlan
    from kodoctl.recall.sends_in_flight import SendReport

LASTS_MS: Final = 24 * 3_600_000  # the order ends by itself, should nobody run the command again
_LEAST_MS: Final = 600_000  # what is left of somebody else's order
_BY: Final = "kodoctl waiting apply, run "  # the reason of orders that this gives
_POLL_S: Final = 0.5
_SHOWN: Final = 5  # consumers that are named
_REMEDY: Final = (
    "Workers leave a paused lane when what they run of it has ended. Wait for longer handlers with --wait, stop workers"
    " of older versions, or start them without this lane. Nothing was sent."
)


@dataclass(frozen=True, slots=True)
class PauseClock:
    """Time of a pause: `now` in ms since the epoch; `sleep` takes seconds."""

    now: Callable[[], int]
    sleep: Callable[[float], object]


class LanePause:
    """The pause of a plan's lane. `begin` before anything is sent; `end` with the result, or `keep` after a failure."""

    def __init__(self, plan: RecallPlan, admin: Admin, store: OverrideStore, who: str, clock: PauseClock) -> None:
        self._plan, self._admin, self._store, self._clock = plan, admin, store, clock
        self._who, self._why = who[:MAX_TEXT], f"{_BY}{plan.run}"
        self._is_new = False

    def begin(self, wait: int) -> None:
        """Gives the order, and waits for at most `wait` ms until no consumer of the lane is connected. Raises
        RefusedError with their names; an order that is new is taken back then.
        """
        self._give()
        try:
            self._wait_for_readers(wait)
        except BaseException:
            if self._is_new:
                self._take_back()
            raise

    def end(self, report: SendReport) -> str:
        """Ends the order, unless messages may be stored twice until the next attempt. The reason, if it stays."""
        if report.interrupted or report.unacknowledged or report.in_doubt or report.unclear:
            return self.keep()
        self._take_back()
        return ""

    def give_up(self) -> str:
        """Ends an order that is new, as nothing was sent; else the reason why it stays."""
        if not self._is_new:
            return self.keep()
        self._take_back()
        return ""

    def keep(self) -> str:
        """What people must know while the lane stays paused."""
        try:
            found = self._standing(self._store.read(self._clock.now()))
        except KodoctlError:  # the failure that is told already may be this one
            found = None
        until = f" until {until_text([found])}" if found else ""
        return (
            f"{self._plan.lane} stays paused{until}: run the same command again, which ends the pause. Resumed before"
            " that, workers would handle messages a second time that were sent and are not acknowledged yet."
        )

    def _give(self) -> None:
        now = self._clock.now()
        standing = self._standing(self._store.read(now))
        if standing is not None and standing.why.startswith(_BY) and standing.why != self._why:
            detail = f"{self._plan.lane} is paused by run {standing.why.removeprefix(_BY)} of {standing.who}: run its `waiting apply` again until it is complete, or resume the lane if it never will be; nothing was sent"
            raise LockedError(error("K563", "another recall is running", detail))
        if standing is not None and standing.why != self._why:  # of a person, who ends it
            if standing.until - now < _LEAST_MS:
                detail = f"the pause of {self._plan.lane} by {standing.who} ends at {time_text(standing.until)}: pause it for longer, or resume it; nothing was sent"
                raise RefusedError(error("K583", "a pause that ends too soon", detail))
            return
        self._is_new = standing is None
        order = Override(OverrideKind.PAUSE, now, now + LASTS_MS, self._who, self._why, lane=self._plan.lane)
        self._store.change(lambda orders: with_override(orders, order), now)

    def _wait_for_readers(self, wait: int) -> None:
        deadline = self._clock.now() + wait
        while readers := self._readers():
            if self._clock.now() >= deadline:
                raise _still_read(self._plan, readers, wait)
            self._clock.sleep(_POLL_S)

    def _take_back(self) -> None:
        self._store.change(
            lambda orders: tuple(one for one in orders if not (self._is_pause(one) and one.why == self._why)),
            self._clock.now(),
        )

    def _standing(self, orders: tuple[Override, ...]) -> Override | None:
        return next(filter(self._is_pause, orders), None)

    def _is_pause(self, order: Override) -> bool:
        return order.what is OverrideKind.PAUSE and order.lane == self._plan.lane

    def _readers(self) -> list[str]:
        """Names of connected consumers of the lane, with their addresses."""
        stats = read_stats(self._admin, TopicName.parse(self._plan.dead_topic)) or {}
        found = {
            f"{one.get('consumerName') or 'a consumer'} at {one.get('address') or 'an unknown address'}"
            for part in (stats.get("partitions") or {}).values()
            for one in ((part.get("subscriptions") or {}).get(self._plan.holder) or {}).get("consumers") or ()
        }
        return sorted(found)


def _still_read(plan: RecallPlan, readers: list[str], wait: int) -> RefusedError:
    more = [f"and {len(readers) - _SHOWN} more"] if len(readers) > _SHOWN else []
    detail = [
        f"{plan.lane} of {plan.topic} / {plan.subscription} was still read after {duration_text(wait)} by",
        *(f"  {name}" for name in readers[:_SHOWN]),
        *more,
        _REMEDY,
    ]
    return RefusedError(error("K582", "the lane is still read", "\n".join(detail)))
