"""Audit records from the end of a message to their receipt: records are gathered and published again until they have a
receipt. If a subscription waits for its records, only then their messages are acknowledged.

The engine of a subscription without records has no recorder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kodo_consumer.core.engine.publishing import PendingPublish, PendingReroute
from kodo_consumer.core.state.in_flight import InFlight, Stage
from kodo_consumer.core.state_machine import Rule
from kodo_consumer.core.values.envelope import Outgoing, position, sign_message
from kodoctl.protocol import properties as names
from kodoctl.protocol.audit_records import Event, encode

if TYPE_CHECKING:
    from kodo_consumer.core.state.engine_context import EngineContext
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.policy import AuditTo

GATHER: Final = 0.05  # seconds that records are gathered at most
BUNDLE: Final = 1_000  # records in one message at most: below 1 MiB however long their texts are
MAX_ERRORS: Final = 100_000  # characters of error texts in one message, but for those of its last record
MAX_KEPT: Final = 100_000  # records kept without a receipt where nobody waits for one
_EVENTS: Final = {
    Rule.DONE: Event.DONE,
    Rule.REPEATED: Event.REPEATED,
    Rule.DISCARDED: Event.DISCARDED,
    Rule.NOT_FOR_US: Event.SKIPPED,
    Rule.TRANSFERRED: Event.TRANSFERRED,
    Rule.DEAD: Event.DEAD,
}


def event_of(rule: Rule) -> Event:
    """Event of the audit record for a message that ended in its lane by `rule`; MOVED for each rule without an event of
    its own, such as RETRYING.
    """
    return _EVENTS.get(rule, Event.MOVED)


class AuditBatch(PendingPublish):
    """Publish of one message with one or more records, repeated until the broker has stored it. `in_flight`: the
    messages to acknowledge after that; empty if they need not wait. `records`: number of records.
    """

    __slots__ = ("in_flight", "records")

    def __init__(self, message: Outgoing, in_flight: list[InFlight], records: int) -> None:
        super().__init__(message)
        self.in_flight, self.records = in_flight, records


class AuditRecorder:
    """Gathers and publishes the audit records of one run of a worker, numbered from 1; a number that stays missing
    shows a record that was given up or never stored. `run`: name of the run, set before the first record. `waiting`:
    number of messages that wait for the receipt of their record; 0 if messages need not wait. Calls need the engine's
    lock.
    """

    def __init__(
        self,
        context: EngineContext,
        to: AuditTo,
        clock: Clock,
        send: Callable[[AuditBatch, float], None],
        set_timer: Callable[[float, AuditRecorder], int],
    ) -> None:
        self.run = ""
        self.waiting = 0  # messages that wait for the receipt of their record
        self._to = to
        self._context, self._clock = context, clock
        self._send, self._set_timer = send, set_timer
        self._number = 0
        self._out = 0  # records without receipt, gathered ones not counted
        self._gathered: list[tuple[Any, ...]] = []  # the columns of each Record, in their order
        self._errors = 0  # characters of error texts in them
        self._unsent: list[InFlight] = []

    @property
    def busy(self) -> bool:
        """True if records are gathered, or published and not stored yet, as far as a receipt tells."""
        return bool(self._gathered) or self._out > 0

    def add(  # the columns of a record
        self,
        in_flight: InFlight,
        why: Rule,
        now: float,
        reason: str = "",
        sent: PendingReroute | None = None,
        token: object = "",
    ) -> bool:
        """Adds the audit record of a message that has ended in its lane. Returns True if the message may be
        acknowledged now. False: its stage is RECORDED now, and the caller acknowledges it when `on_stored` returns it.

        `why`: rule by which it ended; `now`: seconds of the monotonic clock; `reason`: text for the record; `sent`: the
        reroute that is stored, from which the record takes target and error text, None if the message was not published
        elsewhere; `token`: position of the stored copy, by its receipt; ignored without `sent`. Calls `flush` at once
        if 1,000 records are gathered, or records with 100,000 characters of error texts; else a timer does, 0.05 s
        later at most.
        """
        delivery, headers, wall = in_flight.delivery, in_flight.headers, self._clock.wall()
        stored_at = delivery.position
        given, origin = delivery.properties.get(names.ID), headers.origin_id
        identity = names.identity(given, origin, stored_at) if given or origin else stored_at
        if not self._gathered:
            self._set_timer(now + GATHER, self)
        self._number += 1
        self._gathered.append(
            (  # a plain tuple: as a Record it costs several times as much
                self.run,
                self._context.policy.subscription,
                self._number,
                wall,
                in_flight.lane.lane.topic,
                stored_at,
                identity,
                headers.hop,
                event_of(why),
                why,
                "" if sent is None else sent.message.topic,
                "" if sent is None else position(token),
                reason,
                in_flight.tenant,
                max(0, wall - (headers.origin_time or delivery.publish_time)),
                "" if sent is None else sent.error,
                round(in_flight.slot_time * 1000),
            )
        )
        self._errors += 0 if sent is None else len(sent.error)
        if self._to.wait:
            in_flight.enter(Stage.RECORDED)
            self.waiting += 1
            self._unsent.append(in_flight)
        if len(self._gathered) >= BUNDLE or self._errors >= MAX_ERRORS:
            self.flush(now)
        return not self._to.wait

    def flush(self, now: float) -> None:
        """Publishes the gathered audit records, if there are any, as one message. If messages need not wait for records
        and more than 100,000 would be without a receipt, gives the gathered ones up, with an alarm.
        """
        if not self._gathered:
            return
        records, self._gathered, self._errors = self._gathered, [], 0
        in_flight, self._unsent = self._unsent, []
        if not self._to.wait and self._out + len(records) > MAX_KEPT:
            self._context.counts.unrecorded += len(records)
            self._context.effects.alarm("audit", f"{self._to.topic} takes no records: {len(records)} are given up")
            return
        self._out += len(records)
        encoded = encode(records)
        message = Outgoing(self._to.topic, encoded.payload, encoded.properties, key=encoded.key)
        if (signer := self._context.policy.signer) is not None:
            message = sign_message(message, signer)
        self._send(AuditBatch(message, in_flight, len(records)), now)

    def on_stored(self, bundle: AuditBatch) -> list[InFlight]:
        """Counts the records of a batch that is stored. Returns the messages that waited for it and may be acknowledged
        now.
        """
        self._out -= bundle.records
        self._context.counts.recorded += bundle.records
        self.waiting -= len(bundle.in_flight)
        return bundle.in_flight
