"""Somebody else at work meanwhile: edits by hand between plan and apply and amid it, two applies without a lease."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kodoctl.apply import run
from kodoctl.plan import plan_file
from kodoctl.protocol.properties import OWNER_PROPERTY
from kodoctl.pulsar.connection.connection import Flags, connect
from kodoctl.pulsar.session import Session
from tests.brokers.workspace import Workspace
from tests.faults.files import BEFORE, CHANGED, HEAD, HEAD_CHANGED, assert_as_declared, words

pytestmark = [pytest.mark.broker, pytest.mark.timed]
SMALL = "{subscriptions: {s: {states: [], dead_letter: false}}}"


def _edits(workspace: Workspace) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """An edit by hand of each kind of object that the change from BEFORE to CHANGED touches, and how to take it back."""
    admin, j, k, namespace = (
        workspace.admin,
        workspace.path("J"),
        workspace.path("K"),
        f"namespaces/{workspace.namespace}",
    )
    roles = workspace.dump()["auth_policies"]["destination_auth"]
    anna = sorted(roles[workspace.full("J")]["anna"])
    mark = {OWNER_PROPERTY: "trade"}
    earliest = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "properties": mark}
    return {
        "a topic's policy": (
            lambda: admin("POST", f"{j}/messageTTL", messageTTL="60"),
            lambda: admin("POST", f"{j}/messageTTL", messageTTL=str(14 * 86_400)),
        ),
        "a topic that is to be made": (
            lambda: workspace.make_topic("M"),
            lambda: admin("DELETE", f"{workspace.path('M')}/partitions"),
        ),
        "a topic's owner": (
            lambda: admin("PUT", f"{j}/properties", {OWNER_PROPERTY: "somebody"}),
            lambda: admin("PUT", f"{j}/properties", mark),
        ),
        "a subscription": (
            lambda: admin("DELETE", f"{k}/subscription/t"),
            lambda: admin("PUT", f"{k}/subscription/t", earliest),
        ),
        "a grant": (
            lambda: admin("POST", f"{j}/permissions/anna", ["produce"]),
            lambda: admin("POST", f"{j}/permissions/anna", anna),
        ),
        "a policy of the namespace": (
            lambda: admin("POST", f"{namespace}/messageTTL", 60),
            lambda: admin("POST", f"{namespace}/messageTTL", 30 * 86_400),
        ),
    }


def test_an_edit_of_any_kind_of_object_between_plan_and_apply_refuses_the_plan(workspace: Workspace) -> None:
    workspace.topology(BEFORE, HEAD)
    workspace.apply()
    workspace.topology(CHANGED, HEAD_CHANGED)
    workspace.plan("--out", "plan.json")
    for name, (edit, take_back) in _edits(workspace).items():
        edit()
        before = workspace.dump()["properties"]
        refused = workspace.run("apply", "plan.json", code=None)
        assert refused.code == 4, f"{name}: {refused.text}"
        assert "plan again" in refused.err, name
        assert workspace.dump()["properties"] == before
        take_back()
    workspace.run("apply", "plan.json")
    assert_as_declared(workspace)
    workspace.assert_settled()


@pytest.mark.parametrize(
    "told",
    [
        {
            "a topic's policy": "ttl changed since the plan: planned from 14d, now 1m; plan again",
            "a topic that is to be made": "somebody created it since the plan: plan again",
            "a grant": "may do changed since the plan: planned from consume, produce, now produce; plan again",
        },
        {"a policy of the namespace": "ttl changed since the plan: plan again"},
    ],
)
def test_what_is_edited_amid_an_apply_is_not_written_over(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, told: dict[str, str]
) -> None:
    """Each object is looked at again right before its own write; the others are done."""
    workspace.topology(BEFORE, HEAD)
    workspace.apply()
    workspace.topology(CHANGED, HEAD_CHANGED)
    edits = _edits(workspace)
    right = run._index

    def first_edit(admin: Any, plan: Any, *removed: Any) -> None:
        """Where an apply has looked at everything, and is about to write."""
        for name in told if not removed else ():
            edits[name][0]()
        right(admin, plan, *removed)

    monkeypatch.setattr(run, "_index", first_edit)
    said = words(workspace.apply(code=1).out)
    assert all(reason in said for reason in told.values()), said
    dump = workspace.dump()
    if "a grant" in told:
        assert workspace.policy("J", "messageTTL") == 60
        assert workspace.marker("M") is None
        assert dump["auth_policies"]["destination_auth"][workspace.full("J")]["anna"] == ["produce"]
    else:
        assert dump["message_ttl_in_seconds"] == 60
    assert workspace.subscriptions("K") == [{"s"}]


class _NoLease:
    """What somebody has whose lease means nothing."""

    ever_lost = False

    def check(self) -> None:
        """Always."""

    ask = check

    def write(self, namespace: object, entry: Mapping[str, Any]) -> None:
        """Nowhere."""

    note = write

    def write_everywhere(self, entry: Mapping[str, Any]) -> None:
        """Nowhere."""

    def settle(self) -> None:
        """At once."""


@pytest.mark.usefixtures("impatient")
def test_two_applies_at_once_without_a_lease_end_in_what_the_next_one_can_put_right(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = "{{policies: {{ttl: {}}}, subscriptions: {{s: {{states: [], dead_letter: false}}}}}}"
    workspace.topology(f"J: {plain.format('1d')}")
    workspace.apply()
    for name, ttl, other in (("a", "2d", "M"), ("b", "3d", "N")):
        workspace.topology(f"J: {plain.format(ttl)}\n{other}: {SMALL}")
        workspace.plan("--out", f"{name}.json")
    monkeypatch.setattr("kodoctl.apply.run.hold", lambda *_, **__: contextlib.nullcontext(_NoLease()))
    ended: dict[str, str] = {}

    def one(name: str) -> None:
        plan = plan_file.loads((workspace.folder / f"{name}.json").read_text(encoding="utf-8"), name)
        flags = Flags(None, workspace.broker.admin_url, workspace.broker.broker_url, None)
        with Session(connect(flags, {}, workspace.folder)) as session:
            try:
                report = run.run(session, plan, run.RunOptions(name))
                ended[name] = "complete" if report.complete else "told"
            except Exception as problem:  # noqa: BLE001 - the test compares its type
                ended[name] = type(problem).__name__

    threads = [threading.Thread(target=one, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    assert set(ended.values()) <= {"complete", "told", "RefusedError"}, ended
    monkeypatch.chdir(workspace.folder)
    workspace.apply()  # b's file is the one that is there
    workspace.assert_settled()
    assert workspace.policy("J", "messageTTL") == 3 * 86_400
    assert {"J", "N"} <= set(workspace.topics()) <= {"J", "M", "N"}
    if "M" in workspace.topics():  # whose ledger entry the other apply wrote over
        assert workspace.plan_json()["unmanaged"] == [f"topic.{workspace.full('M')}"]
