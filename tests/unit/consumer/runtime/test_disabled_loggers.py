"""A logging configuration that does not name our loggers disables them without a word: who starts is heard all the same."""

from __future__ import annotations

import logging
import logging.config
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Message, Producer
from kodo_consumer.core.values.send_target import SendTarget
from kodo_consumer.runtime.disabled_loggers import enable_loggers

from kodoctl.errors import ClusterError, KodoctlError, error
from tests.unit.consumer.topologies import DOUBLE, write

OURS = ("kodo.consumer", "kodo.outbox", "kodo.producer", "kodoctl.pulsar")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    for name in (*OURS, "kodo", "kodoctl"):
        logging.getLogger(name)
    made = [one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    before = [(one, one.disabled, one.level, one.propagate) for one in made]
    yield
    for one, disabled, level, propagate in before:
        one.disabled, one.propagate = disabled, propagate
        one.setLevel(level)


def _configure(**more: Any) -> None:
    """As applications do."""
    logging.config.dictConfig({"version": 1, "loggers": {"shop": {"level": "INFO"}}, **more})


def _start_worker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer.load(write(folder, DOUBLE), topic="orders", subscription="billing")

    @consumer.handler
    def bill(message: Message) -> None:
        raise AssertionError

    def fail() -> Any:
        raise ClusterError(error("K710", "topic not found", "orders"))

    monkeypatch.setattr(consumer, "_connect", fail)
    consumer.start()


def _open_producer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ClusterError(error("K710", "topic not found", "orders"))

    monkeypatch.setattr("kodo_consumer.producer.reach_send_target", fail)
    send_target: Any = SendTarget.__new__(SendTarget)
    Producer.to(send_target, object())  # type: ignore[arg-type]  # nobody gets as far as the connection


@pytest.mark.parametrize("start", [_start_worker, _open_producer])
def test_who_starts_is_heard(
    start: Callable[[Path, pytest.MonkeyPatch], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A worker broke, and neither its log nor the console had a word of it."""
    _configure()
    assert [logging.getLogger(name).disabled for name in OURS] == [True] * 4
    with pytest.raises(KodoctlError):
        start(tmp_path, monkeypatch)
    assert [logging.getLogger(name).disabled for name in OURS] == [False] * 4
    assert "a logging configuration disabled kodo" in caplog.text
    assert "disable_existing_loggers" in caplog.text


@pytest.mark.parametrize(
    "configuration",
    [{"disable_existing_loggers": False}, {"loggers": {"kodo": {"level": "CRITICAL"}, "kodoctl": {"level": "ERROR"}}}],
)
def test_who_is_named_or_left_alone_stays_as_it_is(
    configuration: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    _configure(**configuration)
    enable_loggers()
    assert caplog.records == []
    assert not logging.getLogger("kodo.consumer").disabled
    quiet = "loggers" in configuration
    assert logging.getLogger("kodo.consumer").isEnabledFor(logging.WARNING) is not quiet


def test_loggers_of_others_stay_disabled() -> None:
    other = logging.getLogger("kodos")
    _configure()
    enable_loggers()
    assert other.disabled


def test_loggers_that_other_threads_make_meanwhile_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Name(str):
        """A name during whose look another thread makes a logger."""

        __slots__ = ()

        def partition(self, sep: str) -> tuple[str, str, str]:
            made[f"kodo.late{len(made)}"] = logging.getLogger("kodo")
            return str(self).partition(sep)

    made: dict[str, Any] = {Name("kodo.early"): logging.getLogger("kodo")}
    monkeypatch.setattr(logging.Logger.manager, "loggerDict", made)
    enable_loggers()
    assert any(name.startswith("kodo.late") for name in made)
