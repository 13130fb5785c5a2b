"""A source of change data whose broker dies, freezes and loses its connections while rows are committed."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.brokers.source_run import Setting
from tests.faults.machine import Machine
from tests.services.polling import eventually

ROWS = 2_000


@pytest.mark.full
@pytest.mark.timeout(600)
def test_each_row_is_stored_once_whatever_the_broker_does(tmp_path: Path, logical_url: str) -> None:
    machine = Machine(tmp_path / "broker")
    try:
        machine.start()
        machine.broker.tenant("acme")
        setting = Setting(machine.broker, "acme", tmp_path, logical_url)
        setting.finish()
        with setting.run() as process:
            eventually(lambda: setting.log.count("changes of") == 2, within=60)

            def write() -> None:
                for batch in range(ROWS // 20):
                    setting.insert(batch * 20, 20)
                    over.wait(0.3)

            over = threading.Event()
            writer = threading.Thread(target=write)
            writer.start()
            eventually(lambda: len(setting.rows()) > 40, within=60)
            machine.wire.reset()
            eventually(lambda: len(setting.rows()) > 200, within=90)
            machine.kill()
            eventually(lambda: "next try in" in setting.log or "stored nothing" in setting.log, within=90)
            machine.start()
            eventually(lambda: len(setting.rows()) > 600, within=120)
            machine.freeze()
            over.wait(15)
            machine.thaw()
            writer.join()
            setting.await_confirmed(process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        assert setting.rows() == Counter({str(number): 1 for number in range(ROWS)})
        assert setting.missing_numbers() == 0
    finally:
        machine.close()
