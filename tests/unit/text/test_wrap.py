"""Long lines on a screen: folded at spaces, never inside what is there to be copied."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.text.wrap import NARROWEST, fold

ADDRESS = "subscription.persistent://kodo/trade/orders-L2-billing-BLOCKING/billing"


@pytest.mark.parametrize(
    ("text", "hang", "shown"),
    [
        ("short", None, ["short"]),
        ("  a word and another word and another word", None, ["  a word and another word and another", "  word"]),
        ("  a word and another word and another word", 6, ["  a word and another word and another", "      word"]),
        (f"  + {ADDRESS}  (t.yaml:3)", 4, ["  +", f"    {ADDRESS}", "    (t.yaml:3)"]),
        ("retention and ttl {time: 7d, size: 20GiB} stay", None, ["retention and", "ttl {time: 7d, size: 20GiB} stay"]),
        ("a topic's backlog_quota_of_sorts {size: 20GiB, time: 7d}", None,
         ["a topic's backlog_quota_of_sorts", "{size: 20GiB, time: 7d}"]),
        ("if it is gone for good then `kodoctl destroy` does", None, ["if it is gone for good then", "`kodoctl destroy` does"]),
        ("an open { brace is a word like any other word here", None, ["an open { brace is a word like any other", "word here"]),
        ("run `kodoctl plan trade.yaml --env staging --out plan.json` now", None,
         ["run `kodoctl plan trade.yaml --env", "staging --out plan.json` now"]),
    ],
)  # fmt: skip
def test_a_line_is_folded_where_it_reads_best(text: str, hang: int | None, shown: list[str]) -> None:
    assert fold(text, 40, hang) == shown


@given(st.text(alphabet="ab {}`,:", max_size=200), st.integers(-5, 120), st.none() | st.integers(0, 200))
def test_nothing_is_lost_and_only_single_words_are_too_long(text: str, width: int, hang: int | None) -> None:
    lines = fold(text, width, hang)
    assert " ".join(lines).split() == text.split()
    for line in lines if len(lines) > 1 else ():
        assert len(line) <= max(width, NARROWEST) or " " not in line.strip()
