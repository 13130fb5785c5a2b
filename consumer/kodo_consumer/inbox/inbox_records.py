"""Audit records of messages that the inbox has stored. A message is acknowledged only after the receipt of its record,
so the audit knows of each acknowledged message that it is in the inbox, until a record says how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.engine.audit_recorder import BUNDLE
from kodo_consumer.core.values.broker import Confirmed
from kodo_consumer.core.values.envelope import Outgoing, sign_message
from kodoctl.protocol.audit_records import Record, encode

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import Broker, Publisher, Receipt
    from kodo_consumer.core.values.clock import Clock
    from kodo_consumer.core.values.envelope import Delivery
    from kodo_consumer.core.values.policy import Policy
    from kodoctl.protocol.audit_records import Event

RUN: Final = "-inbox"  # ends the name of the run of the inbox's own records
_PAUSE: Final = 1.0  # seconds before records that were not stored are published again
_SILENCE: Final = 75.0  # seconds after which records without any receipt are published by a new connection


class InboxRecords:
    """Audit records of one worker's inbox, numbered from 1 without a gap, because the caller publishes more only when
    all earlier records are stored. `on_receipts` may be called on any thread, the other methods one at a time.
    """

    def __init__(self, policy: Policy, clock: Clock) -> None:
        assert policy.audit is not None
        self._run = ""
        self._to, self._policy, self._clock = policy.audit.topic, policy, clock
        self._publisher: Publisher | None = None
        self._lock = Lock()
        self._number = 0
        self._out: dict[int, Outgoing] = {}  # by ticket, without a receipt
        self._tickets = 0
        self._again_at = float("inf")
        self._refusal = ""

    @property
    def is_settled(self) -> bool:
        """True if all published records are stored."""
        return not self._out

    def open(self, broker: Broker, run: str, ring: Callable[[], object]) -> None:
        """Opens the publisher. Records name `run`, with `-inbox` behind it, as their run. `ring` is called, on any
        thread, when receipts have come. Raises ClusterError.
        """
        self._run = run + RUN

        def on_receipts(receipts: Sequence[tuple[int, Receipt]]) -> None:
            self.on_receipts(receipts)
            ring()

        self._publisher = broker.publisher([self._to], on_receipts)

    def close(self) -> None:
        """Closes the publisher, if it is open."""
        if self._publisher is not None:
            self._publisher.close()

    def publish(self, ends: Sequence[tuple[str, Delivery, Event]]) -> None:
        """Publishes a record for each of `ends`: (topic, message, event of the record). Returns at once; `is_settled`
        says when all are stored. To be called after `open`, and only while all earlier records are stored: it gives up
        the others.
        """
        wall, records = self._clock.wall(), list[Record]()
        for topic, one, event in ends:
            self._number += 1
            tenant, age = self._policy.tenant(one.properties, one.key), max(0, wall - one.publish_time)
            records.append(
                Record(  # no identity but the position: a worker with signing keys may not believe another one
                    self._run, self._policy.subscription, self._number, wall, topic, one.position, one.position, 0,
                    event, event.value, tenant=tenant, age=age,
                )
            )  # fmt: skip
        encoded = [encode(records[first : first + BUNDLE]) for first in range(0, len(records), BUNDLE)]
        self._send([Outgoing(self._to, one.payload, one.properties, key=one.key) for one in encoded])

    def on_receipts(self, receipts: Sequence[tuple[int, Receipt]]) -> None:
        """Takes receipts by their tickets, and ignores unknown tickets. Records that the broker has refused or not
        confirmed are published again by `settle`. Any thread.
        """
        with self._lock:
            for ticket, receipt in receipts:
                if isinstance(receipt, Confirmed):
                    self._out.pop(ticket, None)
                elif ticket in self._out:
                    self._refusal = receipt.reason
                    self._again_at = min(self._again_at, self._clock.now() + _PAUSE)

    def settle(self) -> str:
        """Publishes all records that are not stored again, if the broker has refused or not confirmed some of them 1 s
        ago or earlier; or, 75 s after they were published last, by a new connection. Returns the reason of the broker;
        "" if it gave none, or if it is too early and nothing is done. To be called while records are not stored.
        """
        with self._lock:
            reason, waiting = self._refusal, list(self._out.values())
            if self._clock.now() < self._again_at:
                return ""
            self._refusal = ""
        if waiting:
            assert self._publisher is not None
            if not reason:
                self._publisher.renew()
            self._send(waiting)
        return reason

    def _send(self, messages: Sequence[Outgoing]) -> None:
        assert self._publisher is not None
        signer = self._policy.signer
        signed = messages if signer is None else [sign_message(one, signer) for one in messages]
        with self._lock:
            self._out = {self._tickets + place: one for place, one in enumerate(signed)}
            self._tickets += len(signed)
            self._again_at = self._clock.now() + _SILENCE
            sent = list(self._out.items())
        self._publisher.publish(sent)
