"""Replays and undos that are killed at a step: the next one goes on, and moves nothing twice."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.broker.replays import Replays

pytestmark = pytest.mark.broker


class Killed(KeyboardInterrupt):
    """The end of an attempt."""


def _dies(monkeypatch: pytest.MonkeyPatch, name: str, *, after: bool, calls: int = 1) -> None:
    """Ends the attempt at the given call of a function of `replay_run`, before or after its work."""
    from kodoctl.recall.send import replay_run

    real, done = getattr(replay_run, name), iter(range(1, 100))

    def call(*given: Any) -> Any:
        is_last = next(done) == calls
        if is_last and not after:
            raise Killed
        found = real(*given)
        if is_last:
            raise Killed
        return found

    monkeypatch.setattr(replay_run, name, call)


def test_what_came_again_before_a_replay_went_on_does_not_come_a_third_time(
    replays: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays.send(range(20))
    replays.take()
    replays.plan("--from", "1h")
    with monkeypatch.context() as killed:
        _dies(killed, "_replay_partition", after=True)
        replays.apply(code=130)
    replays.resume()
    first = replays.take()
    assert 0 < len(first) < 20, "the messages of one partition"
    assert replays.apply()["unclear"] == []
    assert replays.take() == Counter(set(range(20)) - set(first))
    assert replays.undo()["again_done"] == 20


@pytest.mark.full
def test_a_cursor_that_moved_while_nobody_knew_does_not_move_again(
    replays: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt dies after the broker moved the cursor, and before the journal has it."""
    replays.send(range(20))
    replays.take()
    replays.plan("--from", "1h")
    with monkeypatch.context() as killed:
        _dies(killed, "_move", after=True)
        replays.apply(code=130)
    replays.resume()
    first = replays.take()
    for _ in range(2):  # the next attempt dies as well: its own pause is no proof that the lane stood still
        with monkeypatch.context() as killed:
            _dies(killed, "_state", after=True, calls=1)
            replays.apply(code=130)
    report = replays.apply(code=1)
    assert report["complete"]
    assert [line.rpartition(": ")[2] for line in report["unclear"]] == [f"{len(first)} entries"]
    assert replays.take() == Counter(set(range(20)) - set(first))


@pytest.mark.parametrize("name", ["_move", pytest.param("_acknowledge", marks=pytest.mark.full)])
def test_a_lane_that_stayed_paused_is_replayed_to_the_end(
    replays: Replays, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    replays.send(range(20))
    replays.take()
    replays.plan("--from", "1h")
    with monkeypatch.context() as killed:
        _dies(killed, name, after=False)
        replays.apply(code=130)
    with monkeypatch.context() as killed:  # once more, before it comes to the cursor: the pause is still the same
        _dies(killed, "_state", after=True, calls=1)
        replays.apply(code=130)
    assert replays.apply()["unclear"] == []
    assert replays.take() == Counter(range(20))


def test_an_undo_that_was_killed_is_ended_by_undo_only(replays: Replays, monkeypatch: pytest.MonkeyPatch) -> None:
    replays.send(range(20))
    replays.take()
    replays.plan("--from", "1h")
    with monkeypatch.context() as killed:
        _dies(killed, "_replay_partition", after=True)
        replays.apply(code=130)
    with monkeypatch.context() as killed:
        _dies(killed, "_acknowledge", after=True)
        replays.undo(code=130)
    space = replays.workspace.namespace
    assert replays.is_paused()
    refused = " ".join(replays.workspace.run("replay", "apply", "p.json", code=4).text.split())
    assert f"kodoctl replay undo {json.loads((replays.workspace.folder / 'p.json').read_text())['run']}" in refused
    assert replays.is_paused()
    listed = replays.workspace.run("replay", "list", space, "--format", "json").json()
    assert [one["state"] for one in listed["replays"]] == ["undoing"]
    assert (replays.undo()["complete"], replays.is_paused()) == (True, False)
    assert replays.take() == Counter()


@pytest.mark.full
def test_a_killed_undo_of_a_complete_replay_keeps_its_pause_and_its_count(
    replays: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays.send(range(20))
    replays.take()
    replays.plan("--from", "1h")
    replays.apply()
    assert set(replays.take(keep=range(5, 20))) == set(range(20))
    with monkeypatch.context() as killed:
        _dies(killed, "_acknowledge", after=True)
        replays.undo(code=130)
    assert replays.workspace.run("replay", "apply", "p.json", code=4).text
    assert replays.is_paused(), "the undo's"
    assert (replays.undo()["again_done"], replays.is_paused()) == (5, False)
    assert replays.take() == Counter()


@pytest.mark.full
def test_a_replay_is_not_continued_behind_a_later_one(replays: Replays, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would acknowledge what the later one has come again."""
    replays.send(range(10))
    replays.take()
    replays.plan("--from", "1h")
    with monkeypatch.context() as killed:
        _dies(killed, "_replay_partition", after=False)
        replays.apply(code=130)
    replays.resume()
    older = (replays.workspace.folder / "p.json").read_text()
    replays.plan("--from", "1h")
    replays.apply()
    (replays.workspace.folder / "p.json").write_text(older)
    assert "is a later replay" in " ".join(replays.workspace.run("replay", "apply", "p.json", code=4).text.split())
    assert replays.take() == Counter(range(10))
