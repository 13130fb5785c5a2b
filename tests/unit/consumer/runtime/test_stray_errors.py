"""Errors that end no run of a handler: of threads, finalizers and callbacks, with and without a consumer that redacts."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kodo_consumer.core.values.error_text import ErrorTextReader
from kodo_consumer.core.values.policy import ErrorTextPolicy
from kodo_consumer.runtime import stray_errors
from kodo_consumer.runtime.stray_errors import redact_stray_errors, report_stray_error

pytestmark = pytest.mark.usefixtures("few_objects")
CANARY = "4111111111111111"
REDACTS = ErrorTextReader(ErrorTextPolicy(500, 500, ("[0-9]{16}",)))


class Owner:
    """Whoever redacts."""


def _fail() -> None:
    raise ValueError(f"card {CANARY} of order 42")


class Left:
    def __del__(self) -> None:
        _fail()


def _thread() -> None:
    thread = threading.Thread(target=_fail, name=f"for {CANARY}")
    thread.start()
    thread.join()


def _finalizer() -> None:
    Left()
    gc.collect()


def _callback() -> None:
    try:
        _fail()
    except ValueError as problem:
        report_stray_error("a callback for receipts failed", problem)


STRAYS = [_thread, _finalizer, _callback]


@pytest.fixture(autouse=True)
def _as_python_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hooks of Python, which the test runner has replaced, and no consumer of other tests."""
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    monkeypatch.setattr(stray_errors, "_readers", type(stray_errors._readers)())


@pytest.mark.parametrize("stray", STRAYS)
def test_a_canary_is_in_no_stray_error_where_a_consumer_redacts(
    stray: Callable[[], None], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    owner = Owner()
    redact_stray_errors(REDACTS, owner)
    stray()
    assert "failed" in caplog.text
    assert ": card [redacted] of order 42 (at " in caplog.text
    assert CANARY not in caplog.text + capfd.readouterr().err


@pytest.mark.parametrize("stray", STRAYS)
def test_every_consumer_of_the_process_redacts(stray: Callable[[], None], caplog: pytest.LogCaptureFixture) -> None:
    owners = Owner(), Owner()
    redact_stray_errors(REDACTS, owners[0])
    redact_stray_errors(ErrorTextReader(ErrorTextPolicy(500, 500), [lambda text: text.replace("42", "?")]), owners[1])
    stray()
    assert "card [redacted] of order ?" in caplog.text


@pytest.mark.parametrize("stray", STRAYS)
@pytest.mark.parametrize(
    "texts", [None, ErrorTextReader(ErrorTextPolicy(500, 500)), REDACTS], ids=["none", "keeps", "gone"]
)
def test_without_a_consumer_that_redacts_python_reports_as_ever(
    stray: Callable[[], None],
    texts: ErrorTextReader | None,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    redact_stray_errors(texts, Owner())  # which nobody keeps
    gc.collect()
    stray()
    told = capfd.readouterr().err + caplog.text
    assert "Traceback" in told
    assert CANARY in told


def test_what_the_program_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    owner = Owner()
    redact_stray_errors(REDACTS, owner)
    _thread()
    _finalizer()
    assert [args.exc_type for args in told] == [ValueError, ValueError]
