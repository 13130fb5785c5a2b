"""Metrics of limits: the causes that delay handlers and messages, and the counters that prove that none was lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kodo_consumer.adapters.metrics.metric import LANE, Labels, Read, counter, gauge, of_lane, plain
from kodo_consumer.adapters.metrics.rest_reasons import slots_now
from kodo_consumer.core.limits.leased_limiters import LeasedCap, LeasedQuota, LeasedRate
from kodo_consumer.core.scheduling.circuit_breaker import BreakerState
from kodo_consumer.core.scheduling.slow_breakers import PHASES
from kodo_consumer.core.upkeep.override_state import paused_tenants
from kodoctl.protocol.overrides import OverrideKind

if TYPE_CHECKING:
    from kodo_consumer.adapters.metrics.worker_view import WorkerView
    from kodo_consumer.core.scheduling.bulkheads import BulkheadSlots
    from kodo_consumer.core.scheduling.slow_breakers import LaneBreaker


def _breaker(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    now = sight.engine.scheduler.throttle.breaker.state
    return (((phase.value,), float(phase is now)) for phase in BreakerState)


def _lane_breakers(read: Callable[[LaneBreaker], float]) -> Read:
    """`Read` of a figure of each lane's breaker of slow tenants. It has no value if the worker reserves no slots."""

    def values(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
        slots = sight.engine.scheduler.slots
        for breaker in slots.breakers.lanes if slots is not None else ():
            lane = breaker.lane.lane
            yield (lane.level.value, lane.state.value), read(breaker)

    return values


def _lane_phases(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    slots = sight.engine.scheduler.slots
    for breaker in slots.breakers.lanes if slots is not None else ():
        lane = breaker.lane.lane
        yield from ((((lane.level.value, lane.state.value, phase), float(phase == breaker.phase))) for phase in PHASES)


def _slow_seconds(breaker: LaneBreaker) -> float:
    return max(0.0, time.time() - breaker.noticed.since / 1000) if breaker.noticed is not None else 0.0


def _slow_running(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    slots = sight.engine.scheduler.slots
    running = list(slots.slow_running) if slots is not None else []
    found = Counter((message.lane.lane.level.value, message.lane.lane.state.value) for message in running)
    return ((place, float(found[place])) for place in ((lane.level.value, lane.state.value) for lane, _ in sight.lanes))


def _bulkheads(amount: Callable[[BulkheadSlots], int | None]) -> Read:
    """`Read` of an amount of each bulkhead, with the bulkhead's lanes as label. A bulkhead for which `amount` returns
    None has no value.
    """

    def read_groups(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
        found = [(group, amount(group)) for group in sight.engine.scheduler.bulkheads.groups]
        return (((str(group.declared.lanes),), float(value)) for group, value in found if value is not None)

    return read_groups


def _orders(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    orders = sight.worker.orders
    return (((what.value,), float(sum(order.what is what for order in orders))) for what in OverrideKind)


def _lease_outages(sight: WorkerView) -> float | None:
    """Number of times that requesting leases from the store began to fail; None if this worker requests no leases."""
    leases = sight.engine.scheduler.limits.leases
    return float(leases.failed) if leases is not None else None


def _leased_limits(sight: WorkerView) -> float | None:
    leases = sight.engine.scheduler.limits.leases
    return float(len(leases.active)) if leases is not None else None


def _lease_amounts(sight: WorkerView) -> Iterator[tuple[Labels, float]]:
    leases = sight.engine.scheduler.limits.leases
    limiters = list(leases.active) if leases is not None else []
    kinds = _KINDS if leases is not None else ()
    return (
        ((name,), float(sum(limiter.lease_size for limiter in limiters if isinstance(limiter, kind))))
        for name, kind in kinds
    )


def _numbers(name: str) -> Read:
    """`Read` of a count of missing or doubled numbers. It has a value only if this worker reads all messages: other
    workers cannot tell a lost message from one that a colleague received.
    """
    count = _count(name)
    return lambda sight: count(sight) if sight.reads_alone else ()


def _records(name: str) -> Read:
    count = _count(name)
    return lambda sight: count(sight) if sight.engine.flow.recorder is not None else ()


def _count(name: str) -> Read:
    return plain(lambda sight: float(getattr(sight.worker.counts, name)))


_KINDS: Final = (("rate", LeasedRate), ("quota", LeasedQuota), ("concurrency", LeasedCap))
RESTRAINTS: Final = (
    gauge("breaker", "1 for what the circuit breaker does: closed (nothing), open, probing, resuming.", ("phase",), _breaker),
    counter("breaker_opened", "Times the circuit breaker opened: no handler starts for a while.", (), _count("paused")),
    gauge("lane_breaker", "1 for what the breaker of a lane's slow tenants does: closed, noticed (closed, and they are slow), open, "
          "probing, resuming.", (*LANE, "phase"), _lane_phases),
    counter("lane_breaker_opened", "Times it opened: handlers of slow tenants of the lane fail, and none of theirs starts for a while.",
            LANE, _lane_breakers(lambda one: float(one.breaker.opened))),
    counter("lane_breaker_noticed", "Times it noticed slow tenants in the lane.", LANE,
            _lane_breakers(lambda one: float(one.notices))),
    gauge("lane_slow_tenants", "Tenants of the lane most of whose handlers are slow, by what it noticed.", LANE,
          _lane_breakers(lambda one: float(len(one.noticed.tenants) if one.noticed is not None else 0))),
    gauge("lane_slow_seconds", "For how long it has noticed them; 0 while it notices none.", LANE, _lane_breakers(_slow_seconds)),
    gauge("concurrency", "Handlers that may be at work at once just now, by adaptive concurrency and the breaker.", (),
          plain(lambda sight: slots_now(sight.worker))),
    gauge("slow_running", "Handlers at work of slow tenants: they take no slot that quick messages need.", LANE, _slow_running),
    gauge("headroom", "Slots that are kept just now for messages whose handlers are quick.", (),
          plain(lambda sight: float(sight.engine.scheduler.slots.headroom) if sight.engine.scheduler.slots else None)),
    gauge("bulkhead_running", "Handlers at work for the lanes of a bulkhead: a state, a level, or LEVEL/STATE.", ("lanes",),
          _bulkheads(lambda group: group.running)),
    gauge("bulkhead_max", "Slots that the lanes of a bulkhead may take just now, where it has a maximum.", ("lanes",),
          _bulkheads(lambda group: group.most)),
    gauge("bulkhead_min", "Slots that are kept just now for the lanes of a bulkhead.", ("lanes",),
          _bulkheads(lambda group: group.kept)),
    gauge("isolated_tenants", "Tenants that fill the look-ahead: what they have beyond their part is moved aside.", (),
          plain(lambda sight: float(len(sight.engine.isolation.tenants)))),
    counter("isolations", "Times a tenant was isolated; its moved messages are rerouted by the rule isolated.", (),
            _count("isolated")),
    gauge("leaving_messages", "Messages of isolated tenants that are about to be moved.", (),
          plain(lambda sight: float(len(sight.engine.isolation)))),
    gauge("limits_crowded", "Limits with too many values at a time: those for which there is no room share what is allowed to one.",
          (), plain(lambda sight: float(len(sight.engine.scheduler.limits.crowded_limits)))),
    gauge("limits_borrowed", "Limits, each value of a property on its own, of which this worker has or wants a part of the store.",
          (), plain(_leased_limits)),
    gauge("limits_lent", "Starts (rate, quota) and permits (concurrency) that the store has lent and that are not used yet or held.",
          ("kind",), _lease_amounts),
    counter("limits_borrowing_failed", "Times borrowing from the store began to fail: each worker then takes its part.", (),
            plain(_lease_outages)),
    gauge("orders", "Live orders in force: pauses, limits, weights.", ("what",), _orders),
    gauge("lane_steered", "1 while a lane rests because somebody ordered it.", LANE, of_lane(lambda lane_state: float(lane_state.paused_by_override))),
    gauge("paused_tenants", "Tenants that rest because somebody ordered it.", (),
          plain(lambda sight: float(len(paused_tenants(sight.worker.orders))))),
)  # fmt: skip
NUMBERS: Final = (
    counter("numbers_missing", "Messages that producers numbered and that never came: only where one worker reads all.", (),
            _numbers("missing")),
    counter("numbers_doubled", "Messages that came again under a number that was there: only where one worker reads all.", (),
            _numbers("duplicated")),
    counter("unsigned", "Messages whose control properties were not believed.", (), _count("unsigned")),
    counter("audit_records", "Audit records with a receipt.", (), _records("recorded")),
    counter("audit_records_given_up", "Audit records that were given up, where nobody waits for them.", (),
            _records("unrecorded")),
)  # fmt: skip
