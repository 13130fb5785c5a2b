"""The broker's limits on unacknowledged messages leave the look-ahead what it is: a lane is read by several consumers."""

from __future__ import annotations

import logging
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Message
from kodo_consumer.runtime.worker import Worker

from tests.broker.test_consumer_real import Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, unload
from tests.services.polling import eventually
from tests.services.servers import Fault, Proxy, Request

pytestmark = [pytest.mark.broker, pytest.mark.timed]
LIMIT = 1_000
FLOOD = 5_000


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path) -> Setting:
    """A flood of one tenant and a quiet message behind it, on a topic whose consumers may hold a fifth of it."""
    found = Setting(broker, tenant, tmp_path)
    found.declare("concurrency: 2, states: []", "partitions: 1\n    fair_by: uid")
    path = found.topic().replace("://", "/")
    assert broker.admin("POST", f"{path}/maxUnackedMessagesOnConsumer", LIMIT).ok
    eventually(lambda: broker.admin("GET", f"{path}/maxUnackedMessagesOnConsumer", applied="true").json() == LIMIT)
    with found.producer() as producer:
        for _ in range(FLOOD):
            producer.post(b"x", properties={"uid": "noisy"})
        producer.flush()
        producer.post(b"x", properties={"uid": "quiet"})
        producer.flush()
    return found


def _worker(consumer: Consumer) -> Worker:
    assert consumer._running is not None
    return consumer._running.worker


def _consumers(worker: Worker) -> int:
    reader: Any = worker.reader(0)
    return len(reader._parts)


def test_a_quiet_message_behind_five_times_the_limit_is_handled_at_its_turn(setting: Setting) -> None:
    seen: Counter[str] = Counter()
    noisy_before: list[int] = []
    quick = False

    def handle(message: Message) -> None:
        if message.tenant == "quiet":
            noisy_before.append(seen["noisy"])
        seen[message.tenant] += 1
        if not quick:
            time.sleep(0.02)

    with setting.worker(handle) as consumer:
        eventually(lambda: noisy_before, within=30)
        worker = _worker(consumer)
        held, several = worker.engine.lanes[0].in_flight, _consumers(worker)
        unload(setting.broker, setting.topic())  # what all of them held comes again
        quick = True
        eventually(lambda: not backlog(setting.broker, setting.topic(), "s"), within=60)
        assert worker.engine.check_invariants() == []
    told = (
        f"{noisy_before[0]} noisy ones before the quiet one, {held} held, by {several} consumers, {seen.total()} runs"
    )
    print(told)  # noqa: T201
    assert noisy_before[0] < 600, "as a queue it would have been 4,000 or more"
    assert held > 2 * LIMIT
    assert 3 < several <= 64
    assert seen["noisy"] >= FLOOD
    assert seen.total() <= FLOOD + 1 + 2 + held  # after an unload: what was acknowledged and not stored, by the batch


def test_without_the_right_to_read_policies_the_stats_tell(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    def forbid(request: Request) -> Fault | None:
        return Fault.FORBIDDEN_BEFORE if "maxUnacked" in request.path else None

    proxy = Proxy(setting.broker.admin_url, forbid)
    setting.place["admin_url"] = proxy.url
    quiet: list[float] = []

    def handle(message: Message) -> None:
        time.sleep(0.02)
        if message.tenant == "quiet":
            quiet.append(time.monotonic())

    with caplog.at_level(logging.INFO, "kodo.consumer"), setting.worker(handle) as consumer:
        began = time.monotonic()
        eventually(lambda: quiet, within=45)
        several = _consumers(_worker(consumer))
        assert _worker(consumer).alarms.counts["blocked"] >= 1
    proxy.close()
    print(f"after {quiet[0] - began:.1f} s, by {several} consumers")  # noqa: T201
    assert proxy.faults
    assert quiet[0] - began < 30, "as a queue it would be 50 s"
    assert several > 1
    assert "it is read by several" in caplog.text
