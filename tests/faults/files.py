"""The topology files that are applied while things break, and what the cluster has to look like afterwards."""

from __future__ import annotations

from typing import Any

from tests.brokers.workspace import Workspace

HEAD = "namespace_policies: {retention: {time: 1d, size: 100MiB}, ttl: 30d}\nnamespace_grants: {planner: [consume]}\n"
HEAD_CHANGED = HEAD.replace("30d", "40d")
BEFORE = """
J: {partitions: 2, policies: {ttl: 14d}, subscriptions: {s: {states: [retrying], workers: [anna]}}}
K: {subscriptions: {s: {states: [], dead_letter: false}, t: {states: [], dead_letter: false}}}
L: {producers: [ben], subscriptions: {s: {states: [], dead_letter: false}}}
"""
CHANGED = """
J: {partitions: 3, policies: {ttl: 20d, max_producers: 7}, subscriptions: {s: {states: [retrying], workers: [carl]}}}
K: {subscriptions: {s: {states: [], dead_letter: false}}}
M: {subscriptions: {s: {states: [], dead_letter: false}}}
"""


def words(text: str) -> str:
    """Text without its line breaks and indents."""
    return " ".join(text.split())


def assert_as_declared(workspace: Workspace) -> None:
    """What CHANGED says, seen without kodoctl."""
    assert workspace.topics() == {"J": 3, "J-s-DLQ": 1, "J-s-RETRYING": 3, "K": 1, "M": 1}
    assert workspace.subscriptions("J") == [{"s"}] * 3
    assert workspace.subscriptions("K") == workspace.subscriptions("M") == [{"s"}]
    assert workspace.policy("J", "messageTTL") == 20 * 86_400
    assert workspace.policy("J", "maxProducers") == 7
    roles = workspace.dump()["auth_policies"]["destination_auth"]
    assert set(roles[workspace.full("J")]) == {"carl"}
    assert not roles.get(workspace.full("L"))


def seen(workspace: Workspace) -> Any:
    """Everything in the namespace that a file can declare, seen without kodoctl; equal for two tenants with the same file."""
    dump = workspace.dump()
    topics = {
        local: (
            partitions,
            workspace.marker(local),
            workspace.subscriptions(local),
            [workspace.policy(local, policy) for policy in ("messageTTL", "maxProducers", "retention")],
        )
        for local, partitions in workspace.topics().items()
    }
    roles = {
        name.replace(workspace.tenant, "T"): given
        for name, given in dump["auth_policies"]["destination_auth"].items()
        if given
    }
    policies = [dump.get(name) for name in ("retention_policies", "message_ttl_in_seconds")]
    return topics, roles, dump["auth_policies"]["namespace_auth"], policies
