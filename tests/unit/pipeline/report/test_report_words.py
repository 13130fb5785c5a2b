"""A report in words: each headline, when all is well and when it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kodo_pipeline.report import report_words as words

from tests.samples.reports import AT, EVIL, audited, busy, failure, lane, late, made, quiet, tenant, wait


def test_the_verdict_in_a_sentence():
    assert words.verdict(made())[:2] == ("bad", "3 messages were lost")
    assert words.verdict(made(busy(audit=audited(lost=1))))[1] == "1 message was lost"
    kind, title, meaning = words.verdict(made(quiet()))
    assert (kind, title) == ("good", "No message was lost")
    assert "2,790 of 2,790 entries of 2 partitions" in meaning
    assert words.verdict(made(busy(audit=audited(short=True))))[0] == "open"
    unstored: Any = {"kind": "producer", "proves": "loss", "text": "3 messages sent and stored nowhere"}
    of_producers = {**audited(), "verdict": "loss", "reasons": [unstored]}
    assert words.verdict(made(busy(audit=of_producers)))[1:] == (
        "Messages were lost",
        "Producers sent messages that no topic has.",
    ), "they were not stored"
    both = {**audited(lost=1), "reasons": [*audited(lost=1)["reasons"], unstored]}
    assert words.verdict(made(busy(audit=both)))[2].endswith("Producers sent other messages that no topic has.")


def test_what_waits():
    assert words.waiting(made()) == (
        "558 messages wait, most of them in L1 pending, the oldest for 52 min; 12 dead letters wait for a decision"
    )
    even = [wait("L1", state, number, 4_000, 1) for state, number in (("ready", 4), ("pending", 3), ("blocking", 3))]
    assert words.waiting(made(busy(waiting=even))) == "10 messages wait, 4 of them in L1 ready, the oldest for 4 s"
    assert words.waiting(made(quiet())) == "Nothing waits"
    aged = words.waiting(made(busy(waiting=[wait("L1", "ready", 1, 114_000, 1)])))
    assert aged == "1 message waits, the oldest for 1.9 min", "as its bar has it"
    assert words.waiting(made(busy(waiting=[wait(None, "dead", 1, 1, 1)]))) == (
        "Nothing waits, except that 1 dead letter waits for a decision"
    )
    assert (
        words.waiting(made(busy(waiting=[wait("L1", "ready", 1, 4_000, 1)]))) == "1 message waits, the oldest for 4 s"
    )


def test_who_is_slow():
    assert words.slow(made()) == (
        "95 of 100 messages in L1 ready were done within 260 ms; the slowest lane is L1 pending, 4.4 min"
    )
    assert words.slow(made(quiet())) == "95 of 100 messages in L1 ready were done within 260 ms"
    counted: Any = {**quiet().counted, "lanes": [lane("L1", "ready", 0, late(0, 0, 0))]}
    assert words.slow(made(replace(quiet(), counted=counted))) == "No record says how long anything took"


def test_what_fails():
    assert words.failing(made()) == (
        "165 runs of a handler failed, 90 % of them with “ConnectionError: acme's bank does not answer”"
    )
    assert words.failing(made(quiet())) == "Nothing failed"
    one = [failure("retrying", "", 1)]
    assert words.failing(made(busy(failures=one, failed=1))) == "1 run of a handler failed, with “tried again later”"
    assert words.failing(made(busy(failures=[], failed=5))) == "5 runs of a handler failed"
    assert words.outcome(failure("new rule", "", 1)) == "new rule"


def test_who_is_noisy():
    calm = [tenant(name, 10, 9, None, failed=1) for name in ("mega", "anna")]
    well = {"counted": {**busy().counted, "tenants": calm}}
    assert words.noisy(made(busy(**well))) == (
        "mega sent 86 % of what arrived on orders; the 6 others did not wait for it (190 ms against 4.5 min)"
    )
    loud, still = busy().groups
    waited = [loud, {**still, "latency_ms": late(1, 200_000, 1)}]
    assert words.noisy(made(busy(groups=waited, **well))).endswith(
        "the 6 others waited as long (3.3 min against 4.5 min)"
    )
    two = [{**loud, "names": ["mega", "giga"], "latency_ms": None}, still]
    assert words.noisy(made(busy(groups=two, **well))) == "2 tenants sent 86 % of what arrived on orders"
    nobody = [{**loud, "names": ["(none)"], "latency_ms": None}, still]
    assert words.noisy(made(busy(groups=nobody, **well))) == (
        "messages without a tenant sent 86 % of what arrived on orders"
    )
    assert words.noisy(made(busy(groups=[still], **well))) == "No tenant stands out"
    assert words.noisy(made(quiet())) == "No message says whose it is"


def test_no_tenant_that_fails_is_called_one_that_does_not_stand_out():
    calm = [still for still in busy().groups if not still["noisy"]]
    told = words.noisy(made(busy(groups=calm)))
    assert told == (
        "No tenant sends too much, but 92 % of the runs of acme failed (148), and half or more of those of 1 other"
    )
    every = {**busy().counted, "tenants": [tenant("acme", 5, 0, None, failed=15), tenant("ben", 5, 5, None)]}
    told = words.noisy(made(busy(groups=calm, counted=every)))
    assert told == "No tenant sends too much, but every run of acme failed (15)"
    assert words.noisy(made(busy(counted=every))).endswith("4.5 min); every run of acme failed (15)")
    nobody = "messages without a tenant"
    for name, said in ((None, nobody), ("(none)", nobody), ("(unknown)", "messages whose tenant cannot be read")):
        nameless = {**busy().counted, "tenants": [tenant(name, 5, 0, None, failed=1)]}
        assert words.noisy(made(busy(groups=calm, counted=nameless))).endswith(f"every run of {said} failed (1)")


def test_lanes_are_named_as_short_as_they_can_be():
    row: Any = wait("L1", "ready", 1, 1, 1)
    assert words.lane(made(), row) == "L1 ready"
    assert words.lane(made(), wait(None, "dead", 1, 1, 1)) == "dead letters"
    assert words.lane(made(), row | {"level": None, "state": None}) == "not in the file", "unknown is not dead"
    assert words.lane(made(), row | {"level": None}) == "ready"
    several = made(busy(waiting=[row, {**row, "subscription": "stock"}]))
    assert words.lane(several, row) == "orders / billing: L1 ready"
    assert words.lane(several, row | {"subscription": None}) == "orders / (all): L1 ready"


def test_the_head_of_the_page():
    assert {text: number for number, text in words.figures(made())} == {
        "messages judged": "3,363", "done": "2,790", "waiting": "558", "dead letters": "12", "lost": "3",
    }  # fmt: skip
    fates: dict[str, Any] = {
        "not_for_me": 7,
        "discarded": 2,
        "moving": 1,
        "unproved": 4,
        "unknown": 1,
        "duplicated": 5,
        "overdue": 3,
    }
    figures = words.figures(made(busy(audit=audited(**fates))))
    assert {text: number for number, text in figures} == {
        "messages judged": "2,806", "done": "2,795", "discarded": "2", "waiting": "3", "on their way": "1",
        "dead letters": "0", "not proved": "5", "lost": "0",
    }  # fmt: skip
    counts = [int(number.replace(",", "")) for number, _ in figures]
    assert counts[0] == sum(counts[1:]), "a mark is no message"
    brief = made(busy(width=5_000))
    assert words.span(brief) == "2026-01-02 02:24:00 UTC to 2026-01-02 03:04:00 UTC"
    assert words.span(made()) == "2026-01-02 02:24 UTC to 2026-01-02 03:04 UTC"
    assert words.span(made() | {"since": 0, "until": AT}) == ""


def test_all_of_it_is_a_few_lines():
    found = list(words.headlines(made()))
    assert found[0] == "3 messages were lost."
    assert len(found) == 5


def test_names_from_the_cluster_do_nothing():
    counted = {**busy().counted, "tenants": [tenant(EVIL, 1, 1, None)]}
    groups = [{**busy().groups[0], "names": [EVIL]}, busy().groups[1]]
    told = words.noisy(made(busy(counted=counted, groups=groups)))
    assert told.isprintable()
    assert "\x1b" not in told
