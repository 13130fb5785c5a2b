"""`kodoctl pipeline run` on a real broker: one session for all stages, several topologies, and a service that goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from kodo_pipeline.landing.landing_store import Landing
from kodo_pipeline.rollup import job as rollup_job
from kodo_pipeline.run import job as run_job
from kodo_pipeline.run.run_command import worst

from kodoctl.errors import KodoctlError, LockedError, error
from tests.brokers.topics import create_topics
from tests.brokers.workspace import Workspace, run_main
from tests.services.polling import eventually
from tests.services.ports import unusual_ports
from tests.spark.filling import keep

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1800)]
TOPICS = "orders: {partitions: 1, subscriptions: {billing: {audit: true}}}"
RUN = ("pipeline", "run", "topologies/trade.yaml", "--landing", "landed", "--ledger", "recalls")


@pytest.fixture
def shop(workspace: Workspace) -> Workspace:
    """One ground topic with everything, created and empty."""
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    keep(workspace)
    create_topics(workspace.broker, str(workspace.topology(TOPICS)))
    return workspace


def _events(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [one for one in lines if one["event"] == event]


def test_one_command_says_what_became_of_everything(spark: object, shop: Workspace) -> None:
    first = shop.run(*RUN, "--out", "pages", "--png", "pictures", "--window", "1m")
    assert first.out.splitlines()[0] == "NO LOSS"
    assert (shop.folder / "pages/trade-report.html").stat().st_size > 10_000
    assert {one.name for one in (shop.folder / "pictures/trade").iterdir()} >= {"verdict.png"}
    assert f"pictures: {shop.folder / 'pictures/trade'}" in first.out
    assert "trade: no loss; 0 messages landed; ingest" in " ".join(first.out.split())
    assert all(len(line) <= 80 for line in (*first.out.splitlines(), *first.err.splitlines()) if "/" not in line)
    shop.publish("orders", 4)
    shop.admin("POST", f"{shop.path('orders')}/subscription/billing/skip_all")
    unapplied = shop.folder / "topologies/other.yaml"
    unapplied.write_text(Path(shop.folder / "topologies/trade.yaml").read_text().replace("name: trade", "name: other")
                         .replace("namespace: ns", "namespace: nowhere"))  # fmt: skip
    lines = shop.run(*RUN, "topologies/other.yaml", "--no-report", "--format", "json", code=5).lines_json()
    (found,) = _events(lines, "verdict")
    assert (found["topology"], found["verdict"], found["landed"], found["page"]) == ("trade", "loss", 4, None)
    assert found["audit"]["run"] == found["run"]
    assert list(found["stages"]) == ["ingest", "rollup", "audit"]
    (failed,) = _events(lines, "failed")
    assert (failed["topology"], failed["problems"][0]["code"]) == ("other", "K710")


@pytest.mark.full
def test_what_fails_behind_the_audit_takes_no_verdict_away(
    spark: object, shop: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise KodoctlError(error("K577", "Spark failed", "on purpose"))

    for module, name in ((run_job, "gather_facts"), (rollup_job, "count")):
        shop.publish("orders", 1)
        with monkeypatch.context() as patch:
            patch.setattr(module, name, fails)
            found = shop.run(*RUN, code=KodoctlError.exit_code)
        assert found.out.splitlines()[0] == "NO LOSS"
        assert "page: " not in found.out
        assert "on purpose" in found.err


def test_the_exit_code_of_several_is_that_of_the_worst() -> None:
    assert worst([0, 0]) == 0
    assert worst([0, 6, 0]) == 6
    assert worst([6, 7, 0]) == 7
    assert worst([1, 5, 6]) == 5


def test_what_cannot_work_is_told_before_spark_starts(shop: Workspace) -> None:
    assert "K029" in shop.run(*RUN, "--port", "0", code=64).err
    assert "K804" in shop.run(*RUN, "--every", "soon", code=64).err
    assert "K804" in shop.run(*RUN, "--every", "1m", "--run-timeout", "never", code=64).err
    assert "K817" in shop.run(*RUN, "--run-timeout", "1h", code=64).err
    assert "K800" in shop.run(*RUN, "--window", "7m", code=64).err
    with Landing(str(shop.folder / "landed"), "trade", None).alone("run"):
        assert "[K575]" in shop.run(*RUN, code=7).err
    (shop.folder / "file").write_text("")
    assert "[K020]" in shop.run(*RUN, "--out", "file", code=64).err


@pytest.mark.full
def test_a_service_goes_on_behind_failures_and_ends_by_a_signal(spark: object, shop: Workspace) -> None:
    port = unusual_ports().broker
    file = shop.folder / "topologies/trade.yaml"
    seen: list[str] = []

    def metric(name: str) -> float:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            found = [line for line in answer.read().decode().splitlines() if line.startswith(f"kodo_pipeline_{name}")]
        return float(found[0].rpartition(" ")[2]) if found else 0.0

    def waits(what: str, holds: Callable[[], bool]) -> None:
        eventually(holds, within=600, every=0.5)
        seen.append(what)

    def act() -> None:
        try:
            waits("ready", lambda: _status(port, "/readyz") == 200)
            with pytest.raises(LockedError):
                shop_landing().alone("run").__enter__()
            shop.publish("orders", 4)
            waits("landed", lambda: metric("landed_messages_total") >= 4)
            text = file.read_text()
            file.write_text("version: 1\nname: [")
            waits("failed", lambda: _status(port, "/readyz") == 503 and _status(port, "/healthz") == 200)
            file.write_text(text)
            waits("again", lambda: _status(port, "/readyz") == 200)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def shop_landing() -> Landing:
        return Landing(str(shop.folder / "landed"), "trade", None)

    acting = threading.Thread(target=act)
    acting.start()
    found = run_main(*RUN, *shop.connection(), "--no-report", "--every", "1s", "--port", str(port), "--format", "json")
    acting.join()
    assert seen == ["ready", "landed", "failed", "again"], found.text
    assert found.code == 0
    assert "Stopped; what is complete stays" in found.err
    lines = [json.loads(line) for line in found.out.splitlines()]
    assert _events(lines, "failed")
    assert {one["verdict"] for one in _events(lines, "verdict")} == {"no loss"}
    with shop_landing().alone("run"):
        pass


@pytest.mark.full
def test_a_query_that_hangs_ends_its_run_and_no_other(
    spark: object, shop: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, count = unusual_ports().broker, rollup_job.count
    seen: list[str] = []

    def sleeps(batches: Any) -> Any:
        import time  # it travels to a worker of Spark by value

        time.sleep(900)
        yield from batches

    def hangs(session: Any, *more: Any) -> Any:
        if not seen:
            session.range(1).mapInArrow(sleeps, "id long").collect()
        return count(session, *more)

    def act() -> None:
        try:
            eventually(lambda: "K816" in _body(port, "/readyz"), within=300, every=0.2)
            seen.append("failed")
            eventually(lambda: _status(port, "/readyz") == 200, within=300, every=0.2)
            seen.append("again")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(rollup_job, "count", hangs)
    shop.publish("orders", 1)
    acting = threading.Thread(target=act)
    acting.start()
    service = ("--no-report", "--every", "1s", "--run-timeout", "45s", "--port", str(port), "--format", "json")
    found = run_main(*RUN, *shop.connection(), *service)
    acting.join()
    assert seen == ["failed", "again"], found.text
    assert found.code == 0
    lines = [json.loads(line) for line in found.out.splitlines()]
    assert [one["code"] for failed in _events(lines, "failed") for one in failed["problems"]] == ["K816"]
    assert {one["verdict"] for one in _events(lines, "verdict")} == {"no loss"}


def _body(port: int, path: str) -> str:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return str(answer.read().decode())
    except HTTPError as refused:
        with refused:
            return refused.read().decode()
    except OSError:
        return ""


def _status(port: int, path: str) -> int:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return int(answer.status)
    except HTTPError as refused:
        with refused:
            return refused.code
    except OSError:
        return 0
