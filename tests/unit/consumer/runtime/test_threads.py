"""Threads end with a word, or not at all."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time

import pytest
from kodo_consumer.cli import main
from kodo_consumer.runtime import threads
from kodo_consumer.runtime.threads import EndedError, begin, leave, log_end

from tests.brokers.workspace import this_process_goes_on
from tests.services.polling import eventually


def raising() -> None:
    raise SystemExit(3)


def test_whatever_ends_a_thread_is_told() -> None:
    told: list[BaseException] = []
    begin(raising, "t", told.append).join()
    assert [type(problem) for problem in told] == [SystemExit]


@pytest.mark.parametrize(
    ("over", "problems"), [(False, ["the thread t has ended, and nobody asked it to"]), (True, [])]
)
def test_a_thread_that_returns_although_nobody_asked_it_to_is_told(over: bool, problems: list[str]) -> None:
    told: list[BaseException] = []
    begin(lambda: None, "t", told.append, over=lambda: over).join()
    assert [str(problem) for problem in told] == problems
    assert all(isinstance(problem, EndedError) for problem in told)


def test_a_thread_that_may_return_at_any_time_does_so_without_a_word() -> None:
    told: list[BaseException] = []
    begin(lambda: None, "t", told.append).join()
    assert not told


def test_the_log_names_a_thread_without_which_a_worker_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        begin(raising, "kodo-view", log_end).join()
    assert "the thread kodo-view has ended: SystemExit(3)" in caplog.text


COMMAND = """
import atexit, sys, pulsar
from kodo_consumer.cli import main
from kodo_consumer.runtime.threads import leave
from kodoctl.cli.common.console import end_process

def close():  # waits for a broker that never answers, as the closing of a consumer may
    quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    pulsar.Client(sys.argv[1], operation_timeout_seconds=60, logger=quiet).subscribe("t", "s")

def run(app):
    assert leave({"lane": close}, 0.5) == ["lane"]
    sys.stdout.write("drained")
    sys.exit(int(sys.argv[2])) if sys.argv[3] == "kodo-consumer" else end_process(int(sys.argv[2]))

atexit.register(sys.stdout.write, ", ended")
main.run_application = run
main.main() if sys.argv[3] == "kodo-consumer" else run(None)
"""


@pytest.mark.parametrize(("application", "code"), [("kodo-consumer", 0), ("kodo-consumer", 1), ("kodoctl", 1)])
def test_a_command_that_left_a_call_of_the_client_library_behind_ends_with_its_own_code(
    application: str, code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"pulsar://127.0.0.1:{silent.getsockname()[1]}"
        words = [sys.executable, "-c", COMMAND, address, str(code), application]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "drained, ended", "")


def test_a_command_that_left_nothing_behind_ends_as_any_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_left_behind", [])  # nor did a test before this one, in the same process
    monkeypatch.setattr(main, "run_application", lambda _: sys.exit(3))
    with pytest.raises(SystemExit, match="3"):
        main.main()


def test_a_command_within_a_test_ends_no_process_though_a_call_was_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of pytest-xdist died of it without a word, and their runs stood still."""
    gate = threading.Event()
    assert leave({"a": gate.wait}, 0.01) == ["a"]
    monkeypatch.setattr(main, "run_application", lambda _: sys.exit(3))
    try:
        with pytest.raises(SystemExit, match="3"), this_process_goes_on():
            main.main()
    finally:
        gate.set()


def test_what_does_not_end_is_named_and_left_behind_after_one_time_limit_for_all() -> None:
    gate, ended = threading.Event(), []
    began = time.monotonic()
    late = leave({"a": gate.wait, "b": lambda: ended.append("b"), "c": gate.wait}, 0.2)
    assert late == ["a", "c"]
    assert time.monotonic() - began < 45
    eventually(lambda: ended == ["b"])
    gate.set()
