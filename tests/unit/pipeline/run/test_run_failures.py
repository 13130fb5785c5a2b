"""A run whose audit has come to a verdict, and that fails behind it: the verdict comes with the failure. Without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from kodo_pipeline.ingest import job as ingest_job
from kodo_pipeline.ingest.job import LandingResult
from kodo_pipeline.landing.landing_commits import HISTORY, LandingCommit
from kodo_pipeline.run import job as run_job
from kodo_pipeline.run.job import RunRequest, RunResult, run_topology
from kodo_pipeline.spark.spark_session import SparkSettings

from kodoctl.errors import KodoctlError, StoppedError, error
from kodoctl.pulsar.connection.connection import Connection

AUDIT: Any = {"verdict": "loss", "findings": [], "notes": []}
ANYTHING: Any = SimpleNamespace(stage=lambda _: None, topics=lambda *_: None, batch=lambda _: None, version="4")
JUDGED = [LandingCommit(HISTORY, 9, facts={"read_at": 5})]


class EmptyLanding:
    """Of a run that finds nothing."""

    def is_small(self) -> bool:
        return True

    def commits(self) -> list[Any]:
        return []


def _fails(problem: Exception) -> Callable[..., Any]:
    def step(*_: Any) -> None:
        raise problem

    return step


@contextmanager
def _judged(*_: Any) -> Iterator[Any]:
    yield SimpleNamespace(document=AUDIT)


@pytest.fixture(autouse=True)
def stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages that find nothing at once."""
    monkeypatch.setattr(ingest_job, "present", lambda _: ([], []))
    monkeypatch.setattr(ingest_job, "ingest", lambda *_: [])
    monkeypatch.setattr(run_job, "load_inputs", lambda *_: SimpleNamespace(snapshot=SimpleNamespace(commits=JUDGED)))
    monkeypatch.setattr(run_job, "judged_landing", _judged)
    monkeypatch.setattr(run_job, "gather_facts", lambda *_: "facts")
    monkeypatch.setattr(run_job, "HttpAdmin", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(run_job, "spark_failures", lambda _: nullcontext())


def _run(*, report: bool = True, is_stopped: Callable[[], bool] = lambda: False) -> RunResult:
    connection, landing = Connection("http://127.0.0.1:1"), EmptyLanding()
    request: Any = RunRequest("r1", ANYTHING, connection, landing, landing, "recalls", None, 1, is_report_wanted=report)  # type: ignore[arg-type]
    return run_topology(ANYTHING, SparkSettings(master="spark://there:7077"), request, ANYTHING, is_stopped)


def test_a_run_has_the_verdict_the_facts_and_the_time_of_each_stage() -> None:
    found = _run()
    assert (found.audit["verdict"], found.audit["run"], found.facts, found.failure) == ("loss", "r1", "facts", None)
    assert list(found.seconds) == ["ingest", "rollup", "audit", "report"]
    assert found.audit["read_at"] == 5, "of what was judged, whatever landed since"
    assert found.took > 0
    assert list(_run(report=False).seconds) == ["ingest", "rollup", "audit"]


@pytest.mark.parametrize("problem", [KodoctlError(error("K577", "Spark failed")), ValueError("a defect")])
def test_a_report_that_fails_leaves_the_verdict(monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    monkeypatch.setattr(run_job, "gather_facts", _fails(problem))
    found = _run()
    assert (found.audit["verdict"], found.facts, found.failure) == ("loss", None, problem)
    assert list(found.seconds) == ["ingest", "rollup", "audit"]


@pytest.mark.parametrize("report", [True, False])
def test_a_rollup_that_fails_leaves_the_verdict(monkeypatch: pytest.MonkeyPatch, report: bool) -> None:
    problem = KodoctlError(error("K577", "Spark failed"))
    monkeypatch.setattr(run_job, "holds_messages", _fails(problem))
    found = _run(report=report)
    assert (found.audit["verdict"], found.facts, found.failure) == ("loss", None, problem)


def test_partitions_that_are_left_unread_leave_the_verdict_of_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ingest_job.HolesError({"orders-partition-0": "it is gone"})
    batches = [LandingResult(number, 5, 0, 100, 0.0, 1) for number in (3, 4)]

    def ingest(*given: Any) -> None:
        for one in (batches[0], *batches):  # the first attempt had landed one, and ended at the holes
            given[-1](one)
        raise problem

    monkeypatch.setattr(ingest_job, "ingest", ingest)
    found = _run()
    assert found.landed == batches
    assert (found.audit["verdict"], found.facts, found.failure, found.holes) == ("loss", "facts", None, problem)
    assert [one.code for one in problem.diagnostics] == ["K574", "K574"]
    assert "--accept-holes" in str(problem.diagnostics[-1])


def test_an_audit_that_fails_is_a_run_without_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_job, "judged_landing", _fails(ValueError("no verdict")))
    with pytest.raises(ValueError, match="no verdict"):
        _run()


def test_a_large_landing_is_counted_before_it_is_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(EmptyLanding, "is_small", lambda _: False)
    monkeypatch.setattr(run_job, "holds_messages", lambda _: bool(order.append("rollup")))
    monkeypatch.setattr(run_job, "judged_landing", lambda *_: order.append("audit") or _judged())
    assert _run(report=False).failure is None
    assert order == ["rollup", "audit"]


def test_a_run_that_is_stopped_ends_behind_a_stage() -> None:
    asked = iter([False, True, True, True])
    with pytest.raises(StoppedError):
        _run(is_stopped=lambda: next(asked, True))
