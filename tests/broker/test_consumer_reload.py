"""The file rewritten again and again under load, a broken one among them: nothing is lost, what runs is finished."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.broker.test_consumer_process import TOPOLOGY, Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
MESSAGES = 4_000
FILES = {
    "weights": "work: {tenant_weights: {u1: 3}, ",
    "limits": "work: {limits: [{kind: rate, by: uid, limit: 2000/s}, {kind: concurrency, by: uid, limit: 3}], ",
    "broken": "work: {limits: [{kind: rate, limit: fast}], ",
    "delays": "work: {pending: {delays: [2m]}, ",
    "structure": "work: {audit: true, ",
}


def test_a_file_that_changes_all_the_time_loses_nothing(
    broker: Broker, tenant: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    setting = Setting(broker, tenant, tmp_path)
    text = setting.file.read_text(encoding="utf-8")
    assert text == TOPOLOGY.format(tenant=tenant)
    create_topics(broker, str(setting.file))
    setting.send(MESSAGES)
    said = ""
    with setting.run(pause=0.002) as process:
        eventually(setting.done)
        deadline = time.monotonic() + 60
        number = 0
        while setting.left() and time.monotonic() < deadline:
            name = list(FILES)[number % len(FILES)]
            scratch = tmp_path / "scratch"
            scratch.write_text(text.replace("work: {", FILES[name]), encoding="utf-8")
            scratch.replace(setting.file)
            number += 1
            if number % 3 == 0:
                process.send_signal(signal.SIGHUP)
            time.sleep(1)  # the pace of the changes, nothing is waited for
        assert not setting.left()
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    said = capfd.readouterr().err
    done = setting.done()
    assert set(done) == set(range(MESSAGES))
    assert max(done.values()) == 1, "nothing was started twice"
    assert number >= 2
    assert "is followed" in said
    assert "watchdog" not in said
    assert "Traceback" not in said.replace("ValueError", "") or "handler failed" in said
    if number >= 3:
        assert "'fast' is not a rate" in said
        assert "is refused, everything stays as it was" in said
