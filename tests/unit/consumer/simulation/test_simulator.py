"""Recorded traffic in virtual time: what people would have waited, and that the engine's rules hold in it."""

from __future__ import annotations

import io
import json

import pytest
from kodo_consumer.policy_builder import policy_of
from kodo_consumer.simulation.simulated_worker import worker_policies
from kodo_consumer.simulation.simulation import SimulatedArrival, Simulation
from kodo_consumer.simulation.simulator import STATES, figures, main

from kodoctl.topology.load import load_set, source_of
from tests.unit.consumer.replays import FILE, asked, flood, of, sent

PLAIN = FILE.replace("    fair_by: uid\n", "")


def limited(*limits, text=FILE):
    return text + "        limits:\n" + "".join(f"          - {{{one}}}\n" for one in limits)


def test_who_is_alone_waits_for_nobody():
    found = asked(FILE, [sent(0), sent(5, size=0)])
    assert found["all"]["wait_ms"] == {"p50": 0, "p95": 0, "p99": 0}
    assert found["all"]["latency_ms"]["p99"] == pytest.approx(100)
    assert (found["all"]["done"], found["all"]["dead"], found["moved"], found["slots"]) == (2, 0, {}, 1)


def test_with_turns_a_flood_delays_others_by_a_turn_and_without_by_all_of_it():
    arrivals = [*flood(300), *(sent(1 + number, "quiet") for number in range(5))]
    fair, unfair = asked(FILE, arrivals), asked(PLAIN, arrivals)
    assert of(fair, "quiet")["wait_ms"]["p99"] <= 200  # who runs, and a turn
    assert of(fair, "noisy")["messages"] == 300
    assert unfair["tenants"] == [unfair["tenants"][0]]
    assert unfair["all"]["done"] == fair["all"]["done"] == 305
    assert fair["all"]["latency_ms"]["p99"] == pytest.approx(30_200, rel=0.01)


def test_more_handlers_and_all_workers_at_once():
    many = asked(FILE.replace("concurrency: 1", "concurrency: 5\n        expected_workers: 2"), flood(100))
    assert many["slots"] == 10
    assert many["workers"] == 2
    assert many["all"]["wait_ms"]["p99"] == pytest.approx(1_000, abs=60)
    one = asked(FILE, flood(100), slots=10)
    assert one["all"]["wait_ms"]["p99"] == pytest.approx(1_000, abs=60)
    assert asked(FILE, flood(100), slots=100)["all"]["wait_ms"]["p99"] == 100  # a quarter is kept for others


def test_a_rate_holds_as_it_would():
    found = asked(limited("kind: rate, by: uid, limit: 5/s, burst: 1"), [*flood(100, seconds=0.01), sent(3, "quiet")])
    assert of(found, "quiet")["wait_ms"]["p99"] <= 20
    assert of(found, "noisy")["wait_ms"]["p99"] > 19_000
    assert found["moved"]["pending"] > 0
    assert found["all"]["done"] == 101


def test_a_route_takes_a_tenant_to_its_level():
    route = "        routes: [{when: {property: uid, in: [noisy]}, to: L2}]\n"
    found = asked(
        FILE + route, [*flood(20), sent(0.5, "quiet"), sent(0.6, "quiet", level="L2"), sent(0.7, "quiet", level="S9")]
    )
    assert (found["all"]["done"], found["moved"]) == (23, {"routed": 20})


@pytest.mark.simulated
def test_what_failed_fails_again_and_what_died_dies():
    found = asked(FILE, [sent(0, outcomes="f"), sent(1), sent(2, "bad", outcomes="fffffffk")])
    assert (of(found, "u1")["done"], of(found, "u1")["wait_ms"]["p99"]) == (2, 0)
    assert of(found, "u1")["latency_ms"]["p99"] > 5_000
    assert (of(found, "bad")["dead"], of(found, "bad")["latency_ms"]) == (1, None)
    assert found["moved"]["dead"] == 1


def test_waits_in_memory_do_not_count_as_leaving():
    found = asked(FILE + "        in_place: [1s, 1s]\n", [sent(0, outcomes="f")])
    assert found["moved"]["retrying"] == 1
    assert found["all"]["latency_ms"]["p50"] > 2_000


