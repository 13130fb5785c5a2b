"""Lines of the client library's log that tell what it threw away; the rest of it is nobody's business."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kodoctl.pulsar.connection import discarded_messages
from kodoctl.pulsar.connection.discarded_messages import ClientLog, ThrownAway

TOPIC = "persistent://t/ns/jobs-partition-0"
OTHER = "2026-11-24 09:00:55.632 ERROR [1404] ConsumerImpl:918 | Failed to decompress message with 5 at  45:0\n"


def line(place: str) -> str:
    return f"2026-11-24 09:00:55.632 ERROR [1404] ConsumerImpl:930 | [{TOPIC}, work, 0] Discarding corrupted message at {place}\n"


def append(log: ClientLog, text: str) -> None:
    with Path(log.path).open("a", encoding="utf-8") as file:
        file.write(text)


def test_each_line_is_told_once_to_each_who_asks_and_a_half_one_when_it_is_whole() -> None:
    log = ClientLog()
    assert log.news(0) == (0, [])
    append(log, OTHER + line("45:0") + line("45:7")[:60])
    assert log.news(0) == (1, [ThrownAway(TOPIC, "work", "45:0")])
    append(log, line("45:7")[60:])
    assert log.news(1) == (2, [ThrownAway(TOPIC, "work", "45:7")])
    assert log.news(2) == (2, [])
    assert [one.place for one in log.news(0)[1]] == ["45:0", "45:7"]


def test_a_log_that_grows_and_grows_is_cut_and_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discarded_messages, "_MOST", 500)
    log = ClientLog()
    for number in range(50):
        append(log, OTHER + line(f"45:{number}"))
        assert [one.place for one in log.news(number)[1]] == [f"45:{number}"]
    assert Path(log.path).stat().st_size < 1_000


def test_of_more_than_anybody_asks_for_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discarded_messages, "_REMEMBERED", 3)
    log = ClientLog()
    append(log, "".join(line(f"45:{number}") for number in range(9)))
    count, found = log.news(0)
    assert (count, [one.place for one in found]) == (9, ["45:6", "45:7", "45:8"])


def test_a_system_without_files_in_memory_has_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.memfd_create")
    log = ClientLog()
    append(log, line("45:0"))
    assert log.news(0) == (0, [])


PROGRAM = """
import logging, sys, pulsar
from kodo_consumer.adapters.pulsar.pulsar_broker import _warn_of_other_log
from kodoctl.pulsar.connection.client_options import create_client
from kodoctl.pulsar.connection.discarded_messages import client_log
logging.basicConfig()
if sys.argv[1] != "none":
    own = pulsar.Client("pulsar://127.0.0.1:1", logger=logging.getLogger("own") if sys.argv[1] == "logger" else None)
from kodo_consumer.sending.environment import Environment
place = {"admin_url": "http://127.0.0.1:1", "broker_url": "pulsar://127.0.0.1:1", "environ": {}}
clients = [create_client(Environment.of(**place).connection()) for _ in range(2)]
_warn_of_other_log()
_warn_of_other_log()
print(client_log().is_ignored, flush=True)
"""


@pytest.mark.parametrize(("own", "is_ignored"), [("none", False), ("client", False), ("logger", True)])
def test_a_client_of_the_program_with_a_logger_is_noticed_and_told_once(own: str, is_ignored: bool) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, own], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split()[0] == str(is_ignored)
    assert done.stderr.count("start the consumer before that client") == int(is_ignored)


def test_without_files_in_memory_there_is_nothing_to_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert not ClientLog().is_ignored
