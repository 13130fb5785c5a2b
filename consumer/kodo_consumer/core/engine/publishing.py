"""Publishing of messages to another topic: each is published, and published again until a receipt comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.core.state.in_flight import InFlight, Stage
from kodo_consumer.core.state_machine import Reroute, Rule, TransferOut
from kodo_consumer.core.values.broker import Confirmed, Receipt, Rejected
from kodo_consumer.core.values.delay_schedule import JITTER, MAX_MEMORY_WAIT
from kodo_consumer.core.values.envelope import State, reroute_message, sign_message, transfer_message, without_error
from kodo_consumer.core.values.soften_headers import without

if TYPE_CHECKING:
    from kodo_consumer.core.state.engine_context import EngineContext
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.envelope import Outgoing

SEND_TIMEOUT: Final = 60.0
"""Seconds after which the client library itself gives a send up. After the death of a broker its session expires (30
s), another broker takes its topics over, and the client, whose tries come at growing intervals, is connected after
about 50 s: a send that waited for that must not fail.
"""
HANGS: Final = SEND_TIMEOUT + 15.0
"""Seconds after which a send without a receipt hangs: the client should have given it up by then."""
_MOST_PATIENCE: Final = 600.0  # seconds
_FIRST_BACKOFF: Final = 0.2
_MOST_BACKOFF: Final = 30.0


class PendingPublish:
    """A message that is published until the broker has stored it, or, of a reroute, until its target refuses it.
    `tries`: number of tries so far; `sent_at`: monotonic seconds of the last one.
    """

    __slots__ = ("message", "sent_at", "tries")

    def __init__(self, message: Outgoing) -> None:
        self.message = message
        self.tries = 0
        self.sent_at = 0.0

    @property
    def backoff(self) -> float:
        """Seconds to wait after the last try, without jitter: 0.2 after the first, doubled by each other up to 30."""
        return min(_MOST_BACKOFF, _FIRST_BACKOFF * 2.0 ** min(self.tries - 1, 16))


class PendingReroute(PendingPublish):
    """Publish of one message in flight to another topic, or to the end of its own. `why`, `reason`: rule and text of
    the decision. `last_resort`: after a refusal there is no other target. `error`: text of the error that ended the
    run, for the audit record; "" if there is none, or records have none.
    """

    __slots__ = ("error", "in_flight", "last_resort", "reason", "why")

    def __init__(
        self, message: Outgoing, in_flight: InFlight, why: Rule, reason: str, error: str, *, last_resort: bool
    ) -> None:
        super().__init__(message)
        self.in_flight, self.why, self.reason, self.error = in_flight, why, reason, error
        self.last_resort = last_resort


@dataclass(slots=True)
class Published:
    """End of a publish: the broker has stored the message, at the position `token`. `sent`: the publish that ended."""

    sent: PendingPublish
    token: Any  # not `object`, for the compiler


@dataclass(slots=True)
class Refused:
    """End of a reroute: the target will never take the message. `sent`: the reroute; `reason`: text for people."""

    sent: PendingReroute
    reason: str


def add_jitter(due: int | None, wall: int, rng: Random) -> int | None:
    """Returns the due time (ms since the epoch) with less than JITTER (3,000) ms added at random, because more than
    50,000 messages with one delay would make the broker pause a topic. None, and a time at most MAX_MEMORY_WAIT (5,000)
    ms after `wall` (now), stay as they are.
    """
    return due if due is None or due - wall <= MAX_MEMORY_WAIT else due + int(rng.random() * JITTER)


class PendingPublishes:
    """Publishes without a receipt, by ticket. A receipt of a ticket that `restart` has replaced has no effect.
    `waiting`: number of messages without a receipt, those that wait for their next try among them, audit records not
    counted; `put_back`: number of those that LaneOverflow puts back to the end of their lane. All calls need the
    engine's lock.
    """

    def __init__(
        self,
        context: EngineContext,
        set_timer: Callable[[float, PendingPublish], int],
        clock: Clock,
        rng: Random,
    ) -> None:
        self._context, self._set_timer, self._clock, self._rng = context, set_timer, clock, rng
        self._next = 0
        self._out: dict[int, PendingPublish] = {}  # oldest first
        self._patience = HANGS  # doubled by each new client that brings no receipt either
        self.waiting = 0  # messages with a receipt to come, now or after a backoff
        self.put_back = 0  # those among them that LaneOverflow puts back

    def start(self, in_flight: InFlight, decision: Reroute | TransferOut, now: float, error: str = "") -> None:
        """Makes the message for a decision, with jitter on its due time (see `add_jitter`), and publishes it until the
        broker has stored it or the target refuses it. `error`: text, for the audit record, of the error that the
        handler's run ended with. Alarms if the message may not be handled because it is broken (`Delivery.broken`).
        """
        in_flight.enter(Stage.PUBLISHING)
        if in_flight.delivery.broken:
            text = f"{in_flight.lane.lane.topic}: a message goes to the dead letters: {in_flight.delivery.broken}"
            self._context.effects.alarm("unreadable", text)
        sending = self._publication(in_flight, decision, error)
        self._count(sending, 1)
        self.send(sending, now)

    def _count(self, sending: PendingPublish, by: int) -> None:
        if isinstance(sending, PendingReroute):
            self.waiting += by
            if sending.why is Rule.PUT_BACK:
                self.put_back += by

    def _sign(self, message: Outgoing) -> Outgoing:
        signer = self._context.policy.signer
        return message if signer is None else sign_message(message, signer)

    def _publication(self, in_flight: InFlight, decision: Reroute | TransferOut, error: str) -> PendingReroute:
        policy, delivery = self._context.policy, in_flight.delivery
        last_resort, reason = policy.dead_letter is None, ""
        if isinstance(decision, TransferOut):
            why, asked = Rule.TRANSFERRED, decision.asked
            payload = delivery.payload if asked.payload is None else asked.payload
            if policy.compat is not None:
                delivery = without(delivery)
            origin, to = in_flight.lane.lane.subscription, decision.topic
            message = transfer_message(delivery, in_flight.headers, origin, to, payload, asked.changes, asked.key)
        else:
            why, headers, target = decision.why, decision.headers, decision.target
            due = add_jitter(headers.due, self._clock.wall(), self._rng)
            received_from, waits = in_flight.lane.lane.topic, decision.lane_waits
            message = reroute_message(delivery, headers, received_from, target.topic, due, lane_waits=waits)
            last_resort = last_resort or target.state is State.DEAD
            reason = decision.note or headers.reason or ""
        if policy.signer is not None:
            message = sign_message(message, policy.signer)
        return PendingReroute(message, in_flight, why, reason, error, last_resort=last_resort)

    def send(self, sending: PendingPublish, now: float) -> None:
        """Makes one try at `now` (monotonic seconds): adds the message with a new ticket to the effect `publish`."""
        self._next += 1
        sending.tries += 1
        sending.sent_at = now
        self._out[self._next] = sending
        self._context.effects.publish.append((self._next, sending.message))

    def receipt(self, ticket: int, receipt: Receipt, now: float) -> Published | Refused | None:
        """Takes the receipt of a ticket. Returns Published or Refused if the publish has ended; None: it is sent again
        (after a refusal at once, without its error text; otherwise after a backoff), or the ticket is unknown. A
        refused audit record is sent again.
        """
        sending = self._out.pop(ticket, None)
        if sending is None:
            return None
        if isinstance(receipt, Confirmed):
            self._patience = HANGS
            self._count(sending, -1)
            return Published(sending, receipt.position)
        if isinstance(receipt, Rejected) and isinstance(sending, PendingReroute):  # records are never given up
            return self._on_refusal(sending, receipt.reason, now)
        self._again_later(sending, receipt.reason, now)
        return None

    def _on_refusal(self, sending: PendingReroute, reason: str, now: float) -> Refused | None:
        if (smaller := without_error(sending.message)) is not None:  # the broker takes no more bytes, it may be
            sending.message = self._sign(smaller)
            self.send(sending, now)
            return None
        self._count(sending, -1)
        self._context.effects.alarm("refused", f"{sending.message.topic} will not take a message: {reason}")
        return Refused(sending, reason)

    @property
    def stalled_at(self) -> float:
        """Monotonic time (seconds) when the oldest send will hang without a receipt; infinite if no send awaits one."""
        oldest = next(iter(self._out.values()), None)
        return oldest.sent_at + self._patience if oldest else float("inf")

    def restart(self, now: float) -> None:
        """Sends everything that awaits a receipt again, with new tickets and by a new client (an effect), and raises an
        alarm: sends hang. Messages that wait for their next try still wait. If that does not help, for example without
        enough bookies to write, the next restart comes later: each may leave a copy of a message with a broker that
        stores it in the end.
        """
        effects = self._context.effects
        self._patience = min(_MOST_PATIENCE, 2 * self._patience)
        effects.alarm("hanging", "sends are without receipts for too long: publishing starts afresh")
        effects.renew_publishing = True
        # What nobody has fetched yet is not out at all: with the rest sent again, it would be stored twice.
        effects.publish = [(ticket, message) for ticket, message in effects.publish if ticket not in self._out]
        hanging = list(self._out.values())
        self._out.clear()
        for publication in hanging:
            self.send(publication, now)

    def _again_later(self, sending: PendingPublish, reason: str, now: float) -> None:
        self._context.counts.republished += 1
        topic = sending.message.topic
        self._context.effects.alarm(
            "publish", f"no receipt from {topic} ({reason}): the message is kept, and sent again"
        )
        self._set_timer(now + sending.backoff * self._rng.uniform(0.75, 1.25), sending)
