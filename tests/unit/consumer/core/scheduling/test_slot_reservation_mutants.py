"""Faults put into the law of slots: each breaks a promise that the tests of the law look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kodo_consumer.core.scheduling import quick_load, slot_reservation
from kodo_consumer.core.scheduling.quick_load import QuickBacklog, QuickLoad
from kodo_consumer.core.scheduling.slot_reservation import SlotReservation
from kodo_consumer.core.state.fairness import StartTimeFairQueue
from kodo_consumer.core.state.tenant_ring import DeficitRoundRobin
from kodo_consumer.core.values.envelope import Level, State

from benchmarks.consumer.outage import Case, outage
from tests.native.compiled import INTERPRETED_ONLY
from tests.unit.consumer.core.scheduling import test_slot_reservation as law

RETRYING = (Level.L1, State.RETRYING)
Promise = Callable[[], None]


def _outage(customers: int = 50, place: tuple[Level, State] = RETRYING, **changes: Any) -> Promise:
    def check() -> None:
        found = outage(Case(customers, place, 5.0, **changes), 15.0)
        assert found.started == found.sent
        assert found.p99 <= 0.05
        assert found.slow_slots >= 0.85 * law.FAIR, "a part of a second of fifteen goes by until they are known"

    return check


MUTANTS: dict[str, tuple[Any, str, Any, Promise]] = {
    "no head-room": (SlotReservation, "_headroom_needed", lambda _self: 0, _outage()),
    "head-room of every slot": (SlotReservation, "_headroom_needed", lambda self: self.total - 1, _outage()),
    "head-room of one slot whatever the load": (QuickLoad, "slots_needed", lambda _self, _total: 1, _outage()),
    "a load that is never measured": (QuickLoad, "on_end", lambda _self, _lasted: None, _outage()),
    "ten times the slots needed": (quick_load, "_WAIT", 0.001, _outage()),
    "slow ones never barred": (SlotReservation, "_may_start_slow", lambda *_, **__: True, _outage()),
    "newcomers never barred": (SlotReservation, "_may_start_newcomer", lambda *_: True, _outage()),
    "no share while quick ones wait": (
        SlotReservation,
        "_fair_share",
        lambda self, _passing_over: float(self.total),
        lambda: law.test_a_slow_lane_and_a_quick_one_that_both_flood_share_the_slots_by_weight((100, 5, 5, 5), 0.8),
    ),
    "no share where both flood": (
        quick_load,
        "_BACKLOG",
        1e9,
        lambda: law.test_a_slow_lane_and_a_quick_one_that_both_flood_share_the_slots_by_weight((20, 80, 15, 5), 12.8),
    ),
    "a share of the moment": (
        QuickBacklog,
        "most_for_slow",
        lambda _self, share, _headroom, total, _now: min(share, total - 1),
        law.test_a_share_goes_before_the_head_room_when_a_backlog_lasts_and_is_the_least_there_was,
    ),
    "a share that goes before the head-room at once": (
        quick_load,
        "_LASTING",
        0.0,
        law.test_a_share_goes_before_the_head_room_when_a_backlog_lasts_and_is_the_least_there_was,
    ),
    "a share that never goes before the head-room": (
        quick_load,
        "_LASTING",
        1e9,
        lambda: law.test_a_slow_lane_and_a_quick_one_that_both_flood_share_the_slots_by_weight((20, 80, 15, 5), 12.8),
    ),
    "nobody becomes slow": (
        SlotReservation,
        "_becomes_slow",
        lambda *_, **__: None,
        law.test_a_tenant_that_was_quick_and_becomes_slow_leaves_the_others_their_slots,
    ),
    "nobody recovers": (
        SlotReservation,
        "_on_quick_end",
        lambda *_: None,
        law.test_a_tenant_that_recovers_is_quick_again_within_seconds,
    ),
    "one quick end is enough": (
        slot_reservation,
        "_DOUBT",
        1,
        law.test_relapses_are_forgotten_in_time,
    ),
    "tenants share starts": (
        DeficitRoundRobin,
        "charge",
        lambda *_: None,
        law.test_slow_tenants_share_slot_time_and_not_starts,
    ),
    "lanes share starts": (
        StartTimeFairQueue,
        "charge_time",
        lambda *_: None,
        law.test_slow_lanes_share_slot_time_by_weight,
    ),
    "a reserve for nobody": (
        slot_reservation,
        "_MINUTE",
        1e9,
        law.test_a_slow_tenant_that_is_alone_for_a_minute_gets_every_slot,
    ),
    "no reserve after a second": (
        slot_reservation,
        "_MINUTE",
        1.0,
        law.test_a_slow_tenant_that_is_alone_for_a_minute_gets_every_slot,
    ),
}


def test_the_outage_keeps_its_promise_without_a_fault() -> None:
    """The other promises are tests of their own: those of test_slot_reservation."""
    _outage()()


@INTERPRETED_ONLY
@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_in_the_law_of_slots_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, what, mutant, promise = MUTANTS[name]
    monkeypatch.setattr(where, what, mutant)
    with pytest.raises(AssertionError):
        promise()
