"""Pause of a lane while its messages are released, moved or discarded, or its cursor moves back: no worker may have a
message that is sent elsewhere at the same time.

The pause is a live order, which workers follow within seconds: they finish running messages, give back messages
that have not started, and leave the lane. The pause outlives this process: a message that was sent and is not
acknowledged yet must not come to a worker before the next attempt has acknowledged it. The proof that nobody
reads is the exclusive consumer that an attempt then has on each partition; waiting here only makes that likely,
and names the workers in the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kodoctl.errors import KodoctlError, LockedError, RefusedError, error
from kodoctl.protocol.overrides import LEAVE, MAX_SPAN, MAX_TEXT, Override, OverrideKind, until_text, with_override
from kodoctl.pulsar.admin.topic_stats import read_stats
from kodoctl.text.formatting import duration_text, time_text
from kodoctl.topology.names import TopicName

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import SendReport
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.control.override_store import OverrideStore

LASTS_MS: Final = 24 * 3_600_000  # the order ends by itself, should nobody run the command again
_SPARE_MS: Final = 600_000  # that an order lasts longer than the attempt is to take
_BY: Final = "kodoctl "  # the reason of orders that this gives: kodoctl COMMAND, run RUN
_RUN: Final = ", run "
_POLL_S: Final = 0.5
_SHOWN: Final = 5  # consumers that are named
_REMEDY: Final = (
    "Workers leave a paused lane when what they run of it has ended. Wait for longer handlers with --wait, stop workers"
    " of older versions, or start them without this lane."
)
_AGAIN: Final = "run the same command again, which ends the pause."


class PauseWords(NamedTuple):
    """Words of a command that pauses lanes, for its orders and for texts.

    Args:
        command: its name.
        messages: end of the sentence "workers would handle …", about a lane that is resumed too early.
        nothing: text about the state after a refusal because of another pause.
        leave: LEAVE if the lanes are ready lanes, which workers leave only if the order says so; else "".
    """

    command: str
    messages: str
    nothing: str = "nothing was sent"
    leave: str = ""


WAITING_APPLY: Final = PauseWords("waiting apply", "messages a second time that were sent and are not acknowledged yet")
REPLAY_APPLY: Final = PauseWords(
    "replay apply", "messages again that the replay leaves out", "no cursor was moved", LEAVE
)
REPLAY_UNDO: Final = PauseWords("replay undo", "messages again that the undo takes back", "no cursor was moved", LEAVE)


class LaneToPause(Protocol):
    """A lane that a run pauses: of a plan of waiting messages (RecallPlan), or of a replay (ReplayLane)."""

    @property
    def run(self) -> str:
        """Id of the plan's run. The order's reason names it, so that a later attempt knows an earlier one's order."""

    @property
    def lane(self) -> str:
        """Name of the lane, such as `L1/retrying`."""

    @property
    def topic(self) -> str:
        """Ground topic, by its name in the file."""

    @property
    def subscription(self) -> str:
        """Subscription whose workers follow the order, by its name in the file."""

    @property
    def source_topic(self) -> str:
        """Topic of the lane, full name."""

    @property
    def holder(self) -> str:
        """Name on Pulsar of the subscription on `source_topic` whose consumers must leave."""


@dataclass(frozen=True, slots=True)
class PauseClock:
    """Clock of a pause. `now`: ms since the epoch; `sleep`: sleeps for some seconds, or raises to end the wait."""

    now: Callable[[], int]
    sleep: Callable[[float], object]


