"""Signature checks: the control properties of a message that may be believed, where control properties are signed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodo_consumer.core.envelope import Delivery, State
from kodoctl.protocol.properties import FOR
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.protocol.signing import Signer, stripped, unmarked

if TYPE_CHECKING:
    from kodo_consumer.core.policy import Lane

UNSIGNED = "control properties without a valid signature"


def verify_headers(delivery: Delivery, lane: Lane, signer: Signer) -> tuple[Delivery, str]:
    """The message as far as it may be believed, and why it must not go on at all ("" when it may).

    On a ready topic whatever is not signed is stripped: the message is a first delivery. On a state topic only
    workers write, and they sign: anything else is quarantined, without what it claims.
    """
    ready = lane.state is State.READY
    properties = delivery.properties
    if (ready and unmarked(properties)) or signer.genuine(lane.topic, delivery.payload, properties):
        return delivery, ""
    kept = stripped(properties)
    # A producer's mark: unsigned it proves nothing, and is no message either.
    if ready and properties.get(FOR) == NOBODY:
        kept[FOR] = NOBODY
    return delivery._replace(properties=kept), "" if ready else UNSIGNED
