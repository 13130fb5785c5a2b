"""Which rows somebody means: statuses, and a choice among rows. Without the database, for a command line that starts quickly."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Where a row is."""

    TO_SEND = "to_send"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Choice:
    """Rows that a person means. Everything given must hold; nothing given means all."""

    ids: tuple[str, ...] = ()
    statuses: tuple[Status, ...] = ()
    topic: str | None = None
    key: str | None = None
    biz_code: str | None = None
    app: str | None = None

    @property
    def is_everything(self) -> bool:
        """Whether nothing was given."""
        return self == Choice()
