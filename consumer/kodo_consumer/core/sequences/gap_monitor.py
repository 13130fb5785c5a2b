"""Gap monitor: the only reader of a subscription checks the numbers of producers, because a message that it misses is
lost.

Only first hops on ready topics count, and only while nobody else reads: exclusive subscriptions, failover ones with one
expected worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kodo_consumer.core.sequences.gap_detector import Gaps
from kodo_consumer.core.values.envelope import Delivery, State
from kodoctl.protocol.properties import HOP, RECALL, SEQ
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodo_consumer.core.values.counters import Counts
    from kodo_consumer.core.values.policy import Lane, Policy

_LISTED: Final = 10  # holes that are reported one by one


class GapMonitor:
    """Reports messages that never came to the only worker of a subscription, by the sequence numbers of producers."""

    def __init__(self, since: int, counts: Counts) -> None:
        self.gaps = Gaps(since)
        self._counts = counts

    @classmethod
    def of(cls, policy: Policy, since: int, counts: Counts) -> GapMonitor | None:
        """Returns a monitor for an exclusive subscription, or a failover one with one expected worker; None for any
        other. `since`: now, ms since the epoch.
        """
        kind = policy.subscription_type
        alone = kind == "exclusive" or (kind == "failover" and policy.expected_workers == 1)
        return cls(since, counts) if alone else None

    def on_message(self, delivery: Delivery, lane: Lane) -> None:
        """Takes the number of a received message or mark, unless its lane is no ready lane, a worker has moved it, or a
        recall sent it. No effect without a readable number. `delivery`: with properties that may be believed, and no
        redelivery of a message that came since the last `on_disconnect`: it would count as duplicated.
        """
        if lane.state is not State.READY:
            return
        text = delivery.properties.get(SEQ)
        if text is not None and HOP not in delivery.properties and RECALL not in delivery.properties:
            self.gaps.see(text)

    def on_disconnect(self, wall: int) -> None:
        """Forgets all numbers, because messages are redelivered, and another reader may have got some: holes that were
        not reported yet never are. `wall`: now, ms since the epoch.
        """
        self.gaps.restart(wall)

    def check(self, now: float) -> list[str]:
        """Returns alarm texts about numbers that have been missing for 30 s at least, or for less if there are too many
        holes to remember: each hole once, all beyond the first ten in one text. Sets the counts of missing and
        duplicated numbers. `now`: monotonic seconds.
        """
        lost = self.gaps.check(now)
        self._counts.take_gaps(self.gaps.lost, self.gaps.doubled)
        texts = [
            f"{many(hole.size, 'message')} of producer run {hole.run}, partition {hole.partition}, never came: "
            f"numbers {hole.first} to {hole.last}"
            for hole in lost[:_LISTED]
        ]
        if more := lost[_LISTED:]:
            texts.append(
                f"{many(sum(hole.size for hole in more), 'other message')} never came, in {many(len(more), 'place')}"
            )
        return texts
