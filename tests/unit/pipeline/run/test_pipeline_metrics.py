"""Runs of the pipeline as metrics and as health: no sample before a verdict, the last one stays while runs fail."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import replace
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from kodo_pipeline.run.pipeline_metrics import LABELS, PIPELINE_METRICS, PipelineCollector, RunRecord
from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app

from kodoctl.errors import UsageError
from kodoctl.host.metrics_server import MetricsServer, probes

NOW = 1_700_000_100_000
SHOP, TRADE = ("kodo/shop", "shop", "base"), ("kodo/trade", "trade", "prod")
RECORD = RunRecord(
    SHOP, NOW, NOW - 5_000, "loss", {("orders", "billing"): {"done": 7, "lost": 2}}, 3, {"ingest": 1.5, "audit": 2.0}, 9
)  # fmt: skip


class Exported:
    """A collector of two topologies, with a clock of its own."""

    def __init__(self) -> None:
        self.now, self.seconds = NOW, 0.0
        self.collector = PipelineCollector(
            [SHOP, TRADE], ["done", "lost", "unproved"], 300.0, lambda: self.now, monotonic=lambda: self.seconds
        )
        self.registry = CollectorRegistry()
        self.registry.register(self.collector)

    def value(self, name: str, of: tuple[str, str, str] = SHOP, **labels: str) -> float | None:
        found = dict(zip(LABELS, of, strict=True))
        return self.registry.get_sample_value(f"kodo_pipeline_{name}", {**found, **labels})


def test_a_run_gives_its_verdict_counts_stages_and_lag() -> None:
    exported = Exported()
    exported.collector.landed(SHOP, 9)
    exported.collector.update(RECORD)
    exported.now += 60_000
    verdicts = {one: exported.value("verdict", verdict=one) for one in ("no loss", "inconclusive", "loss")}
    assert verdicts == {"no loss": 0, "inconclusive": 0, "loss": 1}
    counts = {
        one: exported.value("messages", status=one, topic="orders", subscription="billing")
        for one in ("done", "lost", "unproved")
    }
    assert counts == {"done": 7, "lost": 2, "unproved": 0}
    assert exported.value("hole_entries") == 3
    assert exported.value("lag_seconds") == 65
    assert exported.value("stage_seconds", stage="ingest") == 1.5
    assert exported.value("landed_messages_total") == 9
    assert exported.value("runs_total", result="verdict") == 1
    assert exported.value("runs_total", result="failed") == 0
    assert exported.value("last_run_timestamp_seconds") == NOW / 1000
    assert exported.registry.get_sample_value("kodo_pipeline_interval_seconds") == 300


def test_what_nobody_knows_has_no_sample() -> None:
    exported = Exported()
    exported.collector.update(replace(RECORD, read_at=0))
    assert exported.value("verdict", TRADE, verdict="loss") is None
    assert exported.value("runs_total", TRADE, result="failed") == 0, "a counter is there before it grows"
    assert exported.value("lag_seconds") is None, "no reading was complete"
    assert generate_latest(exported.registry)
    assert [one.name for one in exported.collector.describe()] == [
        one.name.removesuffix("_total") for one in PIPELINE_METRICS
    ]


def test_the_last_verdict_stays_while_runs_fail_and_readiness_says_why() -> None:
    exported = Exported()
    assert exported.collector.readiness()[0] is False, "no run has ended yet"
    for labels in (SHOP, TRADE):
        exported.collector.update(replace(RECORD, labels=labels))
    assert exported.collector.readiness()[0] is True, "a loss is a verdict"
    exported.collector.fail(SHOP, "K511 no broker")
    well, told = exported.collector.readiness()
    assert well is False
    assert json.loads(json.dumps(told))["topologies"][0] == {
        "namespace": "kodo/shop", "topology": "shop", "environment": "base", "verdict": "loss", "problems": ["K511 no broker"],
    }  # fmt: skip
    assert exported.value("verdict", verdict="loss") == 1
    assert exported.value("runs_total", result="failed") == 1


def test_a_run_without_progress_is_unhealthy_and_a_pause_is_not() -> None:
    exported = Exported()
    exported.collector.progress()
    exported.seconds += 3_500
    assert exported.collector.health()[0] is True
    exported.seconds += 200
    well, told = exported.collector.health()
    assert (well, "no progress for 3700 s" in str(told)) == (False, True)
    assert json.loads(json.dumps(told))["ok"] is False
    exported.collector.rest()
    assert exported.collector.health()[0] is True


def test_a_clock_that_is_set_makes_no_run_unhealthy_and_hides_no_hang() -> None:
    exported = Exported()
    exported.collector.progress()
    exported.now += 7_200_000
    assert exported.collector.health()[0] is True
    exported.now, exported.seconds = NOW, 3_700.0
    assert exported.collector.health()[0] is False


def _head(address: str, path: str) -> tuple[int, int]:
    """Status and Content-Length of the answer to HEAD, which must end behind its fields."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(f"HEAD {path} HTTP/1.0\r\n\r\n".encode())
        told = b"".join(iter(lambda: line.recv(65_536), b"")).decode()
    head, _, body = told.partition("\r\n\r\n")
    assert body == ""
    (length,) = [line for line in head.split("\r\n") if line.lower().startswith("content-length:")]
    return int(head.split()[1]), int(length.partition(":")[2])


def _length(ask: Callable[[str], tuple[int, str]], path: str) -> tuple[int, int]:
    status, body = ask(path)
    return status, len(body.encode())


def test_metrics_and_probes_are_served_and_the_address_is_taken_once() -> None:
    exported = Exported()
    application = probes(make_wsgi_app(exported.registry), exported.collector.health, exported.collector.readiness)
    server = MetricsServer("127.0.0.1", 0, application)

    def ask(path: str, method: str = "GET") -> tuple[int, str]:
        try:
            with urlopen(Request(f"http://{server.address}{path}", method=method), timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    try:
        assert "kodo_pipeline_interval_seconds 300.0" in ask("/metrics")[1]
        assert ask("/healthz")[0] == 200
        code, body = ask("/readyz")
        assert (code, json.loads(body)["ok"]) == (503, False)
        assert ask("/nope") == (404, "there is /metrics, /healthz, /readyz\n")
        assert ask("/metrics", "POST")[0] == 405
        for path in ("/metrics", "/healthz", "/readyz", "/nope"):
            assert _head(server.address, path) == _length(ask, path), "the same status and length, and no body"
        with pytest.raises(UsageError, match=r"K760.*choose another with --port"):
            MetricsServer("127.0.0.1", int(server.address.rpartition(":")[2]), application)
        with pytest.raises(UsageError, match="K760"):
            MetricsServer("127.0.0.1", 70_000, application)
    finally:
        server.close()
