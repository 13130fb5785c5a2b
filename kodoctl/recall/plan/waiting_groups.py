"""Groups of waiting messages by lane, cause, tenant and due time. A pure fold: counts and times, no payload."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kodoctl.documents.waiting_document import WaitingGroupRow, WaitingLaneRow
from kodoctl.protocol import properties

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kodoctl.recall.message.stored_message import DeadLetter
    from kodoctl.recall.plan.waiting_lanes import WaitingLane

MOST_GROUPS: Final = 10_000  # further tenants and causes are counted as OTHERS: memory stays bounded
OTHERS: Final = "(others)"
NO_CAUSE: Final = "(none)"
DUE_NOW: Final = "now"
_DUES: Final = (("in 1 min", 60_000), ("in 1 h", 3_600_000), ("in 1 d", 86_400_000))
DUE_LATER: Final = "later"


class Dimension(StrEnum):
    """Facts by which messages are grouped."""

    LANE = "lane"
    CAUSE = "cause"
    TENANT = "tenant"
    DUE = "due"


_Key = tuple[str, str, str | None, str | None, str | None, str | None]


class WaitingGroups:
    """Counts of waiting messages by lane and by group. The caller must `add` every message; rows can be read at any
    time, and later messages change them. `by`: the facts that divide groups, besides topic and subscription; `now`: ms
    since the epoch. Once there are 10,000 groups (MOST_GROUPS), a message that fits none of them is counted with the
    tenant and the cause OTHERS, in a group of its lane and due time, which may be a further one.
    """

    def __init__(self, lanes: Sequence[WaitingLane], by: Collection[Dimension], now: int) -> None:
        self._by, self._now = frozenset(by), now
        self._lanes = {
            (one.ground, one.subscription, one.lane): WaitingLaneRow(
                one.ground, one.subscription, one.lane, one.source_topic
            )
            for one in lanes
        }
        self._groups: dict[_Key, WaitingGroupRow] = {}

    def add(self, lane: WaitingLane, message: DeadLetter) -> None:
        """Counts a message of one of the lanes."""
        due = message.number(properties.DUE) or 0
        row = self._lanes[lane.ground, lane.subscription, lane.lane]
        row.overdue += due <= self._now
        for counted in (row, self._group(lane, message, due)):
            counted.messages += 1
            counted.oldest = min(counted.oldest or message.publish_time, message.publish_time)
            if due:
                counted.next_due = min(counted.next_due or due, due)
                counted.last_due = max(counted.last_due, due)

    def _group(self, lane: WaitingLane, message: DeadLetter, due: int) -> WaitingGroupRow:
        cause, tenant = message.cause or NO_CAUSE, message.tenant
        key = self._key(lane, cause, tenant, due)
        if key not in self._groups and len(self._groups) >= MOST_GROUPS:
            key = self._key(lane, OTHERS, OTHERS, due)
        return self._groups.setdefault(key, WaitingGroupRow(*key))

    def _key(self, lane: WaitingLane, cause: str, tenant: str, due: int) -> _Key:
        return (
            lane.ground,
            lane.subscription,
            lane.lane if Dimension.LANE in self._by else None,
            cause if Dimension.CAUSE in self._by else None,
            tenant if Dimension.TENANT in self._by else None,
            due_label(due - self._now) if Dimension.DUE in self._by else None,
        )

    def lane_rows(self) -> list[WaitingLaneRow]:
        """One row for each lane, in the order in which the lanes were given, also for empty lanes."""
        return list(self._lanes.values())

    def group_rows(self) -> list[WaitingGroupRow]:
        """One row for each group, the largest first. A fact that does not divide groups (`by`) is None in all rows."""
        found = sorted(self._groups.items(), key=lambda item: (-item[1].messages, [part or "" for part in item[0]]))
        return [row for _, row in found]


def due_label(remaining: int) -> str:
    """Label of the group of due times `remaining` ms away: `now` (0 or less, so also a missing due time), `in 1 min`,
    `in 1 h` or `in 1 d` (at most so long), or `later`.
    """
    if remaining <= 0:
        return DUE_NOW
    return next((label for label, most in _DUES if remaining <= most), DUE_LATER)
