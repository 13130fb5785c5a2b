"""What else may go wrong around an apply: a lagging broker, one forbidden object, a full disk, foreign redirects, somebody who
edits meanwhile, two applies without a lease, hostile names. Each: what was asked, and what stayed true.
"""

from __future__ import annotations

import contextlib
import json
import re
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from kodoctl.protocol.properties import OWNER_PROPERTY
from tests.brokers.workspace import Run, Workspace
from tests.faults.files import BEFORE, CHANGED, HEAD, HEAD_CHANGED, assert_as_declared, words
from tests.services.servers import Answer, Fault, LateProxy, Proxy, Request, serving

pytestmark = [pytest.mark.broker, pytest.mark.timed]
SMALL = "{subscriptions: {s: {states: [], dead_letter: false}}}"
LAG = 1.0  # seconds


@pytest.fixture
def late(workspace: Workspace) -> Iterator[LateProxy]:
    found = LateProxy(workspace.broker.admin_url, LAG)
    workspace.options = ["--admin-url", found.url, "--broker-url", workspace.broker.broker_url]
    yield found
    found.close()


def test_a_broker_that_shows_writes_late_is_waited_for(workspace: Workspace, late: LateProxy) -> None:
    for topics, head in ((BEFORE, HEAD), (CHANGED, HEAD_CHANGED)):
        workspace.topology(topics, head)
        workspace.apply("--verbose")
        late.catch_up()
        workspace.assert_settled()
    assert late.lied > 20
    assert_as_declared(workspace)


def test_a_create_whose_answer_is_lost_and_which_shows_late_is_known_as_our_own(
    workspace: Workspace, late: LateProxy
) -> None:
    """The request is sent again, and the broker says that it is there already: by whom, it shows only later."""
    workspace.topology(f"J: {SMALL}")
    lost: set[str] = set()

    def once(request: Request) -> Fault | None:
        made = request.method == "PUT" and request.path.endswith(("/ns", "/ns/J/partitions", "/J/subscription/s"))
        if not made or request.path in lost:
            return None
        lost.add(request.path)
        return Fault.CUT_AFTER

    base = f"/admin/v2/persistent/{workspace.namespace}"
    for path in (f"{base}/J/partitioned-stats?perPartition=true", f"/admin/v2/namespaces/{workspace.namespace}"):
        late.ask(path)
    late.choose = once
    workspace.apply()
    assert len(lost) == 3
    late.catch_up()
    workspace.assert_settled()


def test_one_object_that_may_not_be_written_fails_alone_and_says_what_is_needed(
    workspace: Workspace, proxy: Proxy
) -> None:
    workspace.topology(f"J: {SMALL}\nK: {SMALL}\nL: {SMALL}")
    proxy.choose = lambda request: Fault.FORBIDDEN_BEFORE if request.is_write and "/ns/K" in request.path else None
    found = workspace.apply(code=1)
    said = words(found.out)
    assert f"failed: create topic.{workspace.full('K')}" in said
    assert "answered 403 (made up by a test)" in said
    assert f"skipped: create subscription.{workspace.full('K')}/s" in said
    assert workspace.topics() == {"J": 1, "L": 1}
    assert workspace.subscriptions("J") == workspace.subscriptions("L") == [{"s"}]
    assert sum("/ns/K" in one.path for one in proxy.writes) == 1  # what will not change is not asked again
    proxy.choose = lambda _: None
    workspace.apply()
    workspace.assert_settled()


def test_one_object_that_may_not_be_read_ends_the_plan_and_is_named(workspace: Workspace, proxy: Proxy) -> None:
    workspace.topology(f"J: {SMALL}\nK: {SMALL}")
    workspace.apply()
    proxy.choose = lambda request: Fault.FORBIDDEN_BEFORE if "/K/partitioned-stats" in request.path else None
    found = workspace.run("plan", code=1)
    assert "Plan:" not in found.out
    assert workspace.full("K") in words(found.err)
    assert "403" in found.err


# --- the plan file


