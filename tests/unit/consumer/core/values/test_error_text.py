"""Error texts: read, redacted on the whole, cut in bytes; what cannot be redacted is not kept, and says so."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.core.values.error_text import WINDOW, ErrorTextReader, cut, cut_front, harmless
from kodo_consumer.core.values.exceptions import (
    Blocking,
    Dead,
    Discard,
    HandlerFailedError,
    Pending,
    Retry,
    error_behind,
    exception_for,
)
from kodo_consumer.core.values.outcomes import ErrorDetails, Failed, RetryAsked
from kodo_consumer.core.values.policy import ErrorTextPolicy

PLAIN = ErrorTextPolicy(500, 500)
CARDS = ErrorTextPolicy(500, 500, (r"\d{16}",))
CARD = "4111111111111111"


def raised(raising: Callable[[], object]) -> BaseException:
    try:
        raising()
    except BaseException as problem:  # noqa: BLE001
        return problem
    raise AssertionError


def of(problem: BaseException) -> Callable[[], object]:
    def raising() -> None:
        raise problem

    return raising


def test_text_and_stack_of_an_exception_with_the_innermost_frame_last() -> None:
    found = ErrorTextReader(PLAIN).read(raised(of(ConnectionError("bank 7 answered 503 for order 42"))))
    assert found.text == "bank 7 answered 503 for order 42"
    assert [frame.rpartition(":")[0] for frame in found.stack.split(" > ")] == [
        f"{__name__}.raised", f"{__name__}.of.<locals>.raising",
    ]  # fmt: skip


def test_what_led_to_an_exception_is_named_the_first_cause_last() -> None:
    def charge() -> None:
        try:
            of(ConnectionError("bank 7"))()
        except ConnectionError as problem:
            raise ValueError("no charge") from problem

    def hide() -> None:
        try:
            of(KeyError(CARD))()
        except KeyError:
            raise ValueError("no charge") from None

    found = ErrorTextReader(PLAIN).read(raised(charge))
    assert found.text == "no charge <- ConnectionError: bank 7"
    assert "raising" in found.stack
    assert ErrorTextReader(PLAIN).read(raised(hide)).text == "no charge"
    assert ErrorTextReader(PLAIN).read(raised(of(KeyError()))).text == ""


def test_a_request_of_a_handler_has_the_text_of_what_led_to_it() -> None:
    def retry() -> None:
        try:
            of(ConnectionError("bank 7"))()
        except ConnectionError:
            raise Retry("1m", "bank is down")  # noqa: B904  # as handlers do

    assert ErrorTextReader(PLAIN).read(raised(retry)).text == "ConnectionError: bank 7"
    found = ErrorTextReader(PLAIN).read(raised(of(Dead("no such order"))))
    assert (found.text, "raising" in found.stack) == ("", True)


def test_an_endless_chain_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert ErrorTextReader(PLAIN).read(first).text == "a <- ValueError: b <- a <- ValueError: b"


def test_an_exception_that_cannot_be_read() -> None:
    class Odd(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise SystemExit

    assert ErrorTextReader(PLAIN).read(Odd()).text == "(its text cannot be read)"


def test_patterns_run_on_the_whole_text_before_it_is_cut() -> None:
    reader = ErrorTextReader(ErrorTextPolicy(24, 500, (r"\d{16}",)))
    assert reader.redacts
    assert reader.read(ValueError(f"card {CARD} of {CARD}")).text == "card [redacted] of [r…"
    too_long = ErrorTextReader(CARDS).read(ValueError(CARD + "x" * WINDOW))
    assert too_long.text == f"(not kept: of {WINDOW + 16} characters, {WINDOW} can be searched)"
    assert not ErrorTextReader(PLAIN).redacts
    assert len(ErrorTextReader(PLAIN).read(ValueError("x" * 10 * WINDOW)).text.encode()) == 500


def test_hooks_run_before_patterns_and_where_one_fails_nothing_is_kept() -> None:
    def names(text: str) -> str:
        return text.replace("Smith", "N.")

    def fails(text: str) -> str:
        raise KeyError(text)

    def leaves(text: str) -> str:
        raise SystemExit(text)

    def hides(_: str) -> str:
        return CARD

    def wrong(_: str) -> str:
        return None  # type: ignore[return-value]

    def grows(text: str) -> str:
        return text * WINDOW

    problem = ValueError(f"card {CARD} of Smith")
    assert ErrorTextReader(CARDS, [names]).read(problem).text == "card [redacted] of N."
    assert ErrorTextReader(CARDS, [hides]).read(problem).text == "[redacted]"
    for hook, kind in ((fails, "KeyError"), (leaves, "SystemExit"), (wrong, "TypeError"), (grows, "TypeError")):
        text = ErrorTextReader(PLAIN, [names, hook]).read(problem).text
        assert text.startswith("(not kept: test_hooks_run_before_patterns")
        assert text.endswith(f"failed with {kind})")


def test_what_another_process_brings_is_redacted_further() -> None:
    reader = ErrorTextReader(CARDS, [lambda text: text.replace("Smith", "N.")])
    beneath = pickle.loads(pickle.dumps(reader.for_process()))
    brought = beneath.read(ValueError(f"card {CARD} of Smith" + "x" * 1_000))
    assert brought.text == "card [redacted] of Smith" + "x" * 1_000
    assert (beneath.redacts, beneath.in_words(brought)) == (True, "")
    for outcome in (Failed("ValueError", brought), RetryAsked(None, "later", error=brought)):
        problem = exception_for(outcome)
        problem.__cause__ = error_behind(outcome)
        found = reader.read(problem)
        assert found.text.startswith("card [redacted] of N.xxx")
        assert len(found.text.encode()) == 500
    assert reader.read(HandlerFailedError("ValueError")) == ErrorDetails("", "")
    assert reader.in_words(ErrorDetails("a", "m.f:1")) == ": a (at m.f:1)"
    assert reader.in_words(ErrorDetails("", "")) == ""


def test_control_characters_become_harmless() -> None:
    assert harmless("a\n\tb\x00\x1b[31m\u202e\ud800") == "a b\ufffd\ufffd[31m\ufffd\ufffd"


def test_of_a_stack_the_innermost_frames_are_kept() -> None:
    assert cut_front("a.a:1 > b.b:2 > c.c:3", 21) == "a.a:1 > b.b:2 > c.c:3"
    assert cut_front("a.a:1 > b.b:2 > c.c:3", 20) == "… > b.b:2 > c.c:3"[:20]
    assert cut_front("a.a:1 > b.b:2 > c.c:3", 12) == "… > c.c:3"
    assert cut_front("a" * 20, 10) == "a" * 7 + "…"


@given(st.text(), st.integers(0, 40))
def test_a_cut_text_has_no_half_character(text: str, most: int) -> None:
    safe = harmless(text)
    found = cut(safe, most)
    assert len(found.encode()) <= most
    assert found == safe or safe.startswith(found.removesuffix("…"))


@pytest.mark.parametrize("bad", ["E\ud83d", "\udc80", "a\udfffb"])
def test_whatever_a_verdict_says_can_travel(bad: str) -> None:
    """Half of a surrogate pair in the code of a retry was refused by the client: dead at once, with its value in the log."""
    for verdict in (Retry("1s", bad), Retry(code=bad), Dead(bad), Pending(bad), Blocking(bad), Discard(bad)):
        texts = [text for text in astuple(verdict.outcome) if isinstance(text, str)]
        assert texts
        assert "".join(texts).encode()
    assert Retry(code=bad).code == bad.encode("utf-8", "replace").decode()