@pytest.mark.simulated
def test_what_cannot_end_within_a_day_is_told():
    found = asked(limited("kind: quota, limit: 1/d"), flood(3))
    assert (found["all"]["messages"], found["all"]["done"]) == (3, 1)
    assert found["all"]["wait_ms"]["p50"] == 0
    no_letters = FILE + "        dead_letter: false\n"
    assert asked(no_letters, [sent(0, outcomes="k")])["all"]["done"] == 0


def test_a_handler_is_never_taken_to_hang():
    found = asked(FILE + "        handler_timeout: 2s\n", [sent(0, seconds=60)])
    assert found["all"]["latency_ms"]["p50"] == pytest.approx(1_999)


def test_order_is_kept_by_key_and_more_tenants_than_are_told_are_put_together():
    text = FILE.replace("billing:\n", "billing:\n        type: key_shared\n").replace(
        "concurrency: 1", "concurrency: 4"
    )
    found = asked(text, [sent(0, f"u{number}", key="k" if number < 4 else f"k{number}") for number in range(12)])
    assert found["all"]["wait_ms"]["p99"] >= 300
    assert [one["tenant"] for one in found["tenants"][-2:]] == ["u7", None]
    assert (found["tenants"][-1]["tenants"], found["tenants"][-1]["messages"]) == (2, 2)
    assert figures([])["all"] == {"messages": 0, "done": 0, "dead": 0, "wait_ms": None, "latency_ms": None}


def policy(text):
    return policy_of(load_set([source_of(text.encode(), "t.yaml")], None).topologies[0], "orders", "billing")


def test_each_worker_has_the_policy_of_the_file_and_its_part_of_the_slots_asked_for():
    text = FILE.replace("concurrency: 1", "concurrency: 8\n        expected_workers: 3")
    assert [one.concurrency for one in worker_policies(policy(text), 3, None)] == [8, 8, 8]
    assert [one.concurrency for one in worker_policies(policy(text), 3, 10)] == [4, 3, 3]
    (first, *_) = made = worker_policies(policy(text), 2, None)
    assert (len(made), first.expected_workers, first.lookahead_messages) == (2, 2, 50_000)


def test_bulkheads_are_in_proportion_to_the_slots_of_a_worker():
    slots = "{total: %s, states: {retrying: {max: 4, min: 1}}}\n        expected_workers: 3"
    (fixed,) = worker_policies(policy(FILE.replace("concurrency: 1", "concurrency: " + slots % 8)), 3, None)[
        0
    ].bulkheads
    assert (fixed.most, fixed.least) == (4, 1)
    (asked_for,) = worker_policies(policy(FILE.replace("concurrency: 1", "concurrency: " + slots % 8)), 1, 16)[
        0
    ].bulkheads
    assert (asked_for.most, asked_for.least) == (8, 2), "in proportion to the slots that were asked for"
    text = FILE.replace("concurrency: 1", "concurrency: " + slots % "adaptive")
    (adaptive,) = worker_policies(policy(text), 2, 16)[0].bulkheads
    assert (adaptive.most, adaptive.least) == (4, 1)


def test_what_speaks_against_it_is_told_and_a_broken_engine_ends():
    assert [code for code, *_ in asked(FILE, [], subscription="shipping")["findings"]] == ["K703"]
    assert "K001" in [code for code, *_ in asked("a: [", [])["findings"]]
    replay = Simulation(worker_policies(policy(FILE), 1, None), [SimulatedArrival(0, "L1", "", {}, 1, "u1")], {})
    replay._workers[0].worker.fail(ValueError("out of its mind"))
    with pytest.raises(ValueError, match="mind"):
        replay.run()


def test_a_stream_of_lines_becomes_a_document():
    request = {
        "text": FILE,
        "path": "t.yaml",
        "environment": None,
        "topic": "orders",
        "subscription": "billing",
        "slots": 2,
        "workers": None,
        "seconds": {"u1": dict.fromkeys(STATES, 0.1)},
        "outages": [],
    }
    out = io.StringIO()
    main(io.StringIO("\n".join(map(json.dumps, (request, sent(0)[0])))), out)
    assert json.loads(out.getvalue())["all"]["done"] == 1