@contextlib.contextmanager
def _largest_file(size: int) -> Iterator[None]:
    """Writing more into a file fails, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_plan_that_does_not_fit_on_the_disk_leaves_the_earlier_one_as_it_was(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}")
    workspace.plan("--out", "plan.json")
    before = (workspace.folder / "plan.json").read_bytes()
    workspace.topology(f"J: {SMALL}\nK: {SMALL}")
    with _largest_file(2_000):
        found = workspace.run("plan", "--out", "plan.json", code=64)
    assert "K535" in found.err
    assert "plan.json" in found.err
    assert "Plan written" not in found.text
    assert (workspace.folder / "plan.json").read_bytes() == before
    assert [path.name for path in workspace.folder.iterdir() if "plan.json" in path.name] == ["plan.json"]


# --- redirects


def test_a_write_sent_on_to_another_broker_of_the_cluster_is_done_there(workspace: Workspace, proxy: Proxy) -> None:
    [there] = workspace.admin("GET", "brokers")
    workspace.topology(f"J: {SMALL}")
    proxy.choose = lambda request: (
        Answer(307, b"", {"Location": f"http://{there}{request.path}"}) if request.is_write else None
    )
    workspace.apply()
    proxy.choose = lambda _: None
    workspace.assert_settled()


def test_a_write_sent_on_to_a_stranger_goes_nowhere_and_the_rest_is_done(workspace: Workspace, proxy: Proxy) -> None:
    workspace.topology(f"J: {SMALL}\nK: {SMALL}")
    with serving(lambda _: Answer(204)) as stranger:
        proxy.choose = lambda request: (
            Answer(307, b"", {"Location": f"{stranger.url}{request.path}"})
            if request.is_write and "/ns/K" in request.path
            else None
        )
        found = workspace.apply(code=1)
        assert stranger.requests == []
    assert "is not a broker of this cluster" in words(found.out)
    assert workspace.topics() == {"J": 1}
    proxy.choose = lambda _: None
    workspace.apply()
    workspace.assert_settled()


# --- hostile names

EVIL = "x\x1b[2J\x1b]0;t\x07<img src=x onerror=alert(1)>|`</details>*b* @all \u202e# Plan: 0 to delete"


def _make_hostile(workspace: Workspace) -> None:
    """Whoever may write to the cluster, but not to the files, leaves this in every place that is shown."""
    workspace.make_subscription("J", EVIL)
    workspace.make_topic(f"odd {EVIL.replace(chr(27), '').replace(chr(7), '').replace('/', '')}")
    workspace.admin("PUT", f"{workspace.path('K')}/properties", {OWNER_PROPERTY: EVIL, EVIL: "y" * 1_000_000})
    workspace.admin("POST", f"{workspace.path('J')}/permissions/{quote(EVIL, safe='')}", ["consume"])


def test_what_strangers_wrote_into_the_cluster_forges_nothing(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}\nK: {SMALL}")
    workspace.apply()
    _make_hostile(workspace)
    for view in ("text", "markdown", "html", "json", "github"):
        found = workspace.run("plan", "--format", view, code=None)
        _assert_nothing_is_forged(f"plan {view}", found)
        if view == "html":
            assert "<img" not in found.out
        if view == "markdown":
            assert not re.search(r"(?<!\\)<img", re.sub(r"`[^`\n]*`", "", found.out))
        if view == "json":
            assert json.loads(found.out)
    for command in (["drift"], ["status"], ["import", workspace.namespace]):
        _assert_nothing_is_forged(command[0], workspace.run(*command, code=None))


def _assert_nothing_is_forged(command: str, found: Run) -> None:
    assert found.code in (0, 1, 3, 4), found.text
    assert len(found.text) < 2_000_000, command
    for line in found.text.splitlines():
        shown = line.replace("\u200b", "")  # which keeps Markdown from calling people
        assert shown.isprintable(), (command, line[:300])
        assert not line.startswith(("# Plan", "::error::x")), (command, line[:300])


# --- the broker


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("orderly", [False, True])
def test_a_broker_that_dies_amid_an_apply_and_comes_back(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orderly: bool
) -> None:
    from tests.faults.machine import Machine
    from tests.services.polling import eventually

    (tmp_path / "broker").mkdir()
    machine = Machine(tmp_path / "broker")
    monkeypatch.chdir(workspace.folder)
    workspace.options = ["--admin-url", machine.broker.admin_url, "--broker-url", machine.broker.broker_url]
    try:
        machine.start()
        workspace.broker = machine.broker
        workspace.broker.tenant(workspace.tenant)
        workspace.topology("\n".join(f"t{number:03}: {SMALL}" for number in range(150)))
        process = workspace.process("apply", "--auto-approve")
        eventually(
            lambda: (
                workspace.broker.admin("GET", f"namespaces/{workspace.namespace}").ok and len(workspace.topics()) > 10
            )
        )
        (machine.stop if orderly else machine.kill)()
        machine.start()
        out, err = process.communicate(timeout=300)
        assert process.returncode in (0, 1), f"{out}\n{err}"
        assert "Traceback" not in f"{out}{err}"
        assert "Applied" in out or "failed" in out or "not started" in out, f"{out}\n{err}"
        workspace.apply("--lock-timeout", "60s")
        workspace.assert_settled()
        assert len(workspace.topics()) == 150
    finally:
        machine.close()
