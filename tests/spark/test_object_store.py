"""Every command of the pipeline with its landing, and the ledger of recalls, in an object store: Spark's own connector for S3, by
--conf, from Maven Central; nothing on this machine's disk.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kodo_pipeline.landing.landing_commits import batches
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.landing.tables import EVENTS

from tests.broker.recalling import RETRYING, Recalls
from tests.brokers.workspace import Run, Workspace
from tests.services.object_stores import BUCKET, ObjectStore, object_store, refusing_store
from tests.source_roots import PATHS
from tests.spark.filling import fill, keep

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.timeout(3_600)]
HOW_TO = Path(__file__).parents[2] / "docs/how-to/object-stores.md"
LANDING = f"s3a://{BUCKET}/landing"
LEDGER = f"s3a://{BUCKET}/recalls"
TOPICS = """
orders:
  partitions: 1
  fair_by: uid
  message_properties: {uid: required}
  subscriptions:
    billing: {audit: true}
"""
KILLED = """
import os, signal
from kodo_pipeline.landing.landing_store import Landing

commit = Landing.commit


def dying(self, added):
    if added.batch == 1:
        os.killpg(0, signal.SIGKILL)
    return commit(self, added)


Landing.commit = dying
from kodoctl.cli.main import main
main()
"""
SHELL = """
import json, os, sys
from kodo_pipeline.spark.spark_session import SparkSettings, configuration_of, spark_session
from tests.brokers.workspace import run_main

with spark_session(SparkSettings("local[2]", configuration_of(json.loads(sys.argv[1])), light=True, environ=dict(os.environ))):
    for line in sys.stdin:
        found = run_main(*json.loads(line))
        print(json.dumps([found.code, found.out, found.err]), flush=True)
