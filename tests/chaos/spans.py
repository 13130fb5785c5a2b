"""What faults did, from the times of the handler's runs: stand-stills by partition, recoveries, runs that were not meant."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tests.faults.ledger import Run

UNSURE = 1.5  # seconds: what was acknowledged so short before a break may come again (docs/explanation/consumer.md)
LATE = 10.0  # seconds within which partitions ought to be handled again


@dataclass(frozen=True)
class Span:
    """One fault, in s of the monotonic clock: its start, when every node ran and served again, and when each partition was
    handled again. `breaks`: how often it broke connections. `spared`: partitions that it did not concern.
    """

    name: str
    start: float
    healed: float
    end: float
    breaks: int
    spared: Collection[str] = ()
    recoveries: Mapping[str, float] = field(default_factory=dict)


def twice(runs: Iterable[Run], planned: Callable[[int], int]) -> list[float]:
    """When a handler ran that was not meant to: times, in order."""
    seen: Counter[int] = Counter()
    again = []
    for run in runs:
        seen[run.number] += 1
        if run.number >= 0 and seen[run.number] > planned(run.number):
            again.append(run.at)
    return sorted(again)


def bound(span: Span, runs: Sequence[Run], planned: Callable[[int], int], *, slots: int) -> int:
    """How many handler runs a fault may have doubled: whatever was under way, each time that connections broke. `slots`: of
    all workers; `runs` in order of time.
    """
    if not span.breaks:
        return 0
    times = [run.at for run in runs]
    low, high = bisect_left(times, span.start - UNSURE), bisect_right(times, span.end)
    fastest = max((bisect_right(times, times[n] + UNSURE) - n for n in range(low, high)), default=0)
    moves = sum(planned(run.number) > 1 for run in runs[low:high])
    return span.breaks * (slots + fastest) + moves


def silence(runs: Iterable[Run], places: Collection[str], start: float, end: float) -> float:
    """Longest time without a run on one of these partitions, between two moments."""
    times: dict[str, list[float]] = {place: [start] for place in places}
    for run in runs:
        if run.place in times and start < run.at < end:
            times[run.place].append(run.at)
    longest = 0.0
    for found in times.values():
        found.append(end)
        longest = max(longest, *(later - sooner for sooner, later in itertools.pairwise(found)))
    return longest


def summary(spans: Sequence[Span], runs: Sequence[Run], planned: Callable[[int], int], *, slots: int) -> dict[str, Any]:
    """By kind of fault: how often, recoveries (s, of the slowest partition each time), longest silences of the partitions that
    it spared and of the others, runs that were not meant, and how many may be. A run belongs to the last fault before it.
    """
    runs = sorted(runs, key=lambda run: run.at)
    again = Counter(bisect_right([span.start for span in spans], at) - 1 for at in twice(runs, planned))
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, span in enumerate(spans):
        others = span.recoveries.keys() - set(span.spared)
        kinds[span.name].append(
            {
                "recovery": max(span.recoveries.values(), default=0.0),
                "spared": silence(runs, span.spared, span.start, span.healed) if span.spared else 0.0,
                "others": silence(runs, others, span.start, span.end),
                "twice": again[number],
                "allowed": bound(span, runs, planned, slots=slots),
            }
        )
    return {name: _row(found) for name, found in sorted(kinds.items())}


def _row(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    recoveries = [one["recovery"] for one in found]
    return {
        "times": len(found),
        "recoveries": [round(seconds, 1) for seconds in sorted(recoveries)],
        "median_recovery": round(median(recoveries), 1),
        "late": sum(seconds > LATE for seconds in recoveries),
        "spared_silence": round(max(one["spared"] for one in found), 1),
        "others_silence": round(max(one["others"] for one in found), 1),
        "twice": sum(one["twice"] for one in found),
        "allowed": sum(one["allowed"] for one in found),
    }
