"""Receive checks: the checks of a message before its handler, in order: recipient, integrity, due time, level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodo_consumer.core.checks.level_choice import choose_level
from kodo_consumer.core.values import soften_headers
from kodo_consumer.core.values.envelope import BrokenHeadersError, Delivery, Headers, State, meant_for, read_headers
from kodo_consumer.core.values.outcomes import (
    CorruptHeaders,
    Discarded,
    OtherSubscription,
    Outcome,
    TakenOverFromSoften,
    TooEarly,
)
from kodoctl.protocol.properties import FOR
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.protocol.signing import Signer, is_unmarked, strip_platform_properties

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import InFlight
    from kodo_consumer.core.values.policy import Lane, Policy

UNSIGNED = "control properties without a valid signature"


def check_on_receipt(in_flight: InFlight, policy: Policy, wall: int) -> Outcome | None:
    """Sets `headers` of the message to the part of its headers that may be believed; with a signer it also removes from
    `delivery` the platform's properties that may not. Returns the first of these that applies: OtherSubscription if the
    message is meant for another subscription or is a producer's mark; Discarded if a person discards it; CorruptHeaders
    if its headers are unsigned (with a signer) or broken, and then notes the reason in `delivery.broken`; None.

    On a ready topic unsigned or broken headers are dropped instead: the message counts as a first delivery, but broken
    headers still say which subscription it is meant for. A reason that `delivery.broken` had before is left to
    `check_before_queueing`. `wall`: ms since the epoch.
    """
    broken = ""
    if policy.signer is not None:
        in_flight.delivery, broken = verify_headers(in_flight.delivery, in_flight.lane.lane, policy.signer)
    try:
        in_flight.headers = _headers(in_flight, policy, wall)
    except BrokenHeadersError as problem:
        in_flight.headers = Headers(meant_for=meant_for(in_flight.delivery.properties))
        broken = broken or ("" if in_flight.lane.lane.state is State.READY else f"broken control property {problem}")
    if in_flight.headers.meant_for is not None and in_flight.headers.meant_for != policy.subscription:
        return OtherSubscription()
    if reason := getattr(in_flight.ack_token, "discarded", ""):
        return Discarded(reason)
    if broken:  # kept: it may wait, where there are no dead letters, and must not be handled then
        in_flight.delivery = in_flight.delivery._replace(broken=broken)
        return CorruptHeaders(broken)
    return None


def verify_headers(delivery: Delivery, lane: Lane, signer: Signer) -> tuple[Delivery, str]:
    """Returns the message with those properties that may be believed, and the reason why it must not be handled ("" if
    it may be).

    A message without a valid signature loses all properties of the platform but that of encryption. On a ready topic it
    counts as a first delivery then; a producer's mark stays a mark, which nobody handles. On a state topic only the
    platform writes, and signs: there such a message must not be handled.
    """
    ready = lane.state is State.READY
    properties = delivery.properties
    if (ready and is_unmarked(properties)) or signer.genuine(lane.topic, delivery.payload, properties):
        return delivery, ""
    kept = strip_platform_properties(properties)
    # A producer's mark: unsigned it proves nothing, and is no message either.
    if ready and properties.get(FOR) == NOBODY:
        kept[FOR] = NOBODY
    return delivery._replace(properties=kept), "" if ready else UNSIGNED


def _headers(in_flight: InFlight, policy: Policy, wall: int) -> Headers:
    """Returns the headers that may be believed. Anybody who may send to a ready topic may write any header there, so
    headers that ease a limit or delay the message count there only with a hop, by which a worker states that it moved
    the message. A due time is cut to the longest wait that is declared. Raises BrokenHeadersError.
    """
    delivery, lane = in_flight.delivery, in_flight.lane.lane
    softens = _is_softens(in_flight, policy)
    headers = soften_headers.read(delivery, lane) if softens else read_headers(delivery.properties)
    if not softens and lane.state is State.READY:
        headers = headers.unmoved_part
    if headers.due is None or _is_adopted(in_flight, policy):
        return headers
    if softens and not lane.ordered:  # of a lane that drains
        return headers.replace(due=min(headers.due, policy.latest(delivery.publish_time, wall)))
    return headers.replace(due=policy.believable(headers.due, lane, delivery.publish_time, wall))


def _is_softens(in_flight: InFlight, policy: Policy) -> bool:
    return policy.compat is not None and soften_headers.speaks(in_flight.delivery.properties)


def _is_adopted(in_flight: InFlight, policy: Policy) -> bool:
    """True if the broker is to keep a message of the Go library until it is due: it goes to the same lane again."""
    lane = in_flight.lane.lane
    return _is_softens(in_flight, policy) and not lane.ordered and (lane.level, lane.state) in policy.targets


def check_before_queueing(in_flight: InFlight, policy: Policy, wall: int) -> Outcome | None:
    """Returns the outcome that keeps the message out of the queue: CorruptHeaders if `delivery.broken` has a reason,
    TooEarly or TakenOverFromSoften before its due time, else that of `choose_level`, which also counts routes. None:
    queue it. `headers` must be set, as `check_on_receipt` does. `wall`: ms since the epoch.
    """
    if in_flight.delivery.broken:
        return CorruptHeaders(in_flight.delivery.broken)
    due = in_flight.headers.due
    if due is not None and due > wall:  # asked only then: it is rare
        return TakenOverFromSoften(due) if _is_adopted(in_flight, policy) else TooEarly(due)
    return choose_level(in_flight, policy, wall)
