"""Safe patterns: what may keep a worker busy for ever is refused, and what is accepted is quick on the worst texts."""

from __future__ import annotations

import re
import time

import pytest
from kodo_consumer.core.values.error_text import WINDOW

from kodoctl.topology.safe_patterns import MAX_PATTERN, may_match, pattern_problem

SAFE = [
    r"\b\d{13,16}\b", r"\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}", r"[\w.+-]+@[\w-]+(\.[\w-]+)+", r"(?i)bearer [\w.~+/-]+=*",
    r"(?i)(password|passwd|token|secret)=\S+", r"(?<=token=)\S+", r"(?<!x)[A-Z]{2}\d{2}", r'"token": "[^"]*"', r"(?:ab|cd)*e",
    r"eyJ[\w-]+\.[\w-]+\.[\w-]+", r"-----BEGIN [A-Z ]+-----[^-]+-----END [A-Z ]+-----", r"a++a", r"(?>a+)b", r"\w+\b", r"a{0}b",
    r"x(?:[ab]c|d)?e", r"^.+$",
]  # fmt: skip
REFUSED = {
    r"(a+)+$": "repeats what may also follow the repetition (such as 'a')",
    r"(a|a)*b": "alternatives in a repetition that begin alike",
    r"(x+x+)+y": "repeats what may also follow",
    r"\n+\n": "such as '\\n'",
    r".*secret.*": "such as 's'",
    r".*?x": 'as "[^"]*" does',
    r"(a*)*b": "repeats what may match nothing",
    r"(?=a)b": "looks ahead",
    r"(?!a)b": "looks ahead",
    r"(a)\1": "refers back to a group",
    r"(a)?b(?(1)c|d)": "depends on a group",
    r"((?i:a))": "changes its flags within",
    r"a*": "can match no character at all",
    r"(": "is no regular expression: missing )",
    r"[[a]": "is no regular expression: ",
    "(?:[\U0001f300-\U0001faff]+ ?)+!": "repeats what may also follow",
    "(?i)(?:\U00010400+\U00010428?)+!": "repeats what may also follow",
    "[^\u0000-\uffff]+\U0001f600": "repeats what may also follow",
    "|".join(f"a{chr(97 + n)}" for n in range(20)).replace("aa", "b"): "too many alternatives that begin alike",
    "a" * (MAX_PATTERN + 1): "has 501 characters",
}


@pytest.mark.parametrize("pattern", SAFE)
def test_a_safe_pattern_is_quick_on_the_worst_texts(pattern: str) -> None:
    assert pattern_problem(pattern) == ""
    compiled = re.compile(pattern)
    for piece in ("a", "ab", "a.a", "1", "1 ", "@a", "token=", "ab\n", '"token": "', "-----BEGIN A-----x"):
        began = time.process_time()
        compiled.sub("", (piece * WINDOW)[:WINDOW])
        assert time.process_time() - began < 3


@pytest.mark.parametrize(("pattern", "said"), REFUSED.items())
def test_a_pattern_that_could_take_for_ever_is_refused_with_a_reason(pattern: str, said: str) -> None:
    assert said in pattern_problem(pattern)


@pytest.mark.parametrize(("pattern", "said"), REFUSED.items())
def test_a_rule_holds_for_all_of_unicode(pattern: str, said: str) -> None:
    astral = pattern.translate(dict(zip(map(ord, "abcdexy"), map(chr, range(0x10400, 0x10407)), strict=True)))
    assert said.partition(" (such as")[0] in pattern_problem(astral)


def test_repetitions_in_one_another_are_judged_quickly() -> None:
    """Each one doubled the time: a lint of 25 would not have ended within an hour."""
    began = time.process_time()
    assert pattern_problem("(" * 80 + "a+" + "".join(f"{chr(0x4E00 + n)})+" for n in range(80))) == ""
    assert time.process_time() - began < 20


def test_groups_beyond_the_stack_are_refused() -> None:
    def problem_below(frames: int) -> str:
        if frames:
            return problem_below(frames - 1)
        return pattern_problem("".join(f"({chr(0x4E00 + n)}|" for n in range(98)) + "z" + ")+" * 98)

    assert problem_below(320) == "has too many groups in one another"


def test_a_pattern_that_only_java_reads_may_match() -> None:
    assert may_match("a[1-3]", "a2")
    assert not may_match("a[1-3]", "a22")
    for pattern in (r"\p{Alpha}", "a{99999999999}", "[a-z&&[^q]]", "[x[ab]]", "[[ab]]", "(?u)b"):
        assert may_match(pattern, "a")


def test_a_pattern_means_what_java_means_by_it() -> None:
    """Topics may have any names, and to Java `\\w` and `\\d` are ASCII."""
    assert may_match(r"orders-\W+", "orders-é")
    assert not may_match(r"orders-\w+", "orders-é")
