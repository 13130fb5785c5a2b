"""kill -9 of an apply at the steps of its protocol, on a real broker: the next apply ends where the file says, and the
journal tells what happened. Here at one step of each kind; `make faults` dies at every one of them in turn.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.broker import Broker
from tests.brokers.workspace import Workspace, isolated
from tests.faults.applier import BEFORE as SOON
from tests.faults.applier import DONE, Life, live
from tests.faults.files import BEFORE, CHANGED, HEAD, HEAD_CHANGED, assert_as_declared, seen

pytestmark = [pytest.mark.broker, pytest.mark.timed]

FIRST = (
    f"PUT namespaces/T/kodoctl: {DONE}",
    f"lease T/ns: {DONE}",
    f"entry T/ns begin: {DONE}",
    f"PUT namespaces/T/ns: {DONE}",
    f"PUT persistent/T/ns/J/partitions: {DONE}",
    f"entry T/ns after topic.persistent://T/ns/K all: {SOON}",
    f"entry T/ns end: {SOON}",
)
CHANGE = (
    f"PUT namespaces/T/ns/properties: {DONE}",
    f"POST persistent/T/ns/J/partitions: {DONE}",
    f"DELETE persistent/T/ns/K/subscription/t: {DONE}",
    f"DELETE persistent/T/ns/L/partitions: {DONE}",
)


@contextmanager
def _fresh(broker: Broker, folder: Path, prepare: Callable[[Workspace], None]) -> Iterator[Workspace]:
    tenant = f"k-{secrets.token_hex(4)}"
    broker.tenant(tenant)
    place = folder / tenant
    place.mkdir()
    with isolated(place):
        workspace = Workspace(broker, place, tenant)
        prepare(workspace)
        yield workspace


def _nothing_yet(workspace: Workspace) -> None:
    workspace.topology(BEFORE, HEAD)


def _applied_once(workspace: Workspace) -> None:
    workspace.topology(BEFORE, HEAD)
    workspace.apply()
    workspace.topology(CHANGED, HEAD_CHANGED)


def _history(workspace: Workspace) -> list[dict[str, Any]]:
    ran = workspace.run("history", workspace.namespace, "--format", "json", code=None)
    assert ran.code == 0 or "[K509]" in ran.err, ran.text  # before the first apply there is no namespace
    applies: list[dict[str, Any]] = ran.json()["applies"] if ran.code == 0 else []
    return applies


def _assert_told(workspace: Workspace, life: Life, earlier: int) -> None:
    """The journal tells of the dead apply what it had come to, and what nobody can know."""
    told = _history(workspace)[earlier:]
    if f"entry T/ns begin: {DONE}" not in life.steps:
        assert told in ([], told[:1]), told  # it may have been stored, and the receipt never heard
        return
    [one] = told
    if f"entry T/ns end: {DONE}" in life.steps:
        assert one["state"] == "complete"
        return
    assert one["state"] in ("cut off", "complete")
    ended = {change["address"].replace(workspace.tenant, "T") for change in one["done"]}
    left = {broken["change"]["address"].replace(workspace.tenant, "T") for broken in one["broken"]}
    assert _written_down(life, "after") <= ended
    assert _written_down(life, "before") <= ended | left


def _written_down(life: Life, kind: str) -> set[str]:
    """Objects whose entries of a kind have their receipt; a namespace's change has several, and is left out."""
    start, end = f"entry T/ns {kind} ", f": {DONE}"
    entries = [step for step in life.steps if step.startswith(start) and step.endswith(end)]
    return {entry.removeprefix(start).split(" ")[0] for entry in entries if "namespace." not in entry}


def _die(broker: Broker, folder: Path, prepare: Callable[[Workspace], None], fatal: str, wanted: Any) -> None:
    with _fresh(broker, folder, prepare) as workspace:
        earlier = len(_history(workspace))
        life = live(workspace, fatal)
        assert life.code == -signal.SIGKILL, f"{fatal} was never reached, exit {life.code}\n{life.said}"
        _assert_told(workspace, life, earlier)
        plan = workspace.plan_json()
        assert plan["unmanaged"] == [], plan["unmanaged"]
        workspace.apply("--lock-timeout", "20s")
        workspace.assert_settled()
        assert seen(workspace) == wanted, fatal


def _wanted(broker: Broker, folder: Path, prepare: Callable[[Workspace], None]) -> tuple[Any, list[str]]:
    """What the namespace looks like when nobody dies, and the steps on the way."""
    with _fresh(broker, folder, prepare) as workspace:
        life = live(workspace)
        assert life.code == 0, life.said
        if prepare is _applied_once:
            assert_as_declared(workspace)
        return seen(workspace), life.steps


@pytest.mark.parametrize(
    ("prepare", "steps"), [pytest.param(_nothing_yet, FIRST, marks=pytest.mark.full), (_applied_once, CHANGE)]
)
def test_an_apply_killed_at_a_step_of_each_kind_is_continued_by_the_next(
    broker: Broker, tmp_path: Path, prepare: Callable[[Workspace], None], steps: tuple[str, ...]
) -> None:
    wanted, all_steps = _wanted(broker, tmp_path, prepare)
    assert set(steps) <= set(all_steps), sorted(set(steps) - set(all_steps)) + all_steps
    for fatal in steps:
        _die(broker, tmp_path, prepare, fatal, wanted)


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("prepare", [_nothing_yet, _applied_once])
def test_an_apply_killed_at_any_step_is_continued_by_the_next(
    broker: Broker, tmp_path: Path, prepare: Callable[[Workspace], None]
) -> None:
    wanted, steps = _wanted(broker, tmp_path, prepare)
    assert len(steps) > 100
    for number, fatal in enumerate(steps, 1):
        print(f"{number}/{len(steps)}  {fatal}", flush=True)  # noqa: T201
        _die(broker, tmp_path, prepare, fatal, wanted)
