# pure: every branch is tested
"""Pace of a subscription's backlog: whether it grows or drains, why it grows, and what would change that, as far as the
broker knows. A worker knows more: it tells the log, the metrics and `/readyz`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kodoctl.text.formatting import age_text, duration_text, many

if TYPE_CHECKING:
    from kodoctl.status.lane_status import LaneStatus

_LEAST: Final = 100  # messages: fewer need no forecast
_MORE: Final = 1.2  # times as much as before: faster, or slower
_BEFORE: Final = 300_000  # ms of connection: a shorter average is no comparison with the last minute

_MINUTES: Final = "in the minutes before"
_WATCH: Final = "`kodoctl status --watch` compares after 2 min"


class EarlierRates(NamedTuple):
    """Rates of a subscription's ready lanes in messages per second: averages over earlier readings that are two minutes
    older than the last one, or more. `rate_handled`: as LaneStatus.rate_handled.
    """

    rate_in: float
    rate_handled: float


def backlog_text(lanes: Sequence[LaneStatus]) -> str:
    """Text that says how fast the backlog of a subscription's ready lanes grows, or when it will be empty, by the
    broker's rates of the last minute. "" if fewer than 100 messages are due, if the rates of handled and new messages
    differ by less than 1/s, or if a consumer connected in that minute. The text says "delivered" instead of "handled"
    if the broker does not count acknowledgements. `lanes`: lanes of one subscription, those of other states are
    ignored.
    """
    waiting, change = _pace(lanes)
    if not change:
        return ""
    if change < 0:
        return f"ready lanes: {-change:,.0f}/s more come than are {_verb(lanes)}"
    about = "at least" if any(lane.messages_at_least for lane in _ready(lanes)) else "about"
    return f"ready lanes: empty in {about} {duration_text(round(waiting / change) * 1000)} at this pace"


def is_growing(lanes: Sequence[LaneStatus]) -> bool:
    """True if `backlog_text` says that more messages come to a subscription's ready lanes than are handled."""
    return _pace(lanes)[1] < 0


def growth_reasons(lanes: Sequence[LaneStatus], now: int, earlier: EarlierRates | None = None) -> Iterator[str]:
    """Yields a line with the cause of a growing backlog in a subscription's ready lanes, then one with the remedy; only
    the first one if no worker is connected, nothing if the backlog does not grow. `now`: time of the reading, ms since
    the epoch; `earlier`: rates to compare with, None: the averages in the lanes (`LaneStatus.before`).
    """
    ready = _ready(lanes)
    if not is_growing(ready):
        return
    if not any(lane.consumers for lane in ready):
        yield "no worker is connected: messages wait until one starts"
        return
    into, handled = sum(lane.rate_in for lane in ready), sum(lane.rate_handled for lane in ready)
    reasons = list(_changes(ready, now, into, handled) if earlier is None else _since(ready, earlier, into, handled))
    yield " and ".join(reasons) or _no_change(ready, now, into, handled, earlier)
    yield _remedy(ready)


def _since(ready: Sequence[LaneStatus], earlier: EarlierRates, into: float, handled: float) -> Iterator[str]:
    if into > _MORE * earlier.rate_in:
        yield f"senders got faster: {into:,.0f}/s, {earlier.rate_in:,.0f}/s {_MINUTES}"
    if handled * _MORE < earlier.rate_handled:
        less = "workers handle less" if _is_counted(ready) else "less is delivered to workers"
        yield f"{less}: {handled:,.0f}/s, {earlier.rate_handled:,.0f}/s {_MINUTES}"


def _changes(ready: Sequence[LaneStatus], now: int, into: float, handled: float) -> Iterator[str]:
    """Changes that the averages prove, which are bounds."""
    averages = [lane.before for lane in ready if lane.before is not None]
    connected = _connected(ready, now)
    if connected is None or connected < _BEFORE:
        return
    bounds = [one.rate_in for one in averages if one.rate_in is not None]
    if len(bounds) == len(averages) and into > _MORE * sum(bounds):
        most = f"at most {sum(bounds):,.0f}/s on average"
        yield f"senders got faster: {into:,.0f}/s, {most} since workers connected, {age_text(connected)} ago"
    acked = [one.rate_acked for one in averages if one.rate_acked is not None]
    if len(acked) == len(averages) and handled * _MORE < sum(acked):
        least = f"{sum(acked):,.0f}/s or more on average"
        yield f"workers handle less: {handled:,.0f}/s, {least} since they connected, {age_text(connected)} ago"


