"""Plans on messages that the console makes and carries out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kodoctl.cli.letters.console_plans import PLANS
from kodoctl.cli.letters.waiting_apply import PausedSend
from kodoctl.cli.ui import letter_actions
from kodoctl.cli.ui.console_actions import ConsoleActions
from kodoctl.cli.ui.letter_actions import LetterActions
from kodoctl.cli.ui.outcome_reading import OutcomeReading
from kodoctl.documents.recall_document import SendReport
from kodoctl.errors import RefusedError, UsageError, error
from kodoctl.recall.plan import recall_plan_file
from kodoctl.recall.plan.recall_plan import RecallPlan
from kodoctl.ui.action_forms import LaneFacts, LetterAction, LetterRequest
from kodoctl.ui.actions import Confirmation, Watch
from kodoctl.ui.first_screen import CommandWords
from tests.unit.recall.letters import letter
from tests.unit.recall.plan.test_plan_file import PLAN
from tests.unit.recall.send.test_lane_pause import WAITING
from tests.unit.topology.topology_files import HEAD, expanded

BODY = "topics:\n  orders:\n    subscriptions: {billing: {}, audit: {}}\n"
EXPANSION = expanded(BODY)
LANE = LaneFacts("orders", "", (LetterAction.SEND, LetterAction.DISCARD), (), None)
REQUEST = LetterRequest(
    topology="trade", topic="orders-billing-DLQ", subscription="billing", action=LetterAction.DISCARD, where="true"
)
CONNECTION: Any = SimpleNamespace(context=None)


class Target:
    """Options of a command, without a cluster."""

    @contextmanager
    def session(self) -> Iterator[Any]:
        yield SimpleNamespace(admin=None, client=None, connection=CONNECTION)


@pytest.fixture
def actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LetterActions:
    monkeypatch.chdir(tmp_path)
    Path("trade.yaml").write_text(f"{HEAD}{BODY}", encoding="utf-8")
    monkeypatch.setattr(letter_actions, "shown_target", lambda _: "")
    target: Any = Target()
    return LetterActions(target, None, "ledger", CommandWords({"trade": "trade.yaml"}, ()))


def test_the_letters_of_a_large_plan_are_in_its_file(actions: LetterActions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of more than 50,000 letters were in a temporary file, which was not beside the plan's when it was read."""
    monkeypatch.setattr("kodoctl.recall.plan.selection.SEGMENT", 2)
    letters = [letter({}, entry=number) for number in range(3)]
    monkeypatch.setattr("kodoctl.recall.recall_planner.held_letters", lambda *_: iter(letters))
    cluster = SimpleNamespace(identity=lambda _: None, unread=SimpleNamespace(lines=list))
    monkeypatch.setattr("kodoctl.recall.cluster.RecallCluster", lambda _: cluster)
    made = actions._prepare(SimpleNamespace(connection=CONNECTION), REQUEST, LANE, [])  # type: ignore[arg-type]
    assert made.table is None
    assert len(recall_plan_file.loads(recall_plan_file.dumps(made), "plan.json").letters) == 3


def carried_out(
    actions: LetterActions, monkeypatch: pytest.MonkeyPatch, made: RecallPlan, *reports: SendReport | RefusedError
) -> list[Any]:
    """Results of attempts at one plan that end so, one after the other; None for one that raised."""
    left = list(reports)

    def send(*_: object, background: object = None) -> SendReport:
        if isinstance(found := left.pop(0), RefusedError):
            raise found
        return found

    def paused(_approved: object, _pace: object, _background: object, kept: threading.Event) -> PausedSend:
        kept.set()
        return PausedSend(send(), 1.0)

    monkeypatch.setattr(actions, "_prepare", lambda *_: made)
    monkeypatch.setattr(letter_actions, "approved_plan", lambda *_, **__: nullcontext(SimpleNamespace(send=send)))
    monkeypatch.setattr(letter_actions, "send_paused", paused)
    plan = actions.plan(REQUEST, LANE, EXPANSION)
    watch = Watch(threading.Event(), lambda *_: None, lambda _: None)
    results: list[Any] = []
    while left:
        try:
            results.append(plan.carry_out(Confirmation(), watch))
        except RefusedError:
            results.append(None)
    return results


def test_the_outcome_is_that_of_all_attempts(actions: LetterActions, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of an action which was stopped and went on followed all messages, and counted the last attempt's."""
    clock = SimpleNamespace(time=iter(range(100, 200)).__next__, monotonic=lambda: 0.0)
    monkeypatch.setattr(letter_actions, "time", clock)
    reports = SendReport(sent=3, interrupted=True), SendReport(sent=1, had_already=1, already=3, before=3)
    first, last = (one.outcome for one in carried_out(actions, monkeypatch, PLAN, *reports))
    assert isinstance(first, OutcomeReading)
    assert (first._sent, last._sent, last._since) == (3, 5, first._since)


REFUSED = RefusedError(error("K582", "the lane is still read", "by a worker"))


@pytest.mark.parametrize(("made", "stays"), [(PLAN, False), (WAITING, True)])
def test_a_plan_of_which_nothing_was_sent_stays_only_while_its_pause_does(
    made: RecallPlan, stays: bool, actions: LetterActions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of one whose lane stayed paused was removed, although nothing else could end that pause."""
    assert carried_out(actions, monkeypatch, replace(made, edit=None), REFUSED) == [None]
    assert (PLANS / f"{made.run}.json").exists() is stays


def test_a_lane_of_another_subscription_names_its_own(actions: LetterActions) -> None:
    words = actions._words
    desired: Any = SimpleNamespace(expansions=[EXPANSION])
    console = ConsoleActions(actions._target, CONNECTION, desired, words, None, None)
    with pytest.raises(UsageError, match="orders-billing-DLQ has billing, not 'audit'"):
        console.lane("trade", "orders-billing-DLQ", "audit")
    with pytest.raises(UsageError, match="orders has billing, audit, not 'other'"):
        console.lane("trade", "orders", "other")
