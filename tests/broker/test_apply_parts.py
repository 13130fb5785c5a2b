"""Parts of a plan on the real broker: several of them leave behind what one apply of all does."""

from __future__ import annotations

from kodoctl.pulsar.values.ledger import Ledger, decode
from kodoctl.topology.names import NamespaceName
from tests.brokers.workspace import Json, Workspace

BEFORE = """
J: {producers: [anna], subscriptions: {s: {states: [], dead_letter: false}}}
K: {subscriptions: {s: {states: [], dead_letter: false}}}
"""
AFTER = """
J: {policies: {ttl: 14d}, producers: [dora], subscriptions: {s: {states: [], dead_letter: false}}}
L: {partitions: 2, subscriptions: {s: {states: [], dead_letter: false, concurrency: 4}}}
"""
HEAD = "namespace_policies: {max_producers: 7}\nnamespace_grants: {ben: [consume]}\n"


def _ledger(workspace: Workspace, name: str) -> Ledger:
    """The entry of the topology that lives in the namespace of its name."""
    properties = workspace.dump(name)["properties"]
    return decode(name, NamespaceName(workspace.tenant, name), properties[f"kodoctl.topology/{name}"])


def _state(workspace: Workspace, name: str) -> Json:
    """The namespace, its topics and its ledger, told without its name."""
    dump, ledger = workspace.dump(name), _ledger(workspace, name)

    def plain(value: object) -> str:
        return str(value).replace(f"{workspace.tenant}/{name}", "NS")

    return {
        "topics": workspace.topics(name),
        "subscriptions": {local: workspace.subscriptions(local, name) for local in workspace.topics(name)},
        "ttl": workspace.policy("J", "messageTTL", name),
        "producers": dump["max_producers_per_topic"],
        "grants": plain(dump["auth_policies"]),
        "owned": {plain(address): how for address, how in ledger.owned.items()},
        "keys": ledger.namespace_keys,
        "given": {plain(address): actions for address, actions in ledger.grants.items()},
        "consumers": ledger.consumers,
    }


def _declare(workspace: Workspace, name: str, topics: str, head: str = "") -> list[str]:
    return [str(workspace.topology(topics, head, name=name, namespace=name))]


def test_parts_and_then_the_rest_leave_the_same_behind_as_all_at_once(workspace: Workspace) -> None:
    workspace.apply(*_declare(workspace, "whole", BEFORE))
    workspace.apply(*_declare(workspace, "whole", AFTER, HEAD))

    workspace.apply(*_declare(workspace, "parts", BEFORE))
    file = _declare(workspace, "parts", AFTER, HEAD)
    before = _ledger(workspace, "parts")
    workspace.apply(*file, "--target", "topic.*/L", "--target", "topic.*/J")
    after = _ledger(workspace, "parts")
    assert after.digest == "" != before.digest
    assert (after.consumers, after.grants, after.namespace_keys) == (before.consumers, before.grants, frozenset())
    assert after.owned.keys() - before.owned.keys() == {f"topic.{workspace.full('L', 'parts')}"}
    assert "not applied yet: parts" in " ".join(workspace.run("drift", *file, code=3).out.split())
    workspace.plan(*file, "--target", "*/K*", "--out", "gone.json")
    workspace.run("apply", "gone.json")
    workspace.apply(*file, "--exclude", "grant.*")
    rest = {change["address"].partition(".")[0] for change in workspace.plan_json(*file)["changes"]}
    assert rest == {"grant"}
    workspace.apply(*file)
    workspace.assert_settled(*file)

    assert _state(workspace, "parts") == _state(workspace, "whole")
    assert _ledger(workspace, "parts").digest
