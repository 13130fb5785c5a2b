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
    """Feeds the sequence numbers that one worker receives to Gaps, and reports lost messages."""

    def __init__(self, since: int, counts: Counts) -> None:
        self.gaps = Gaps(since)
        self._counts = counts

    @classmethod
    def of(cls, policy: Policy, since: int, counts: Counts) -> GapMonitor | None:
        """Returns a monitor; None for a subscription that may have several readers. `since`: now, ms since the epoch."""
        kind = policy.subscription_type
        alone = kind == "exclusive" or (kind == "failover" and policy.expected_workers == 1)
        return cls(since, counts) if alone else None

    def on_message(self, delivery: Delivery, lane: Lane) -> None:
        """Takes the number of a received message, if it came to a ready lane and neither a worker has moved it nor a
        recall sent it. `delivery`: with properties that may be believed, and no redelivery of a message in flight.
        """
        if lane.state is not State.READY:
            return
        text = delivery.properties.get(SEQ)
        if text is not None and HOP not in delivery.properties and RECALL not in delivery.properties:
            self.gaps.see(text)

    def on_disconnect(self, wall: int) -> None:
        """Starts anew at `wall` (ms since the epoch): messages are redelivered, and another reader may have got some."""
        self.gaps.restart(wall)

    def check(self, now: float) -> list[str]:
        """Returns alarm texts about numbers missing for too long at `now` (seconds), and updates the counts."""
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
