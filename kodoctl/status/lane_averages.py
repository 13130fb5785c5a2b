# pure: every branch is tested
"""Averages of a lane since its consumers connected, from the broker's counters.

One reading has rates of the last minute alone. The counters of consumers reach back to their connection, which is as
long as a worker runs and its topic is not moved to another broker: with them a rate of now can be compared with the
time before.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from kodoctl.status.lane_status import LaneAverages

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.topic_stats import Stats


class _PartitionAverages(NamedTuple):
    since: int
    rate_in: float | None
    rate_acked: float


def average_rates(subs: Sequence[Stats], now: int) -> LaneAverages | None:
    """Averages of a lane until `now` (ms since the epoch). `subs`: the subscription's part of each partition's stats.
    None if a partition has no consumer, or the broker does not say since when.
    """
    parts = [_partition(sub, now) for sub in subs]
    known = [one for one in parts if one is not None]
    if not known or len(known) < len(parts):
        return None
    into = [one.rate_in for one in known if one.rate_in is not None]
    bound = round(sum(into), 1) if len(into) == len(known) else None
    return LaneAverages(max(one.since for one in known), bound, round(sum(one.rate_acked for one in known), 1))


def estimated_messages(subs: Sequence[Stats]) -> int | None:
    """Number of messages in a backlog, by the average number in an entry of those that were delivered. None if the
    number is not known for a partition that has a backlog.
    """
    counts = [_messages(sub) for sub in subs]
    known = [one for one in counts if one is not None]
    return sum(known) if len(known) == len(counts) else None


def _partition(sub: Stats, now: int) -> _PartitionAverages | None:
    """Averages of one partition; None if they are not known.

    The messages sent are those acknowledged and those that wait, less those that waited at first, which the broker does
    not say: so the rate into the topic is an upper bound. The broker does not say either what other consumers
    acknowledged before they left: so the rate of acknowledgements is a lower bound. What it sent to those that left
    shows in the subscription's counter, also from long ago: the rate into the topic is unknown then.
    """
    consumers, waiting = sub.get("consumers") or [], _messages(sub)
    times = [_milliseconds(one.get("connectedSince")) for one in consumers]
    known = [one for one in times if one is not None and one < now]
    if not known or len(known) < len(times) or waiting is None:
        return None
    since = min(known)
    seconds = (now - since) / 1000
    sent = sum(_count(one, "msgOutCounter") for one in consumers)
    acked = max(0, sent - sum(_count(one, "unackedMessages") for one in consumers))
    others = _count(sub, "msgOutCounter") > sent
    return _PartitionAverages(since, None if others else (acked + waiting) / seconds, acked / seconds)


def _messages(sub: Stats) -> int | None:
    entries = max(0, _count(sub, "msgBacklog"))
    sizes = [size for one in sub.get("consumers") or [] if (size := _count(one, "avgMessagesPerEntry"))]
    if entries and not sizes:
        return None
    return entries * max(sizes, default=1)


def _count(stats: Stats, name: str) -> int:
    return int(stats.get(name) or 0)


def _milliseconds(text: str | None) -> int | None:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000) if text else None
    except ValueError:
        return None
