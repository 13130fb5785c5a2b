"""The cluster as a recall needs it: read, hold, send. The only file of this room that reaches the binary port."""

from __future__ import annotations

from collections.abc import Iterator

from kodoctl.errors import KodoctlError
from kodoctl.pulsar.control import read_control
from kodoctl.pulsar.letters import Holder, LaneSender
from kodoctl.pulsar.messages import PartitionFacts, Place, Stored, read_facts, read_stored
from kodoctl.pulsar.session import Session
from kodoctl.recall.letter import Letter, Position, tenant_of


class Cluster:
    """Over one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def identity(self, tenant: str) -> str | None:
        """The UUID that kodoctl's first apply left in a Pulsar tenant; None: none, or not for this role to see."""
        try:
            return read_control(self._session.admin, tenant).uuid
        except KodoctlError:
            return None

    def facts(self, part: str) -> PartitionFacts:
        """See read_facts."""
        return read_facts(self._session.admin, part)

    def read(self, part: str, until: Place, after: Place | None = None) -> Iterator[Stored]:
        """See read_stored."""
        return read_stored(self._session.client, part, until, after=after)

    def hold(self, part: str, subscription: str) -> Holder:
        """See Holder."""
        return Holder(self._session.client, part, subscription)

    def lane(self, part: str, name: str) -> LaneSender:
        """See LaneSender."""
        return LaneSender(self._session.client, part, name)


def letter_of(stored: Stored, topic: str, fair_by: str | None) -> Letter:
    """A stored message as conditions see it; `topic` without partition."""
    return Letter(
        topic,
        Position(stored.partition, stored.ledger, stored.entry, stored.batch),
        stored.payload,
        stored.properties,
        stored.key,
        stored.ordering_key,
        stored.event_time,
        stored.publish_time,
        tenant_of(fair_by, stored.properties, stored.key),
        stored.broken,
    )
