"""Causes of dead letters: twelve lines, however many letters there are, and a tenant that fails most of all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.protocol import properties
from kodoctl.protocol.sequence_numbers import NOBODY as MARK
from kodoctl.recall.message.stored_message import DeadLetter, Position
from kodoctl.ui.letter_causes import (
    CauseCount,
    FailingGroup,
    FailingTenant,
    LetterCauses,
    LetterCount,
    Tries,
    TryCount,
    cause_lines,
    failing_tenants,
    failures_of,
    letter_causes,
    tenant_share,
    wait_text,
)


def document(**values: Any) -> Any:
    return {"read": 10_000, "read_all": True, "unread": [], "groups": [], **values}


def test_groups_of_tenants_are_summed_by_cause_and_by_tenant() -> None:
    groups = [
        {"cause": cause, "tenant": tenant, "messages": count}
        for cause, tenant, count in [("a", "u1", 5), ("b", "u1", 7), ("a", "(none)", 9)]
    ]
    count = LetterCount(None)
    found = letter_causes(document(groups=groups), ended=False, count=count)
    by_cause = CauseCount("a", 14, (("u1", 5),)), CauseCount("b", 7, (("u1", 7),))
    assert found == LetterCauses(10_000, True, by_cause, (("u1", 12),))
    (many,) = letter_causes(
        document(groups=groups[:1], by_cause={"a": 14, "(3 others)": 3}), ended=False, count=count
    ).causes
    assert many == CauseCount("a", 14, (("u1", 5),)), "not all groups are in the document"
    cut = letter_causes(document(groups=groups[:1], by_cause={"a": 14}, left_out=9), ended=False, count=count)
    assert [text for text, _ in cause_lines(cut)] == [
        "14 × a (u1 5)", "9 of these are of tenants with fewer letters, who are not listed",
    ]  # fmt: skip
    assert tenant_share(cut, "") is None, "who is not listed may have as many"
    nobody = letter_causes(document(groups=groups[2:], by_cause={"a": 9}, left_out=5), ended=False, count=count)
    assert [text for text, _ in cause_lines(nobody)] == ["9 × a", "5 more have rarer causes, which are not listed"]
    for partial in (document(read_all=False), document(unread=["x"])):
        assert not letter_causes(partial, ended=False, count=count).complete
    assert not letter_causes(document(), ended=True, count=count).complete


def test_ten_thousand_letters_are_a_dozen_lines() -> None:
    causes = tuple(CauseCount(f"it's {number}", 1_000 - number) for number in range(40))
    lines = cause_lines(LetterCauses(10_000, False, causes))
    assert len(lines) == 14
    assert lines[0] == ("1,000 × it's 0", "cause = 'it\\'s 0'")
    assert lines[-2:] == [("27,286 × 28 other causes", ""), ("of the first 10,000 letters that were read", "")]
    assert cause_lines(LetterCauses(1, True, causes[:1])) == [("1,000 × it's 0", "cause = 'it\\'s 0'")]


@pytest.mark.parametrize(
    ("tenants", "text"),
    [
        ((), "9 × a"),
        ((("u1", 9),), "9 × a (all of u1)"),
        ((("u1", 8),), "9 × a (u1 8)"),
        ((("u1", 5), ("u2", 4)), "9 × a (u1 5, u2 4)"),
        ((("u1", 4), ("u2", 2), ("u3", 2), ("u4", 1)), "9 × a (u1 4, u2 2, u3 2 and 1 other)"),
        ((("u\n" * 40, 9),), "9 × a (all of " + "u\\n" * 19 + "u…)"),
    ],
)
def test_a_cause_names_the_tenants_with_most_letters(tenants: tuple[tuple[str, int], ...], text: str) -> None:
    ((line, where),) = cause_lines(LetterCauses(9, True, (CauseCount("a", 9, tenants),)))
    assert (line, where) == (text, "cause = 'a'")


def test_a_tenant_of_several_is_named_if_half_of_the_letters_are_its_own() -> None:
    def share(*tenants: tuple[str, int], unlisted: int = 0) -> tuple[str, str] | None:
        return tenant_share(LetterCauses(0, True, (), tenants, unlisted), "customer")

    assert share(("u1", 6), ("u2", 4)) == ("6 of these are of customer u1", "tenant = 'u1'")
    assert share(("u1", 6), ("u2", 5), ("u3", 4)) is None
    assert share(("u1", 6), ("u2", 3)) is share(("u1", 20)) is share() is None
    assert share(("u1", 6), ("u2", 4), unlisted=9) is None


NOON = 1_767_268_800_000  # 2026-01-01 12:00 UTC
MINUTE = 60_000


def waiting(tenant: str, failures: int, due: int = 0, **more: str) -> DeadLetter:
    control = {properties.ATTEMPTS_RETRYING: str(failures), properties.REASON: "ConnectionError"}
    control |= {properties.DUE: str(due)} if due else {}
    return DeadLetter("t", Position(0, 1, 1, -1), b"", control | more, publish_time=NOON, tenant=tenant)


def test_waiting_messages_are_counted_by_tenant_with_their_age_tries_and_the_next_one() -> None:
    count = LetterCount("billing", 10 * MINUTE, Tries(properties.ATTEMPTS_RETRYING, 5, "dead letters"))
    messages = [
        waiting("acme", 2, NOON + 5 * MINUTE),
        waiting("acme", 3, NOON + 4 * MINUTE, **{properties.ORIGIN_TIME: str(NOON - 20 * MINUTE)}),
        waiting("acme", 1),
        waiting("eve", 1, NOON + 10**9),
        waiting("eve", 9, 0, **{properties.FOR: "mailing"}),
        DeadLetter("t", Position(0, 1, 1, -1), b"", {properties.ATTEMPTS_BACKUP: "3"}, publish_time=NOON),
    ]
    assert len(list(count.take(messages))) == 5, "one is for another subscription"
    found = letter_causes(document(), ended=False, count=count)
    assert found.failing == (
        FailingGroup("acme", "ConnectionError", 2, NOON - 20 * MINUTE, TryCount(2, 3, "dead letters")),
    )
    assert found.dues == {"acme": NOON + 4 * MINUTE, "eve": NOON + 10 * MINUTE}, "no later than the file allows"
    assert (found.since, found.recalled) == (NOON - 20 * MINUTE, 0)
    unlimited = LetterCount("billing")
    list(unlimited.take(messages))
    assert unlimited.failing[0].tries.left is None


def test_dead_letters_are_as_old_as_their_first_hop_however_often_they_were_sent_again() -> None:
    count = LetterCount(None)
    again = {properties.RECALL: "r", properties.ORIGIN_TIME: str(NOON - 20 * MINUTE)}
    mark = waiting("eve", 0, 0, **{properties.FOR: MARK, properties.ORIGIN_TIME: "1"})
    assert len(list(count.take([waiting("eve", 9), waiting("eve", 9, 0, **again), mark]))) == 3
    assert (count.since, count.recalled, count.dues, count.failing) == (NOON - 20 * MINUTE, 1, {}, ())


def test_tries_are_told_as_far_as_they_are_known() -> None:
    assert (TryCount(0).text, TryCount(1).text) == ("", "failed at least 1 time")
    assert TryCount(3, 1, "dead letters").text == "failed at least 3 times, 1 try left, then dead letters"
    assert [Tries("x", 3, "dead letters").left(failures) for failures in (0, 1, 3, 9)] == [4, 3, 1, 0]
    assert failures_of({properties.ATTEMPTS_RETRYING: "2", properties.ATTEMPTS_BACKUP: "9" * 10}) == 2
    assert (
        failures_of({properties.ATTEMPTS_RETRYING: "2", properties.ATTEMPTS_BACKUP: "1"}, properties.ATTEMPTS_BACKUP)
        == 1
    )


@pytest.mark.parametrize(
    ("causes", "dues", "text"),
    [
        ((), {}, ""),
        (("boom",), {}, "boom (all of u1)"),
        (("b" * 90,), {}, f"{'b' * 79}… (all of u1)"),
        (("a", "b"), {"u1": NOON + MINUTE, "u2": NOON + 2 * MINUTE}, "a (all of u1) and 1 other cause; next try at 12:01:00 UTC"),
        (("over its limit",), {"u1": NOON}, "over its rate 9/s (all of u1); due now"),
        ((), {"u1": NOON + 1_440 * MINUTE}, "next try at 2026-01-02 12:00 UTC"),
    ],
)  # fmt: skip
def test_a_lane_says_why_its_messages_wait(causes: tuple[str, ...], dues: dict[str, int], text: str) -> None:
    found = LetterCauses(4, True, tuple(CauseCount(one, 4, (("u1", 4),)) for one in causes), dues=dues)
    assert wait_text(found, NOON, "over its rate 9/s") == text
    stale = wait_text(found, NOON, "over its rate 9/s", is_current=False)
    assert stale == text.removesuffix("; due now"), "a try that was due may be over"
    once = replace(found, failing=(FailingGroup("u1", "boom", 4, NOON, TryCount(3)),))
    assert "failed at least 3 times" in wait_text(once, NOON, "")
    assert found.is_of(4, NOON), "the figures of its reading are unknown"
    assert replace(found, entries=4, oldest=NOON).is_of(4, NOON)
    assert not replace(found, entries=4, oldest=NOON).is_of(4, NOON + 1)


def test_tenants_that_keep_failing_are_summed_over_the_lanes() -> None:
    def group(tenant: str, cause: str, messages: int, left: int | None = None) -> FailingGroup:
        tries = TryCount(messages, left, "dead letters")
        return FailingGroup(tenant, cause, messages, NOON - messages * MINUTE, tries)

    waits = group("acme", "a", 2, 4), group("eve", "a", 2)
    retrying = LetterCauses(9, True, (), dues={"acme": NOON + MINUTE}, failing=waits)
    others = group("acme", "a", 3, 2), group("acme", "b", 1), group("(none)", "c", 3)
    backup = LetterCauses(9, False, (), failing=others)
    assert failing_tenants([(retrying, True), (backup, True)], NOON, "customer") == [
        FailingTenant(
            "acme", 6, "at least 6 messages of customer acme keep failing with a and 1 other cause",
            "The first of them was sent 3 min ago", "failed at least 1 time, 2 tries left, then dead letters",
            "next try at 12:01:00 UTC", 1,
        ),
        FailingTenant(
            "(none)", 3, "at least 3 messages keep failing with c", "The first of them was sent 3 min ago",
            "failed at least 3 times", "", 1,
        ),
    ]  # fmt: skip
    assert failing_tenants([(retrying, True)], NOON, "") == [], "few messages say nothing"
    (late,) = failing_tenants([(replace(backup, failing=others[:1], dues={"acme": NOON}), False)], NOON, "")
    assert (late.text, late.due) == ("at least 3 messages of tenant acme keep failing with a", "")
