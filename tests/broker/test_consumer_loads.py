"""Scheduling for real loads on the real broker: isolation reads through a flood; eight workers share one limit."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from kodo_consumer import Message
from kodo_consumer.runtime.worker import Worker

from tests.broker.test_consumer_real import Setting
from tests.brokers.broker import Broker
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path) -> Setting:
    return Setting(broker, tenant, tmp_path)


def test_isolation_reads_through_a_flood_far_beyond_the_look_ahead(setting: Setting) -> None:
    """8,000 messages of one tenant would keep four handlers busy for 100 s; behind them come five quiet messages."""
    setting.declare(
        "concurrency: 4, states: [retrying], lookahead: {messages: 1000}, isolate: {min: 100}",
        "fair_by: uid\n    backup: true",
    )
    flood = 8_000
    with setting.producer() as producer:
        for _ in range(flood):
            producer.post(b"x", properties={"uid": "noisy"})
        for number in range(5):
            producer.post(b"x", properties={"uid": f"quiet{number}"})
        producer.flush()
    seen: Counter[str] = Counter()

    def handle(message: Message) -> None:
        time.sleep(0.05)
        seen[message.tenant] += 1

    with setting.worker(handle) as consumer:
        began = time.monotonic()
        eventually(lambda: sum(count for tenant, count in seen.items() if tenant != "noisy") == 5, within=45)
        took = time.monotonic() - began
        assert consumer._running is not None
        worker = consumer._running.worker
        moved = worker.counts.finished["isolated"]
        held = sum(1 for lane in worker.engine.lanes for _ in lane)
        contradictions = worker.engine.check_invariants()
    print(f"quiet ones after {took:.1f} s, {moved} moved aside, {seen['noisy']} noisy ones handled, {held} held")  # noqa: T201
    assert worker.counts.isolated == 1
    assert contradictions == []
    assert moved > flood - 1_500 - seen["noisy"]
    assert seen["noisy"] < 0.4 * flood
    assert took < flood * 0.05 / 4 / 2
    assert worker.counts.failed.total() == 0


def test_eight_workers_share_one_limit_never_above_and_four_fifths_used(setting: Setting) -> None:
    limits = "limits: [{kind: rate, limit: 40/s, burst: 40}]"  # shared by all: 5/s each, and 5 at once
    setting.declare(f"concurrency: 8, expected_workers: 8, {limits}, states: [], lookahead: {{messages: 100}}")
    starts: list[float] = []
    lock = threading.Lock()
    running: list[Worker] = []

    def handle(_: Message) -> None:
        with lock:
            starts.append(time.monotonic())

    with setting.producer() as producer:
        for number in range(1_200):
            producer.post(b"x", properties={"uid": "u"})
            if number % 5 == 4:  # a batch goes to one worker as a whole
                producer.flush()
    with ExitStack() as stack:
        for _ in range(8):
            consumer = stack.enter_context(setting.worker(handle))
            assert consumer._running is not None
            running.append(consumer._running.worker)
        full = time.monotonic()
        time.sleep(12)  # a rate is measured over time
        until = time.monotonic()
        parts = [(worker.counts.started, sum(1 for lane in worker.engine.lanes for _ in lane)) for worker in running]
    print(f"started and held by each: {parts}")  # noqa: T201
    starts.sort()
    for window in (0.5, 1.0, 5.0, 10.0):
        most = max(bisect_left(starts, start + window) - number for number, start in enumerate(starts))
        assert most <= (40 + 40 * window) * 1.02 + 1, f"{most} in {window} s"
    used = (bisect_left(starts, until) - bisect_left(starts, full)) / (until - full) / 40
    print(f"{used:.0%} of the limit used")  # noqa: T201
    assert used >= 0.8
