"""Counts of messages that failed and left their lane, by cause. Written under the worker's lock; readers copy."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.state_machine import Rule
from kodoctl.protocol import properties as names
from kodoctl.protocol.error_causes import cause_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CAUSES: Final = 1_000  # further ones are counted as OTHER_CAUSES: memory stays bounded
OTHER_CAUSES: Final = "other"
_WAITING: Final = frozenset({Rule.RETRYING, Rule.ESCALATED, Rule.BACKUP})


class CauseCounts:
    """Counts of messages since the start, by the cause that is stored with them (kodoctl.protocol.error_causes). A
    message counts again each time.

    `failed`: messages that were published to wait in the state retrying, or to a backup level, without those that only
    a limit refused: no handler failed. `dead`: messages that became dead letters, for whatever reason.
    """

    __slots__ = ("dead", "failed")

    def __init__(self) -> None:
        self.failed, self.dead = Counter[str](), Counter[str]()

    def count(self, rule: Rule, properties: Mapping[str, str]) -> None:
        """Counts a message that was published anew with these properties and is stored, if `rule` is DEAD, or if it is
        RETRYING, BACKUP or ESCALATED and the reason is not that the message is over its limit. A message without a
        cause counts as OTHER_CAUSES (`other`), and so does each further cause beyond MAX_CAUSES (1,000) of `failed` or
        of `dead`.
        """
        counts = self.dead if rule is Rule.DEAD else self.failed if rule in _WAITING else None
        reason = properties.get(names.REASON, "")
        if counts is None or (counts is self.failed and reason.startswith(names.OVER_LIMIT_REASON)):
            return
        cause = cause_of(reason, properties.get(names.ERROR)) or OTHER_CAUSES
        counts[cause if cause in counts or len(counts) < MAX_CAUSES else OTHER_CAUSES] += 1
