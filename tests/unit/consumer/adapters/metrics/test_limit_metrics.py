"""Metrics of what fails and of what keeps messages back: causes, breakers, orders, isolation, limits, bulkheads."""

from __future__ import annotations

import json
import time

from kodo_consumer.core.limits.lease_client import LeasedLimiter
from kodo_consumer.core.scheduling.circuit_breaker import BreakerState
from kodo_consumer.core.scheduling.slow_breakers import SlowTenants
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.lane_set import Bulkhead, LaneSet
from kodo_consumer.core.values.lease_protocol import LeaseGrant, TokenRange
from kodo_consumer.core.values.limit_policy import Concurrency, Pace, Quota, Rate
from kodo_consumer.core.values.policy import AuditTo, ErrorTextPolicy, IsolationPolicy
from kodo_consumer.runtime.supervisor import summary

from kodoctl.protocol.overrides import Override, OverrideKind
from kodoctl.text.formatting import time_text
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import L1, L2, lane_of, policy
from tests.unit.consumer.watching import Watched, series, watched


def _phase(place: Watched) -> str:
    found = series(place.get("/metrics")[1], "kodo_consumer_breaker", {})
    return next(labels["phase"] for labels, value in found if value)


def test_what_failed_is_counted_by_cause_where_error_texts_are_kept() -> None:
    with watched(policy((L1,), in_place=(), states=(), error_text=ErrorTextPolicy(500, 500))) as place:
        for _ in range(3):
            place.send(b"fail", uid="u0")
        eventually(lambda: place.value("kodo_consumer_dead_causes_total", cause="ValueError") == 3)
        assert place.value("kodo_consumer_dead_causes_total", cause="other") == 0
        causes = place.worker.engine.context.causes
        causes.failed.update({f"cause {letter}": ord(letter) for letter in "abcdefghijklmnopqrstuvwxyz"})
        found = {
            labels["cause"]: value
            for labels, value in series(place.get("/metrics")[1], "kodo_consumer_failed_causes_total", {})
        }
        assert len(found) == 21
        assert "cause z" in found, "the most frequent ones have labels"
        assert sum(found.values()) == causes.failed.total()
    with watched(policy(in_place=())) as place:
        place.send(b"fail", uid="u0")
        eventually(lambda: place.value("kodo_consumer_failed_total"))
        assert place.value("kodo_consumer_failed_causes_total") is None, "nobody asked for error texts"
        assert place.worker.engine.context.causes.failed.total() == 0


def test_breakers_of_lanes_are_shown_with_what_they_noticed_of_slow_tenants() -> None:
    with watched(policy(levels=(L1,), in_place=(), fair_by="uid", concurrency=4)) as place:
        ready, retrying = ({"level": "L1", "state": state} for state in ("ready", "retrying"))
        slots = place.worker.engine.scheduler.slots
        assert slots is not None
        lane, other = slots.breakers.lanes[:2]
        assert place.value("kodo_consumer_lane_breaker", phase="closed", **ready) == 1
        assert place.value("kodo_consumer_lane_slow_seconds", **ready) == 0
        assert json.loads(place.get("/readyz")[1])["workers"][0]["slow"] == []
        since = int(time.time() * 1000) - 60_000
        lane.noticed = SlowTenants(tuple(f"u{number}" for number in range(30)), since, 3, 28)
        other.breaker.state, other.breaker.cause = BreakerState.OPEN, "bank is unavailable"
        lane.notices = other.breaker.opened = 2
        assert place.value("kodo_consumer_lane_breaker", phase="noticed", **ready) == 1
        assert place.value("kodo_consumer_lane_breaker", phase="open", **retrying) == 1
        assert place.value("kodo_consumer_lane_breaker_noticed_total", **ready) == 2
        assert place.value("kodo_consumer_lane_breaker_opened_total", **retrying) == 2
        assert place.value("kodo_consumer_lane_slow_tenants", **ready) == 30
        assert 60 <= (place.value("kodo_consumer_lane_slow_seconds", **ready) or 0) < 90
        noticed, opened = json.loads(place.get("/readyz")[1])["workers"][0]["slow"]
        assert noticed["tenants"] == [f"u{number}" for number in range(20)]
        assert {**noticed, "tenants": []} == {
            "lane": "L1/ready", "phase": "noticed", "since": time_text(since, seconds=True), "slow_tenants": 30,
            "tenants": [], "running": 3, "waiting_tenants": 28, "cause": "",
        }  # fmt: skip
        assert (opened["lane"], opened["phase"], opened["since"]) == ("L1/retrying", "open", None)
        assert opened["cause"] == "bank is unavailable"
        assert summary(place.worker)[-1] == (
            "breaker of slow tenants: L1/ready noticed 2, opened 0; L1/retrying noticed 0, opened 2"
        )


def test_the_breaker_and_what_it_leaves_of_the_slots_are_shown() -> None:
    with watched(policy(in_place=(), fair_by="uid", concurrency=4)) as place:
        assert _phase(place) == "closed"
        assert place.value("kodo_consumer_concurrency") == 4
        breaker = place.worker.engine.scheduler.throttle.breaker
        for state, may_run in ((BreakerState.OPEN, 0), (BreakerState.PROBING, 3), (BreakerState.RESUMING, 2)):
            breaker.state, breaker.starts = state, 2
            assert _phase(place) == state.value
            assert place.value("kodo_consumer_concurrency") == may_run
        breaker.state = BreakerState.CLOSED
    with watched(policy(levels=(L1,), states=(), adaptive=True, concurrency=100)) as place:
        assert place.value("kodo_consumer_concurrency") == 8, "it begins with few"


