"""The pause around an attempt of `waiting apply`: when it ends, when it stays, and what is said of it."""

from __future__ import annotations

import errno
import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kodoctl.cli.common.console import say
from kodoctl.cli.letters import recall_apply, waiting_apply
from kodoctl.documents.recall_document import SendReport
from kodoctl.errors import ClusterError, ExitCode, LockedError, StoppedError, error
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.ledger.recall_ledger import RecallEntry, RecallEvent
from kodoctl.recall.plan.recall_plan import RecallAction
from tests.unit.cli.running import Ran, kodoctl
from tests.unit.recall.send.test_lane_pause import WAITING, Cluster

LEDGER = "ledger"
PROBLEM = ClusterError(error("K500", "no answer", "of the broker"))


class Attempts:
    """`waiting apply` of one plan on a cluster of its own; what it does while the lane is paused is the test's."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.cluster = Cluster()
        patch.setattr("kodoctl.pulsar.control.override_store.time.sleep", lambda _: None)
        patch.setattr(waiting_apply, "approved_plan", self._approved_plan)
        patch.setattr(waiting_apply, "print_report", lambda *_: say("the report"))
        self.does: Callable[[], SendReport] = SendReport

    @contextmanager
    def _approved_plan(self, _target: Any, asked: Any, _output: Any, *, waiting: bool) -> Iterator[Any]:
        assert (asked.plan, asked.ledger, waiting) == ("p.json", LEDGER, True)
        session = SimpleNamespace(admin=self.cluster)
        yield SimpleNamespace(session=session, plan=WAITING, ledger=LEDGER, send=self._send)

    def _send(self, background: object = None) -> SendReport:
        assert len(self.cluster.orders) == 1
        return self.does()

    def run(self, does: Callable[[], SendReport] = SendReport) -> Ran:
        self.does = does
        return kodoctl("waiting", "apply", "p.json", "--ledger", LEDGER)

    def sends_and_loses_the_cluster(self) -> SendReport:
        self.loses_the_cluster()
        return SendReport(sent=3)

    def loses_the_cluster(self) -> None:
        def away() -> None:
            raise PROBLEM

        self.cluster.before = dict.fromkeys(range(self.cluster.calls + 1, 99), away)

    def records(self, event: RecallEvent, run: str = WAITING.run) -> None:
        DeltaLedger(LEDGER).append([RecallEntry(run, event, "id", WAITING.ledger_key, "1:1:0:-1", 1)])


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Attempts:
    return Attempts(monkeypatch)


def fails(problem: BaseException) -> Callable[[], SendReport]:
    def does() -> SendReport:
        raise problem

    return does


def test_a_complete_attempt_ends_the_pause_and_says_nothing_of_it(attempts: Attempts) -> None:
    assert attempts.run() == Ran(ExitCode.OK, "the report\n", "", b"the report\n")
    assert attempts.cluster.orders == ()


@pytest.mark.parametrize("problem", [PROBLEM, LockedError(error("K563", "another recall is running"))])
def test_a_failure_before_anything_was_sent_ends_a_new_pause(attempts: Attempts, problem: Any) -> None:
    for run, event in (("another", RecallEvent.SENT), (WAITING.run, RecallEvent.REFUSED)):
        attempts.records(event, run)
    ran = attempts.run(fails(problem))
    assert (ran.code, attempts.cluster.orders) == (problem.exit_code, ())
    assert "paused" not in ran.err
    assert attempts.run(lambda: SendReport(interrupted=True)).code == ExitCode.OK
    assert attempts.cluster.orders == (), "interrupted before anything was sent"


@pytest.mark.parametrize("event", [RecallEvent.INTENT, RecallEvent.SENT, RecallEvent.DISCARDED])
def test_a_failure_after_something_was_sent_keeps_the_pause_and_says_so(attempts: Attempts, event: RecallEvent) -> None:
    attempts.records(event)
    ran = attempts.run(fails(PROBLEM))
    assert ran.code == ExitCode.ERROR
    assert ran.err.startswith("L1/retrying stays paused until ")
    assert len(attempts.cluster.orders) == 1


def test_a_ledger_that_cannot_be_read_keeps_the_pause(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeltaLedger, "entries", lambda *_: fails(PROBLEM)())
    assert "L1/retrying stays paused" in attempts.run(fails(PROBLEM)).err
    assert len(attempts.cluster.orders) == 1


def test_a_pause_that_cannot_be_ended_is_reported_beside_what_was_sent(attempts: Attempts) -> None:
    ran = attempts.run(attempts.sends_and_loses_the_cluster)
    assert (ran.code, ran.out) == (ExitCode.ERROR, "the report\n")
    assert "no answer [K500]" in ran.err
    assert "L1/retrying stays paused: run the same command again" in ran.err


def test_the_time_that_sending_takes_counts() -> None:
    pace = waiting_apply.SendPace(0, 2.0)
    assert pace.sending(replace(WAITING, letters=WAITING.letters[:1] * 5)) == 2_500


def test_a_second_interrupt_says_that_the_lane_stays_paused() -> None:
    assert recall_apply._after_the_end(WAITING).endswith("L1/retrying stays paused until then.")
    dead = replace(WAITING, lane="", action=RecallAction.SEND)
    assert recall_apply._after_the_end(dead) == "The same command again goes on, and sends nothing twice."


def test_a_stop_in_the_background_ends_the_wait_for_workers() -> None:
    background = recall_apply.Background(threading.Event(), lambda *_: None, lambda _: None)
    background.sleep(0)
    background.stop.set()
    with pytest.raises(StoppedError, match="nothing was sent"):
        background.sleep(60)


def test_a_pause_that_cannot_be_ended_is_told_in_the_background(attempts: Attempts) -> None:
    lines: list[str] = []
    background = recall_apply.Background(threading.Event(), lambda *_: None, lines.append)
    attempts.does = attempts.sends_and_loses_the_cluster
    with attempts._approved_plan(None, SimpleNamespace(plan="p.json", ledger=LEDGER), None, waiting=True) as approved:
        done = waiting_apply.send_paused(approved, waiting_apply.SendPace(1_000, 200.0), background)
    assert done.stays_paused
    assert "K500" in lines[0]
    assert "stays paused" in lines[1]


@contextmanager
def attempted(attempts: Attempts) -> Iterator[threading.Event]:
    """An attempt at the plan; afterwards the event says whether the plan's file must stay."""
    kept = threading.Event()
    with (
        attempts._approved_plan(None, SimpleNamespace(plan="p.json", ledger=LEDGER), None, waiting=True) as approved,
        suppress(ClusterError),
    ):
        waiting_apply.send_paused(approved, waiting_apply.SendPace(1_000, 200.0), kept=kept)
    yield kept


