"""Standard output or error that takes nothing any more: a reader that left, a full disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextvars import copy_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import typer

from kodoctl.apply.fleet_run import ClusterResult
from kodoctl.apply.report import ApplyEvent, ApplyReport, ChangeOutcome, ChangeStatus, Listener
from kodoctl.cli.apply import apply_flow
from kodoctl.cli.apply.apply_report import show_report
from kodoctl.cli.common.command_target import TargetOptions
from kodoctl.cli.common.console import command, judge_only, judging, reading, say, tell
from kodoctl.errors import error
from kodoctl.plan import plan_file
from kodoctl.plan.changes import ChangeContext, Create
from kodoctl.plan.fleet import ONLY, FleetPlan, Member
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import TopicResource
from tests.samples.inventories import empty, planned, topology, wanted
from tests.unit.cli.running import kodoctl

GONE = BrokenPipeError(errno.EPIPE, "Broken pipe")
FULL = OSError(errno.ENOSPC, "No space left on device")

SESSION: Any = SimpleNamespace(connection=SimpleNamespace(context=None))


class Broken:
    """A stream that takes so many lines and then fails."""

    def __init__(self, problem: OSError, lines: int) -> None:
        self.problem, self.left, self.text = problem, lines, ""

    def write(self, text: str) -> int:
        if not self.left:
            raise self.problem
        self.text += text
        return len(text)

    def flush(self) -> None:
        self.left -= bool(self.left)

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "none")

    def isatty(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("kind", "problem", "code", "ran", "said"),
    [
        (command, GONE, 1, 3, "K028"),  # it changed something: it went on, and says that not all was seen
        (command, FULL, 1, 3, "No space left on device; the command itself completed"),
        (judging, GONE, 3, 3, ""),  # the verdict is the same, seen or not
        (judging, FULL, 3, 3, ""),
        (reading, GONE, 0, 1, ""),  # as filters do
        (reading, FULL, 1, 1, "No space left on device"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_becomes_of_a_command_nobody_listens_to(kind, problem, code, ran, said, stream, capsys) -> None:
    steps = []

    @kind
    def work() -> None:
        for number in range(3):
            steps.append(number)
            (say if stream == "stdout" else tell)(f"line {number}")
        if kind is judging:
            raise typer.Exit(3)

    broken = Broken(problem, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, stream, broken)
        try:
            work()
            ended = 0
        except typer.Exit as end:
            ended = end.exit_code
    assert (ended, len(steps)) == (code, ran)
    if stream == "stdout":
        told = capsys.readouterr().err
        assert said in told
        assert bool(told) is bool(said)


@pytest.mark.parametrize(("dry_run", "code"), [(True, 0), (False, 1)])
def test_an_option_makes_a_command_one_that_only_judges(dry_run: bool, code: int, monkeypatch, capsys) -> None:
    @command
    def run() -> None:
        if dry_run:
            judge_only()
        say("lane one")
        say("lane two")

    for _ in range(2):  # the next command starts afresh
        monkeypatch.setattr(sys, "stdout", Broken(GONE, 0))
        ended = 0
        try:
            run()
        except typer.Exit as end:
            ended = end.exit_code
        assert ended == code
        assert ("K028" in capsys.readouterr().err) is not dry_run


def test_a_failure_keeps_its_own_code() -> None:
    @command
    def work() -> None:
        raise typer.Exit(4)

    with pytest.raises(typer.Exit) as end:
        work()
    assert end.value.exit_code == 4


def test_a_view_that_fails_stops_nothing_and_is_noted() -> None:
    heard = []

    def listen(event: ApplyEvent) -> None:
        heard.append(event)
        raise ValueError("a view's defect")

    listener = Listener(listen)
    for number in range(3):
        listener(_event(number))
    assert len(heard) == 1
    assert listener.notes == ("what was done was not shown to its end: ValueError: a view's defect",)


def _event(number: int) -> ApplyEvent:
    return ApplyEvent("done", _create(number), number, 3)


def _create(number: int) -> Create:
    return Create(TopicResource(TopicName.parse(f"persistent://acme/ns/t{number:03}"), 1, {}), ChangeContext("trade"))


def test_what_was_not_started_is_two_lines_whatever_its_number(capsys) -> None:
    lost = [ChangeOutcome(_create(number), ChangeStatus.NOT_STARTED, "the lease was lost") for number in range(2, 185)]
    failed = [ChangeOutcome(_create(number), ChangeStatus.FAILED, "no rights") for number in range(2)]
    show_report(ApplyReport((*failed, *lost)))
    assert capsys.readouterr().out.splitlines()[:6] == [
        "  failed: create topic.persistent://acme/ns/t000",
        "      no rights",
        "  failed: create topic.persistent://acme/ns/t001",
        "      no rights",
        "  not started: create topic.persistent://acme/ns/t002, and 182 more",
        "      the lease was lost",
    ]


def test_many_failures_of_one_cause_are_two_lines(capsys) -> None:
    details = [f"PUT persistent/acme/ns/t{number:03}/ttl answered 500" for number in range(60)]
    failed = [ChangeOutcome(_create(n), ChangeStatus.FAILED, detail) for n, detail in enumerate(details)]
    show_report(ApplyReport(tuple(failed)))
    assert capsys.readouterr().out.splitlines()[:3] == [
        "  failed: create topic.persistent://acme/ns/t000, and 59 more",
        "      PUT persistent/acme/ns/t000/ttl answered 500",
        "Not complete: 0 done, 60 failed; 0 write requests, 0.0 s.",
    ]


@pytest.mark.parametrize(
    ("place", "context", "repeats", "advice"),
    [
        ("acme/ns", "", True, "Running the same command again continues with what is left."),
        ("acme/ns", "", False, "`kodoctl apply --resume acme/ns` continues with what is left."),
        ("acme/ns", "us", False, "`kodoctl apply --resume acme/ns --context us` continues with what is left."),
        ("", "", False, "The next plan shows what is left."),
    ],
)
def test_the_advice_for_an_apply_that_is_not_complete_is_a_command_that_continues_it(
    place: str, context: str, repeats: bool, advice: str, capsys
) -> None:
    left = ChangeOutcome(_create(1), ChangeStatus.NOT_STARTED, "interrupted")
    show_report(ApplyReport((left,), interrupted=True, journal=place), context, repeats=repeats)
    assert capsys.readouterr().out.splitlines()[-1] == advice


@pytest.mark.parametrize(
    ("command_of_the_journal", "from_file", "repeats"),
    [
        ("apply", False, True),
        ("destroy", False, True),
        ("resume", False, True),
        ("undo", False, False),
        ("forget", False, False),
        ("apply", True, False),
    ],
)
def test_a_command_that_would_not_continue_when_it_is_run_again_does_not_advise_that(
    command_of_the_journal: str, from_file: bool, repeats: bool, monkeypatch, capsys
) -> None:
    """`undo last`, run again, took back what the interrupted undo had done."""
    plan, left = planned(wanted(topology()), empty()), ChangeOutcome(_create(1), ChangeStatus.SKIPPED, "x")
    ended = ClusterResult(ONLY, ApplyReport((left,), journal="acme/ns"))
    monkeypatch.setattr(apply_flow, "_run", lambda *_: (ended,))
    with pytest.raises(typer.Exit):
        _carry_out({ONLY: SESSION}, Member(ONLY, plan), verb=command_of_the_journal, from_file=from_file)
    assert ("Running the same command again" in capsys.readouterr().out) is repeats


def test_a_defect_in_one_cluster_is_shown_beside_the_report_of_another(monkeypatch, capsys) -> None:
    ended = (ClusterResult("eu", ApplyReport(())), ClusterResult("us", None, ValueError("a defect")))
    monkeypatch.setattr(apply_flow, "_run", lambda *_: ended)
    with pytest.raises(typer.Exit) as end:
        _carry_out({"eu": SESSION, "us": SESSION}, Member("eu", planned(wanted(topology()), empty())))
    out, err = capsys.readouterr()
    assert end.value.exit_code == 1
    assert out.startswith("--- eu\nApplied: 0 done")
    assert "--- us: perhaps applied in part\nError: a defect of kodoctl [K599]" in err


@pytest.mark.parametrize(("from_file", "onward"), [(False, "Running the same command again"), (True, "A new plan")])
def test_a_cluster_that_a_plan_file_lacks_needs_a_new_plan(from_file: bool, onward: str, capsys) -> None:
    away = Member("far", None, (error("K514", "no broker answers", "away"),))
    with pytest.raises(typer.Exit):
        _carry_out({}, away, from_file=from_file)
    assert capsys.readouterr().out == f"{onward}, once it answers, continues with what is left.\n"


def _carry_out(sessions: dict[str, Any], member: Member, **options: Any) -> None:
    """In a context of its own, in which the writes of the command begin."""
    copy_context().run(apply_flow.carry_out, sessions, FleetPlan((member,)), apply_flow.Approval(), **options)


def test_who_interrupts_at_the_question_is_told_that_nothing_was_done(monkeypatch, capsys) -> None:
    def interrupted(*_: object, **__: object) -> str:
        raise typer.Abort

    monkeypatch.setattr(typer, "prompt", interrupted)
    with pytest.raises(typer.Exit) as end:
        apply_flow.ask("Apply these changes?")
    assert end.value.exit_code == 130
    assert "Interrupted. Nothing was applied." in capsys.readouterr().err


APPLYING = [
    ["apply", "a.yaml"], ["apply", "--resume", "acme/ns"], ["apply", "a.yaml", "--approved", "p.json"],
    ["destroy", "a.yaml"], ["undo", "last", "acme/ns"], ["forget", "--name", "trade", "--namespace", "acme/ns"],
]  # fmt: skip


def _interrupted(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize("line", APPLYING, ids=" ".join)
def test_an_interrupt_before_the_first_write_says_that_nothing_was_applied(line, monkeypatch) -> None:
    """Wherever the command is then: the connection is the first thing that all of them need."""
    monkeypatch.setattr(TargetOptions, "connection", _interrupted)
    Path("p.json").write_text(plan_file.dumps(planned(wanted(topology()), empty())), encoding="utf-8")
    ended = kodoctl(*line)
    assert (ended.code, ended.err.strip()) == (130, "Interrupted. Nothing was applied.")


def test_an_interrupt_after_the_writes_claims_nothing_and_the_next_command_starts_afresh(capsys) -> None:
    @apply_flow.applying
    def interrupted_afterwards() -> None:
        with apply_flow.writes():
            pass
        raise KeyboardInterrupt

    for function, text in (
        (interrupted_afterwards, "Interrupted."),
        (apply_flow.applying(_interrupted), "Interrupted. Nothing was applied."),
    ):
        with pytest.raises(typer.Exit) as end:
            function()
        assert (end.value.exit_code, capsys.readouterr().err.strip()) == (130, text)


def test_an_interrupt_while_several_clusters_are_planned_says_so_too(monkeypatch) -> None:
    monkeypatch.setattr("kodoctl.cli.apply.apply_command.open_all", _interrupted)
    ended = kodoctl("apply", "a.yaml", "--context", "one", "--context", "two")
    assert (ended.code, ended.err.strip()) == (130, "Interrupted. Nothing was applied.")


def test_an_interrupt_after_the_first_write_claims_nothing(capsys) -> None:
    @apply_flow.applying
    def work() -> None:
        with apply_flow.writes():
            raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as end:
        work()
    assert (end.value.exit_code, capsys.readouterr().err.strip()) == (130, "Interrupted.")


def test_a_lost_descriptor_takes_what_is_written_later(tmp_path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as stream:
        saved, sys.stdout = sys.stdout, stream
        try:

            @command
            def work() -> None:
                say("one")
                say("two")

            with pytest.raises(typer.Exit):
                work()
        finally:
            sys.stdout = saved


@pytest.mark.parametrize(("closed", "code"), [(">&-", 1), ("2>&-", 0), (">&- 2>&- <&-", 1)])
def test_streams_that_were_closed_from_the_start_end_no_command_half_way(closed: str, code: int, tmp_path) -> None:
    """A shell's `>&-` ended a command as a defect of kodoctl wherever it first printed."""
    add = f'"$0" -m kodoctl context add x --admin-url http://127.0.0.1:9 {closed}'
    environ = {**os.environ, "KODOCTL_CONFIG": str(tmp_path / "mine.toml")}
    done = subprocess.run(
        ["bash", "-c", add, sys.executable], env=environ, cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == code
    assert "127.0.0.1:9" in (tmp_path / "mine.toml").read_text(encoding="utf-8")
    assert (b"K028" in done.stderr) is (closed == ">&-")


def test_what_a_character_set_does_not_have_is_escaped(tmp_path) -> None:
    text = "version: 1\nname: trade\ntenant: acme\nnamespace: ns\ntopics: {J: {subscriptions: {s: {}}}}\n"
    (tmp_path / "trade.yaml").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "kodoctl", "expand", "trade.yaml"]
    environ = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"\\u" in done.stdout