def test_live_orders_are_shown_with_what_rests_because_of_them() -> None:
    with watched(policy(in_place=(), fair_by="uid")) as place:
        assert place.value("kodo_consumer_orders") == 0
        until = int(time.time() * 1000) + 60_000
        pause = [
            Override(OverrideKind.PAUSE, 0, until, "me", lane="L1/retrying"),
            Override(OverrideKind.PAUSE, 0, until, "me", tenant="u1"),
        ]
        place.worker.set_overrides((*pause, Override(OverrideKind.WEIGHT, 0, until, "me", tenant="u2", to="3")))
        assert place.value("kodo_consumer_orders", what="pause") == 2
        assert place.value("kodo_consumer_orders", what="weight") == 1
        assert place.value("kodo_consumer_lane_steered", level="L1", state="retrying") == 1
        assert place.value("kodo_consumer_lane_steered", level="L1", state="ready") == 0
        assert place.value("kodo_consumer_paused_tenants") == 1


def test_a_tenant_that_is_isolated_is_seen() -> None:
    of = policy(levels=(L1,), fair_by="uid", isolate=IsolationPolicy(0.25, 10, "pending"))
    with watched(of) as place:
        engine = place.worker.engine
        engine.isolation._begin("noisy", 1.0, time.monotonic())
        assert place.value("kodo_consumer_isolated_tenants") == 1
        assert place.value("kodo_consumer_isolations_total") == 1
        assert place.value("kodo_consumer_leaving_messages") == 0


def test_what_is_borrowed_of_a_store_is_shown_only_where_something_is() -> None:
    with watched(policy(levels=(L1,))) as place:
        assert place.value("kodo_consumer_limits_borrowed") is None
        assert place.value("kodo_consumer_limits_borrowing_failed_total") is None
        leases = place.worker.engine.scheduler.limits.use_leases(lambda: None)
        leases.fall_back(0.0)
        assert place.value("kodo_consumer_limits_borrowed") == 0
        assert place.value("kodo_consumer_limits_borrowing_failed_total") == 1


def test_how_much_of_limits_is_borrowed_is_told_by_their_kind() -> None:
    rate, quota, cap = (
        Rate(None, Pace(10, 1_000, 20), shared=True),
        Quota(None, 6, 60_000, shared=True),
        Concurrency(None, 4, shared=True),
    )
    with watched(policy(levels=(L1,), limits=(rate, quota, cap))) as place:
        assert place.value("kodo_consumer_limits_lent", kind="rate") is None
        limits = place.worker.engine.scheduler.limits
        limits.use_leases(lambda: None)
        grant = LeaseGrant("", (TokenRange(1.0, 3, 0.0, 1e9, 0.1),), permits=2, fair=4)
        for limiter in limits.limiters_of({}, ""):
            assert isinstance(limiter, LeasedLimiter)
            limiter.on_wait(0.0)
            assert limiter.lease_size == 0
            limiter.accept(grant, 0.0, 0.0)
        found = {kind: place.value("kodo_consumer_limits_lent", kind=kind) for kind in ("rate", "quota", "concurrency")}
        assert found == {"rate": 3, "quota": 3, "concurrency": 2}


def test_bulkheads_are_told_by_the_lanes_they_are_about() -> None:
    retrying, of_l2 = LaneSet((State.RETRYING,)), LaneSet((State.RETRYING,), (L2,))
    slots = (Bulkhead(retrying, 8), Bulkhead(of_l2, None, 2))
    with watched(policy(levels=(L2, L1), concurrency=16, bulkheads=slots)) as place:
        bulkheads = place.worker.engine.scheduler.bulkheads
        lane = lane_of(place.worker.policy, L2, State.RETRYING)
        bulkheads.on_start(lane)
        names = ("running", "max", "min")
        found = {
            lanes: [place.value(f"kodo_consumer_bulkhead_{name}", lanes=lanes) for name in names]
            for lanes in ("retrying", "L2/retrying")
        }
        assert found == {"retrying": [1, 8, 0], "L2/retrying": [1, None, 2]}
        bulkheads.on_end(lane)
    with watched(policy(levels=(L1,))) as place:
        assert place.value("kodo_consumer_bulkhead_running", lanes="retrying") is None


def test_numbers_are_told_only_by_who_reads_all_and_records_only_where_there_are_any() -> None:
    with watched(policy(levels=(L1,), states=())) as place:
        assert place.value("kodo_consumer_numbers_missing_total") is None
        assert place.value("kodo_consumer_audit_records_total") is None
        assert place.value("kodo_consumer_unsigned_total") == 0
    with watched(policy(levels=(L1,), states=(), subscription_type="exclusive")) as place:
        counts, sole = place.worker.counts, place.worker.engine.gap_monitor
        assert sole is not None
        sole.gaps.lost, sole.gaps.doubled = counts.missing, counts.duplicated = 2, 3
        assert place.value("kodo_consumer_numbers_missing_total") == 2
        assert place.value("kodo_consumer_numbers_doubled_total") == 3
    with watched(policy(levels=(L1,), states=(), audit=AuditTo("persistent://p/n/t-AUDIT", wait=False))) as place:
        place.send()
        eventually(lambda: place.value("kodo_consumer_audit_records_total") == 1)
        assert place.value("kodo_consumer_audit_records_given_up_total") == 0
