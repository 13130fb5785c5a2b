"""The package kodo-fast refuses every client library that it is not proven with, and says in a sentence why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer.adapters.pulsar.native_border import DELIVERIES
from kodo_consumer.core import CoreStatus
from kodo_consumer.core.values.envelope import Delivery, Outgoing

kodo_fast = pytest.importorskip("kodo_fast", reason="the native border is not built (make setup)")


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    """What a test finds is not what the process goes on with."""
    vars(DELIVERIES).pop("loaded", None)
    yield
    vars(DELIVERIES).pop("loaded", None)


def _off() -> str:
    choice = DELIVERIES.choose()
    assert choice.border is None
    return choice.detail


def test_another_version_of_the_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kodo_fast, "version", lambda _: "3.99.0")
    assert _off() == "it is proven with pulsar-client 3.13.0, and 3.99.0 is installed"


def test_without_the_client_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(_: str) -> str:
        raise kodo_fast.PackageNotFoundError

    monkeypatch.setattr(kodo_fast, "version", version)
    assert _off() == "pulsar-client is not installed"


def test_another_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kodo_fast.platform, "python_implementation", lambda: "PyPy")
    monkeypatch.setattr(kodo_fast.platform, "system", lambda: "Linux")
    assert _off() == "there is none for PyPy on Linux"


def test_another_release_of_kodoctl_is_refused() -> None:
    with pytest.raises(kodo_fast.RefusalError, match="do not fit each other"):
        kodo_fast.load(tuple, Outgoing._fields)
    with pytest.raises(kodo_fast.RefusalError, match="do not fit each other"):
        kodo_fast.load(Delivery, Outgoing._fields[1:])


def test_another_build_of_the_client_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ImportError, match=r"0 libraries named libpulsar beside _pulsar\.so"):
        kodo_fast._library(tmp_path / "_pulsar.so")
    monkeypatch.setattr(kodo_fast, "_library", lambda _: tmp_path / "libpulsar.so")
    assert _off() == f"pulsar-client 3.13.0 is not as expected: {tmp_path / 'libpulsar.so'} is not loaded"


def test_a_library_without_the_functions_is_refused_and_all_that_miss_are_named() -> None:
    import _pulsar
    from kodo_fast import _native

    with pytest.raises(ImportError, match=r"libc\.so\.6 has no pulsar_consumer_receive_with_timeout, .*batchIndexEv"):
        _native.load("libc.so.6", Delivery, _pulsar.Message, 3)
    with pytest.raises(ImportError, match="list is no plain tuple"):
        _native.load("libc.so.6", list, _pulsar.Message, 3)


def test_objects_that_look_otherwise_than_expected_are_refused() -> None:
    import _pulsar
    from kodo_fast import _native

    def cut(message: Any) -> Any:
        found = _native.delivery(message)
        return found._replace(key=found.key.partition("\x00")[0])

    assert DELIVERIES.choose().border is not None
    with pytest.raises(ImportError, match="self-test: message 0 of 3 differs"):
        kodo_fast._test(cut, _native.position, _pulsar)
    with pytest.raises(ImportError, match="self-test: message ids differ"):
        kodo_fast._test(_native.delivery, lambda _: (0, 0, 0, 0), _pulsar)


def test_the_command_says_whether_it_can_be_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kodo_fast.__main__ import main

    for compiled, out, err in ((True, "compiled core: on (it)\n", ""), (False, "", "compiled core: off (it)\n")):
        monkeypatch.setattr("kodo_consumer.core.COMPILED", CoreStatus(compiled=compiled, detail="it"))
        assert main() == (not compiled)
        border = f"kodo-fast {kodo_fast.__version__} with pulsar-client 3.13.0\n"
        assert capsys.readouterr() == (border + out, err)
    monkeypatch.setattr(kodo_fast, "version", lambda _: "3.99.0")
    assert main() == 1
    assert "is not used: it is proven with pulsar-client 3.13.0" in capsys.readouterr().err
