"""Simulation with several workers and state lanes: nothing is lost or handled twice, slot time is shared as declared, outages."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.policy_builder import policy_of
from kodo_consumer.simulation.simulated_worker import worker_policies
from kodo_consumer.simulation.simulation import SimulatedArrival, SimulatedOutage, Simulation
from kodo_consumer.simulation.simulator import STATES, run_rows

from kodoctl.topology.load import load_set, source_of
from tests.samples.profiles import examples
from tests.unit.consumer.replays import FILE, asked, of, sent

SHARED = FILE.replace(
    "concurrency: 1", "concurrency: 16\n        in_place: []\n        backup: {delays: [10s], attempts: 2}"
)
QUICK = 0.01


class Watched(Simulation):
    """Counts how often each message was done, and how many runs of each tenant there were at once."""

    def __init__(self, *given, **more):
        self.done = Counter()
        self.runs = []
        self.at_once = Counter()
        self.most = Counter()
        super().__init__(*given, **more)

    def on_start(self, message):
        seconds, outcome = super().on_start(message)
        self.runs.append((self._clock.now(), message.tenant, message._lane.name))
        self.at_once[message.tenant] += 1
        self.most[message.tenant] = max(self.most[message.tenant], self.at_once[message.tenant])
        return seconds, outcome

    def on_end(self, message, outcome):
        super().on_end(message, outcome)
        self.at_once[message.tenant] -= 1
        self.done[message.data.arrival] += outcome is DONE


def policies(text, workers=1, slots=None):
    topology = load_set([source_of(text.encode(), "t.yaml")], None).topologies[0]
    return worker_policies(policy_of(topology, "orders", "billing"), workers, slots)


def arrival(at, tenant="u1", outcomes="", level="L1", **more):
    return SimulatedArrival(at, level, "", {"uid": tenant}, 100, tenant, outcomes, **more)


def in_order(*arrivals):
    return sorted(arrivals, key=lambda one: one.at)


def seconds(arrivals, **states):
    return {one.tenant: dict.fromkeys(STATES, QUICK) | states for one in arrivals}


def outage(tenants, state="retrying", *, lasts=8.0, since=0.0, until=1e9, done=True):
    return SimulatedOutage(frozenset(tenants), state, lasts, since, until, done)


def traffic(tenants, each_second, until, seed=1):
    """Arrivals of these tenants, as independent customers send."""
    rng, at, made = Random(seed), 0.0, []
    while (at := at + rng.expovariate(each_second)) < until:
        made.append(arrival(at, rng.choice(tenants)))
    return made


def rows(replay):
    return {(row["state"], row["class"]): row for row in run_rows(replay.groups)}


# ---- the table of the issue


def ready_waits(text, customers, slots, *, until=60.0):
    """Waits of ready messages (ms), 100 a second of 50 customers, while messages of so many others hang in RETRYING for 8 s."""
    slow = [f"slow{number}" for number in range(customers)]
    arrivals = traffic([f"quick{number}" for number in range(50)], 100, until)
    arrivals = in_order(*arrivals, *(arrival(at, one) for one in slow for at in (5.0, 5.1, 5.2, 5.3)))
    replay = Simulation(policies(text, 1, slots), arrivals, seconds(arrivals), [outage(slow, until=until)])
    replay.run()
    waits = sorted(replay.groups["ready", False].waits)
    return [1000 * waits[int(share * len(waits))] for share in (0.5, 0.99)]


@pytest.mark.simulated
@pytest.mark.parametrize("customers", [1, 5, 20, 60])
def test_ready_messages_find_a_slot_while_retries_of_many_customers_hang(customers):
    half, most = ready_waits(SHARED, customers, 16)
    assert half == 0
    assert most <= 50, "a place is free within 50 ms for 99 of 100"


@pytest.mark.simulated
def test_an_outage_that_the_file_cannot_stand_is_visible():
    half, most = ready_waits(SHARED, 60, 1, until=30.0)
    assert half > 1_000
    assert most > 8_000, "one slot: they wait for whole handlers"


def test_who_hangs_counts_as_slow_and_gets_the_slots_that_the_others_leave():
    slow = [f"slow{number}" for number in range(60)]
    arrivals = in_order(*traffic(["a", "b"], 50, 40.0), *(arrival(5.0, one) for one in slow * 4))
    replay = Simulation(policies(SHARED), arrivals, seconds(arrivals), [outage(slow, until=40.0)])
    replay.run()
    hanging = rows(replay)["retrying", "slow"]
    assert hanging["wait_ms"]["p50"] > 8_000
    assert rows(replay)["ready", "quick"]["runs"] == len(arrivals) - 240


# ---- nothing is lost, nothing is handled twice

outcomes = st.text("fpb", max_size=4).flatmap(lambda head: st.sampled_from(["", "d", "k"]).map(lambda end: head + end))


@pytest.mark.simulated
@examples(25)
@given(
    messages=st.lists(st.tuples(st.floats(0, 30), st.integers(0, 5), outcomes), min_size=1, max_size=60),
    workers=st.integers(1, 4),
    kind=st.sampled_from(["shared", "key_shared", "failover"]),
    hangs=st.sampled_from([None, "ready", "retrying", "pending", "backup"]),
)
def test_every_message_ends_once_whatever_the_workers_do(messages, workers, kind, hangs):
    text = SHARED.replace("billing:\n", f"billing:\n        type: {kind}\n").replace(
        "concurrency: 16", "concurrency: 3"
    )
    arrivals = in_order(*(arrival(at, f"u{tenant}", letters) for at, tenant, letters in messages))
    outages = [] if hangs is None else [outage(["u1", "u2"], hangs, until=20.0, done=False)]
    replay = Watched(policies(text, workers), arrivals, seconds(arrivals, retrying=0.5), outages)
    for number, result in enumerate(replay.run()):
        assert (result.done is not None) + result.dead == 1, "done or dead, and not both"
        assert replay.done[number] == (result.done is not None), "done once"
        assert result.wait is not None
    assert not +replay.at_once
    assert not any(one.worker.engine.check_invariants() for one in replay._workers)


def test_workers_share_the_lanes_and_each_has_its_slots():
    arrivals = [arrival(0.0, f"u{number}") for number in range(80)]
    replay = Watched(policies(SHARED.replace("concurrency: 16", "concurrency: 4"), 5), arrivals, seconds(arrivals))
    replay.run()
    assert {one.worker.counts.done for one in replay._workers} == {16}, "in turns"
    at = Counter(moment for moment, *_ in replay.runs)
    assert max(at.values()) <= 20


def test_what_waits_in_the_queue_of_a_worker_is_handled_by_no_other():
    text = SHARED.replace("concurrency: 16", "concurrency: 1, lookahead: {messages: 1000}").replace(
        "concurrency: 1, ", "concurrency: 1\n        "
    )
    slow = [arrival(0.0, "slow") for _ in range(2)]
    arrivals = in_order(*slow, *(arrival(0.1, f"u{number}") for number in range(40)))
    replay = Watched(policies(text, 2), arrivals, seconds(arrivals) | {"slow": dict.fromkeys(STATES, 20.0)})
    assert all(result.done is not None for result in replay.run())


# ---- slot time is shared as declared


def test_levels_share_slot_time_by_their_weights():
    text = SHARED.replace("concurrency: 16", "concurrency: 4")
    arrivals = [arrival(0.0, f"u{number % 40}", level="L2" if number % 2 else "L1") for number in range(4_000)]
    times = {one.tenant: dict.fromkeys(STATES, 0.05 if int(one.tenant[1:]) % 2 else 0.2) for one in arrivals}
    replay = Watched(policies(text, 2), arrivals, times)
    replay.run()
    lanes = {lane.name: lane.share for lane in replay.policy.lanes if lane.name in ("L1/ready", "L2/ready")}
    spent: Any = Counter()  # seconds
    for moment, tenant, lane in replay.runs:
        if moment < 20.0:  # while both wait
            spent[lane] += times[tenant]["ready"]
    share = lanes["L2/ready"] / sum(lanes.values())
    assert spent["L2/ready"] / spent.total() == pytest.approx(share, abs=0.05)


# ---- states


def test_runs_go_through_the_states_as_recorded_and_take_what_is_recorded_there():
    arrivals = [arrival(0.0, "u1", "fpbd"), arrival(0.0, "u2", "k")]
    replay = Watched(policies(SHARED), arrivals, seconds(arrivals, retrying=2.0, pending=3.0, blocking=4.0))
    first, second = replay.run()
    assert [lane for _, tenant, lane in replay.runs if tenant == "u1"] == [
        "L1/ready",
        "L1/retrying",
        "L1/pending",
        "L1/blocking",
    ]
    assert (first.done or 0) > 9
    assert (second.done, second.dead) == (None, True)
    assert {lane for _, tenant, lane in replay.runs if tenant == "u2"} == {"L1/ready", "L1/retrying", "B1/ready"}
    assert rows(replay)["pending", "quick"]["slot_ms"] == 3_000
    assert rows(replay)["blocking", "quick"]["runs"] == 1


def test_a_message_that_waited_goes_on_where_it_was():
    at = {"state": "retrying", "due": 10.0, "attempts": [1, 1, 0, 0, 0]}
    arrivals = [arrival(0.0, "u1", "d", **at), arrival(0.0, "u2", level="B1", due=-5.0, attempts=[3, 2, 0, 0, 1])]
    replay = Watched(policies(SHARED), arrivals, seconds(arrivals))
    waited, late = replay.run()
    assert waited.done == pytest.approx(10.01, abs=0.002)
    assert late.done == pytest.approx(0.01, abs=0.002)
    assert {tenant: lane for _, tenant, lane in replay.runs} == {"u1": "L1/retrying", "u2": "B1/ready"}
    assert rows(replay)["retrying", "quick"]["wait_ms"]["p50"] <= 1


def test_messages_that_waited_are_not_among_the_arrivals():
    line, _ = sent(0, "u9")
    found = asked(SHARED, [sent(1), ([*line, "retrying", 2.0, [1, 1, 0, 0, 0]], 0.1)])
    assert (found["all"]["messages"], found["waiting"]) == (1, {"messages": 1, "done": 1, "dead": 0})
    assert [row["state"] for row in found["states"]] == ["ready", "retrying"]


# ---- outages


def asked_outage(text, state, *, seconds=8, **more):
    given = {"tenants": ["u1"], "state": state, "seconds": seconds, "since": 0, "until": 60, "done": False} | more
    return asked(text, [sent(0), sent(1, "u2")], outages=[given])


@pytest.mark.parametrize("state", STATES)
def test_an_outage_is_of_one_state_and_of_the_tenants_named(state):
    found = asked_outage(SHARED, state, done=True)
    assert of(found, "u1")["latency_ms"]["p50"] == pytest.approx(8_000, abs=2)
    assert of(found, "u2")["latency_ms"]["p50"] == pytest.approx(100, abs=2)
    assert {row["state"] for row in found["states"]} == {"ready", state}


def test_an_outage_begins_and_ends_and_then_all_is_well():
    found = asked_outage(SHARED, "ready", until=0.5)
    assert found["moved"] == {"retrying": 1}
    assert of(found, "u1")["done"] == 1
    later = asked_outage(SHARED, "ready", since=0.5)
    assert later["moved"] == {}


def test_a_handler_that_hangs_longer_than_it_may_is_timed_out_and_its_slot_is_replaced():
    text = SHARED.replace("concurrency: 16", "concurrency: 2\n        handler_timeout: 2s")
    found = asked_outage(text, "ready", seconds=30, until=1.0)
    assert found["moved"] == {"retrying": 1}
    ready = sum(row["slot_ms"] for row in found["states"] if row["state"] == "ready")
    assert 2_100 <= ready <= 2_600, "within a quarter of the time-out, as in a real worker"
    assert found["all"]["done"] == 2


def test_a_breaker_that_opens_is_told():
    arrivals = [sent(number / 20, f"u{number % 20}", outcomes="f") for number in range(200)]
    assert asked(SHARED, arrivals)["breaker_opened"] > 0
    assert asked_outage(SHARED, "ready")["breaker_opened"] == 0


def test_an_outage_of_a_state_that_the_file_lacks_is_refused():
    found = asked_outage(SHARED.replace("    backup: true\n", ""), "backup")
    ((code, _, detail),) = found["findings"]
    assert (code, detail) == ("K806", "--outage: orders / billing has no backup lane: name another state")


# ---- limits of all workers together


def limited(limit):
    return SHARED + f"        limits:\n          - {{{limit}}}\n"


def test_workers_lease_a_rate_and_together_keep_it():
    arrivals = [arrival(number / 22, f"u{number % 10}") for number in range(200)]
    replay = Watched(policies(limited("kind: rate, limit: 20/s, burst: 10"), 3), arrivals, seconds(arrivals))
    assert all(one.done is not None for one in replay.run())
    moments = sorted(moment for moment, *_ in replay.runs)
    assert all(later - first >= 0.9 for first, later in zip(moments, moments[30:], strict=False)), (
        "20 a second, and ten"
    )
    assert moments[-1] <= 20, "and use most of it"


def test_workers_lease_the_handlers_of_a_customer():
    arrivals = [arrival(number / 1000, f"u{number % 3}") for number in range(90)]
    replay = Watched(policies(limited("kind: concurrency, by: uid, limit: 1"), 3), arrivals, seconds(arrivals))
    assert all(one.done is not None for one in replay.run())
    assert set(replay.most.values()) == {1}


def test_an_exclusive_subscription_has_one_reader():
    text = SHARED.replace("billing:\n", "billing:\n        type: exclusive\n")
    assert asked(text, [sent(0)], workers=3)["workers"] == 1
