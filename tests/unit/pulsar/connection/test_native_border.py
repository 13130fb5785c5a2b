"""The native border is used where it is proven, and says in a sentence why where it is not, whoever loads it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.native_border import DELIVERIES
from kodo_pipeline.source.native_batches import BATCHES

from kodoctl.errors import UsageError
from kodoctl.pulsar.binary.message_reader import ReadMessage, copy_message
from kodoctl.pulsar.connection.native_border import MESSAGES, BorderLoader, NativeMessage, native_setting, result_of


@pytest.fixture(params=[MESSAGES, DELIVERIES, BATCHES], ids=["messages", "deliveries", "batches"])
def loader(request: pytest.FixtureRequest) -> Iterator[BorderLoader[Any]]:
    """Each loader of the border, as in a new process."""
    loader: BorderLoader[Any] = request.param
    vars(loader).pop("loaded", None)
    yield loader
    vars(loader).pop("loaded", None)


@pytest.fixture
def kodo_fast() -> Any:
    """The package, where it is built."""
    return pytest.importorskip("kodo_fast", reason="the native border is not built (make setup)")


def _off(loader: BorderLoader[Any]) -> str:
    choice = loader.choose()
    assert choice.border is None
    assert choice.status == f"native border: off ({choice.detail})"
    return choice.detail


def test_it_is_used_and_says_with_what(loader: BorderLoader[Any], kodo_fast: Any) -> None:
    choice = loader.choose()
    assert choice.border is not None
    assert choice.status == f"native border: on (kodo-fast {kodo_fast.__version__} with pulsar-client 3.13.0)"
    assert loader.choose().border is choice.border


def test_the_setting_switches_it_off(loader: BorderLoader[Any]) -> None:
    switches = {MESSAGES: "KODO_CONSUMER_NATIVE", DELIVERIES: "the setting native", BATCHES: "the option native"}
    assert loader.choose(native=False) == (None, f"switched off by {switches[loader]}")


def test_in_a_fork_of_the_process_that_loaded_it_the_binding_serves(
    loader: BorderLoader[Any], kodo_fast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert loader.choose().border is not None, kodo_fast
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert _off(loader) == "this process is a fork of one that has loaded it"


def test_without_the_package_the_binding_serves(loader: BorderLoader[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kodo_fast", None)
    assert _off(loader) == "kodo-fast is not installed"


def test_a_package_that_cannot_be_imported_says_why(
    loader: BorderLoader[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kodo_fast.py").write_text("raise ImportError('made for another Python')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kodo_fast", raising=False)
    assert _off(loader) == "kodo-fast cannot be imported: made for another Python"


def test_another_release_of_the_package_is_refused(loader: BorderLoader[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kodo_fast", SimpleNamespace(INTERFACE=1, __version__="0.9"))
    assert _off(loader) == "kodo-fast 0.9 and kodoctl do not fit each other: install the same release of both"


def test_what_the_package_refuses_it_says(
    loader: BorderLoader[Any], kodo_fast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kodo_fast, "version", lambda _: "3.99.0")
    assert _off(loader) == "it is proven with pulsar-client 3.13.0, and 3.99.0 is installed"


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
    copy = ReadMessage(None, 4, 1, 2, 3, b"x", {"a": "b"}, "key", "order", 5, 6, "")
    assert copy_message(found, None, (4, 1, 2, 3)) == copy
