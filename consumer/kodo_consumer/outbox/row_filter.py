# pure: every branch is tested
"""Row filter of the outbox: statuses, and a choice among rows. No database import: a command line starts quickly."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RowStatus(StrEnum):
    """Status of a row."""

    TO_SEND = "to_send"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Filter of rows: a row must meet all conditions that are given. Without any condition all rows are chosen."""

    ids: tuple[str, ...] = ()
    statuses: tuple[RowStatus, ...] = ()
    topic: str | None = None
    key: str | None = None
    biz_code: str | None = None
    app: str | None = None

    @property
    def is_everything(self) -> bool:
        """True if nothing was given."""
        return self == RowFilter()
