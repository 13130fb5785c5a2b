"""Receive checks: the checks of a message before its handler, in order: recipient, integrity, due time, level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodo_consumer.core.checks.level_choice import choose_level
from kodo_consumer.core.values import soften_headers
from kodo_consumer.core.values.envelope import BrokenHeadersError, Delivery, Headers, State, meant_for, read_headers
from kodo_consumer.core.values.outcomes import CorruptHeaders, OtherSubscription, Outcome, TakenOverFromSoften, TooEarly
from kodoctl.protocol.properties import FOR
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.protocol.signing import Signer, is_unmarked, strip_platform_properties

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import InFlight
    from kodo_consumer.core.values.policy import Lane, Policy

UNSIGNED = "control properties without a valid signature"


def check_on_receipt(in_flight: InFlight, policy: Policy, wall: int) -> Outcome | None:
    """Reads the headers of a message, as far as they are trustworthy. Returns the outcome that ends the message here,
    or None. Broken headers on a ready topic mean a first delivery. `wall`: ms since the epoch.
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
    if broken:  # kept: it may wait, where there are no dead letters, and must not be handled then
        in_flight.delivery = in_flight.delivery._replace(broken=broken)
        return CorruptHeaders(broken)
    return None


def verify_headers(delivery: Delivery, lane: Lane, signer: Signer) -> tuple[Delivery, str]:
    """The message as far as it may be believed, and why it must not go on at all ("" when it may).

    On a ready topic whatever is not signed is stripped: the message is a first delivery. On a state topic only
    workers write, and they sign: anything else is quarantined, without what it claims.
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
    """Headers of the message, as far as they may be believed: anybody who may send to a ready topic may
    write anything, so there nothing counts that eases a limit or makes it wait unless a worker states that it moved
    it. Raises BrokenHeadersError.
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
    """True if a message that the Go library left here goes to the same lane again, where the broker
    keeps it until it is due.
    """
    lane = in_flight.lane.lane
    return _is_softens(in_flight, policy) and not lane.ordered and (lane.level, lane.state) in policy.targets


def check_before_queueing(in_flight: InFlight, policy: Policy, wall: int) -> Outcome | None:
    """Outcome that keeps the message from being queued; None: it may be queued. `wall`: ms since the epoch."""
    if in_flight.delivery.broken:
        return CorruptHeaders(in_flight.delivery.broken)
    due = in_flight.headers.due
    if due is not None and due > wall:  # asked only then: it is rare
        return TakenOverFromSoften(due) if _is_adopted(in_flight, policy) else TooEarly(due)
    return choose_level(in_flight, policy, wall)
