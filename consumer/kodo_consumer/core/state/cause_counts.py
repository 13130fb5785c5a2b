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
    """Counts of messages since the start, by the cause that is stored with them (kodoctl.protocol.error_causes).

    `failed`: messages that went to another topic to wait for another try; `dead`: messages that became dead letters.
    """

    __slots__ = ("dead", "failed")

    def __init__(self) -> None:
        self.failed, self.dead = Counter[str](), Counter[str]()

    def count(self, rule: Rule, properties: Mapping[str, str]) -> None:
        """Counts a message that was stored in another topic with these properties, if `rule` is RETRYING, BACKUP,
        ESCALATED or DEAD. A message without a cause counts as OTHER_CAUSES (`other`), and so does each further cause
        beyond MAX_CAUSES (1,000) of `failed` or of `dead`.
        """
        counts = self.dead if rule is Rule.DEAD else self.failed if rule in _WAITING else None
        if counts is None:
            return
        cause = cause_of(properties.get(names.REASON), properties.get(names.ERROR)) or OTHER_CAUSES
        counts[cause if cause in counts or len(counts) < MAX_CAUSES else OTHER_CAUSES] += 1
