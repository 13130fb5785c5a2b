# adapter: takes filters of Spark
"""Filters of a query, by which the source can read less. Spark applies all filters to the rows afterwards, so the
source may read too much, but never too little.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from kodoctl.text.formatting import epoch_ms


@dataclass(frozen=True, slots=True)
class Pruning:
    """Bounds of a read, derived from the filters of a query. None: no bound. Times are ms since the epoch, both
    included.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    since: int | None = None
    until: int | None = None

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Pruning:
        """Derives the bounds within which rows can meet all of these filters. Filters of other columns or forms set no
        bound.
        """
        found = cls()
        for one in filters:
            found = found._with(one)
        return found

    def _with(self, one: Filter) -> Pruning:
        column = getattr(one, "attribute", ())
        match one:
            case EqualTo(value=value) if column == ("topic",):
                return replace(self, topics=_both(self.topics, [value]))
            case In(value=values) if column == ("topic",):
                return replace(self, topics=_both(self.topics, values))
            case EqualTo(value=value) if column == ("partition",):
                return replace(self, partitions=_both(self.partitions, [value]))
            case In(value=values) if column == ("partition",):
                return replace(self, partitions=_both(self.partitions, values))
            case GreaterThan() | GreaterThanOrEqual() | EqualTo() | LessThan() | LessThanOrEqual() if column == (
                "publish_ts",
            ):
                return self._narrow_time(one)
            case _:
                return self

    def _narrow_time(self, one: Any) -> Pruning:
        if not isinstance(one.value, datetime):
            return self
        moment = one.value if one.value.tzinfo else one.value.replace(tzinfo=UTC)
        at = epoch_ms(moment)
        since = at if not isinstance(one, LessThan | LessThanOrEqual) else self.since
        until = at if not isinstance(one, GreaterThan | GreaterThanOrEqual) else self.until
        return replace(
            self,
            since=since if self.since is None or since is None else max(since, self.since),
            until=until if self.until is None or until is None else min(until, self.until),
        )

    def has_topic(self, name: str) -> bool:
        """True if the query may have rows of the topic."""
        return self.topics is None or name in self.topics

    def has_partition(self, number: int) -> bool:
        """True if the query may have rows of the partition."""
        return self.partitions is None or number in self.partitions

    def moments(self, skew: int) -> tuple[int | None, int | None]:
        """Returns the bounds of time (ms, None: no bound), widened by `skew` ms, because publish times are by the
        clocks of producers, which differ. The second is exclusive.
        """
        since = None if self.since is None else max(0, self.since - skew)
        return since, None if self.until is None else self.until + 1 + skew


def _both(one: frozenset[Any] | None, other: Iterable[Any]) -> frozenset[Any]:
    return frozenset(other) if one is None else one & frozenset(other)
