"""The log of a program that sets up none: levels and formats, and programs that have set up their own."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kodo_consumer.cli.options import LogOptions
from kodo_consumer.runtime.log_output import LogFormat, LogLevel, set_up_logging
from kodo_consumer.runtime.settings import read_settings

from kodoctl.errors import UsageError

log = logging.getLogger("kodo.consumer")


@contextmanager
def process_without_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Standard error of a process without any logging. (A fixture would come before pytest's own handlers.)"""
    root, names = logging.getLogger(), ("", "kodo", "kodoctl")
    handlers, levels = root.handlers, [logging.getLogger(name).level for name in names]
    root.handlers = []
    for name in names:
        logging.getLogger(name).setLevel(logging.NOTSET)
    stream = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", stream)
        yield stream
    root.handlers = handlers
    for name, level in zip(names, levels, strict=True):
        logging.getLogger(name).setLevel(level)


def test_entries_are_lines_with_time_level_and_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    with process_without_logging(monkeypatch) as stream:
        set_up_logging(LogLevel.INFO, LogFormat.TEXT)
        log.info("ready: %s", "orders")
        log.debug("not shown")
        logging.getLogger("library").info("shown")
        first, second = stream.getvalue().splitlines()
        assert first.endswith(" INFO kodo.consumer ready: orders")
        assert second.endswith(" INFO library shown")


def test_worker_processes_have_their_number_in_each_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    with process_without_logging(monkeypatch) as stream:
        set_up_logging(LogLevel.INFO, LogFormat.TEXT, worker=2)
        log.info("ready")
        assert " worker 2 INFO kodo.consumer ready" in stream.getvalue()
        set_up_logging(LogLevel.INFO, LogFormat.JSON, worker=2, replace=True)
        log.info("ready")
        assert json.loads(stream.getvalue().splitlines()[-1])["worker"] == 2


def test_an_entry_as_json_has_the_fields_of_a_message_and_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with process_without_logging(monkeypatch) as stream:
        set_up_logging(LogLevel.INFO, LogFormat.JSON)
        try:
            int("boom")
        except ValueError as problem:
            log.warning("failed with\n%s", "lines", exc_info=problem, extra={"message_id": "m1", "attempt": 2})
        (line,) = stream.getvalue().splitlines()
        entry = json.loads(line)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", entry.pop("time"))
        assert entry.pop("traceback").endswith("ValueError: invalid literal for int() with base 10: 'boom'")
        assert entry == {
            "level": "WARNING", "logger": "kodo.consumer", "message": "failed with\nlines", "message_id": "m1", "attempt": 2,
        }  # fmt: skip


def test_debug_is_for_entries_of_this_project_and_error_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with process_without_logging(monkeypatch) as stream:
        set_up_logging(LogLevel.DEBUG, LogFormat.TEXT)
        log.debug("done")
        logging.getLogger("library").debug("never")
        set_up_logging(LogLevel.ERROR, LogFormat.TEXT, replace=True)
        log.warning("never")
        logging.getLogger("library").warning("never")
        log.error("broken")
        assert [line.rpartition(" ")[2] for line in stream.getvalue().splitlines()] == ["done", "broken"]


def test_the_logging_of_a_program_stays_unless_an_option_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with process_without_logging(monkeypatch) as stream:
        own = logging.NullHandler()
        logging.getLogger().handlers = [own]
        LogOptions().apply()
        assert logging.getLogger().handlers == [own]
        LogOptions(log_format=LogFormat.JSON, log_level=LogLevel.WARNING).apply()
        log.info("never")
        log.warning("shown")
        assert json.loads(stream.getvalue())["message"] == "shown"


def test_settings_choose_level_and_format(tmp_path: Path) -> None:
    chosen = read_settings({"KODO_CONSUMER_LOG_LEVEL": "debug", "KODO_CONSUMER_LOG_FORMAT": "json"}, tmp_path)
    assert (chosen.log_level, chosen.log_format) == (LogLevel.DEBUG, LogFormat.JSON)
    with pytest.raises(UsageError) as raised:
        read_settings({"KODO_CONSUMER_LOG_LEVEL": "loud", "KODO_CONSUMER_LOG_FORMAT": "xml"}, tmp_path)
    assert [one.detail for one in raised.value.diagnostics] == [
        "log_level: write debug, info, warning, error", "log_format: write text, json",
    ]  # fmt: skip


def test_fields_of_a_program_neither_change_nor_break_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    loop: list[object] = []
    loop.append(loop)
    odd: dict[str, object] = {
        "level": "user",
        "time": "noon",
        "worker": 7,
        "ratio": float("nan"),
        "loop": loop,
        "at": {(1, 2): 3},
    }
    with process_without_logging(monkeypatch) as stream:
        set_up_logging(LogLevel.INFO, LogFormat.JSON, worker=2)
        log.info("paid", extra=odd)
        log.info("plain", extra={"amount": 1.5, "path": Path("a")})
        log.info({(1, 2): 3})
    first, second, third = map(json.loads, stream.getvalue().splitlines())
    assert (first["level"], first["logger"], first["message"], first["worker"]) == ("INFO", "kodo.consumer", "paid", 2)
    assert (first["level_"], first["time_"], first["worker_"], first["ratio"]) == ("user", "noon", 7, "nan")
    assert first["at"] == "{(1, 2): 3}"
    assert (second["amount"], second["path"]) == (1.5, "a")
    assert third["(1, 2)"] == 3


def test_text_of_others_moves_no_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    with process_without_logging(monkeypatch) as stream:
        set_up_logging(LogLevel.INFO, LogFormat.TEXT)
        log.info("a\x1b[2J\tb\nc\r")
    assert stream.getvalue().endswith("a\\x1b[2J\tb\\x0ac\\x0d\n")


def test_a_level_that_the_program_gave_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with process_without_logging(monkeypatch) as stream:
        logging.getLogger("kodo").setLevel(logging.ERROR)
        set_up_logging(LogLevel.INFO, LogFormat.TEXT)
        log.info("never")
    assert stream.getvalue() == ""


def test_no_text_of_others_begins_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Line ends in a message, an exception, its causes and notes would forge entries."""
    forged = "x\n2026-11-29 10:00:00,000 INFO kodo.consumer forged\r"
    with process_without_logging(monkeypatch) as stream:
        set_up_logging(LogLevel.INFO, LogFormat.TEXT)
        problem = ValueError(forged)
        problem.add_note(forged)
        problem.__cause__ = ExceptionGroup(forged, [KeyError("a"), OSError(forged)])
        log.warning("failed with %s", forged, exc_info=problem)
        log.error("without an exception", exc_info=(None, None, None))
        lines = stream.getvalue().splitlines()
    assert not any(line.startswith("2026-11-29 10:00") for line in lines)
    assert "failed with x\\x0a2026-11-29 10:00:00,000 INFO kodo.consumer forged\\x0d" in lines[0]
    assert "ValueError: x\\x0a2026-11-29 10:00:00,000 INFO kodo.consumer forged\\x0d" in lines
    assert "  | ExceptionGroup: x\\x0a2026" in "\n".join(lines)
    assert len([line for line in lines if line.startswith("20")]) == 2


def test_a_traceback_of_another_formatter_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with process_without_logging(monkeypatch) as stream:
        set_up_logging(LogLevel.INFO, LogFormat.TEXT)
        record = log.makeRecord("kodo", logging.INFO, "f", 1, "m", (), (OSError, OSError("a\nb"), None))
        logging.Formatter().format(record)
        log.handle(record)
        assert stream.getvalue().endswith("OSError: a\\x0ab\n")