class LanePause:
    """The pause of a plan's lane. Call `begin` before anything is sent. If it returns, call one of these after that:
    `end` with the report, `finish` after a success, `give_up` if nothing was sent, or `keep` after a failure. If it
    raises, none of them is needed.

    These four return a text for the user about a pause that stays or that ended too early, or "" if there is nothing to
    tell; that a person's pause stays after a success is not told.
    """

    def __init__(
        self,
        plan: LaneToPause,
        admin: Admin,
        store: OverrideStore,
        who: str,
        clock: PauseClock,
        tell: Callable[[str], None],
        words: PauseWords = WAITING_APPLY,
    ) -> None:
        self._plan, self._admin, self._store, self._clock, self._tell = plan, admin, store, clock, tell
        self._who, self._why = who[:MAX_TEXT], f"{_BY}{words.command}{_RUN}{plan.run}"
        self._words = words
        self.since = 0
        """Time of the order that this attempt gives, ms since the epoch."""
        self._is_new = False  # no attempt before this one gave the order
        self._is_own = False  # the order is of this run, not of a person or of another run
        self.stays: bool | None = None
        """An order of this run pauses the lane, or may; None: nothing is known, because `begin` could not read."""
        self.stood: int | None = None
        """Begin of the pause that this attempt found, ms since the epoch; None: the lane was not paused. Orders of this
        run continue the pause of the attempt before, so that the pause has one begin for all attempts.
        """

    @property
    def lane(self) -> str:
        """Name of the paused lane, such as `L1/retrying`."""
        return self._plan.lane

    @property
    def began(self) -> int:
        """Begin of the pause that `begin` gave or found, in ms since the epoch. Attempts of one run that pause the lane
        one after the other without a gap have the same begin.
        """
        return self.since if self.stood is None else self.stood

    def begin(self, wait: int, sending: int = 0) -> None:
        """Gives workers the order that pauses the lane, unless a person has paused the lane for long enough, and waits
        for about `wait` ms at most until no consumer of the lane is connected. `sending`: ms that the attempt takes
        after that. The order lasts for 24 hours, or longer if the attempt may take longer (30 days at most). After any
        failure a new order is taken back; `tell` gets a text for the user if an earlier attempt's order stays, or if
        the new one may.

        Raises RefusedError with the names of some consumers that stay (K582), and for a person's pause that workers of
        a ready lane do not follow (K582) or that ends too soon (K583); LockedError for a lane that another run has
        paused, or if `admin` has lost its lease; UsageError if the subscription has too many orders; ClusterError; and
        errors of the clock.
        """
        try:
            self._give(min(wait + sending + _SPARE_MS, MAX_SPAN))
            self._wait_for_readers(wait)
        except BaseException:
            if text := self.give_up():
                self._tell(text)
            raise

    def end(self, report: SendReport) -> str:
        """Ends the order after an attempt, as `finish` does. But if the report is `interrupted`, or has messages that
        are unacknowledged, in doubt or unclear, workers could handle sent messages a second time, and it keeps the
        order, as `keep` does. Raises KodoctlError if the order cannot be ended.
        """
        if report.interrupted or report.unacknowledged or report.in_doubt or report.unclear:
            return self.keep()
        return self.finish()

    def finish(self) -> str:
        """Ends the order of this run, also that of an earlier attempt, because nothing is left to do. Needs no `begin`.
        The pause of a person or of another run stays. Returns "" in any case. Raises KodoctlError.
        """
        self._take_back(self._is_of_run)
        return ""

    def give_up(self) -> str:
        """Ends the order if this attempt gave it first, because nothing was sent. Keeps the order of an earlier attempt
        at the plan, and one that another attempt has given again. Returns "" if the order is ended and no other one
        pauses the lane, and if `begin` found the pause of a person or of another run; else a text. Never raises
        KodoctlError.
        """
        if not self._is_own:
            return ""
        if not self._is_new:
            return self.keep()
        try:
            left = self._take_back(lambda order: self._is_of_run(order) and order.since == self.since)
        except KodoctlError:  # the failure that is told already is the first one
            return self.keep()
        return self._text(left) if left else ""

    def end_left(self) -> str:
        """Ends the order that a killed attempt at the plan left, if there is one; for an attempt that has changed
        nothing and has not called `begin`. Returns a text if the order cannot be ended, else "", also if the orders
        cannot be read. Never raises KodoctlError.
        """
        try:
            found = self._standing(self._store.read(self._clock.now()))
        except KodoctlError:  # without the subscription there are no orders
            return ""
        if found is None or not self._is_of_run(found):
            return ""
        try:
            return self.finish()
        except KodoctlError:
            return self.keep()

    def keep(self) -> str:
        """Leaves the order as it is, and returns a text about the present pause of the lane in any case; if that cannot
        be read, the text says that the lane stays paused. Never raises KodoctlError, which could hide an earlier
        failure.
        """
        try:
            found = self._standing(self._store.read(self._clock.now()))
        except KodoctlError:
            return f"{self._plan.lane} stays paused: {_AGAIN} {self._resumed}"
        self.stays = found is not None and self._is_of_run(found)
        return self._text(found)

    def _text(self, found: Override | None) -> str:
        lane = self._plan.lane
        if found is None:
            return (
                f"{lane} is not paused: workers may handle {self._words.messages}. Run the same command again: it"
                " pauses the lane and acknowledges them."
            )
        until = until_text([found])
        if self._is_of_run(found):
            return f"{lane} stays paused until {until}: {_AGAIN} {self._resumed}"
        return f"{lane} is paused until {until} by {found.who}: run the same command again before that. {self._resumed}"

    @property
    def _resumed(self) -> str:
        return f"Resumed before that, workers would handle {self._words.messages}."

    def _give(self, least: int) -> None:
        """Gives an order that lasts for at least `least` ms. Each try decides by the present order whether the
        pause belongs to this plan.
        """
        self.since = now = self._clock.now()
        order = Override(
            OverrideKind.PAUSE,
            now,
            now + max(LASTS_MS, least),
            self._who,
            self._why,
            lane=self._plan.lane,
            to=self._words.leave,
        )

        def add_order(orders: tuple[Override, ...]) -> tuple[Override, ...]:
            standing = self._standing(orders)
            self._is_own = standing is None or self._is_of_run(standing)
            self._is_new = standing is None or (self._is_new and self._is_own and standing.since == now)
            if standing is None:
                self.stood = None
                return (*orders, order)
            first = standing.first  # of this attempt's own order, which is read back
            if standing.since != now:
                self.stood, first = standing.began, str(standing.began)
            if not self._is_own:
                self._check(standing, now + least)
                return orders
            latest = max(standing, order, key=lambda one: one.since)  # so that of two attempts both know whose it is
            return with_override(orders, replace(latest, until=max(standing.until, order.until), first=first))

        add_order(self._store.read(now))
        self.stays = self._is_own
        if self._is_own:
            self._store.change(add_order, now)

    def _check(self, standing: Override, until: int) -> None:
        """Raises LockedError for the order of another run, RefusedError for one of a person that ends
        before `until`.
        """
        lane = self._plan.lane
        command, is_run, run = standing.why.removeprefix(_BY).partition(_RUN)
        if standing.why.startswith(_BY) and is_run:
            detail = f"{lane} is paused by run {run} of {standing.who}: run its `{command}` again until it is complete, or resume the lane if it never will be; {self._words.nothing}"
            raise LockedError(error("K563", "the lane is paused by another run", detail))
        if self._words.leave and standing.to != self._words.leave:
            detail = f"{lane} is paused by {standing.who}, and workers do not leave a ready lane for that: resume it first, `kodoctl {self._words.command}` pauses it by itself; nothing was changed"
            raise RefusedError(error("K582", "the lane is still read", detail))
        if standing.until < until:
            detail = f"the pause of {lane} by {standing.who} ends at {time_text(standing.until)}, and this attempt may last until {time_text(until)}: pause the lane for longer, or resume it; {self._words.nothing}"
            raise RefusedError(error("K583", "a pause that ends too soon", detail))

    def _wait_for_readers(self, wait: int) -> None:
        deadline = self._clock.now() + wait
        while readers := self._readers():
            if self._clock.now() >= deadline:
                raise _still_read(self._plan, readers, wait, first=self._is_new or not self._is_own)
            self._clock.sleep(_POLL_S)

    def _take_back(self, is_over: Callable[[Override], bool]) -> Override | None:
        """Ends the pauses of the lane for which `is_over` is true. Returns a pause that remains, None: none does."""
        found = self._store.change(
            lambda orders: tuple(one for one in orders if not (self._is_pause(one) and is_over(one))),
            self._clock.now(),
        )
        left = self._standing(found)
        self.stays = left is not None and self._is_of_run(left)
        return left

    def _standing(self, orders: tuple[Override, ...]) -> Override | None:
        return next(filter(self._is_pause, orders), None)

    def _is_of_run(self, order: Override) -> bool:
        """True if a command of this run gave the order: the one that carries a plan out, or the one that undoes it."""
        return order.why.startswith(_BY) and order.why.endswith(f"{_RUN}{self._plan.run}")

    def _is_pause(self, order: Override) -> bool:
        return order.what is OverrideKind.PAUSE and order.lane == self._plan.lane

    def _readers(self) -> list[str]:
        """Names of connected consumers of the lane, with their addresses."""
        stats = read_stats(self._admin, TopicName.parse(self._plan.source_topic)) or {}
        found = {
            f"{one.get('consumerName') or 'a consumer'} at {one.get('address') or 'an unknown address'}"
            for part in (stats.get("partitions") or {}).values()
            for one in ((part.get("subscriptions") or {}).get(self._plan.holder) or {}).get("consumers") or ()
        }
        return sorted(found)


def _still_read(plan: LaneToPause, readers: list[str], wait: int, *, first: bool) -> RefusedError:
    more = [f"and {len(readers) - _SHOWN} more"] if len(readers) > _SHOWN else []
    detail = [
        f"{plan.lane} of {plan.topic} / {plan.subscription} was still read after {duration_text(wait)} by",
        *(f"  {name}" for name in readers[:_SHOWN]),
        *more,
        f"{_REMEDY} {'Nothing was changed.' if first else 'This attempt changed nothing.'}",
    ]
    return RefusedError(error("K582", "the lane is still read", "\n".join(detail)))
