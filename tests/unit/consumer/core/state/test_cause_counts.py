"""Counts by cause: which moves count, and that they stay few."""

from __future__ import annotations

from itertools import product

import pytest
from kodo_consumer.core.state.cause_counts import MAX_CAUSES, OTHER_CAUSES, CauseCounts
from kodo_consumer.core.state_machine import Rule

BANK = {"kodo-reason": "ConnectionError", "kodo-error": "bank 7 answered 503"}


@pytest.mark.parametrize("rule", [Rule.RETRYING, Rule.ESCALATED, Rule.BACKUP])
def test_failures_that_wait_elsewhere_count_by_cause(rule: Rule) -> None:
    counts = CauseCounts()
    counts.count(rule, BANK)
    counts.count(rule, {**BANK, "kodo-error": "bank 8 answered 504"})
    counts.count(rule, {})
    assert counts.failed == {"ConnectionError: bank # answered #": 2, OTHER_CAUSES: 1}
    assert not counts.dead


def test_dead_letters_count_apart_and_moves_for_other_reasons_do_not() -> None:
    counts = CauseCounts()
    counts.count(Rule.DEAD, {"kodo-reason": "KeyError"})
    for rule in (Rule.PENDING, Rule.BLOCKING, Rule.ISOLATED, Rule.ROUTED, Rule.TRANSFERRED):
        counts.count(rule, BANK)
    assert counts.dead == {"KeyError": 1}
    assert not counts.failed


@pytest.mark.parametrize("rule", [Rule.RETRYING, Rule.ESCALATED, Rule.BACKUP])
@pytest.mark.parametrize("reason", ["over its limit", "over its limit for too long"])
def test_what_only_a_limit_refused_did_not_fail_and_counts_as_a_dead_letter_alone(rule: Rule, reason: str) -> None:
    counts = CauseCounts()
    counts.count(rule, {"kodo-reason": reason, "kodo-error": "of an earlier run"})
    assert not counts.failed
    counts.count(Rule.DEAD, {"kodo-reason": reason})
    assert counts.dead == {reason: 1}


def test_of_endless_causes_most_are_one() -> None:
    counts = CauseCounts()
    reasons = ["".join(letters) for letters in product("abcdefghij", repeat=4)]
    for reason in reasons[: MAX_CAUSES + 5]:
        counts.count(Rule.DEAD, {"kodo-reason": reason})
    counts.count(Rule.DEAD, {"kodo-reason": reasons[0]})
    assert len(counts.dead) == MAX_CAUSES + 1
    assert (counts.dead[reasons[0]], counts.dead[OTHER_CAUSES]) == (2, 5)
