"""Stored messages of a source in one partition, as their own properties name them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kodo_consumer.source.commit_proof import Span, read_span
from kodo_consumer.source.positions import Position, read_position
from kodoctl.protocol.properties import COVERED, ID, ORIGIN_ID
from kodoctl.pulsar.binary.message_reader import Unread, read_all, read_facts

if TYPE_CHECKING:
    from kodoctl.pulsar.session import Session

_SKEW_MS: Final = 300_000  # that clocks of the database and of senders may differ


def id_prefix(slot: str, system: str) -> str:
    """Text with which the `kodo-id` of each message of a source begins; the position of the change follows. `system`:
    identifier of the database server.
    """
    return f"{slot}:{system}:"


def stored_since(session: Session, partition: str, prefix: str, time_ms: int) -> Iterator[Position | Span]:
    """Yields the positions of messages that were sent for commits from `time_ms` (ms since the epoch) on, and the spans
    of marks. Copies that a worker moved or a recall sent are left out. Raises ClusterError.
    """
    unread = Unread(session.admin, session.client)
    facts = read_facts(session.admin, partition)
    for message in read_all(session.client, facts, unread, since=max(0, time_ms - _SKEW_MS)):
        given = message.properties.get(ID, "")
        if ORIGIN_ID not in message.properties and given.startswith(prefix):
            if (position := read_position(given.removeprefix(prefix))) is not None:
                yield position
        elif (span := read_span(message.properties.get(COVERED, ""))) is not None:
            yield span
    unread.check()
