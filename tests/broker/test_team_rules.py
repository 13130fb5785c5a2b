"""Team rules before a cluster: plan and apply refuse as lint does, and nothing that runs at night waits for a rule."""

from __future__ import annotations

import subprocess

import pytest

from tests.brokers.workspace import Workspace

ORDERS = "orders: {subscriptions: {s: {states: [], dead_letter: false}}}"
OWNED = "orders: {owners: shop, subscriptions: {s: {states: [], dead_letter: false}}}"
RULES = """\
version: 1
rules:
  owners:
    because: Somebody is paged for every topic.
    of: topics
    require: {owners: {present: true}}
"""


@pytest.fixture
def repository(workspace: Workspace) -> Workspace:
    """A repository whose rules ask for owners; topic `orders` is applied with one."""
    git(workspace, "init", "-q", ".")
    (workspace.folder / "kodoctl-rules.yaml").write_text(RULES)
    workspace.topology(OWNED)
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "x")
    workspace.apply()
    return workspace


def git(workspace: Workspace, *arguments: str) -> None:
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=workspace.folder, check=True, capture_output=True)


def test_plan_and_apply_refuse_a_topology_against_a_rule(repository: Workspace) -> None:
    repository.topology(f"{OWNED}\n{ORDERS.replace('orders', 'parcels')}")
    before = repository.dump()
    for command in (["plan", "topologies"], ["apply", "topologies", "--auto-approve"]):
        refused = repository.run(*command, code=1)
        shown = " ".join(refused.err.split())
        assert "Error: against a rule of this repository [K310]" in shown
        assert "trade/parcels: owners has no value: it is needed" in shown
        assert "kodoctl-rules.yaml:3): Somebody is paged for every topic." in shown
    assert repository.dump() == before
    exempt = "exempt: [{rule: owners, object: trade/parcels, because: moves}]\n"
    (repository.folder / "kodoctl-rules.yaml").write_text(RULES + exempt)
    assert repository.plan().summary.startswith("Plan:")


def test_a_plan_against_a_revision_keeps_its_rules(repository: Workspace) -> None:
    (repository.folder / "kodoctl-rules.yaml").unlink()
    repository.topology(ORDERS)
    assert repository.plan().summary.startswith("No changes")
    refused = repository.run("plan", "topologies", "--against", "HEAD", code=1)
    assert "at HEAD): Somebody is paged" in " ".join(refused.err.split())


def test_a_plan_against_a_revision_judges_what_was_production_there(repository: Workspace) -> None:
    """The change takes the property away, and what the rule asks for with it."""
    (repository.folder / "kodoctl-rules.yaml").write_text(
        RULES.replace("of: topics", "of: topics\n    production: true")
    )
    repository.topology(OWNED, "environments: {prod: {production: true}}\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "y")
    repository.topology(ORDERS, "environments: {prod: {}}\n")
    repository.run("plan", "topologies", "--env", "prod", "--take-over", code=None)
    refused = repository.run("plan", "topologies", "--env", "prod", "--against", "HEAD", code=1)
    assert "trade/orders: owners has no value" in " ".join(refused.err.split())


def test_rules_of_another_place_judge_with_a_flag(repository: Workspace) -> None:
    central = repository.folder.parent / "central.yaml"
    central.write_text(RULES.replace("owners: {present: true}", "labels.tier: {in: [gold, tin]}"))
    refused = repository.run("plan", "topologies", "--rules", str(central), code=1)
    assert "trade/orders: labels.tier has no value: should be one of gold, tin" in " ".join(refused.err.split())
    planned = repository.plan("--out", "plan.json")
    assert planned.summary.startswith("No changes")
    both = repository.run("apply", "plan.json", "--rules", str(central), code=64)
    assert "--rules belongs to its plan" in both.err


def test_commands_that_carry_on_do_not_wait_for_a_rule(repository: Workspace) -> None:
    repository.topology(OWNED.replace("subscriptions", "policies: {ttl: 14d}, subscriptions"))
    repository.plan("--out", "plan.json")
    (repository.folder / "kodoctl-rules.yaml").write_text(RULES.replace("owners: {", "labels.tier: {"))
    repository.run("apply", "plan.json")  # judged when it was made
    repository.run("drift", "topologies")
    repository.run("status", "topologies")
    repository.run("plan", "topologies", code=1)
