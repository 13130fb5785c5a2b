"""The journal on the real broker: every apply, every write, before and after, and what the commands make of it."""

from __future__ import annotations

import json
import os
from unittest import mock

import pytest

from kodoctl.cli.common import command_target
from kodoctl.plan.history import pack, parse
from kodoctl.protocol.override_history import OverrideChange, printed_history
from kodoctl.protocol.overrides import Override, OverrideKind
from kodoctl.protocol.properties import STEER_HISTORY_PROPERTY
from kodoctl.pulsar.connection.connection import Flags, connect
from kodoctl.pulsar.control.control_namespace import lease_topic
from kodoctl.pulsar.control.journal import read_journal
from kodoctl.pulsar.session import Session
from kodoctl.topology.names import NamespaceName
from tests.brokers.workspace import Workspace, run_main
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
PLAIN = "{policies: {ttl: %s}, subscriptions: {s: {states: [], dead_letter: false}}}"


def _journal(workspace: Workspace) -> list[dict[str, object]]:
    flags = Flags(None, workspace.broker.admin_url, workspace.broker.broker_url, None)
    with Session(connect(flags, {}, workspace.folder)) as session:
        return list(map(parse, read_journal(session.admin, session.client, NamespaceName.parse(workspace.namespace))))


def test_every_write_is_announced_and_ended_in_the_journal(workspace: Workspace) -> None:
    workspace.topology(f"J: {PLAIN}".replace("%s", "1d"))
    workspace.apply()
    entries = _journal(workspace)
    assert [entry["kind"] for entry in (entries[1], entries[-1])] == ["begin", "end"]
    writes = [entry for entry in entries if entry["kind"] in ("before", "after")]
    for address in {entry["address"] for entry in writes}:
        assert [entry["kind"] for entry in writes if entry["address"] == address] == ["before", "after"]
    assert {entry["status"] for entry in writes if entry["kind"] == "after"} == {"done"}
    assert entries[-1]["complete"] is True


def test_history_tells_who_did_what_and_when(workspace: Workspace) -> None:
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    [first, *_] = workspace.run("history", workspace.namespace).out.splitlines()
    assert first == f"Nothing was done in {workspace.namespace} yet."
    for ttl in ("1d", "2d"):
        workspace.topology(f"J: {PLAIN}".replace("%s", ttl))
        workspace.apply()
    workspace.run("destroy", "topologies", "--auto-approve")
    told = workspace.run("history", workspace.namespace, "--format", "json").json()["applies"]
    assert [(one["verb"], one["state"]) for one in told] == [("apply", "complete")] * 2 + [("destroy", "complete")]
    assert {one["who"] for one in told} == {command_target.who()}
    [change] = told[1]["done"]
    assert (change["action"], change["fields"][0]["before"], change["fields"][0]["after"]) == ("update", "1d", "2d")
    lines = workspace.run("history", workspace.namespace).out.splitlines()
    assert [line.split()[0] for line in lines[:6:2]] == [one["id"] for one in told]
    assert lines[2].endswith("UTC  apply: complete, 1 of 1 change done")
    assert all(len(line) <= 80 for line in lines)
    one = workspace.run("history", workspace.namespace, "--id", told[1]["id"]).text
    assert f"~ topic.{workspace.full('J')}" in one
    assert "ttl  1d → 2d" in one
    assert "K424" in workspace.run("history", workspace.namespace, "--id", "nonsense", code=64).text
    _assert_ids_are_completed(workspace, [one["id"] for one in told])


