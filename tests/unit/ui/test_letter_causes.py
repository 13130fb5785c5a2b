"""Causes of dead letters: twelve lines, however many letters there are, and a tenant that fails most of all."""

from __future__ import annotations

from typing import Any

from kodoctl.ui.letter_causes import LetterCauses, cause_lines, failing_tenant, letter_causes


def document(**values: Any) -> Any:
    return {"read": 10_000, "read_all": True, "unread": [], "groups": [], **values}


def test_groups_of_tenants_are_summed_by_cause_and_by_tenant() -> None:
    groups = [
        {"cause": cause, "tenant": tenant, "messages": count}
        for cause, tenant, count in [("a", "u1", 5), ("b", "u1", 7), ("a", "(none)", 9)]
    ]
    found = letter_causes(document(groups=groups), ended=False)
    assert found == LetterCauses(10_000, True, (("a", 14), ("b", 7)), (("u1", 12),))
    for partial in (document(read_all=False), document(unread=["x"])):
        assert not letter_causes(partial, ended=False).complete
    assert not letter_causes(document(), ended=True).complete


def test_ten_thousand_letters_are_a_dozen_lines() -> None:
    causes = tuple((f"it's {number}", 1_000 - number) for number in range(40))
    lines = cause_lines(LetterCauses(10_000, False, causes))
    assert len(lines) == 14
    assert lines[0] == ("1,000 × it's 0", "cause = 'it\\'s 0'")
    assert lines[-2:] == [("27,286 × 28 other causes", ""), ("of the first 10,000 letters that were read", "")]
    assert cause_lines(LetterCauses(1, True, causes[:1])) == [("1,000 × it's 0", "cause = 'it\\'s 0'")]


def test_a_tenant_always_fails_if_half_of_the_letters_are_its_own() -> None:
    def tenant(*tenants: tuple[str, int]) -> tuple[str, int] | None:
        return failing_tenant(LetterCauses(0, True, (), tenants))

    assert tenant(("u1", 6), ("u2", 4)) == ("u1", 6)
    assert tenant(("u1", 6), ("u2", 5), ("u3", 4)) is None
    assert tenant(("u1", 60)) is tenant(("u1", 6), ("u2", 3)) is tenant() is None
