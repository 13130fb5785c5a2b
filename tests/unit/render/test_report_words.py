"""A report in words: each headline, when all is well and when it is not."""

from __future__ import annotations

from dataclasses import replace

from kodoctl.render import report_words as words
from tests.reports import AT, EVIL, audited, busy, failure, lane, late, made, quiet, tenant, wait


def test_the_verdict_in_a_sentence():
    assert words.verdict(made())[:2] == ("bad", "3 messages were lost")
    assert words.verdict(made(busy(audit=audited(lost=1))))[1] == "1 message was lost"
    kind, title, meaning = words.verdict(made(quiet()))
    assert (kind, title) == ("good", "No message was lost")
    assert "2,790 of 2,790 entries of 2 partitions" in meaning
    assert words.verdict(made(busy(audit=audited(short=True))))[0] == "open"
    of_producers = {**audited(), "verdict": "loss"}
    assert words.verdict(made(busy(audit=of_producers)))[1] == "Messages were lost"


def test_what_waits():
    assert words.waiting(made()) == (
        "558 messages wait, most of them in L1 pending, the oldest for 52 min; 12 dead letters wait for a decision"
    )
    assert words.waiting(made(quiet())) == "Nothing waits"
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
    counted = {**quiet().counted, "lanes": [lane("L1", "ready", 0, late(0, 0, 0))]}
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
    assert words.noisy(made()) == (
        "mega sent 86 % of what arrived on orders; the 6 others did not wait for it (190 ms against 4.5 min)"
    )
    loud, still = busy().groups
    waited = [loud, {**still, "latency_ms": late(1, 200_000, 1)}]
    assert words.noisy(made(busy(groups=waited))).endswith("the 6 others waited as long (3.3 min against 4.5 min)")
    two = [{**loud, "names": ["mega", "giga"], "latency_ms": None}, still]
    assert words.noisy(made(busy(groups=two))) == "2 tenants sent 86 % of what arrived on orders"
    assert words.noisy(made(busy(groups=[still]))) == "No tenant stands out"
    assert words.noisy(made(quiet())) == "No message says whose it is"


def test_lanes_are_named_as_short_as_they_can_be():
    row = wait("L1", "ready", 1, 1, 1)
    assert words.lane(made(), row) == "L1 ready"
    assert words.lane(made(), wait(None, "dead", 1, 1, 1)) == "dead letters"
    several = made(busy(waiting=[row, {**row, "subscription": "stock"}]))
    assert words.lane(several, row) == "orders / billing: L1 ready"
    assert words.lane(several, {**row, "subscription": None}) == "orders / (all): L1 ready"


def test_the_head_of_the_page():
    assert dict(map(reversed, words.figures(made()))) == {
        "messages judged": "3,363", "done": "2,790", "waiting": "558", "dead letters": "12", "lost": "3",
    }  # fmt: skip
    assert words.span(made()) == "2026-01-02 02:24 UTC to 2026-01-02 03:04 UTC"
    assert words.span({"since": 0, "until": AT}) == ""


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
