"""The service of `pipeline run --every` without Spark: it goes on behind failures, and ends between two runs by a signal."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kodo_pipeline.ingest.job import LandingResult
from kodo_pipeline.run import job as run_job
from kodo_pipeline.run.job import RunResult
from kodo_pipeline.run.pipeline_metrics import PipelineCollector
from kodo_pipeline.run.run_command import worst
from kodo_pipeline.run.run_service import PipelineService
from kodo_pipeline.run.runner import RunFlags, Runner
from kodo_pipeline.spark.spark_session import SparkSettings, set_light

from kodoctl.cli.common.options import Format
from kodoctl.errors import ClusterError, KodoctlError, StoppedError, UsageError, error
from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.load import load_topology
from tests.samples.reports import busy

SHOP = ("kodo/shop", "shop", "base")
TOPOLOGY = "version: 1\nname: shop\ntenant: kodo\nnamespace: shop\ntopics:\n  orders: {subscriptions: {billing: {}}}\n"
_LATE = 2.0  # seconds: a busy machine begins the stages of a run within this time


def _result(verdict: str = "no loss", reasons: tuple[str, ...] = ()) -> RunResult:
    audit: Any = {
        "verdict": verdict, "reasons": [{"kind": "x", "proves": verdict, "text": text} for text in reasons], "notes": [],
        "subscriptions": [{"topic": "orders", "subscription": "billing", "audit": "wait", "messages": {"done": 1}, "missing_records": 0}],
        "coverage": [{"topic": "t", "partition": 0, "entries_planned": 3, "entries_seen": 2, "from_creation": True, "problems": []}],
        "findings": [], "sql": [], "run": "r", "read_at": 1_000,
    }  # fmt: skip
    return RunResult(audit, None, [], {"ingest": 0.5}, 1_000)


@dataclass
class Runs:
    """A runner whose runs do what a test says, one after another; the last one is followed by SIGTERM."""

    expansion: Expansion
    steps: list[Callable[[], RunResult]]
    output: Format = Format.TEXT
    settings: SparkSettings = field(default_factory=SparkSettings)
    sessions: int = 0
    files: Callable[[], None] = lambda: None
    begins: bool = True
    ended: bool = False
    declared: bool = True
    pages: Callable[[], None] = lambda: None
    cancel: Callable[[], None] = lambda: None
    stages: tuple[str, ...] = ()
    small: Iterator[bool | None] = field(default_factory=lambda: repeat(True))
    light: list[bool] = field(default_factory=list)

    @property
    def bar(self) -> Any:
        return SimpleNamespace(session=self._session, tell=lambda text: None)

    @contextmanager
    def _session(self, settings: SparkSettings) -> Iterator[Any]:
        if not self.begins:
            raise KodoctlError(error("K571", "Spark does not start"))
        self.sessions += 1
        self.light.append(settings.light)
        self.ended = False
        yield self

    @property
    def version(self) -> str:
        if self.ended:
            raise ConnectionError
        return "4"

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - as Spark has it
        return SimpleNamespace(cancelAllJobs=self.cancel)

    def expansions(self) -> list[Expansion]:
        self.files()
        return [self.expansion] if self.declared else []

    def settings_for(self, expansions: list[Expansion]) -> SparkSettings:
        assert expansions in ([], [self.expansion])
        small = next(self.small)
        if small is None:
            raise KodoctlError(error("K573", "the landing cannot be used"))
        return replace(self.settings, light=small)

    def result(self, _spark: Any, _expansion: Any, view: Any, is_stopped: Callable[[], bool]) -> RunResult:
        step = self.steps.pop(0)
        try:
            for name in self.stages:
                view.stage(name)
            if self.stages == ("ingest",):
                view.batch(LandingResult(0, 0, 0, 0, 0.0, 0))
            return step()
        finally:
            if not self.steps:
                os.kill(os.getpid(), signal.SIGTERM)

    def page(self, result: Any, _expansion: Any) -> None:
        self.pages()
        if result.failure is not None:
            raise result.failure

    def pictures(self, _expansion: Any) -> None:
        return None


@pytest.fixture
def expansion(tmp_path: Path) -> Expansion:
    (tmp_path / "shop.yaml").write_text(TOPOLOGY)
    return expand(load_topology(str(tmp_path / "shop.yaml")))


def _raises(problem: BaseException) -> Callable[[], RunResult]:
    def step() -> RunResult:
        raise problem

    return step


def _serve(runs: Any) -> PipelineCollector:
    collector = PipelineCollector([SHOP], ["done"], 0.01, lambda: 10_000)
    PipelineService(runs, collector, 0.01, {SHOP: "shop"}, [runs.expansion]).run()
    return collector


def _counts(collector: PipelineCollector) -> dict[str, float]:
    return {
        sample.labels["result"]: sample.value
        for family in collector.collect()
        for sample in family.samples
        if sample.name == "kodo_pipeline_runs_total"
    }


def test_a_failed_run_is_reported_and_the_next_one_tries_again(
    expansion: Expansion, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = ClusterError(error("K511", "no broker", "it is away"))
    runs = Runs(expansion, [_result, _raises(lost), _raises(ValueError("a defect")), _result])
    collector = _serve(runs)
    assert _counts(collector) == {"verdict": 2, "failed": 2}
    assert runs.sessions == 1
    said = capsys.readouterr()
    assert "no broker [K511]" in said.err
    assert "a defect of kodoctl [K599]" in said.err
    assert said.out.count("NO LOSS") == 1, "the same verdict again is one line"
    assert said.out.count("shop: no loss") == 2
    assert "Stopped; what is complete stays" in said.err


def test_a_run_without_progress_is_cancelled_and_the_next_one_tries_again(
    expansion: Expansion, capsys: pytest.CaptureFixture[str]
) -> None:
    cancelled = threading.Event()

    def hangs() -> RunResult:
        assert cancelled.wait(30)
        raise KodoctlError(error("K577", "Spark failed", "Job 7 cancelled"))

    runs = Runs(expansion, [hangs, _result], cancel=cancelled.set, stages=("ingest",))
    collector = PipelineCollector([SHOP], ["done"], 0.01, lambda: 10_000)
    PipelineService(runs, collector, 0.01, {SHOP: "shop"}, [], timeout=_LATE).run()  # type: ignore[arg-type]
    assert _counts(collector) == {"verdict": 1, "failed": 1}
    said = " ".join(capsys.readouterr().err.split())
    assert "the run made no progress [K816]" in said
    assert "nothing for 2s since a batch (--run-timeout): its Spark jobs were cancelled" in said
    assert "Job 7" not in said


def test_a_run_that_cannot_be_ended_ends_the_process(
    expansion: Expansion, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    ended = threading.Event()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    def hangs() -> RunResult:
        assert ended.wait(30)
        raise StoppedError(error("K815", "the run was stopped"))

    monkeypatch.setattr(os, "_exit", end)
    runs = Runs(expansion, [hangs], output=Format.JSON, stages=("ingest", "audit"))
    collector = PipelineCollector([SHOP], ["done"], 0.01, lambda: 10_000)
    PipelineService(runs, collector, 0.01, {SHOP: "shop"}, [], timeout=_LATE, grace=0.05).run()  # type: ignore[arg-type]
    assert codes == [1]
    assert _counts(collector)["failed"] == 1
    said = capsys.readouterr()
    text = (
        "since the beginning of audit (--run-timeout): cancelling its Spark jobs did not end it, so this process ends"
    )
    assert text in " ".join(said.err.split())
    (failed,) = [one for one in map(json.loads, said.out.splitlines()) if one["event"] == "failed"]
    assert failed["problems"][0]["code"] == "K816"


def test_a_verdict_is_told_in_full_when_it_or_a_reason_changes(
    expansion: Expansion, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        _result,
        lambda: _result("loss", ("one",)),
        lambda: _result("loss", ("one",)),
        lambda: _result("loss", ("two",)),
    ]
    _serve(Runs(expansion, steps))
    said = capsys.readouterr().out
    assert (said.count("NO LOSS"), said.count("LOSS") - said.count("NO LOSS")) == (1, 2)


def test_a_session_whose_java_ended_is_replaced(expansion: Expansion) -> None:
    runs = Runs(expansion, [])

    def ends() -> RunResult:
        runs.ended = True
        raise KodoctlError(error("K577", "Spark failed", "its Java process has ended"))

    runs.steps = [ends, _result]
    assert _counts(_serve(runs)) == {"verdict": 1, "failed": 1}
    assert runs.sessions == 2


def test_a_light_session_is_replaced_where_more_has_landed_than_it_is_for(expansion: Expansion) -> None:
    small = iter([True, True, None, False, False])  # at the start, behind three runs, and at the start again
    runs = Runs(expansion, [_result] * 5, small=small)
    assert _counts(_serve(runs)) == {"verdict": 5, "failed": 0}
    assert runs.light == [True, False]


def test_a_file_that_is_wrong_or_gone_fails_runs_until_it_is_mended(expansion: Expansion) -> None:
    runs = Runs(expansion, [_result])
    readings = iter(["wrong", "gone", "there"])

    def read() -> None:
        mood = next(readings)
        runs.declared = mood == "there"
        if mood == "wrong":
            raise KodoctlError(error("K100", "not YAML"))

    runs.files = read
    assert _counts(_serve(runs)) == {"verdict": 1, "failed": 2}


def test_a_run_that_a_signal_cuts_off_is_no_failure(expansion: Expansion, capsys: pytest.CaptureFixture[str]) -> None:
    stopped = StoppedError(error("K815", "the run was stopped"))
    assert _counts(_serve(Runs(expansion, [_raises(stopped)]))) == {"verdict": 0, "failed": 0}

    def signalled() -> RunResult:
        os.kill(os.getpid(), signal.SIGTERM)
        raise KodoctlError(error("K577", "Spark failed"))  # Java had the signal, too

    runs = Runs(expansion, [signalled, _result])
    assert _counts(_serve(runs)) == {"verdict": 0, "failed": 0}
    assert "K577" not in capsys.readouterr().err


class FullDisk(Runner):
    """Of a run that comes to a verdict, and cannot write its page."""

    verdict = "loss"

    def result(self, *_: Any, **__: Any) -> RunResult:
        return _result(self.verdict)

    def page(self, *_: Any) -> None:
        raise UsageError(error("K020", "cannot write file", "the disk is full"))


def test_a_page_that_cannot_be_written_takes_no_verdict_away(
    expansion: Expansion, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = _serve(Runs(expansion, [lambda: _result("loss", ("one",))], pages=_raises(OSError("full"))))  # type: ignore[arg-type]
    assert _counts(collector) == {"verdict": 1, "failed": 1}
    assert "LOSS" in capsys.readouterr().out
    output: Any = SimpleNamespace()
    runner = FullDisk(RunFlags([]), output, SparkSettings(), None, output, Format.TEXT, output)
    assert runner.run(output, expansion, several=False) == 5
    monkeypatch.setattr(FullDisk, "verdict", "no loss")
    assert runner.run(output, expansion, several=False) == UsageError.exit_code
    said = capsys.readouterr()
    assert (said.out.count("LOSS"), said.err.count("[K020]")) == (2, 2)


def test_a_defect_in_the_run_of_one_topology_does_not_stop_the_others(
    expansion: Expansion, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output: Any = SimpleNamespace()
    runner = FullDisk(RunFlags([]), output, SparkSettings(), None, output, Format.TEXT, output)
    monkeypatch.setattr(FullDisk, "result", lambda *_: _raises(ValueError("a defect"))())
    assert runner.run(output, expansion, several=True) == 1
    assert "[K599]" in capsys.readouterr().err
    with pytest.raises(ValueError, match="a defect"):
        runner.run(output, expansion, several=False)


def test_a_loss_is_followed_by_commands_that_know_the_ledger(
    expansion: Expansion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = busy()
    lost = [{"topic": "orders", "subscription": "billing", "lane": "L1/ready", "messages": 3}]
    audit: Any = {**_result("loss").audit, "lost": lost}
    monkeypatch.setattr(run_job, "run_topology", lambda *_: replace(_result(), audit=audit, facts=facts))
    asked = RunFlags([], landing=str(tmp_path), ledger="s3://books/recalls", out=str(tmp_path))
    anything: Any = SimpleNamespace(run="r1")
    runner = Runner(asked, anything, SparkSettings(), None, anything, Format.TEXT, anything)
    found = runner.result(anything, expansion, anything)
    sending = [one for one in found.audit["commands"] if " recall " in one]
    assert len(sending) == 2
    assert all(one.endswith(" --ledger s3://books/recalls") for one in sending)
    page = runner.page(found, expansion)
    assert page is not None
    assert "recall apply lost.json --ledger s3://books/recalls" in Path(page).read_text()


def test_what_does_not_start_at_all_ends_it(expansion: Expansion) -> None:
    with pytest.raises(KodoctlError, match="K571"):
        _serve(Runs(expansion, [_result], begins=False))


def test_lines_of_json_name_run_topology_and_problem(expansion: Expansion, capsys: pytest.CaptureFixture[str]) -> None:
    lost = ClusterError(error("K511", "no broker", "it is away"))
    _serve(Runs(expansion, [_raises(lost), _result], output=Format.JSON))
    failed, verdict = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (failed["event"], failed["topology"], failed["problems"][0]["code"]) == ("failed", "shop", "K511")
    assert (verdict["event"], verdict["verdict"], verdict["landed"]) == ("verdict", "no loss", 0)
    assert failed["run"] != verdict["run"]


def test_the_exit_code_of_several_is_that_of_the_worst() -> None:
    assert [worst(codes) for codes in ([0, 0], [0, 6, 0], [6, 7, 0], [1, 5, 6])] == [0, 6, 7, 5]


def test_queries_compile_nothing_where_little_has_landed() -> None:
    conf: dict[str, str] = {}
    session: Any = SimpleNamespace(conf=SimpleNamespace(set=conf.__setitem__, unset=lambda key: conf.pop(key, None)))
    settings = SparkSettings(extra={"spark.sql.codegen.factoryMode": "FALLBACK"})
    set_light(session, settings, light=True)
    light = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}
    assert conf == {"spark.sql.codegen.wholeStage": "false", **light}
    assert SparkSettings(light=True).configuration.items() >= conf.items()
    for one in (settings, replace(settings, light=True)):
        set_light(session, one, light=False)
        assert conf == {key: settings.configuration[key] for key in light}
    assert conf["spark.sql.adaptive.enabled"] == "true"
    set_light(session, SparkSettings(master="spark://there:7077"), light=True)
    assert conf.keys() == light.keys()
