"""Conflicts of a backlog quota with a retention: pairs that Pulsar refuses to store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kodoctl.topology.units import Duration, Size

if TYPE_CHECKING:
    from kodoctl.topology.model.policies import BacklogQuota, Retention


@dataclass(frozen=True, slots=True)
class QuotaConflict:
    """A backlog quota that is not below the retention. `measure`: `size` (bytes) or `time` (ms)."""

    measure: str
    quota: int
    retention: int

    def __str__(self) -> str:
        quota, kept = (
            (Size(self.quota), Size(self.retention))
            if self.measure == "size"
            else (Duration(self.quota), Duration(self.retention))
        )
        return f"backlog quota {quota} is not below retention {kept}"


def quota_conflicts(
    quota: BacklogQuota | None, retention: Retention | None, *, by_time: bool
) -> Iterator[QuotaConflict]:
    """Yields violations of Pulsar's rule: quota < retention, by size always, and by time for topics (`by_time`). An
    unlimited quota, and a retention of 0/0 or unlimited, always pass (docs/explanation/pulsar.md).
    """
    if quota is None or retention is None or (retention.time == 0 and retention.size == 0):
        return
    for measure, limit, kept in (("size", quota.size, retention.size), ("time", quota.time, retention.time)):
        if measure == "time" and not by_time:
            continue
        if isinstance(limit, int) and isinstance(kept, int) and limit >= kept:
            yield QuotaConflict(measure, limit, kept)
