"""What the lab asks of a replay, and what people read of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from kodo_pipeline.recommend.yaml_patch import CannotPatchError, apply_diff, unified_diff
from kodo_pipeline.simulate.comparison import (
    Trial,
    asked_properties,
    document,
    handler_times,
    recorded_figures,
    slots_of,
    times_by_state,
)
from kodo_pipeline.simulate.job import Side, changed_subscriptions
from kodo_pipeline.simulate.outage_request import OutageRequest
from kodo_pipeline.simulate.simulation_text import lines

from kodoctl.errors import UsageError
from kodoctl.topology.lint.linter import check_set
from kodoctl.topology.load import source_of
from kodoctl.topology.model.topology import GroundTopic


def arrival(at, tenant="u1", took=None, moves=0, outcomes="", **more):
    row = {
        "at_ms": at, "level": "L1", "tenant": tenant, "key": None, "properties": {"uid": tenant}, "size": 10,
        "took_ms": took, "moves": moves, "outcomes": outcomes,
    }  # fmt: skip
    return row | more


def ground(**subscription):
    return GroundTopic.model_validate({"fair_by": "uid", "subscriptions": {"billing": subscription}})


def test_a_handler_takes_what_the_quickest_tenth_took_and_no_more_than_the_slots_allow():
    rows = [arrival(1_000 * number, "u1", 40 + number) for number in range(20)]
    rows += [arrival(0, "slow", 300), arrival(0, "never"), arrival(0, "moved", 5, moves=1), arrival(0, "skewed", -3)]
    assert handler_times(rows, 8) == {"u1": 41, "slow": 300, "never": 41, "moved": 41, "skewed": 1}
    full = [arrival(0, "noisy", 50 * (number + 1)) for number in range(400)]  # 20 a second, one after the other
    assert handler_times(full, 1) == {"noisy": pytest.approx(50, rel=0.01)}
    assert handler_times([arrival(0), arrival(0, took=7, moves=1)], 8) == {}


def test_slots_are_the_files_or_those_that_were_asked_for():
    spec = ground(concurrency=4, expected_workers=3).subscriptions["billing"]
    assert (slots_of(spec, None, None, "orders / billing"), slots_of(spec, 7, None, "")) == (12, 7)
    assert (slots_of(spec, None, 2, ""), slots_of(spec, 7, 7, "")) == (8, 7)
    with pytest.raises(
        UsageError, match=r"orders / billing: 7 slots are less than one for each of 8 workers.*--workers"
    ):
        slots_of(spec, 7, 8, "orders / billing")
    with_bulkheads = {"total": 4, "states": {"retrying": {"max": 2}}}
    spec = ground(concurrency=with_bulkheads, expected_workers=2).subscriptions["billing"]
    assert slots_of(spec, None, None, "") == 8
    adaptive = ground(concurrency={"total": "adaptive"}).subscriptions["billing"]
    with pytest.raises(UsageError, match="--slots"):
        slots_of(adaptive, None, None, "")
    adaptive = ground(concurrency="adaptive").subscriptions["billing"]
    with pytest.raises(UsageError, match=r"orders / billing.*--slots"):
        slots_of(adaptive, None, None, "orders / billing")


def test_an_exclusive_subscription_has_one_worker():
    spec = ground(concurrency=4, expected_workers=3, type="exclusive").subscriptions["billing"]
    assert (slots_of(spec, None, 8, ""), slots_of(spec, 1, 8, "")) == (4, 1)


def side(text):
    (found,), _ = check_set([source_of(text.encode(), "trade.yaml")], None)
    return Side(text, "trade.yaml", found)


def test_subscriptions_that_the_candidate_lacks_are_told():
    head = "version: 1\nname: trade\ntenant: kodo\nnamespace: trade\ntopics:\n  orders:\n    subscriptions: "
    today = side(head + "{billing: {concurrency: 1}, stock: {}}\n  payments:\n    subscriptions: {ledger: {}}\n")
    then = side(head + "{billing: {concurrency: 4}}\n")
    assert changed_subscriptions(today, then) == (
        [("orders", "billing")],
        ["orders / stock is not in the candidate", "payments is not in the candidate"],
    )


def test_only_what_a_file_goes_by_is_asked_of_messages():
    one = ground(
        limits=[{"kind": "rate", "by": "bank", "limit": "1/s"}, {"kind": "concurrency", "by": "key", "limit": 1}],
        routes=[{"when": {"property": "size", "greater_than": 5}, "to": "L1"}],
    )
    assert asked_properties([one, ground()], "billing") == ["bank", "size", "uid"]


def test_the_replay_is_asked_in_seconds_since_the_first_arrival():
    rows = [arrival(5_000, took=20), arrival(6_500, "u2", outcomes="ff", key="k")]
    waiting = [
        arrival(
            5_000, "u2", state="retrying", due_ms=7_000, hop=3, outcomes="d", attempts={"retrying": 2, "pending": 1}
        ),
        arrival(5_000, "u2", level="B1", state="ready", due_ms=None, hop=4, attempts={"backup": 1}),
    ]
    times = {"u1": {"ready": 20, "retrying": 900}, "u2": {"ready": 50}}
    outage = OutageRequest(1, (), "retrying", 8_000, 250)
    trial = Trial("orders", "billing", 3, 2, rows, times, waiting, [outage])
    head, *others = [json.loads(line) for line in trial.lines("text", "a.yaml", "prod")]
    usual = {"pending": 0.02, "blocking": 0.02, "backup": 0.02}
    assert head == {
        "text": "text", "path": "a.yaml", "environment": "prod", "topic": "orders", "subscription": "billing", "slots": 3,
        "workers": 2,
        "seconds": {
            "u1": {"ready": 0.02, "retrying": 0.9} | usual,
            "u2": dict.fromkeys(("ready", "retrying", "pending", "blocking", "backup"), 0.05),
        },
        "outages": [
            {"tenants": ["u1"], "state": "retrying", "seconds": 8, "since": 0.25, "until": 1.5, "done": False}
        ],
    }  # fmt: skip
    assert others == [
        [0, "L1", "", {"uid": "u2"}, 10, "u2", "d", "retrying", 2, [3, 2, 1, 0, 0]],
        [0, "B1", "", {"uid": "u2"}, 10, "u2", "", "ready", None, [4, 0, 0, 0, 1]],
        [0, "L1", "", {"uid": "u1"}, 10, "u1", ""],
        [1.5, "L1", "k", {"uid": "u2"}, 10, "u2", "ff"],
    ]


def test_times_of_states_are_those_recorded_there_else_those_of_ready():
    rows = [
        {"tenant": "u1", "state": "retrying", "quick_ms": 700},
        {"tenant": "gone", "state": "backup", "quick_ms": 1},
    ]
    assert times_by_state({"u1": 10.0, "u2": 30.0}, rows, ["u1", "u2", "u3"]) == {
        "u1": {"ready": 10.0, "retrying": 700.0},
        "u2": {"ready": 30.0},
        "u3": {"ready": 10.0},
    }


def replayed(noisy, quiet, **more):
    def one(tenant, messages, p95):
        waits = {"p50": p95 / 2, "p95": p95, "p99": p95} if p95 is not None else None
        return {
            "tenant": tenant,
            "messages": messages,
            "done": messages,
            "dead": 0,
            "wait_ms": waits,
            "latency_ms": waits,
        }

    tenants = [one("noisy", 90, noisy), one("quiet\x1b[31m", 10, quiet), one(None, 3, 1) | {"tenants": 2}]
    waits = {"p50": 0, "p95": 1, "p99": quiet}
    states = [
        {"state": "ready", "class": "quick", "runs": 1_003, "wait_ms": waits if quiet else None, "slot_ms": 20_060},
        {"state": "retrying", "class": "slow", "runs": 60, "wait_ms": waits if quiet else None, "slot_ms": 480_000},
    ]
    return {
        "all": one("", 103, noisy), "tenants": tenants, "states": states, "waiting": {"messages": 0, "done": 0, "dead": 0},
        "moved": {"pending": 4}, "breaker_opened": 0, "slots": 3, "workers": 1,
    } | more  # fmt: skip


def test_people_read_what_would_change_beside_what_was_recorded():
    rows = [arrival(1_700_000_000_000, "noisy", 900), arrival(1_700_000_060_000, "quiet", 20)]
    trial = Trial("orders", "billing", 3, None, rows, {name: {"ready": 20} for name in ("noisy", "quiet")})
    then = replayed(12_000, 50, moved={}, slots=12, workers=2, breaker_opened=2)
    then["states"].pop()
    then["tenants"].pop()
    made = document([(trial, replayed(12_000, 8_000), then)], ["payments: the candidate changes nothing"])
    assert made["trials"][0]["recorded"] == {"done": 2, "latency_ms": {"p50": 20, "p95": 900, "p99": 900}}
    assert [line.text for line in lines(made)] == [
        "orders / billing",
        "  2 messages from 2023-11-14 22:13 UTC, within 1 min",
        (
            "  replayed with 1 worker, 3 handlers at once (candidate: 2 workers, 12 handlers at once); a handler takes 20 ms, "
            "the middle one of all tenants"
        ),
        "  until done, today's file replayed (as recorded): p50 6 s (20 ms), p95 12 s (900 ms), p99 12 s (900 ms)",
        "  today: 103 done, 0 dead, 0 still open a day later; moved: pending 4",
        "  candidate: 103 done, 0 dead, 0 still open a day later; the breaker opened 2 times",
        "",
        "  wait for a slot   runs  today p50  p99  candidate p50    p99",
        "  ready, quick     1,003       0 ms  8 s           0 ms  50 ms",
        "  retrying, slow      60       0 ms  8 s              -      -",
        "",
        "  until a handler starts  messages  today p50   p95  candidate p50    p95",
        "  noisy                         90        6 s  12 s            6 s   12 s",
        r"  quiet\x1b[31m                 10        4 s   8 s          25 ms  50 ms",
        "",
        "  p95 until a handler starts, today (=) and with the candidate (#)",
        "  noisy          ======================================== 12 s",
        "                 ######################################## 12 s",
        r"  quiet\x1b[31m  =========================== 8 s",
        "                 # 50 ms",
        "",
        "note: payments: the candidate changes nothing",
    ]


def test_where_nothing_was_recorded_or_ever_started():
    trial = Trial("orders", "billing", 3, None, [arrival(0)], {"u1": {"ready": 20}})
    never = replayed(None, None)
    told = [line.text for line in lines(document([(trial, never, never)], []))]
    assert recorded_figures([arrival(0)]) == {"done": 0, "latency_ms": None}
    assert not [line for line in told if "as recorded" in line]
    assert ["noisy", "90", "-", "-", "-", "-"] in [line.split() for line in told]


def test_one_file_in_an_outage_is_told_alone():
    outages = [
        OutageRequest(1, (), "retrying", 8_000),
        OutageRequest(None, ("u1",), "ready", 500, 60_000, 90_000, done=True),
    ]
    waiting = [arrival(0, state="retrying", due_ms=None, hop=1, attempts={})]
    trial = Trial("orders", "billing", None, None, [arrival(0)], {"u1": {"ready": 20}}, waiting, outages)
    trial.check()
    with pytest.raises(UsageError, match="orders / billing: it begins after 1m"):
        replace(trial, outages=[OutageRequest(1, (), "ready", 8_000, 60_000)]).check()
    made = document([(trial, replayed(12_000, 8_000), None)], [])
    assert made["trials"][0]["outages"][1] == {
        "tenants": 1, "state": "ready", "duration_ms": 500, "begin_ms": 60_000, "length_ms": 90_000, "outcome": "done",
    }  # fmt: skip
    assert [line.text for line in lines(made)] == [
        "orders / billing",
        "  1 message from 1970-01-01 00:00 UTC, within 0 ms; 1 waited in a state before",
        "  outage: of 1 tenant, handlers take 8 s in retrying and fail",
        "  outage: of 1 tenant, handlers take 500 ms in ready and end well after 1 min, for 1.5 min",
        "  replayed with 1 worker, 3 handlers at once; a handler takes 20 ms, the middle one of all tenants",
        "  today: 103 done, 0 dead, 0 still open a day later; moved: pending 4",
        "",
        "  wait for a slot   runs  today p50  p99",
        "  ready, quick     1,003       0 ms  8 s",
        "  retrying, slow      60       0 ms  8 s",
        "",
        "  until a handler starts  messages  today p50   p95",
        "  noisy                         90        6 s  12 s",
        r"  quiet\x1b[31m                 10        4 s   8 s",
        "  (2 others)                     3     0.5 ms  1 ms",
        "",
        "  p95 until a handler starts, today (=)",
        "  noisy          ======================================== 12 s",
        r"  quiet\x1b[31m  =========================== 8 s",
        "  (2 others)     = 1 ms",
        "",
    ]


@pytest.mark.parametrize(
    ("before", "after"), [("a\nb\nc\n", "a\nB\nc\nd"), ("a", "b\n"), ("", "x\n"), ("a\r\nb\r\n", "b\r\n")]
)
def test_a_patch_is_applied_as_git_does(before, after):
    words = "orders / billing: isolate acme, L1 -> B1\n\n"
    assert apply_diff(before, words + unified_diff("deep/trade.yaml", before, after)) == after


def test_several_places_of_a_file_and_what_does_not_fit():
    before = "".join(f"line {number}\n" for number in range(60))
    after = before.replace("line 3\n", "").replace("line 50\n", "line 50\nmore\n")
    diff = unified_diff("x", before, after)
    assert apply_diff(before, diff) == after
    with pytest.raises(CannotPatchError, match="line 1 is not"):
        apply_diff(before.replace("line 2\n", "line two\n"), diff)
    with pytest.raises(CannotPatchError, match="no patch"):
        apply_diff(before, "words")
    with pytest.raises(CannotPatchError, match="line 1 is not"):
        apply_diff(before, diff[: diff.index("line 5")])
