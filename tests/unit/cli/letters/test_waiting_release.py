"""The plan that `waiting release` stores: of one that nothing was sent of the next run knows nothing. And its report."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from kodoctl.cli.application import app
from kodoctl.cli.letters import waiting_release
from kodoctl.cli.letters.waiting_apply import PausedSend, SendPace
from kodoctl.documents.recall_document import SendReport
from kodoctl.documents.waiting_document import LaneReleaseRow
from kodoctl.errors import LockedError, RefusedError, error
from kodoctl.recall.ledger.delta_ledger import DeltaLedger
from kodoctl.recall.ledger.recall_ledger import RecallEntry, RecallEvent
from kodoctl.recall.plan import recall_plan_file
from kodoctl.recall.plan.recall_plan import PlannedPartition, RecallAction, RecallPlan
from tests.unit.recall.send.test_lane_pause import WAITING

LANE: Any = SimpleNamespace(
    lane=WAITING.lane, source_topic=WAITING.source_topic, holder=WAITING.holder, ground=WAITING.topic,
    subscription=WAITING.subscription,
)  # fmt: skip
LOADED: Any = SimpleNamespace(source=SimpleNamespace(name=WAITING.path), environment=WAITING.environment)
REFUSED = RefusedError(error("K582", "the lane is still read", "by a worker"))


class Target:
    """Options of a command, without a cluster."""

    @contextmanager
    def session(self) -> Iterator[Any]:
        yield SimpleNamespace(connection=SimpleNamespace(admin_url="http://cluster"))


def sending(folder: Path, patch: pytest.MonkeyPatch, found: BaseException | SendReport) -> waiting_release._LaneRelease:
    """A release whose attempt ends so."""

    def attempt(*_: Any, **__: Any) -> PausedSend:
        if isinstance(found, SendReport):
            return PausedSend(found, 1.0)
        raise found

    patch.setattr(waiting_release, "plan_lane", lambda *_: WAITING)
    patch.setattr(waiting_release, "approved_plan", lambda *_, **__: nullcontext(WAITING))
    patch.setattr(waiting_release, "send_paused", attempt)
    pace = SendPace.of("1m", "1000/s")
    names = (folder / "plans", "true", "", "1000/s", pace, str(folder / "ledger"), None)
    return waiting_release._LaneRelease(cast("Any", Target()), *names)


def stored(folder: Path) -> list[Path]:
    return list((folder / "plans").iterdir())


@pytest.mark.parametrize("problem", [REFUSED, KeyboardInterrupt()])
def test_an_attempt_that_failed_before_it_sent_leaves_no_plan(
    problem: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(type(problem)):
        list(sending(tmp_path, monkeypatch, problem).run(cast("Any", None), LANE))
    assert stored(tmp_path) == []


def test_an_attempt_that_was_interrupted_before_it_sent_leaves_no_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = sending(tmp_path, monkeypatch, SendReport(interrupted=True)).run(cast("Any", None), LANE)
    assert (row.complete, stored(tmp_path)) == (False, [])


@pytest.mark.parametrize("found", [REFUSED, SendReport(interrupted=True)])
def test_the_plan_of_a_pause_that_could_not_be_ended_is_there_for_the_next_run(
    found: BaseException | SendReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file was deleted: the next run planned anew, and was refused, because another run had paused the lane."""
    one = sending(tmp_path, monkeypatch, found)

    def attempt(*_: Any, kept: threading.Event) -> PausedSend:
        kept.set()
        if isinstance(found, SendReport):
            return PausedSend(found, 1.0)
        raise found

    monkeypatch.setattr(waiting_release, "send_paused", attempt)
    with suppress(RefusedError):
        list(one.run(cast("Any", None), LANE))
    assert len(stored(tmp_path)) == 1


def test_what_one_plan_released_is_reported_where_the_next_plan_of_the_lane_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = sending(tmp_path, monkeypatch, SendReport(sent=3))
    plans = [replace(WAITING, summary={**WAITING.summary, "left_out": {"beyond": 5}})]

    def planned(*_: Any) -> RecallPlan:
        if not plans:
            raise REFUSED
        return plans.pop()

    monkeypatch.setattr(waiting_release, "plan_lane", planned)
    rows: list[LaneReleaseRow] = []
    with pytest.raises(RefusedError):
        rows.extend(one.run(cast("Any", None), LANE))
    assert [(row.released, row.complete) for row in rows] == [(3, False)]


