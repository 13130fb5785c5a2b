"""Functions in a file for a cluster without a function worker: they are left alone, and all else is carried out."""

from __future__ import annotations

from tests.brokers.workspace import Workspace

FUNCTION = "functions: {enrich: {package: 'builtin://enrich', inputs: [orders]}}\n"


def test_all_but_the_functions_is_planned_and_applied(workspace: Workspace) -> None:
    workspace.topology("orders: {}", head=FUNCTION)
    text = " ".join(workspace.apply().text.split())
    assert "[K451]" in text
    assert "the cluster has no function worker; whether they exist is unknown, and they are left alone" in text
    assert "functionsWorkerEnabled=true" in text
    assert workspace.admin("GET", f"persistent/{workspace.namespace}/partitioned") == [workspace.full("orders")]
    assert workspace.plan().summary.startswith("No changes")
    assert "[K451]" in workspace.run("drift", code=None).out


def test_a_file_without_functions_asks_no_worker(workspace: Workspace) -> None:
    workspace.topology("orders: {}")
    assert "K451" not in workspace.apply().text
    assert "function" not in workspace.run("import", workspace.namespace, "--name", "other", code=None).text
