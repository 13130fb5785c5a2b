# pure: every branch is tested
"""Filter of inbox rows: statuses of rows, and conditions on rows. It imports no database, so that commands start
quickly.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class InboxStatus(StrEnum):
    """Status of a row: WAITING, CLAIMED and DISCARDING are to do, the others are done. A row whose claim has lapsed is
    not CLAIMED any more, but WAITING or DISCARDING.
    """

    WAITING = "waiting"
    CLAIMED = "claimed"  # by a worker: its handler runs, or it is next there
    DISCARDING = "discarding"  # the next worker that takes it ends it unhandled
    DONE = "done"
    REPEATED = "repeated"
    DISCARDED = "discarded"
    SKIPPED = "skipped"
    TRANSFERRED = "transferred"
    MOVED = "moved"
    DEAD = "dead"


NOT_DONE = (InboxStatus.WAITING, InboxStatus.CLAIMED, InboxStatus.DISCARDING)
UNHANDLED = (InboxStatus.DEAD, InboxStatus.DISCARDED, InboxStatus.DISCARDING)
"""Statuses of the rows that `retry` takes where no status and no id is named."""


@dataclass(frozen=True, slots=True)
class InboxFilter:
    """Filter of rows: a row must meet all conditions, but of several ids or statuses only one. A field that is None or
    () sets no condition, an empty text does. Without any condition all rows are chosen. `subscription`: its full name;
    `topic`: full name of the topic from which the message was received; `tenant`: as the table has it. `cause`: text
    that the reason contains, also the reason of a discard; SQLite takes A and a for equal there, PostgreSQL does not.
    """

    ids: tuple[int, ...] = ()
    statuses: tuple[InboxStatus, ...] = ()
    subscription: str | None = None
    topic: str | None = None
    tenant: str | None = None
    cause: str | None = None

    @property
    def is_everything(self) -> bool:
        """True if the filter has no condition, and so chooses all rows."""
        return self == InboxFilter()
