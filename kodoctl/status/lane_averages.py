# pure: every branch is tested
"""Averages of a lane since its consumers connected, from the broker's counters.

One reading has rates of the last minute alone. The counters of consumers reach back to their connection, which is as
long as a worker runs and its topic is not moved to another broker: with them a rate of now can be compared with the
time before.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from kodoctl.status.lane_status import LaneAverages

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.topic_stats import Stats

_ONE_EACH: Final = ("Failover", "Exclusive")
_RATES: Final = 65_000  # ms: the broker renews its rates each minute


class _PartitionAverages(NamedTuple):
    since: int
    rate_in: float | None
    rate_acked: float | None


def gives_to_one(sub: Stats) -> bool:
    """True if the broker gives a partition to one consumer (types failover and exclusive). The broker then does not
    count unacknowledged messages, and its rate of acknowledgements counts batches, or nothing. `sub`: the
    subscription's part of a partition's stats.
    """
    return sub.get("type") in _ONE_EACH


def acknowledged_rate(subs: Sequence[Stats]) -> float | None:
    """Messages per second, over the broker's last minute, that a lane's consumers acknowledge, summed over partitions;
    None if the broker does not count them (`gives_to_one`). `subs`: the subscription's part of each partition's stats.
    """
    if any(map(gives_to_one, subs)):
        return None
    return round(sum(float(sub.get("messageAckRate") or 0) for sub in subs), 1)


def is_steady(subs: Sequence[Stats], now: int) -> bool:
    """False if a consumer connected less than 65 s before `now` (ms since the epoch), so that the broker's rates of the
    last minute count it only in part. A consumer whose time of connection is missing does not matter.
    """
    times = [_milliseconds(one.get("connectedSince")) for sub in subs for one in sub.get("consumers") or []]
    return all(one is None or now - one >= _RATES for one in times)


def average_rates(subs: Sequence[Stats], sent: Sequence[int | None], now: int) -> LaneAverages | None:
    """Averages of a lane until `now` (ms since the epoch). `subs`: the subscription's part of each partition's stats;
    `sent`: messages that each partition got since the broker loaded it, None: unknown. Returns None if a partition has
    no consumer, or one whose time of connection is missing or not before `now`, or if there is no partition.
    """
    parts = [_partition(sub, count, now) for sub, count in zip(subs, sent, strict=True)]
    known = [one for one in parts if one is not None]
    if not known or len(known) < len(parts):
        return None
    into, acked = _total([one.rate_in for one in known]), _total([one.rate_acked for one in known])
    return LaneAverages(max(one.since for one in known), into, acked)


def estimated_messages(subs: Sequence[Stats]) -> int | None:
    """Estimate of the number of messages in a backlog: the entries of each partition times the average number of
    messages in an entry that its consumers got (the largest of several). None if a partition has a backlog and no such
    average.
    """
    counts = [_messages(sub) for sub in subs]
    known = [one for one in counts if one is not None]
    return sum(known) if len(known) == len(counts) else None


def _partition(sub: Stats, sent: int | None, now: int) -> _PartitionAverages | None:
    """Averages of one partition; None if they are not known.

    The broker loaded the partition before its consumers connected, so that `sent` is an upper bound of what came since
    then. What other consumers acknowledged before they left it does not say: so the rate of acknowledgements is a lower
    bound. It counts a message as often as it delivers it: while it delivers some again, there is no bound.
    """
    consumers = sub.get("consumers") or []
    times = [_milliseconds(one.get("connectedSince")) for one in consumers]
    known = [one for one in times if one is not None and one < now]
    if not known or len(known) < len(times):
        return None
    since = min(known)
    seconds = (now - since) / 1000
    acked = sum(_count(one, "msgOutCounter") - max(0, _count(one, "unackedMessages")) for one in consumers)
    is_bound = not gives_to_one(sub) and not sub.get("msgRateRedeliver")
    return _PartitionAverages(
        since, None if sent is None else sent / seconds, max(0, acked) / seconds if is_bound else None
    )


def _total(rates: Sequence[float | None]) -> float | None:
    known = [one for one in rates if one is not None]
    return round(sum(known), 1) if len(known) == len(rates) else None


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
