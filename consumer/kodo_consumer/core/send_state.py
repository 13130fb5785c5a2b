"""Send state of any message on its way: how often and when it was tried. Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kodo_consumer.core.envelope import Outgoing

_FIRST_BACKOFF: Final = 0.2
_MOST_BACKOFF: Final = 30.0


@dataclass(slots=True, kw_only=True)
class PendingPublish:
    """A message that is published until it has a receipt. `sent_at`: seconds, of the last try."""

    message: Outgoing
    tries: int = field(default=0, init=False)
    sent_at: float = field(default=0.0, init=False)

    @property
    def backoff(self) -> float:
        """Seconds before the next try."""
        return min(_MOST_BACKOFF, _FIRST_BACKOFF * 2.0 ** min(self.tries - 1, 16))
