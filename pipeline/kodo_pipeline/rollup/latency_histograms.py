"""Latency histograms of lanes and of tenants, summed over windows in this process, and their percentiles. Buckets are
those of kodo_pipeline.rollup.histogram. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, floor, log
from typing import Any, Final, Self

BASE: Final = 1.02
ZERO: Final = -1  # bucket of what took less than 1 ms
NEGATIVE: Final = -2  # bucket of what ended before it began: clocks differ, which is told and not hidden
Histogram = Mapping[int, int]
"""Number of messages by bucket."""
_MIDDLE: Final = 2 * BASE / (1 + BASE)


@dataclass(frozen=True, slots=True)
class Histograms:
    """Latency histograms. `lanes`: by lane key (kodo_pipeline.rollup.report.lane_key), whose first item is the topic;
    `tenants`: of some tenants, by (topic, tenant).
    """

    lanes: Mapping[tuple[Any, ...], Histogram]
    tenants: Mapping[tuple[Any, ...], Histogram]

    @classmethod
    def of(cls, lanes: Iterable[tuple[Any, ...]], tenants: Iterable[tuple[Any, ...]]) -> Self:
        """Makes the histograms from rows (key, bucket, messages); rows of one key and bucket are added, and rows
        without a bucket ignored.
        """
        return cls(_by_key(lanes), _by_key(tenants))

    @property
    def messages(self) -> int:
        """Number of messages in all lanes."""
        return sum(one.total() for one in map(Counter, self.lanes.values()))

    def possible(self, oldest: int) -> Histograms:
        """Copy without the buckets above the bucket number `oldest`, which are impossible latencies; keys without any
        other bucket are left out.
        """
        return Histograms(_until(self.lanes, oldest), _until(self.tenants, oldest))

    def of_tenants(self, topic: str, names: Iterable[str]) -> Counter[int]:
        """Sum of the histograms of these tenants of a topic."""
        return _together(self.tenants.get((topic, name), {}) for name in names)

    def of_others(self, topic: str, names: Iterable[str]) -> Counter[int]:
        """Sum of the histograms of all other tenants of a topic."""
        every = _together(one for key, one in self.lanes.items() if key[0] == topic)
        return every - self.of_tenants(topic, names)


def percentiles_of(histogram: Histogram, shares: Mapping[str, float]) -> dict[str, float]:
    """Percentiles of a histogram: for each name in `shares` the latency (ms) that this share (0 to 1) of the messages
    did not exceed. {} if the histogram is empty.
    """
    total, found = sum(histogram.values()), dict[str, float]()
    for name, share in shares.items():
        left = ceil(round(share * total, 6))
        for bucket in sorted(histogram):
            left -= histogram[bucket]
            if left <= 0:
                found[name] = _latency(bucket)
                break
    return found


def bucket_of(latency: int) -> int:
    """Bucket of a latency in ms, as kodo_pipeline.rollup.histogram.bucket computes it."""
    return NEGATIVE if latency < 0 else ZERO if latency < 1 else floor(log(latency) / log(BASE))


def _latency(bucket: int) -> float:
    """Returns the latency (ms) of a bucket, as `kodo_pipeline.rollup.histogram.value` does."""
    return 0.0 if bucket < 0 else BASE**bucket * _MIDDLE


def _by_key(rows: Iterable[tuple[Any, ...]]) -> dict[tuple[Any, ...], Histogram]:
    found: dict[tuple[Any, ...], Counter[int]] = {}
    for key, bucket, messages in rows:
        if bucket is not None:
            found.setdefault(key, Counter())[bucket] += messages
    return dict(found)


def _until(of: Mapping[tuple[Any, ...], Histogram], oldest: int) -> dict[tuple[Any, ...], Histogram]:
    kept = {key: {bucket: messages for bucket, messages in one.items() if bucket <= oldest} for key, one in of.items()}
    return {key: one for key, one in kept.items() if one}


def _together(histograms: Iterable[Histogram]) -> Counter[int]:
    found: Counter[int] = Counter()
    for one in histograms:
        found.update(one)
    return found