def _assert_ids_are_completed(workspace: Workspace, ids: list[str]) -> None:
    """By bash, of the namespace that the line names, and where it names none, of those of the files."""
    for command in (f"history {workspace.namespace}", "undo"):
        line = f"kodoctl {command} {' '.join(workspace.connection())}{' --id' if 'history' in command else ''} "
        asked = {"_KODOCTL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        with mock.patch.dict(os.environ, asked):
            assert sorted(run_main().out.split()) == sorted([*ids, "last"]), line


def test_history_names_orders_that_it_cannot_know(workspace: Workspace) -> None:
    workspace.topology(f"J: {PLAIN}".replace("%s", "1d"))
    workspace.apply()
    order = Override(OverrideKind.PAUSE, 1, 2, "ann", "bank", tenant="::error::x")
    every = printed_history((), [OverrideChange(number, "ann", order) for number in range(25)])
    for text, shown, unknown in (
        (every, 20, "live orders of J / s before the last 20: they are not kept"),
        ("{", 0, "live orders of J / s: JSONDecodeError"),
    ):
        workspace.admin("PUT", f"{workspace.path('J')}/subscription/s/properties", {STEER_HISTORY_PROPERTY: text})
        document = workspace.run("history", workspace.namespace, "--format", "json").json()
        assert len(document["orders"]) == shown
        assert document["unknown"][-1].startswith(unknown)
    assert [one["state"] for one in document["applies"]] == ["complete"], "the other records are shown"


def test_a_broker_without_the_journal_is_told_nothing_by_looking(workspace: Workspace) -> None:
    assert "namespace not found [K509]" in workspace.run("history", workspace.namespace, code=64).err
    assert workspace.admin("GET", f"namespaces/{workspace.tenant}") == []


def test_an_apply_is_taken_back_and_taken_back_again(workspace: Workspace) -> None:
    """The law: after an undo, the earlier file plans to nothing."""
    ground = PLAIN.replace("%s", "1d")
    grown = f"J: {PLAIN}\nK: {ground}".replace("%s", "2d")
    for topics in (f"J: {ground}", grown):
        workspace.topology(topics)
        workspace.apply()
    shown = workspace.run("undo", "last", workspace.namespace, "--auto-approve").text
    assert "Then revert the change of the file: else the next apply does it again." in shown
    assert set(workspace.topics()) == {"J"}
    workspace.topology(f"J: {ground}")
    workspace.assert_settled()
    workspace.run("undo", "last", workspace.namespace, "--auto-approve")
    workspace.topology(grown)
    workspace.assert_settled()
    told = workspace.run("history", workspace.namespace, "--format", "json").json()["applies"]
    assert [(one["verb"], one["state"]) for one in told[2:]] == [("undo", "complete")] * 2


def test_an_undo_that_would_destroy_or_overwrite_is_refused(workspace: Workspace) -> None:
    workspace.topology(f"J: {PLAIN}".replace("%s", "1d"))
    workspace.apply()
    workspace.publish("J", 3)
    refused = workspace.run("undo", "last", workspace.namespace, "--auto-approve", code=4).text
    assert f"--allow-destroy topic.{workspace.full('J')}" in refused
    workspace.admin("POST", f"{workspace.path('J')}/messageTTL", 60, messageTTL="60")
    eventually(lambda: workspace.policy("J", "messageTTL") == 60)
    changed = workspace.run("undo", "last", workspace.namespace, "--auto-approve", code=4).text
    assert "somebody changed it after it was made" in " ".join(changed.split())
    assert workspace.topics() == {"J": 1}


def _write_into(workspace: Workspace, *entries: object) -> None:
    """What whoever may produce to the tenant's `kodoctl` namespace can do."""
    with workspace.client() as client:
        producer = client.create_producer(lease_topic(NamespaceName.parse(workspace.namespace)))
        for entry in entries:
            producer.send(entry if isinstance(entry, bytes) else json.dumps(entry).encode())
        producer.close()


def test_what_a_stranger_writes_into_the_journal_is_told_and_nothing_ends_by_it(workspace: Workspace) -> None:
    workspace.topology(f"J: {PLAIN}".replace("%s", "1d"))
    workspace.apply()
    begin = {"kind": "begin", "v": 1, "apply": "aa11"}
    _write_into(workspace, b"\xff", b"[" * 50_000, begin, {**begin, "apply": ["x"]}, {"kind": "before"}, "text", None)
    told = workspace.run("history", workspace.namespace)
    assert " ".join(told.out.split()).count("is none of kodoctl's, and is left out") == 2
    assert "1 of 1" in told.out or "complete" in told.out
    workspace.run("undo", "last", workspace.namespace, "--auto-approve")
    assert workspace.topics() == {}


def test_a_plan_that_a_stranger_put_into_the_journal_is_shown_asked_about_and_judged_anew(workspace: Workspace) -> None:
    """With the seal and the permissions that its writer chose: `apply --resume` carried it out without a question."""
    workspace.topology(f"J: {PLAIN}\nK: {PLAIN}".replace("%s", "1d"))
    workspace.apply()
    workspace.publish("K", 3)
    workspace.topology(f"J: {PLAIN}".replace("%s", "1d"))
    doomed = f"topic.{workspace.full('K')}"
    options = ("--allow-destroy", doomed, "--allow-destroy", f"subscription.{workspace.full('K')}/s")
    workspace.plan("--out", "plan.json", *options)
    document = (workspace.folder / "plan.json").read_text()
    head = {"kind": "begin", "v": 1, "apply": "beef", "at": 5, "verb": "apply", "who": "x", "commit": None, "plan": "d"}
    places = {f"{workspace.namespace}/trade": None}
    _write_into(workspace, {**head, "changes": 2, "packed": pack(document), "ledgers": places})
    resume = ("apply", "--resume", workspace.namespace)
    refused = workspace.run(*resume, "--auto-approve", code=4)
    assert "K401" in refused.text
    assert "confirmation needs a terminal [K539]" in workspace.run(*resume, *options, code=64).text
    elsewhere = {**places, "bank/payments/trade": None}
    _write_into(workspace, {**head, "apply": "beef2", "changes": 2, "packed": pack(document), "ledgers": elsewhere})
    assert "K431" in workspace.run(*resume, *options, "--auto-approve", code=4).text
    assert workspace.topics() == {"J": 1, "K": 1}
