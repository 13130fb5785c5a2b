"""An outage of some customers on a real broker: retries that hang leave slots to the messages of all others, unasked."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer

from tests.broker.test_consumer_bulkheads import Bank
from tests.broker.test_consumer_real import Setting
from tests.brokers.broker import Broker
from tests.services.polling import eventually
from tests.unit.consumer.watching import get, series

pytestmark = [pytest.mark.broker, pytest.mark.timed]
SLOTS, SLOW, READY = 8, 20, 300
RETRYING = {"level": "L1", "state": "retrying"}
SETTINGS = f"concurrency: {SLOTS}, in_place: [], dead_letter: false, retrying: {{delays: [1s], attempts: 9}}, handler_timeout: 2m"


@pytest.mark.parametrize("kind", ["threads", pytest.param("event loop", marks=pytest.mark.full)])
def test_hanging_retries_of_some_delay_nobody_else_and_the_breaker_notices_them(
    broker: Broker, tenant: str, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    setting, bank = Setting(broker, tenant, tmp_path), Bank()
    setting.declare(SETTINGS)
    setting.place["environ"] = {"KODO_CONSUMER_PORT": "0"}
    with setting.producer() as producer, setting.worker(bank.handler(kind)) as consumer:
        try:
            for number in range(SLOW):
                producer.post(b"x", properties={"uid": f"slow{number}"})
            producer.flush()
            eventually(lambda: bank.hanging >= SLOTS - 2, within=30)
            for _ in range(READY):
                producer.post(b"%f" % time.time(), properties={"uid": "quick"})
                time.sleep(0.01)
            producer.flush()
            eventually(lambda: len(bank.waits) == READY, within=30)
            waits = sorted(bank.waits)
            assert waits[READY // 2] < 1
            assert waits[READY * 99 // 100] < 4, "with every slot taken they would wait until it is over"
            assert SLOTS - 2 <= bank.most < SLOTS, "slow ones have all but the head-room and one for newcomers"
            assert not bank.recovered, "nobody started in a slot that one of them had left"
            _assert_noticed(consumer, caplog)
        finally:
            bank.over.set()
        eventually(lambda: bank.recovered == SLOW, within=30)
        eventually(lambda: not _slow(consumer), within=30)
        assert "breaker of slow tenants: L1/retrying noticed 1, opened 0" in consumer.summary()
        assert consumer._running is not None
        assert consumer._running.worker.engine.check_invariants() == []


def _assert_noticed(consumer: Consumer, caplog: pytest.LogCaptureFixture) -> None:
    """In the log, in metrics and in `/readyz`: tenants, lane, since when; and that nobody is stopped."""
    eventually(lambda: _value(consumer, "lane_slow_tenants", **RETRYING) >= SLOTS - 2, within=30)
    assert _value(consumer, "lane_breaker", phase="noticed", **RETRYING) == 1
    assert _value(consumer, "lane_breaker_noticed_total", **RETRYING) == 1
    assert _value(consumer, "lane_breaker_noticed_total") == 1, "in no other lane"
    assert _value(consumer, "lane_breaker_opened_total") == 0
    assert _value(consumer, "breaker", phase="closed") == 1
    assert 0 < _value(consumer, "lane_slow_seconds", **RETRYING) < 60
    [lane] = _slow(consumer)
    assert (lane["lane"], lane["phase"], lane["cause"]) == ("L1/retrying", "noticed", "")
    assert set(lane["tenants"]) < {f"slow{number}" for number in range(SLOW)}
    assert len(lane["tenants"]) == lane["slow_tenants"] == lane["running"]
    [line] = [one.getMessage() for one in caplog.records if one.getMessage().startswith("outage: ")]
    assert f"the breaker noticed slow handlers in L1/retrying since {lane['since']} (" in line
    assert f"of {SLOTS} slots are kept for them; it stops only what fails" in line


def _value(consumer: Consumer, name: str, **labels: str) -> float:
    window = consumer._running.window if consumer._running is not None else None
    assert window is not None
    text = get(window.address, "/metrics")[1]
    return sum(value for _, value in series(text, f"kodo_consumer_{name}", labels))


def _slow(consumer: Consumer) -> list[dict[str, Any]]:
    window = consumer._running.window if consumer._running is not None else None
    assert window is not None
    [worker] = json.loads(get(window.address, "/readyz")[1])["workers"]
    return list(worker["slow"])
