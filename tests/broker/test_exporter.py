"""`kodoctl exporter` on a real broker: no worker runs, a topic is gone, a broker that answers nothing, a scrape storm, SIGTERM."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
import requests
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_metrics

from tests.brokers.workspace import Workspace
from tests.services.polling import eventually
from tests.services.servers import Fault, Proxy, Request

pytestmark = pytest.mark.broker
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


@contextmanager
def _exporter(workspace: Workspace, *arguments: str, every: int = 1) -> Iterator[str]:
    """One that serves: its address. It ends by SIGTERM, with exit code 0 and not a word of a traceback."""
    process = workspace.process("exporter", "--port", "0", "--every", str(every), *arguments)
    assert process.stderr is not None
    said = ""
    while "http://" not in said or "Metrics are on" not in said:
        line = process.stderr.readline()
        assert line, said
        said = line if "Metrics are on" in line else said
    try:
        yield said.split()[-1]
    finally:
        _ends_well(process)


def _ends_well(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert time.monotonic() - began < 25
    assert "Traceback" not in err


def _samples(address: str) -> dict[tuple[str, str, str], float]:
    """(metric, level, state) -> value, as Prometheus asks for it."""
    answer = requests.get(address, headers={"Accept": OPEN_METRICS}, timeout=10)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    return _values(open_metrics(answer.text))


def _values(families: Any) -> dict[tuple[str, str, str], float]:
    return {
        (sample.name, sample.labels.get("level", ""), sample.labels.get("state", "")): sample.value
        for family in families
        for sample in family.samples
    }


def _prepared(workspace: Workspace) -> None:
    workspace.topology("orders: {backup: true, subscriptions: {billing: {states: [retrying, pending, blocking]}}}")
    workspace.apply()
    for topic, count in (("orders-billing-DLQ", 3), ("orders-billing-BLOCKING", 2), ("orders-B1", 4)):
        workspace.publish(topic, count)


def test_depth_and_age_of_waiting_lanes_and_dead_letters_while_no_worker_runs(workspace: Workspace) -> None:
    _prepared(workspace)
    file = workspace.folder / "kodo.prom"
    with _exporter(workspace, "--textfile", str(file)) as address:
        found = eventually(lambda: _samples(address) if len(_samples(address)) > 10 else None)
        depth = {names[1:]: value for names, value in found.items() if names[0] == "kodo_lane_entries"}
        assert depth == {
            ("L1", "ready"): 0, ("L1", "retrying"): 0, ("L1", "pending"): 0, ("L1", "blocking"): 2, ("B1", "ready"): 4,
            ("", "dead"): 3,
        }  # fmt: skip
        assert 0 < found["kodo_lane_oldest_seconds", "", "dead"] < 120
        assert 0 < found["kodo_lane_oldest_seconds", "L1", "blocking"] < 120
        assert found["kodo_lane_oldest_seconds", "L1", "pending"] == 0
        assert found["kodo_lane_consumers", "B1", "ready"] == 0
        workspace.publish("orders-billing-RETRYING", 1)
        eventually(lambda: _samples(address)["kodo_lane_entries", "L1", "retrying"] == 1)
        eventually(lambda: _values(plain_metrics(file.read_text()))["kodo_lane_entries", "L1", "retrying"] == 1)
    assert [path.name for path in workspace.folder.glob("*.prom*")] == ["kodo.prom"], "nothing half written is left"


def test_what_cannot_be_read_has_no_sample_and_the_rest_has(workspace: Workspace, proxy: Proxy) -> None:
    _prepared(workspace)
    silent = False

    def fail(request: Request) -> Fault | None:
        return Fault.FORBIDDEN_BEFORE if silent and "orders-billing-DLQ" in request.path else None

    proxy.choose = fail
    with _exporter(workspace) as address:
        eventually(lambda: _samples(address).get(("kodo_lane_entries", "", "dead")) == 3)
        silent = True
        eventually(lambda: ("kodo_lane_entries", "", "dead") not in _samples(address))
        found = _samples(address)
        assert found["kodo_lane_entries", "B1", "ready"] == 4
        assert ("kodo_lane_oldest_seconds", "", "dead") not in found
        failures = found["kodo_status_failures_total", "", ""]
        assert failures >= 1
        eventually(lambda: _samples(address)["kodo_status_failures_total", "", ""] > failures)
        silent = False
        eventually(lambda: _samples(address).get(("kodo_lane_entries", "", "dead")) == 3)


def test_a_storm_of_scrapes_reads_nothing_from_the_cluster(workspace: Workspace, proxy: Proxy) -> None:
    _prepared(workspace)
    before = len(proxy.requests)
    workspace.run("exporter", "--once")
    reading = len(proxy.requests) - before
    with _exporter(workspace, every=3_600) as address:  # however long the scrapes take, no further reading is due
        eventually(lambda: len(_samples(address)) > 10)
        before = len(proxy.requests)

        def scrape() -> None:
            for _ in range(50):
                _samples(address)

        threads = [Thread(target=scrape) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asked = len(proxy.requests) - before
        assert asked <= reading, "the end of the first reading may be under way: 200 scrapes ask for nothing"


def test_once_prints_or_writes_and_says_by_its_exit_code_whether_all_was_read(workspace: Workspace) -> None:
    _prepared(workspace)
    found = _values(plain_metrics(workspace.run("exporter", "--once").out))
    assert found["kodo_lane_entries", "", "dead"] == 3
    file = workspace.folder / "kodo.prom"
    assert workspace.run("exporter", "--once", "--textfile", str(file)).out == ""
    assert "kodo_lane_entries" in file.read_text()
    gone = workspace.run("exporter", "--once", "--textfile", str(workspace.folder / "no/kodo.prom"), code=64)
    assert "K020" in gone.err
    workspace.options = ["--admin-url", "http://127.0.0.1:9", "--broker-url", "pulsar://127.0.0.1:9"]
    nobody = workspace.run("exporter", "--once", code=1)
    assert "cannot be read" in nobody.err
    assert _values(plain_metrics(nobody.out))["kodo_status_failures_total", "", ""] == 6
    assert "kodo_lane_entries{" not in nobody.out


def test_options_that_export_nothing_and_an_address_that_is_taken(workspace: Workspace) -> None:
    _prepared(workspace)
    assert "name --port, --textfile or both" in workspace.run("exporter", code=64).err
    assert "K029" in workspace.run("exporter", "--once", "--port", "0", code=64).err
    with _exporter(workspace) as address:
        port = address.rpartition(":")[2].partition("/")[0]
        assert "K760" in workspace.run("exporter", "--port", port, code=64).err
