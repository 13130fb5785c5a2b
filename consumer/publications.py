"""Messages on their way to another topic: published, awaiting the receipt, published again when none comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol, assert_never

from consumer.broker import Lost, NeverTaken, Receipt, Stored
from consumer.counts import Counts
from consumer.decide import Why
from consumer.effects import Effects
from consumer.envelope import Control, Outgoing
from consumer.held import Held, Place
from consumer.policy import JITTER, MAX_MEMORY_WAIT

SEND_TIMEOUT: Final = 15.0  # seconds after which the client itself gives a send up
MAX_PARKED: Final = 100
_FIRST_BACKOFF: Final = 0.2
_MOST_BACKOFF: Final = 30.0


@dataclass(slots=True)
class Publication:
    """One message and where it is to go. `last_resort`: a refusal leaves nowhere else to go."""

    held: Held
    message: Outgoing
    why: Why
    last_resort: bool
    tries: int = 0
    sent_at: float = 0.0

    @property
    def backoff(self) -> float:
        """Seconds before the next try."""
        return min(_MOST_BACKOFF, _FIRST_BACKOFF * 2.0 ** min(self.tries - 1, 16))


class Owner(Protocol):
    """Who is told what became of a message. Its effects are replaced whenever somebody took them."""

    effects: Effects
    counts: Counts

    def published(self, held: Held, why: Why, now: float) -> None:
        """The target has it."""

    def refused(self, held: Held, reason: str, now: float) -> None:
        """The target will never take it; it must go elsewhere."""


def jittered(control: Control, wall: int, rng: Random) -> Control:
    """More than 50,000 messages with one delay would pause a topic; short waits are declared without jitter."""
    if control.due is None or control.due - wall <= MAX_MEMORY_WAIT:
        return control
    return control._replace(due=control.due + rng.randrange(JITTER))


class Publications:
    """Tickets of sends that are out. A receipt for a ticket that was given up finds nothing, and is nobody's."""

    def __init__(self, owner: Owner, set_timer: Callable[[float, Publication], int], rng: Random) -> None:
        self._owner, self._set_timer, self._rng = owner, set_timer, rng
        self._next = 0
        self._out: dict[int, Publication] = {}  # oldest first
        self.waiting = 0  # messages with a receipt to come, now or after a backoff

    def begin(self, publication: Publication, now: float) -> None:
        """Publishes a message until it has a receipt."""
        publication.held.place = Place.PUBLISHING
        self.waiting += 1
        self.send(publication, now)

    def send(self, publication: Publication, now: float) -> None:
        """One try."""
        self._next += 1
        publication.tries += 1
        publication.sent_at = now
        self._out[self._next] = publication
        self._owner.effects.send(self._next, publication.message)

    def receipt(self, ticket: int, receipt: Receipt, now: float) -> None:
        """The broker's word on a send."""
        publication = self._out.pop(ticket, None)
        if publication is None:
            return
        match receipt:
            case Stored():
                self.waiting -= 1
                self._owner.published(publication.held, publication.why, now)
            case Lost(reason):
                self._again_later(publication, reason, now)
            case NeverTaken(reason):
                self.waiting -= 1
                self._never_taken(publication, reason, now)
            case _:
                assert_never(receipt)

    @property
    def hanging_from(self) -> float:
        """When the oldest send will have been without a receipt for twice its time-out; infinite when none is out."""
        oldest = next(iter(self._out.values()), None)
        return oldest.sent_at + 2 * SEND_TIMEOUT if oldest else float("inf")

    def renew(self, now: float) -> None:
        """Sends hang: everything that is out goes out again, by a new client."""
        effects = self._owner.effects
        effects.alarm("hanging", "sends are without receipts for too long: publishing starts afresh")
        effects.renew_publishing = True
        hanging = list(self._out.values())
        self._out.clear()
        for publication in hanging:
            self.send(publication, now)

    def _again_later(self, publication: Publication, reason: str, now: float) -> None:
        self._owner.counts.republished += 1
        topic = publication.message.topic
        self._owner.effects.alarm("publish", f"no receipt from {topic} ({reason}): the message is kept, and sent again")
        self._set_timer(now + publication.backoff * self._rng.uniform(0.75, 1.25), publication)

    def _never_taken(self, publication: Publication, reason: str, now: float) -> None:
        held, counts, effects = publication.held, self._owner.counts, self._owner.effects
        effects.alarm("refused", f"{publication.message.topic} will not take a message: {reason}")
        if not publication.last_resort:
            self._owner.refused(held, reason, now)
            return
        held.place = Place.PARKED
        counts.parked += 1
        if counts.parked >= MAX_PARKED:
            held.lane.blocked = True
            effects.alarm("parked", f"{counts.parked} messages have nowhere to go: {held.lane.lane.topic} is paused")
