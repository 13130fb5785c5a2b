# pure: every branch is tested
"""Row filter of the outbox: statuses of rows, and conditions on rows. It imports no database, so that commands start
quickly.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RowStatus(StrEnum):
    """Status of a row. TO_SEND: it is to be sent, or is held. SENDING: a relay has claimed it, perhaps one that has
    died. SENT: its receipt has come. FAILED: nobody sends it until it is pushed.
    """

    TO_SEND = "to_send"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Filter of rows: a row is chosen if it has each value that is given, and one of `ids` and of `statuses` if any are
    given. None and () give nothing, "" is a value. A filter without values chooses all rows.
    """

    ids: tuple[str, ...] = ()
    statuses: tuple[RowStatus, ...] = ()
    topic: str | None = None
    key: str | None = None
    biz_code: str | None = None
    app: str | None = None

    @property
    def is_everything(self) -> bool:
        """True if the filter has no values, and so chooses all rows."""
        return self == RowFilter()
