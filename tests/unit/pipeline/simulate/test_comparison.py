"""What the lab asks of a replay, and what people read of it."""

from __future__ import annotations

import json

import pytest

from kodoctl.errors import UsageError
from kodoctl.pipeline.recommend.yaml_patch import CannotPatchError, applied, unified_diff
from kodoctl.pipeline.simulate.comparison import (
    Trial,
    asked_properties,
    document,
    handler_times,
    recorded,
    slots_of,
)
from kodoctl.render.simulation_text import lines
from kodoctl.topology.model.topology import GroundTopic


def arrival(at, tenant="u1", took=None, moves=0, fails=0, **more):
    row = {
        "at_ms": at, "level": "L1", "tenant": tenant, "key": None, "properties": {"uid": tenant}, "size": 10,
        "took_ms": took, "moves": moves, "fails": fails,
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
    assert (slots_of(spec, None, "orders / billing"), slots_of(spec, 7, "")) == (12, 7)
    with_bulkheads = {"total": 4, "states": {"retrying": {"max": 2}}}
    spec = ground(concurrency=with_bulkheads, expected_workers=2).subscriptions["billing"]
    assert slots_of(spec, None, "") == 8
    adaptive = ground(concurrency={"total": "adaptive"}).subscriptions["billing"]
    with pytest.raises(UsageError, match="--slots"):
        slots_of(adaptive, None, "")
    adaptive = ground(concurrency="adaptive").subscriptions["billing"]
    with pytest.raises(UsageError, match=r"orders / billing.*--slots"):
        slots_of(adaptive, None, "orders / billing")


def test_only_what_a_file_goes_by_is_asked_of_messages():
    one = ground(
        limits=[{"kind": "rate", "by": "bank", "limit": "1/s"}, {"kind": "concurrency", "by": "key", "limit": 1}],
        routes=[{"when": {"property": "size", "greater_than": 5}, "to": "L1"}],
    )
    assert asked_properties([one, ground()], "billing") == ["bank", "size", "uid"]


def test_the_replay_is_asked_in_seconds_since_the_first_arrival():
    rows = [arrival(5_000, took=20), arrival(6_500, "u2", fails=2, key="k")]
    trial = Trial("orders", "billing", 3, rows, {"u1": 20, "u2": 50})
    head, *others = [json.loads(line) for line in trial.lines("text", "a.yaml", "prod")]
    assert head == {
        "text": "text", "path": "a.yaml", "environment": "prod", "topic": "orders", "subscription": "billing", "slots": 3,
    }  # fmt: skip
    assert others == [[0, "L1", "", {"uid": "u1"}, 10, 0.02, 0], [1.5, "L1", "k", {"uid": "u2"}, 10, 0.05, 2]]


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
    return {"all": one("", 103, noisy), "tenants": tenants, "moved": {"pending": 4}, "slots": 3} | more


def test_people_read_what_would_change_beside_what_was_recorded():
    rows = [arrival(1_700_000_000_000, "noisy", 900), arrival(1_700_000_060_000, "quiet", 20)]
    trial = Trial("orders", "billing", 3, rows, {"noisy": 20, "quiet": 20})
    then = replayed(12_000, 50, moved={}, slots=12)
    then["tenants"].pop()
    made = document([(trial, replayed(12_000, 8_000), then)], ["payments: the candidate changes nothing"])
    assert made["trials"][0]["recorded"] == {"done": 2, "latency_ms": {"p50": 20, "p95": 900, "p99": 900}}
    assert [line.text for line in lines(made)] == [
        "orders / billing",
        "  2 messages from 2023-11-14 22:13 UTC, within 1 min",
        "  replayed with 3 handlers at once (candidate: 12), of 20 ms: the middle one of all tenants",
        "  until done, today's file replayed (as recorded): p50 6 s (20 ms), p95 12 s (900 ms), p99 12 s (900 ms)",
        "  today: 103 done, 0 dead, 0 still open a day later; moved: pending 4",
        "  candidate: 103 done, 0 dead, 0 still open a day later",
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
    trial = Trial("orders", "billing", 3, [arrival(0)], {"u1": 20})
    never = replayed(None, None)
    told = [line.text for line in lines(document([(trial, never, never)], []))]
    assert recorded([arrival(0)]) == {"done": 0, "latency_ms": None}
    assert not [line for line in told if "as recorded" in line]
    assert ["noisy", "90", "-", "-", "-", "-"] in [line.split() for line in told]


@pytest.mark.parametrize(
    ("before", "after"), [("a\nb\nc\n", "a\nB\nc\nd"), ("a", "b\n"), ("", "x\n"), ("a\r\nb\r\n", "b\r\n")]
)
def test_a_patch_is_applied_as_git_does(before, after):
    words = "orders / billing: isolate acme, L1 -> B1\n\n"
    assert applied(before, words + unified_diff("deep/trade.yaml", before, after)) == after


def test_several_places_of_a_file_and_what_does_not_fit():
    before = "".join(f"line {number}\n" for number in range(60))
    after = before.replace("line 3\n", "").replace("line 50\n", "line 50\nmore\n")
    diff = unified_diff("x", before, after)
    assert applied(before, diff) == after
    with pytest.raises(CannotPatchError, match="line 1 is not"):
        applied(before.replace("line 2\n", "line two\n"), diff)
    with pytest.raises(CannotPatchError, match="no patch"):
        applied(before, "words")
    with pytest.raises(CannotPatchError, match="line 1 is not"):
        applied(before, diff[: diff.index("line 5")])
