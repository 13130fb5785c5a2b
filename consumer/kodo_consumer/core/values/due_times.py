"""Due times of messages that this worker sent, in whole seconds: they show which should have come by now. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kodo_consumer.core.values.envelope import Outgoing

_MOST: Final = 4_096  # different seconds remembered for a topic: more than an hour's
_PAST: Final = 300  # seconds after which nobody asks


class DueTimes:
    """Due times of messages that this worker sent, in whole seconds by topic: they show which messages should have come
    by now. Written under the engine's lock; any thread may read them.
    """

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[str, set[int]] = {}

    def add(self, message: Outgoing) -> None:
        """Notes the due time of a message that the broker has stored, if the broker keeps it until then. A topic has
        4,096 different seconds at most; further ones are left out.
        """
        if message.deliver_at is not None:
            seconds = self._of.setdefault(message.topic, set())
            if len(seconds) < _MOST:
                seconds.add(message.deliver_at // 1000)

    def any_between(self, topic: str, begin: float, end: float) -> bool:
        """True if a noted message is due from `begin` to before `end` (seconds since the epoch). Forgets times that are
        over 300 s before `begin`: later calls may not go back further.
        """
        seconds = self._of.get(topic)
        if not seconds:
            return False
        known = list(seconds)
        seconds.difference_update([second for second in known if second < begin - _PAST])
        return any(begin <= second < end for second in known)