@pytest.mark.parametrize("found", [REFUSED, SendReport(interrupted=True)])
def test_a_plan_of_which_something_was_sent_is_there_for_the_next_run(
    found: BaseException | SendReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = RecallEntry(WAITING.run, RecallEvent.INTENT, "id", WAITING.ledger_key, "1:1:0:-1", 1)
    DeltaLedger(str(tmp_path / "ledger")).append([entry])
    one = sending(tmp_path, monkeypatch, found)
    if isinstance(found, SendReport):
        list(one.run(cast("Any", None), LANE))
    else:
        with pytest.raises(RefusedError):
            list(one.run(cast("Any", None), LANE))
    assert len(stored(tmp_path)) == 1


def test_a_plan_that_another_run_stored_meanwhile_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = sending(tmp_path, monkeypatch, SendReport())
    other: list[Path] = []

    def planned(*_: Any) -> Any:
        file = one._file(cast("Any", SimpleNamespace(connection=SimpleNamespace(admin_url="http://cluster"))), LANE)
        file.parent.mkdir()
        file.write_text("its plan")
        other.append(file)
        return WAITING

    monkeypatch.setattr(waiting_release, "plan_lane", planned)
    with pytest.raises(LockedError, match="another run of this command stored its plan"):
        list(one.run(cast("Any", None), LANE))
    assert other[0].read_text() == "its plan"


@pytest.mark.parametrize("output", ["text", "json"])
def test_the_report_of_a_lane_is_shown_where_the_next_one_is_refused(
    output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_one: object, _loaded: object, lane: str) -> Iterator[LaneReleaseRow]:
        if lane == "L1/blocking":
            raise REFUSED
        yield LaneReleaseRow(lane, released=7, seconds=1.0)

    monkeypatch.setattr(waiting_release._LaneRelease, "run", run)
    monkeypatch.setattr(waiting_release, "_lanes", lambda *_: (None, ["L1/pending", "L1/blocking"]))
    monkeypatch.setattr("kodoctl.cli.common.command_target.shown_target", lambda _: "")
    words = ["waiting", "release", "shop.yaml", "--topic", "orders", "--subscription", "s", "--where", "true"]
    words += ["--lane", "L1/pending", "--lane", "L1/blocking", "--admin-url", "http://127.0.0.1:1", "--format", output]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == REFUSED.exit_code
    assert "K582" in ended.stderr
    assert "7" in ended.stdout
    assert "L1/pending" in ended.stdout


ASKED = replace(
    WAITING, action=RecallAction.RELEASE, where="true", edit=None, again=False,
    lanes=(PlannedPartition(WAITING.source_topic, 0, ready=False, partitions=1),),
)  # fmt: skip
"""A plan as this command makes it."""


def left(folder: Path, patch: pytest.MonkeyPatch, plan: RecallPlan) -> tuple[waiting_release._LaneRelease, Path]:
    """A release that meets a plan of an earlier run; what it plans by itself is empty."""
    one = sending(folder, patch, SendReport())
    patch.setattr(waiting_release, "plan_lane", lambda *_: replace(ASKED, letters=(), settle=()))
    file = one._file(cast("Any", SimpleNamespace(connection=SimpleNamespace(admin_url="http://cluster"))), LANE)
    file.parent.mkdir()
    file.write_text(recall_plan_file.dumps(plan))
    return one, file


def test_a_plan_of_the_same_command_is_finished_and_reported_as_a_row_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, file = left(tmp_path, monkeypatch, ASKED)
    rows = list(one.run(LOADED, LANE))
    assert [(row.earlier_run, row.complete) for row in rows] == [(ASKED.run, True), ("", True)]
    assert not file.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"action": RecallAction.MOVE, "to": "L2"}, "action: .*'move'"),
        ({"action": RecallAction.DISCARD}, "action: .*'discard'"),
        ({"edit": {"to": "mallory", "amount": 9999}}, "patch of payloads: {'to': 'mallory'"),
        ({"where": "tenant = 'u1'"}, "condition: \"tenant = 'u1'\" there, 'true' in this run"),
        ({"path": "other.yaml"}, "topology file: 'other.yaml'"),
        ({"environment": "other"}, "environment: 'other'"),
        ({"topic": "other"}, "topic: 'other'"),
        ({"subscription": "other"}, "subscription: 'other'"),
        ({"holder": "other"}, "source: "),
        ({"lane": "L2/blocking"}, "lane: 'L2/blocking'"),
        ({"again": True}, "sent again: True"),
        ({"lanes": (PlannedPartition("persistent://kodo/trade/orders-L2", 0, ready=True, partitions=1),)}, "orders-L2"),
    ],
)
def test_a_plan_that_does_anything_else_is_refused_and_stays(
    change: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever lay in the working folder was carried out: all tenants moved, with patched payloads, as what was asked."""
    one, file = left(tmp_path, monkeypatch, replace(ASKED, **change))
    attempts: list[object] = []
    monkeypatch.setattr(waiting_release, "send_paused", lambda *_: attempts.append(1))
    with pytest.raises(RefusedError, match=f"K591[^$]*{said}"):
        list(one.run(LOADED, LANE))
    assert attempts == []
    assert file.exists()


def test_plans_lie_with_the_user_and_never_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere/state")
    assert waiting_release.plans_folder() == Path("/somewhere/state/kodoctl/releases")
    monkeypatch.setattr("platformdirs.user_state_path", lambda _: Path("~/.local/state/kodoctl"))  # of who has no home
    assert waiting_release.plans_folder() == Path("/~/.local/state/kodoctl/releases")
    one = sending(tmp_path, monkeypatch, SendReport())
    one._store(WAITING, tmp_path / "state" / "releases" / "plan.json")
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("state/releases", "state/releases/plan.json")]
    assert modes == [0o700, 0o600]
