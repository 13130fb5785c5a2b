"""What is asked of a message before its handler, in order: is it for us, is it whole, is it due, does a route take it."""

from __future__ import annotations

from consumer import soften
from consumer.engine.trust import believed
from consumer.envelope import BrokenControlError, Control, State, meant_for, read_control
from consumer.outcomes import Adopted, Broken, NotForUs, Outcome, Routed, TooEarly
from consumer.policy import Policy
from consumer.scheduling.held import Held


def on_arrival(held: Held, policy: Policy) -> Outcome | None:
    """Reads its control properties; what ends it here, if anything does. On a ready topic broken ones mean a first delivery."""
    broken = ""
    if policy.signer is not None:
        held.delivery, broken = believed(held.delivery, held.lane.lane, policy.signer)
    try:
        if policy.compat is not None and soften.speaks(held.delivery.properties):
            held.control = soften.read(held.delivery, held.lane.lane)
        else:
            held.control = read_control(held.delivery.properties)
    except BrokenControlError as problem:
        held.control = Control(meant_for=meant_for(held.delivery.properties))
        broken = broken or ("" if held.lane.lane.state is State.READY else f"broken control property {problem}")
    if held.control.meant_for is not None and held.control.meant_for != policy.subscription:
        return NotForUs()
    if broken:  # kept: it may wait, where there are no dead letters, and must not be handled then
        held.delivery = held.delivery._replace(broken=broken)
        return Broken(broken)
    return None


def before_its_turn(held: Held, policy: Policy, wall: int) -> Outcome | None:
    """What keeps it from being queued, if anything does. `wall`: ms since the epoch."""
    if held.delivery.broken:
        return Broken(held.delivery.broken)
    due = held.control.due
    if due is not None and due > wall:  # asked only then: it is rare
        if policy.compat is not None and not held.lane.lane.ordered and soften.speaks(held.delivery.properties):
            return Adopted(due)
        due = policy.believable(due, held.lane.lane, held.delivery.publish_time)
        if due > wall:
            return TooEarly(due)
    return _route(held, policy)


def _route(held: Held, policy: Policy) -> Routed | None:
    """The first route that matches, at the first receipt from a ready lane."""
    if not policy.routes or not held.control.first_receipt:
        return None
    to = policy.routed(held.lane.lane, held.delivery.properties)
    return None if to is None else Routed(to)
