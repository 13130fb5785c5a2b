"""The pipeline on a broker that asks who somebody is: certificates, tokens and an issuer's tokens reach Spark's tasks, by name only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pulsar
import pytest
from kodo_pipeline.ingest import small_batch

from tests.brokers.authentication import SECRET, Closed, Guarded, issuing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]
TOPICS = "orders: {partitions: 2, fair_by: uid, subscriptions: {billing: {audit: true}}}"
FILE = "topologies/trade.yaml"


@pytest.fixture
def shop(guarded: Guarded) -> Guarded:
    """One ground topic with everything, empty; commands come over TLS, as the applier."""
    guarded.topology(TOPICS)
    return guarded.certified("applier")


def _send(shop: Guarded, local: str, count: int) -> None:
    closed = shop.broker
    assert isinstance(closed, Closed)
    token = pulsar.AuthenticationToken(closed.tokens["applier"])
    client = pulsar.Client(
        closed.broker_url, authentication=token, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    producer = client.create_producer(shop.full(local))
    for number in range(count):
        producer.send(json.dumps({"n": number}).encode(), properties={"uid": "u1", "kodo-level": "L1"})
    client.close()


def _landed(shop: Guarded) -> int:
    end = shop.run("pipeline", "ingest", FILE, "--landing", "landed", "--format", "json").lines_json()[-1]
    assert end["holes"] == 0
    return int(end["events"])


@pytest.mark.full
def test_ingest_and_recall_show_what_every_command_shows(
    spark: SparkSession, shop: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = shop.broker
    assert isinstance(closed, Closed)
    shop.apply()
    _send(shop, "orders", 20)
    assert _landed(shop) == 20, "with a certificate"

    (tmp_path / "secret").write_text(SECRET, encoding="utf-8")
    _send(shop, "orders-billing-DLQ", 5)
    shop.certified(None)
    with issuing(closed.key) as issuer, monkeypatch.context() as patch:
        patch.setattr(small_batch, "FEW_BYTES", 0)  # else this process reads so little itself
        settings = {"ISSUER": issuer.url, "CLIENT_ID": "applier", "CLIENT_SECRET_FILE": str(tmp_path / "secret")}
        for name, value in settings.items():
            patch.setenv(f"KODOCTL_OAUTH2_{name}", value)
        assert _landed(shop) == 5, "with an issuer's tokens"
        assert len(issuer.forms) > 1, "tasks ask for their own"

    (tmp_path / "token").write_text(closed.tokens["applier"], encoding="utf-8")
    shop.options += ["--token-file", str(tmp_path / "token")]
    named = ["--topic", "orders", "--subscription", "billing", "--where", "payload.n < 4"]
    shop.run("pipeline", "recall", "plan", FILE, *named, "--out", "p.json")
    report = json.loads(shop.run("pipeline", "recall", "apply", "p.json", "--format", "json").out)
    assert (report["sent"], report["complete"]) == (4, True)
    refused = shop.certified(None).run("pipeline", "ingest", FILE, "--landing", "landed", code=1)
    assert "K511" in refused.err


@pytest.mark.full
def test_a_token_in_the_environment_stays_there_and_an_audit_needs_no_more(spark: SparkSession, shop: Guarded) -> None:
    """A process of its own: Spark's tasks have the environment that Spark was started in."""
    closed = shop.broker
    assert isinstance(closed, Closed)
    shop.apply()
    _send(shop, "orders", 20)
    options = shop.certified(None).options
    command = [sys.executable, "-m", "kodoctl", "pipeline", "ingest", FILE, "--landing", "landed", *options]
    for environment in ({"KODOCTL_TOKEN": closed.tokens["applier"]}, {}):
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
        shop.said += [done.stdout, done.stderr]
        assert (done.returncode, "K511" in done.stderr) == ((0, False) if environment else (1, True)), done.stderr
    found = shop.certified("applier").run("pipeline", "audit", FILE, "--landing", "landed", "--format", "json").json()
    assert (found["verdict"], found["subscriptions"][0]["messages"]) == ("no loss", {"open": 20})
