"""Intake of an inbox: received messages are stored, recorded where there are audit records, and acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.inbox.inbox_store import TenantOf, no_tenant
from kodoctl.protocol.audit_records import Event

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import Broker
    from kodo_consumer.core.values.envelope import Delivery
    from kodo_consumer.inbox.inbox_lane import InboxLane
    from kodo_consumer.inbox.inbox_records import InboxRecords
    from kodo_consumer.inbox.inbox_store import InboxStore


class InboxIntake:
    """Intake of one worker's inbox. `tenant_of`: returns the tenant of a message by its properties and key; `records`:
    None if messages need no audit records before they are acknowledged. `accept` is for one thread.
    """

    def __init__(self, store: InboxStore, tenant_of: TenantOf = no_tenant, records: InboxRecords | None = None) -> None:
        self.records = records
        self._store, self._tenant_of = store, tenant_of
        self._recorded: list[tuple[InboxLane, Sequence[Delivery]]] = []  # stored, until the receipts of their records

    def open(self, broker: Broker, run: str, ring: Callable[[], object]) -> None:
        """Opens the publisher of audit records, if there are any, as InboxRecords.open does. Raises ClusterError."""
        if self.records is not None:
            self.records.open(broker, run, ring)

    def close(self) -> None:
        """Closes the publisher of records."""
        if self.records is not None:
            self.records.close()

    def accept(self, lanes: Sequence[InboxLane], on_alarm: Callable[[Alarm], object]) -> bool:
        """Stores received messages of these lanes, at most one batch of each, and acknowledges them: at once, or with
        `records` in a later call, when the broker has stored their records. Until then it stores nothing more, and
        `on_alarm` gets an alarm each time that the broker has refused or not confirmed a record. Returns False if
        there was nothing to store, or if records are still to be stored. Raises SQLAlchemyError, perhaps after some
        lanes were served.
        """
        if self.records is not None and not self._settle(self.records, on_alarm):
            return False
        ends: list[tuple[str, Delivery, Event]] = []
        stored: list[tuple[InboxLane, Sequence[Delivery]]] = []
        for lane in lanes:
            if not (received := lane.first_received()):
                continue
            topic = lane.request.topic
            names = self._store.accept(topic, received, self._tenant_of, ordered=lane.is_ordered)
            stored.append((lane, received))
            if self.records is None:
                lane.on_stored(received)
            else:
                repeats = self._store.repeats(names)
                kinds = (Event.REPEATED if one.position in repeats else Event.STORED for one in received)
                ends += [(topic, one, kind) for one, kind in zip(received, kinds, strict=True)]
        if ends and self.records is not None:
            self._recorded = stored
            self.records.publish(ends)
        return bool(stored)

    def _settle(self, records: InboxRecords, on_alarm: Callable[[Alarm], object]) -> bool:
        """Acknowledges stored messages whose records have a receipt. Returns False if there are others."""
        if not records.is_settled:
            if reason := records.settle():
                text = f"the inbox acknowledges nothing: its audit records are not stored: {reason}"
                on_alarm(Alarm("audit", text))
            return False
        for lane, received in self._recorded:
            lane.on_stored(received)
        self._recorded = []
        return True
