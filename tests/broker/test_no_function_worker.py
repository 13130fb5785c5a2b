"""Functions in a file for a broker without a function worker: they are left alone, and all else is carried out. Whether
others have some, nobody knows: workers may run apart from the brokers.
"""

from __future__ import annotations

import pytest

from tests.brokers.workspace import Workspace

FUNCTION = "functions: {enrich: {package: 'builtin://enrich', inputs: [orders]}}\n"


def test_all_but_the_functions_is_planned_and_applied(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KODOCTL_FUNCTION_WORKER")
    workspace.topology("orders: {}", head=FUNCTION)
    text = " ".join(workspace.apply().text.split())
    assert "[K451]" in text
    assert "the broker has no function worker" in text
    assert "whether they exist is unknown, and they are left alone" in text
    assert "functionsWorkerEnabled=true" in text
    assert workspace.admin("GET", f"persistent/{workspace.namespace}/partitioned") == [workspace.full("orders")]
    assert workspace.plan().summary.startswith("No changes")
    assert "[K451]" in workspace.run("drift", code=None).out


def test_a_file_without_functions_asks_no_worker(workspace: Workspace) -> None:
    workspace.topology("orders: {}")
    assert "K451" not in workspace.apply().text
    assert "function" not in workspace.run("import", workspace.namespace, "--name", "other", code=None).text


def test_a_destroy_keeps_a_namespace_that_functions_of_others_may_be_in(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.topology("orders: {}")
    workspace.apply()
    monkeypatch.delenv("KODOCTL_FUNCTION_WORKER")
    kept = " ".join(workspace.run("destroy", "topologies", "--auto-approve").text.split())
    space = f"namespace.{workspace.namespace}"
    assert f"{space} stays, and is nobody's then, because functions or connectors of others may live in it" in kept
    assert "KODOCTL_FUNCTION_WORKER" in kept
    assert workspace.dump()


@pytest.mark.parametrize("way", ["said", "allowed"])
def test_a_destroy_deletes_a_namespace_that_no_functions_are_in(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    workspace.topology("orders: {}")
    workspace.apply()
    allowed = ["--allow-destroy", f"namespace.{workspace.namespace}"] if way == "allowed" else []
    if allowed:
        monkeypatch.delenv("KODOCTL_FUNCTION_WORKER")
    workspace.run("destroy", "topologies", "--auto-approve", *allowed)
    assert not workspace.broker.admin("GET", f"namespaces/{workspace.namespace}").ok