def test_a_plan_must_stay_while_its_pause_could_not_be_ended(attempts: Attempts) -> None:
    def does() -> SendReport:
        attempts.loses_the_cluster()
        raise PROBLEM

    attempts.does = does
    with attempted(attempts) as kept:
        assert kept.is_set()
    attempts.cluster.before = {}
    attempts.does = fails(PROBLEM)
    with attempted(attempts) as kept:
        assert kept.is_set(), "the order of the first attempt stays"
    attempts.does = SendReport
    with attempted(attempts) as kept:
        assert not kept.is_set()
    assert attempts.cluster.orders == ()


def test_a_plan_must_stay_where_the_cluster_goes_away_before_workers_have_left(attempts: Attempts) -> None:
    attempts.cluster.before = dict.fromkeys(range(6, 99), fails(PROBLEM))
    with attempted(attempts) as kept:
        assert kept.is_set()
    assert len(attempts.cluster.orders) == 1


def test_a_plan_need_not_stay_where_its_pause_was_ended_or_never_begun(attempts: Attempts) -> None:
    attempts.does = fails(PROBLEM)
    with attempted(attempts) as kept:
        assert not kept.is_set()
    attempts.cluster.before = {attempts.cluster.calls + 1: fails(PROBLEM)}
    with attempted(attempts) as kept:
        assert not kept.is_set()


class GoneTerminal(io.StringIO):
    """Standard error of a terminal that somebody closed."""

    def isatty(self) -> bool:
        return True

    def write(self, _: str) -> int:
        raise OSError(errno.EIO, "Input/output error")


def test_a_closed_terminal_does_not_end_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", GoneTerminal())
    monkeypatch.setattr(recall_apply, "_TELL_EVERY", 0.0)
    recall_apply._Progress()(1, 2)
