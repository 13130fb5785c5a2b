"""An apply whose admin calls go wrong: it succeeds or says what failed, and running it again always converges.

A proxy stands before the real broker. Every distinct request meets the fault once, so one apply tries it at every place.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

import pytest

from kodoctl.pulsar.admin import admin_http
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from tests.brokers.workspace import Run, Workspace
from tests.faults.files import BEFORE, CHANGED, HEAD, HEAD_CHANGED, assert_as_declared, words
from tests.services.servers import Fault, Proxy, Request

HEALS = (
    Fault.BUSY_BEFORE,
    Fault.ERROR_BEFORE,
    Fault.CUT_BEFORE,
    Fault.ERROR_AFTER,
    Fault.UNAVAILABLE_AFTER,
    Fault.CUT_AFTER,
)
HANGS = (Fault.HANG_BEFORE, Fault.HANG_AFTER)
READS = (Fault.BUSY_BEFORE, Fault.ERROR_BEFORE, Fault.CUT_BEFORE)
_OF_EACH_KIND = next(line for line in BEFORE.splitlines() if line.startswith("J"))
"""The topic that has writes of every kind: partitions, a policy, a subscription with a state of its own, a grant."""
REFUSES = (Fault.CONFLICT_BEFORE, Fault.PRECONDITION_BEFORE, Fault.CONFLICT_AFTER)


@dataclass
class Once:
    """A fault for the first of each distinct request that is asked for; the next one passes. Which of several faults a request
    meets depends on its name and on `turn`, so that turns together try other faults at the same place.
    """

    faults: Sequence[Fault]
    of: Callable[[Request], bool]
    turn: int = 0
    met: set[tuple[str, str]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Request) -> Fault | None:
        key = (request.method, request.path)
        with self.lock:
            if not self.of(request) or key in self.met:
                return None
            self.met.add(key)
        name = "/".join(request.path.split("/")[5:])  # without the tenant, which differs from run to run
        return self.faults[(crc32(f"{request.method} {name}".encode()) + self.turn) % len(self.faults)]


def _apply(workspace: Workspace) -> Run:
    """An apply, however it ends: but it ends in our words, with an exit code of ours."""
    found = workspace.run("apply", "--auto-approve", code=None)
    assert found.code in (0, 1, 4), found.text
    assert "Traceback" not in found.text
    return found


def _assert_it_says_what_failed(found: Run) -> None:
    assert found.code == 1, found.text
    said = words(found.text)
    assert any(reason in said for reason in ("made up by a test", "somebody created it since the plan")), found.text


def _settle(workspace: Workspace, proxy: Proxy) -> None:
    """The same command again, with the faults gone."""
    proxy.choose = lambda _: None
    again = workspace.run("apply", "--auto-approve", code=None)
    assert again.code == 0, again.text
    workspace.assert_settled()


@pytest.mark.usefixtures("brisk")
@pytest.mark.parametrize("turn", [0, pytest.param(3, marks=pytest.mark.full)])
def test_an_apply_gets_over_a_fault_at_every_write(workspace: Workspace, proxy: Proxy, turn: int) -> None:
    workspace.topology(BEFORE, HEAD)
    proxy.choose = Once(HEALS, lambda request: request.is_write, turn)
    assert (made := _apply(workspace)).code == 0, made.text
    workspace.topology(CHANGED, HEAD_CHANGED)
    proxy.choose = Once(HEALS, lambda request: request.is_write, turn)
    assert (changed := _apply(workspace)).code == 0, changed.text
    assert len(proxy.faults) > 30
    assert {fault for fault, _ in proxy.faults} == set(HEALS)
    proxy.choose = lambda _: None
    workspace.assert_settled()
    assert_as_declared(workspace)


@pytest.mark.usefixtures("impatient", "brisk")
@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.full)])
def test_an_apply_that_is_refused_everywhere_says_so_and_the_next_one_converges(
    workspace: Workspace, proxy: Proxy, turn: int
) -> None:
    workspace.topology(BEFORE, HEAD)
    proxy.choose = Once(REFUSES, lambda request: request.is_write and "/ns" in request.path, turn)
    for _ in range(3):  # each gets a step further: what was refused once is let through
        if (found := _apply(workspace)).code == 0:
            break
        _assert_it_says_what_failed(found)
    _settle(workspace, proxy)
    workspace.topology(CHANGED, HEAD_CHANGED)
    proxy.choose = Once(REFUSES, lambda request: request.is_write, turn)
    if (found := _apply(workspace)).code:
        _assert_it_says_what_failed(found)
    _settle(workspace, proxy)
    assert_as_declared(workspace)


@pytest.mark.usefixtures("brisk")
def test_plan_and_apply_get_over_a_fault_at_every_read(workspace: Workspace, proxy: Proxy) -> None:
    workspace.topology(BEFORE, HEAD)
    for turn in (0, 1):
        proxy.choose = Once(READS, lambda request: not request.is_write, turn)
        assert (found := _apply(workspace)).code == 0, found.text
    proxy.choose = Once(READS, lambda request: not request.is_write, 2)
    workspace.assert_settled()
    assert len(proxy.faults) > 10


@pytest.mark.usefixtures("brisk")
@pytest.mark.parametrize(
    "topics", [_OF_EACH_KIND, pytest.param(BEFORE, marks=pytest.mark.full)], ids=["a topic", "all"]
)
def test_a_write_whose_answer_never_comes_is_looked_up_and_not_made_twice(
    workspace: Workspace, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, topics: str
) -> None:
    monkeypatch.setattr(admin_http, "TIMEOUT", 2.0)
    workspace.topology(topics, HEAD)
    proxy.choose = Once(HANGS, lambda request: request.is_write)
    assert (found := _apply(workspace)).code == 0, found.text
    assert {fault for fault, _ in proxy.faults} == set(HANGS)
    done = {request.path for fault, request in proxy.faults if fault is Fault.HANG_AFTER}
    made = Counter(one.path for one in proxy.writes if one.path.endswith("/partitions"))
    assert all(made[path] == 1 if path in done else made[path] >= 2 for path in made), (
        made
    )  # 2, unless the broker is slow
    workspace.assert_settled()


def test_a_slow_broker_is_waited_for(workspace: Workspace, proxy: Proxy) -> None:
    workspace.topology(BEFORE, HEAD)
    proxy.choose = lambda _: time.sleep(0.05)
    assert _apply(workspace).code == 0
    workspace.assert_settled()


def test_one_write_that_never_works_stops_only_what_depends_on_it(workspace: Workspace, proxy: Proxy) -> None:
    workspace.topology(BEFORE, HEAD)
    proxy.choose = lambda request: (
        Fault.PRECONDITION_BEFORE if request.is_write and request.path.endswith("/K/partitions") else None
    )
    found = _apply(workspace)
    assert found.code == 1
    said = words(found.out)
    assert f"failed: create topic.{workspace.full('K')}" in said
    assert "made up by a test" in said
    assert f"skipped: create subscription.{workspace.full('K')}/s" in said
    assert f"waits for topic.{workspace.full('K')}, which was not done" in said
    assert set(workspace.topics()) == {"J", "J-s-DLQ", "J-s-RETRYING", "L"}
    assert workspace.subscriptions("L") == [{"s"}]
    plan = workspace.plan_json()
    assert {change["action"] for change in plan["changes"]} == {"create"}
    assert all("/K" in change["address"] for change in plan["changes"])
    _settle(workspace, proxy)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "fault", [Fault.PRECONDITION_BEFORE, pytest.param(Fault.ACCEPTED_BEFORE, marks=pytest.mark.full)]
)
def test_a_delete_that_the_broker_did_not_do_says_what_is_left(
    workspace: Workspace, proxy: Proxy, fault: Fault
) -> None:
    workspace.topology(BEFORE, HEAD)
    workspace.apply()
    workspace.topology(CHANGED, HEAD)
    proxy.choose = lambda request: fault if request.method == "DELETE" and "/L/partitions" in request.path else None
    found = _apply(workspace)
    assert found.code == 1
    assert "the broker did not delete it; all partitions are still there" in words(found.out)
    _settle(workspace, proxy)
    assert "L" not in workspace.topics()


def test_a_namespace_that_cannot_be_read_is_never_taken_for_an_empty_one(
    workspace: Workspace, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = WaitMonitor.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "limit", 5.0)  # no broker fails over here
    workspace.topology(BEFORE, HEAD)
    workspace.apply()
    path = f"/namespaces/{workspace.namespace}"
    proxy.choose = lambda request: Fault.ERROR_BEFORE if request.path.endswith(path) else None
    found = workspace.run("plan", code=1)
    assert "Plan:" not in found.out
    assert f"reading namespace {workspace.namespace}" in words(found.err)
    assert len(proxy.faults) > 1  # it was tried again before it was given up
