"""Audit records on the real broker: complete after kill -9 at any step of theirs, and true about what is stored."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kodoctl.protocol.audit_records import COUNT_PROPERTY, FIRST_PROPERTY, Event, Record, decode
from tests.broker.test_consumer_process import TOPOLOGY, Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics, messages
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
MESSAGES = 800
MARK = "not_for_me"
APP = """
import os, signal, time
from itertools import count

from kodo_consumer.core.engine.audit_recorder import AuditRecorder
from kodo_consumer.adapters.pulsar import lane_reader, partition_producers, send_calls

STEP = os.environ.get("KILL_AT", "")
ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def around(owner, name, step, nth, concerns=lambda *arguments: True):
    '''The process dies before the nth call that concerns records, or (step ends with a dot) right after it.'''
    original, calls = getattr(owner, name), count(1)

    def patched(*arguments):
        fatal = STEP == step and concerns(*arguments) and next(calls) == nth
        if fatal and not step.endswith("."):
            os.kill(os.getpid(), signal.SIGKILL)
        answer = original(*arguments)
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, patched)


def of_records(line, ticket, message, key):
    return message.topic.endswith("-AUDIT")


around(AuditRecorder, "flush", "gathered", 3)  # handled, no record is on its way
def all_of_records(calls, messages, key, producer):
    return messages[0][1].topic.endswith("-AUDIT")


around(partition_producers.Producers, "_send", "sent.", 3, of_records)  # on its way, without receipt
around(send_calls.NativeSendCalls, "send_all", "sent.", 3, all_of_records)  # the same of a bundle
around(AuditRecorder, "on_stored", "recorded", 3)  # the record is stored, its messages are not acknowledged


def handle(message):
    time.sleep(0.001)
    if int(message.data) % 10 == 0 and message.attempt == 1:
        raise ValueError
    os.write(ledger, message.data + b"\\n")
"""


@pytest.mark.parametrize(
    "step",
    [pytest.param("gathered", marks=pytest.mark.full), "sent.", pytest.param("recorded", marks=pytest.mark.full)],
)
def test_a_kill_at_a_step_of_the_records_leaves_no_message_without_one(
    step: str, broker: Broker, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(broker, tenant, tmp_path)
    setting.file.write_text(TOPOLOGY.format(tenant=tenant).replace("work: {", "work: {audit: true, "), encoding="utf-8")
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    create_topics(broker, str(setting.file))
    setting.send(MESSAGES)
    monkeypatch.setenv("KILL_AT", step)
    with setting.run() as process:
        assert process.wait(60) == -signal.SIGKILL
    at_kill = len(setting.done())
    assert 0 < at_kill < MESSAGES
    monkeypatch.delenv("KILL_AT")
    with setting.run() as process:
        eventually(lambda: not setting.left(), within=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    done = setting.done()
    assert set(done) == set(range(MESSAGES))

    stored = {name: dict(_stored(broker, f"{setting.topic}{name}")) for name in ("", "-work-RETRYING")}
    records = [
        record for _, payload, _ in _messages(broker, f"{setting.topic}-work-AUDIT") for record in decode(payload)
    ]
    assert {record.subscription for record in records} == {"work"}
    ended = Counter(_number(stored, setting, record.topic, record.id) for record in records if _of_work(record))
    assert set(ended) == set(range(MESSAGES)), "everything that was acknowledged has its record"
    moved = [record for record in records if record.event is Event.MOVED]
    assert {_number(stored, setting, one.topic, one.id) for one in moved} == set(range(0, MESSAGES, 10))
    for one in moved:
        assert _number(stored, setting, one.target, one.target_id) == _number(stored, setting, one.topic, one.id)
    for run, numbers in _by_run(records).items():
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), f"a hole in {run}"
    repeats = sum(count - 1 for count in ended.values())
    print(f"{step}: {at_kill} handled before the kill, {repeats} recorded twice")  # noqa: T201
    assert repeats <= 1_000 + 64 + 4, "more than one group of acknowledgements, a bundle and what ran"


def test_best_effort_records_are_complete_after_a_clean_end(broker: Broker, tenant: str, tmp_path: Path) -> None:
    setting = Setting(broker, tenant, tmp_path)
    text = TOPOLOGY.format(tenant=tenant).replace("work: {", "work: {audit: best_effort, ")
    setting.file.write_text(text, encoding="utf-8")
    create_topics(broker, str(setting.file))
    setting.send(500)
    with setting.run(pause=0.0) as process:
        eventually(lambda: not setting.left(), within=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    records = []
    for properties, payload, key in _messages(broker, f"{setting.topic}-work-AUDIT"):
        found = decode(payload)
        assert (properties[FIRST_PROPERTY], properties[COUNT_PROPERTY]) == (str(found[0].number), str(len(found)))
        assert key == found[0].run
        records += found
    assert sum(record.rule != MARK for record in records) == 500 + 50
    assert len({record.id for record in records if _of_work(record)}) == 500


def _of_work(record: Record) -> bool:
    """Whether it ends a message's life: not a mark of the producer, which is for no subscription."""
    return record.terminal and record.rule != MARK


def _by_run(records: list[Record]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for record in records:
        found.setdefault(record.run, set()).add(record.number)
    return found


def _number(stored: dict[str, dict[str, int]], setting: Setting, topic: str, position: str) -> int:
    return stored[topic.removeprefix(setting.topic)][position]


def _stored(broker: Broker, topic: str) -> Iterator[tuple[str, int]]:
    """(position, number in the payload) of every message in a topic; a producer's marks have no payload."""
    return (
        (str(message.message_id()).strip("()").replace(",", ":"), int(message.data()))
        for message in messages(broker, topic)
        if message.data()
    )


def _messages(broker: Broker, topic: str) -> list[tuple[dict[str, str], bytes, str]]:
    return [(one.properties(), one.data(), one.partition_key()) for one in messages(broker, topic)]
