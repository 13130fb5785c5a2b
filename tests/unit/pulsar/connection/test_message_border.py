"""kodoctl reads and sends by the native border where that is proven, and says in a line why where it is not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pulsar
import pytest

from kodoctl.errors import UsageError
from kodoctl.pulsar.binary.message_reader import copy_message
from kodoctl.pulsar.connection import message_border
from kodoctl.pulsar.connection.message_border import NativeMessage, choose_message_border, native_setting, result_of


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    """What a test finds is not what the process goes on with."""
    message_border._load_once.cache_clear()
    yield
    message_border._load_once.cache_clear()


def _off() -> str:
    border, status = choose_message_border()
    assert border is None
    assert status.startswith("native border: off (")
    return status.removeprefix("native border: off (").removesuffix(")")


def test_it_is_used_and_says_with_what() -> None:
    kodo_fast = pytest.importorskip("kodo_fast", reason="the native border is not built (make setup)")
    border, status = choose_message_border()
    assert status == f"native border: on (kodo-fast {kodo_fast.__version__} with pulsar-client 3.13.0)"
    assert border is not None
    assert choose_message_border()[0] is border


def test_the_setting_switches_it_off() -> None:
    assert choose_message_border(native=False) == (None, "native border: off (switched off by KODO_CONSUMER_NATIVE)")


def test_in_a_fork_of_the_process_that_loaded_it_the_binding_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kodo_fast", reason="the native border is not built (make setup)")
    assert choose_message_border().border is not None
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert _off() == "this process is a fork of one that has loaded it"


def test_without_the_package_the_binding_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kodo_fast", None)
    assert _off() == "kodo-fast is not installed"


def test_an_earlier_release_of_the_package_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kodo_fast", SimpleNamespace(INTERFACE=1, __version__="0.9"))
    assert _off() == "kodo-fast 0.9 is of another release"


def test_what_the_package_refuses_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    kodo_fast = pytest.importorskip("kodo_fast", reason="the native border is not built (make setup)")
    monkeypatch.setattr(kodo_fast, "version", lambda _: "3.99.0")
    assert _off() == "it is proven with pulsar-client 3.13.0, and 3.99.0 is installed"


@pytest.mark.parametrize(("text", "native"), [("", True), ("true", True), (" TRUE ", True), ("false", False)])
def test_the_variable_of_consumers_switches_it(text: str, *, native: bool) -> None:
    assert native_setting({"KODO_CONSUMER_NATIVE": text}) is native
    assert native_setting({})


def test_a_variable_that_is_neither_is_named() -> None:
    with pytest.raises(UsageError, match="KODO_CONSUMER_NATIVE = 'maybe': write true or false"):
        native_setting({"KODO_CONSUMER_NATIVE": "maybe"})


def test_results_have_the_client_librarys_names() -> None:
    assert result_of(int(pulsar.Result.MessageTooBig)) == pulsar.Result.MessageTooBig
    assert result_of(12_345) == pulsar.Result.UnknownError


def test_a_message_of_the_border_is_copied_as_one_of_the_client() -> None:
    found = NativeMessage((1, 2, 0), "id", b"x", {"a": "b"}, "key", "order", 5, 6, 3, "", "")
    assert found.message_id() == "id"
    assert copy_message(found, None, (4, 1, 2, 3)) == (None, 4, 1, 2, 3, b"x", {"a": "b"}, "key", "order", 5, 6, "")