def _no_change(ready: Sequence[LaneStatus], now: int, into: float, handled: float, earlier: EarlierRates | None) -> str:
    rates = f"{into:,.0f}/s come, {handled:,.0f}/s are {_verb(ready)}"
    if earlier is not None:
        same = into * _MORE >= earlier.rate_in and handled <= _MORE * earlier.rate_handled
        before = f"{earlier.rate_in:,.0f}/s and {earlier.rate_handled:,.0f}/s"
        return f"{rates}, {'about as' if same else before} {_MINUTES}"
    connected = _connected(ready, now)
    if connected is not None and connected < _BEFORE:
        return f"{rates}; workers connected {age_text(connected)} ago, too late to compare; {_WATCH}"
    return f"{rates}; the broker's averages do not show what changed; {_WATCH}"


def _connected(ready: Sequence[LaneStatus], now: int) -> int | None:
    """Time in ms since which every lane has consumers; None if it is not known."""
    averages = [lane.before for lane in ready if lane.before is not None]
    return now - max(one.since for one in averages) if len(averages) == len(ready) else None


def _remedy(ready: Sequence[LaneStatus]) -> str:
    workers = max(lane.consumers for lane in ready)
    partitions = max(lane.partitions for lane in ready)
    one_each = any(lane.one_each for lane in ready)
    alone = any(lane.alone for lane in ready)
    enough = one_each and workers >= partitions
    slots = next((lane.slots for lane in ready if lane.slots is not None), None)
    what = [] if alone else ["partitions" if enough else "workers"]
    what += [] if slots is None else ["`concurrency`"]
    helps = f"more {' or '.join(what)} help{'s' if alone else ''}, unless" if what else "find out whether"
    text = f"{helps} a limit, a live order or one tenant holds messages back: ask /readyz of a worker"
    counts = [lane.unacknowledged for lane in ready if lane.unacknowledged is not None and lane.unacknowledged >= 0]
    is_known = len(counts) == len(ready) and not one_each and not any(lane.steered for lane in ready)
    if slots is not None and is_known:
        unacked, total = sum(counts), slots * workers
        have = f"workers hold {many(unacked, 'message')} for {many(total, 'slot')}"
        few = "more slots hardly help, because order, a delay, a dispatch rate or the broker holds messages back"
        text = f"{have}: {few if unacked < total else text}"
    if alone:
        return f"{text}; one worker reads all partitions of an exclusive subscription"
    if not enough:
        return text
    return f"{text}; {many(workers, 'worker')} for {many(partitions, 'partition')}, of which each goes to one worker"


def _is_counted(lanes: Sequence[LaneStatus]) -> bool:
    return all(lane.rate_acked is not None for lane in _ready(lanes))


def _verb(lanes: Sequence[LaneStatus]) -> str:
    return "handled" if _is_counted(lanes) else "delivered"


def _ready(lanes: Sequence[LaneStatus]) -> list[LaneStatus]:
    return [lane for lane in lanes if lane.state == "ready"]


def _pace(lanes: Sequence[LaneStatus]) -> tuple[int, float]:
    """(messages that are due in the ready lanes, messages a second that are handled beyond those that come). The second
    is below 0 for a growing backlog; 0 if fewer than 100 messages are due, if it is less than 1/s, or if the rates of
    a lane are not steady.
    """
    ready = _ready(lanes)
    waiting = sum(lane.due for lane in ready)
    change = sum(lane.rate_handled - lane.rate_in for lane in ready)
    known = all(lane.steady for lane in ready)
    return waiting, 0.0 if waiting < _LEAST or abs(change) < 1 or not known else change