"""


def connector() -> list[str]:
    """The settings that the how-to names."""
    lines = HOW_TO.read_text(encoding="utf-8").splitlines()
    return ["=".join(line.split()) for line in lines if line.startswith("spark.jars")]


class Shell:
    """Commands in one process with one session: each of them alone would start its own."""

    def __init__(self, process: subprocess.Popen[str], workspace: Workspace) -> None:
        self._process, self._workspace = process, workspace

    def __call__(self, *arguments: str, code: int | None = 0, connected: bool = True) -> Run:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        typed = [*arguments, *(self._workspace.connection() if connected else ())]
        self._process.stdin.write(json.dumps(typed) + "\n")
        self._process.stdin.flush()
        answered = self._process.stdout.readline()
        assert answered, "the shell has ended"
        found = Run(*json.loads(answered))
        assert code in (None, found.code), f"{arguments}: exit {found.code}\n{found.text}"
        return found


@contextmanager
def shell(workspace: Workspace, settings: list[str]) -> Iterator[Shell]:
    """Ended when the block is."""
    command = [sys.executable, "-c", SHELL, json.dumps(settings)]
    root = {**os.environ, "PYTHONPATH": PATHS}
    with subprocess.Popen(
        command, cwd=workspace.folder, env=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Shell(process, workspace)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=60)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with object_store(tmp_path / "store.log") as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def recalls(workspace: Workspace) -> Recalls:
    found = Recalls(workspace, TOPICS)
    keep(workspace)
    return found


def _killed(workspace: Workspace, settings: list[str]) -> None:
    """An ingest of its own process, which has its settings from a file of Spark's, and dies with its second batch's files written,
    and not committed.
    """
    defaults = "".join(f"{one.replace('=', ' ', 1)}\n" for one in settings)
    (workspace.folder / "spark-defaults.conf").write_text(defaults, encoding="utf-8")
    arguments = [
        "pipeline",
        "ingest",
        "topologies",
        "--landing",
        LANDING,
        "--max-bytes",
        "100000",
        "--master",
        "local[2]",
    ]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, *arguments, *workspace.connection()], cwd=workspace.folder,
        env={**os.environ, "SPARK_CONF_DIR": str(workspace.folder)}, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        _, err = process.communicate(timeout=1_800)
    assert process.returncode == -signal.SIGKILL, err


def _events(run: Run) -> dict[str, Any]:
    return run.lines_json()[-1]


def test_every_command_works_on_a_store_and_a_kill_there_is_harmless(store: ObjectStore, recalls: Recalls) -> None:
    workspace, settings = recalls.workspace, connector()
    assert settings, "the how-to names a connector"
    recalls.die(range(30), batch=6)
    fill(workspace, "orders", range(1_200), 1, ledgers=2)
    _killed(workspace, settings)
    assert list(batches(Landing(LANDING, "trade", None).commits())) == [0]
    place = "landing/trade/base/events"
    files = [name.removeprefix(f"{place}/") for name in store.names(place) if name.endswith(".parquet")]
    assert {name[:9] for name in files} == {"000000000", "000000001"}

    at = ("topologies", "--landing", LANDING)
    with shell(workspace, settings) as run:
        first = _events(run("pipeline", "ingest", *at, "--format", "json"))
        fill(workspace, "orders", range(1_200, 1_500), 1)
        second = _events(run("pipeline", "ingest", *at, "--format", "json"))
        assert (second["events"], second["holes"]) == (300, 0)
        counted = run("pipeline", "rollup", *at, "--format", "json", connected=False).lines_json()
        lanes = {(one["level"], one["state"]): one["arrivals"] for one in counted if one["event"] == "lane"}
        assert lanes["L1", "ready"] == 1_500, "each message once, whatever the kill left"
        assert first["events"] < 1_230
        assert "Nothing new" in run("pipeline", "rollup", *at, connected=False).out
        audited = run("pipeline", "audit", *at, "--ledger", LEDGER, "--format", "json").json()
        assert audited["verdict"] == "no loss", "all there, nothing acknowledged, no hole between the runs"
        run("pipeline", "recommend", *at, connected=False)
        page = workspace.folder / "page.html"
        run("pipeline", "report", *at, "--ledger", LEDGER, "--out", str(page))
        assert page.exists()
        (workspace.folder / "candidate.yaml").write_text(
            (workspace.folder / "topologies/trade.yaml")
            .read_text()
            .replace("audit: true", "audit: true, concurrency: 2")
        )
        tried = run("pipeline", "lab", *at, "--candidate", "candidate.yaml", "--handler-time", "1ms", "--format", "json",
                    connected=False).json()  # fmt: skip
        assert tried["trials"][0]["messages"] == 1_500

        named = ("--topic", "orders", "--subscription", "billing", "--where", "payload.n > 3")
        run("pipeline", "recall", "plan", *at, *named, "--ledger", LEDGER, "--out", "p.json")
        sent = run(
            "pipeline", "recall", "apply", "p.json", "--ledger", LEDGER, "--rate", "1000/s", "--format", "json"
        ).json()
        assert (sent["sent"], sent["complete"]) == (26, True)
        again = run("pipeline", "recall", "apply", "p.json", "--ledger", LEDGER, "--format", "json").json()
        assert (again["sent"], again["complete"]) == (0, True)
    assert recalls.arrived(RETRYING) == Counter(range(4, 30))
    assert not (workspace.folder / ".kodoctl").exists()
    assert any(name.startswith("recalls/_delta_log/") for name in store.names("recalls"))


def test_a_store_that_answers_503_to_one_request_in_twenty_makes_no_verdict_false(
    store: ObjectStore, recalls: Recalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of what it refuses it has done. A command that it ends says so, and is right when it is typed again."""
    workspace, at = recalls.workspace, ("topologies", "--landing", LANDING)
    audit = ("pipeline", "audit", *at, "--ledger", LEDGER, "--format", "json")
    verdicts = []
    with refusing_store(store) as (busy, refused):
        monkeypatch.setenv("AWS_ENDPOINT_URL", busy.url)
        with shell(workspace, connector()) as run:

            def typed(*words: str, connected: bool = True) -> Run:
                for _ in range(4):
                    found = run(*words, code=None, connected=connected)
                    if found.code != 1:
                        return found
                    assert "[K57" in found.text, found.text
                    assert "Traceback" not in found.text, found.text
                raise AssertionError(found.text)

            assert typed("pipeline", "ingest", *at).code == 0
            fill(workspace, "orders", range(200), 1)
            workspace.admin("POST", f"{workspace.path('orders')}/subscription/billing/skip_all")
            for start in (200, 240, 280):
                fill(workspace, "orders", range(start, start + 40), 1)
                assert typed("pipeline", "ingest", *at).code == 0
                audited = typed(*audit)
                verdicts.append((audited.code, audited.json()["subscriptions"][0]["messages"]))
            assert typed("pipeline", "rollup", *at, connected=False).code == 0
            assert typed("pipeline", "maintain", *at, "--retain", "0s", connected=False).code == 0
            audited = typed(*audit, "--full")
            verdicts.append((audited.code, audited.json()["subscriptions"][0]["messages"]))
    assert verdicts == [(5, {"lost": 200, "open": number}) for number in (40, 80, 120, 120)]
    assert len(refused.undone) > 5
    assert len(refused.done) > 5
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
    files = Landing(LANDING, "trade", None).snapshot(EVENTS).files[EVENTS.name]
    assert sum(one.rows for one in files) == 320


def test_what_is_missing_for_a_store_is_told(
    store: ObjectStore, recalls: Recalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = recalls.workspace
    fill(workspace, "orders", range(10), 1)
    with shell(workspace, []) as run:
        told = run("pipeline", "ingest", "topologies", "--landing", LANDING, code=64)
        assert "[K579]" in told.err
        assert "s3a:// is unknown to it" in told.err
        told = run("pipeline", "ingest", "topologies", "--landing", f"s3://{BUCKET}/landing", code=64)
        assert "[K579]" in told.err
        told = run("pipeline", "ingest", "topologies", "--landing", "s3a://nowhere/landing", code=1)
        assert "[K573]" in told.err
        assert "AWS_ENDPOINT_URL" in told.err
