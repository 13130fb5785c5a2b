"""An outage of some customers on a real broker: retries that hang leave slots to the messages of all others, unasked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.broker.test_consumer_bulkheads import Bank
from tests.broker.test_consumer_real import Setting
from tests.conftest import Broker
from tests.support import eventually

pytestmark = pytest.mark.broker
SLOTS, SLOW, READY = 8, 20, 300
SETTINGS = f"concurrency: {SLOTS}, in_place: [], dead_letter: false, retrying: {{delays: [1s], attempts: 9}}, handler_timeout: 2m"


@pytest.mark.parametrize("kind", ["threads", "event loop"])
def test_hanging_retries_of_some_delay_nobody_else(broker: Broker, tenant: str, tmp_path: Path, kind: str) -> None:
    setting, bank = Setting(broker, tenant, tmp_path), Bank()
    setting.declare(SETTINGS)
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
            assert waits[READY // 2] < 0.5
            assert waits[READY * 99 // 100] < 2.0, "with every slot taken they would wait until it is over"
            assert SLOTS - 2 <= bank.most < SLOTS, "slow ones have all but the head-room and one for newcomers"
            assert not bank.recovered, "nobody started in a slot that one of them had left"
        finally:
            bank.over.set()
        eventually(lambda: bank.recovered == SLOW, within=30)
        assert consumer._running is not None
        assert consumer._running.worker.engine.check_invariants() == []
