"""Ownership on the real broker: files that share a namespace, names and places that change, giving up, taking over."""

from __future__ import annotations

import json
from contextlib import closing

from kodoctl.dev.instance import STANDALONE
from tests.brokers.workspace import Workspace
from tests.services.servers import Fault, Proxy

SMALL = "{subscriptions: {s: {states: [], dead_letter: false}}}"
ENTRY = "kodoctl.topology/"


def _entries(workspace: Workspace, namespace: str = "ns") -> set[str]:
    """Topologies with a ledger entry in a namespace."""
    properties = workspace.dump(namespace).get("properties") or {}
    return {key.removeprefix(ENTRY) for key in properties if key.startswith(ENTRY)}


def test_two_files_share_a_namespace_and_each_is_applied_and_destroyed_alone(workspace: Workspace) -> None:
    one = workspace.topology(f"J: {SMALL}", name="one")
    other = workspace.topology(f"K: {SMALL}", name="other")
    workspace.apply(str(one))
    plan = workspace.plan(str(other))
    assert plan.summary == "Plan: 2 to create, 0 to update, 0 to delete, 0 to adopt, 1 unchanged."
    assert "topologies one (3 objects)" in plan.out
    workspace.apply(str(other))
    workspace.assert_settled()
    workspace.assert_settled(str(one))
    workspace.assert_settled(str(other))
    workspace.run("destroy", str(one), "--auto-approve")
    assert workspace.topics() == {"K": 1}
    assert _entries(workspace) == {"other"}
    workspace.assert_settled(str(other))
    workspace.run("destroy", str(other), "--auto-approve")
    assert workspace.topics() == {}


def test_a_destroyed_topology_leaves_nothing_behind_in_a_namespace_that_stays(workspace: Workspace) -> None:
    file = workspace.topology(f"J: {SMALL}")
    workspace.apply()
    workspace.make_topic("by-hand")
    workspace.run("destroy", str(file), "--auto-approve")
    assert workspace.topics() == {"by-hand": 1}
    assert _entries(workspace) == set()
    again = workspace.run("destroy", str(file), "--auto-approve")
    assert "Nothing of trade is on this cluster" in again.err


def test_both_destroyed_at_once_take_their_namespace_with_them(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}", name="one")
    workspace.topology(f"K: {SMALL}", name="other")
    workspace.apply()
    workspace.run("destroy", "topologies", "--auto-approve")
    assert workspace.admin("GET", f"namespaces/{workspace.tenant}") == [f"{workspace.tenant}/kodoctl"]


def test_a_renamed_topology_keeps_its_topics_and_drops_what_its_file_drops(workspace: Workspace) -> None:
    file = workspace.topology(f"J: {SMALL}\nK: {SMALL}", name="old")
    workspace.apply()
    file.unlink()
    workspace.topology(f"J: {SMALL}", "formerly: old\n", name="new")
    workspace.apply()
    assert workspace.topics() == {"J": 1}
    assert workspace.marker("J") == "new"
    assert _entries(workspace) == {"new"}
    workspace.assert_settled()
    workspace.run("destroy", "topologies", "--auto-approve")
    assert workspace.admin("GET", f"namespaces/{workspace.tenant}") == [f"{workspace.tenant}/kodoctl"]


def test_a_topology_that_moves_to_another_namespace_is_made_there_and_deleted_here(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}")
    workspace.apply()
    workspace.topology(f"J: {SMALL}", namespace="elsewhere")
    workspace.apply()
    assert workspace.topics("elsewhere") == {"J": 1}
    assert workspace.topics() == {}
    assert (_entries(workspace), _entries(workspace, "elsewhere")) == (set(), {"trade"})
    workspace.assert_settled()


def test_a_topology_that_is_renamed_and_moved_leaves_nothing_behind(workspace: Workspace) -> None:
    file = workspace.topology(f"J: {SMALL}", name="old")
    workspace.apply()
    file.unlink()
    workspace.topology(f"J: {SMALL}", "formerly: old\n", name="new", namespace="elsewhere")
    workspace.apply()
    assert (workspace.topics(), workspace.topics("elsewhere")) == ({}, {"J": 1})
    assert (_entries(workspace), _entries(workspace, "elsewhere")) == (set(), {"new"})
    workspace.assert_settled()


def test_take_over_moves_a_topic_from_one_file_to_another(workspace: Workspace) -> None:
    one = workspace.topology(f"J: {SMALL}\nK: {SMALL}", name="one")
    workspace.apply()
    one = workspace.topology(f"K: {SMALL}", name="one")
    two = workspace.topology(f"J: {SMALL}", name="two")
    refused = workspace.plan(code=4)
    assert "another topology owns it [K410]" in refused.out
    workspace.apply("--take-over")
    assert workspace.marker("J") == "two"
    workspace.assert_settled()
    workspace.assert_settled(str(one))
    workspace.assert_settled(str(two))
    workspace.topology(f"L: {SMALL}", name="two")
    workspace.apply(str(two))
    assert workspace.topics() == {"K": 1, "L": 1}


def test_after_a_take_over_the_former_owners_file_is_refused(workspace: Workspace) -> None:
    one = workspace.topology(f"J: {SMALL}", name="one")
    workspace.apply()
    two = workspace.topology(f"J: {SMALL}", name="two")
    workspace.apply(str(two), "--take-over")
    workspace.assert_settled(str(two))
    refused = workspace.plan(str(one), code=4)
    assert refused.out.count("another topology owns it [K410]") == 1, "one cause, told once"
    assert "'two'" in refused.out


def test_forget_leaves_the_topic_alone_and_nobody_owns_it(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}\nK: {SMALL}")
    workspace.apply()
    address = f"topic.{workspace.full('K')}"
    workspace.topology(f"J: {SMALL}")
    workspace.run("forget", address, f"subscription.{workspace.full('K')}/s", "--auto-approve")
    assert workspace.marker("K") is None
    assert workspace.topics() == {"J": 1, "K": 1}
    plan = workspace.plan()
    assert plan.summary.startswith("No changes")
    assert address in plan.out  # unmanaged
    workspace.apply()


def test_forget_by_name_gives_up_everything_and_a_plan_adopts_it_again(workspace: Workspace) -> None:
    workspace.topology("J: {subscriptions: {s: {workers: [anna]}}}")
    workspace.apply()
    workspace.run("forget", "--name", "trade", "--namespace", workspace.namespace, "--auto-approve")
    assert _entries(workspace) == set()
    document = workspace.plan_json()
    assert {change["action"] for change in document["changes"]} == {"adopt"}
    workspace.apply()
    workspace.assert_settled()


def test_forgetting_what_nobody_owns_says_so(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}")
    workspace.apply()
    refused = workspace.run("forget", f"topic.{workspace.full('nobodys')}", "--auto-approve", code=4)
    assert "nothing to forget [K419]" in refused.out


def test_an_adopted_topic_is_forgotten_by_destroy_not_deleted(workspace: Workspace) -> None:
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    workspace.make_topic("J", 1, "s")
    workspace.topology(f"J: {SMALL}")
    assert workspace.plan().summary == "Plan: 0 to create, 0 to update, 0 to delete, 2 to adopt, 1 unchanged."
    workspace.apply()
    workspace.assert_settled()
    workspace.run("destroy", "topologies", "--auto-approve")
    assert workspace.topics() == {"J": 1}
    assert workspace.subscriptions("J") == [{"s"}]
    assert workspace.marker("J") is None


def test_roles_that_two_files_grant_on_one_topic_keep_what_both_need(workspace: Workspace) -> None:
    one = workspace.topology("J: {subscriptions: {s: {recall: [anna]}}}", name="one")
    letters = f"{workspace.tenant}/ns/J-s-DLQ"
    two = workspace.topology(f"K: {{subscriptions: {{t: {{workers: [anna], produces: [{letters}]}}}}}}", name="two")
    workspace.apply()
    granted = workspace.dump()["auth_policies"]["destination_auth"]
    assert set(granted[f"persistent://{letters}"]["anna"]) == {"consume", "produce"}
    workspace.assert_settled()
    workspace.run("destroy", str(two), "--auto-approve")
    granted = workspace.dump()["auth_policies"]["destination_auth"]
    assert set(granted[f"persistent://{letters}"]["anna"]) == {"consume"}
    workspace.assert_settled(str(one))


def test_roles_granted_in_another_namespace_are_revoked_there_too(workspace: Workspace) -> None:
    workspace.admin("PUT", f"namespaces/{workspace.tenant}/other")
    workspace.make_topic("theirs", 1, namespace="other")
    target = f"{workspace.tenant}/other/theirs"
    workspace.topology(f"J: {{subscriptions: {{s: {{workers: [anna], produces: [{target}]}}}}}}")
    workspace.apply()
    assert workspace.dump("other")["auth_policies"]["destination_auth"][f"persistent://{target}"]["anna"] == ["produce"]
    workspace.assert_settled()
    workspace.topology("J: {subscriptions: {s: {workers: [anna]}}}")
    workspace.apply()
    granted = workspace.dump("other")["auth_policies"]["destination_auth"].get(f"persistent://{target}") or {}
    assert "anna" not in granted
    workspace.assert_settled()


def test_a_role_that_an_unfinished_apply_gave_is_taken_away_when_the_file_no_longer_asks(workspace: Workspace) -> None:
    """One topic cannot be made, so the apply is not complete; the file goes back to what it was."""
    workspace.topology("J: {subscriptions: {s: {workers: [anna]}}}\nK: {subscriptions: {s: {}}}")
    with closing(Proxy(workspace.broker.admin_url)) as proxy:
        proxy.choose = lambda request: Fault.PRECONDITION_BEFORE if request.path.endswith("/K/partitions") else None
        workspace.options = ["--admin-url", proxy.url, "--broker-url", workspace.broker.broker_url]
        workspace.apply(code=1)
    workspace.options = []
    granted = workspace.dump()["auth_policies"]["destination_auth"]
    assert "anna" in granted[workspace.full("J")]
    workspace.topology("J: {subscriptions: {s: {}}}")
    workspace.apply()
    granted = workspace.dump()["auth_policies"]["destination_auth"]
    assert "anna" not in (granted.get(workspace.full("J")) or {})
    workspace.assert_settled()


def test_undo_leaves_alone_what_was_forgotten_since(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}\nK: {SMALL}")
    workspace.apply()
    workspace.topology(f"J: {SMALL}")
    workspace.run("forget", f"topic.{workspace.full('K')}", f"subscription.{workspace.full('K')}/s", "--auto-approve")
    made, _ = workspace.run("history", workspace.namespace, "--format", "json").json()["applies"]
    refused = workspace.run("undo", made["id"], workspace.namespace, "--auto-approve", code=4)
    assert "nobody owns it by now" in refused.text
    assert workspace.topics() == {"J": 1, "K": 1}


def test_the_index_of_a_tenant_leads_to_no_other_tenant(workspace: Workspace) -> None:
    """Whoever administers a tenant writes its index. A topology of a name that another tenant has was said to live there as
    well, and an apply by somebody with rights on both deleted what is there as no longer declared.
    """
    bank = f"{workspace.tenant}-bank"
    workspace.broker.tenant(bank)
    theirs = workspace.write(
        f"version: 1\nname: trade\ntenant: {bank}\nnamespace: ns\ntopics: {{J: {SMALL}}}\n", "bank.yaml"
    )
    workspace.apply(str(theirs))
    ours = workspace.topology(f"K: {SMALL}")
    workspace.apply(str(ours))
    workspace.admin(
        "PUT", f"namespaces/{workspace.tenant}/kodoctl/properties", {"kodoctl.index/trade": json.dumps([f"{bank}/ns"])}
    )
    refused = workspace.plan(str(ours), code=1)
    assert "K522" in refused.err
    assert f"{bank}/ns is not of tenant {workspace.tenant}" in " ".join(refused.err.split())
    assert workspace.apply(str(ours), code=1).out == ""
    assert workspace.admin("GET", f"persistent/{bank}/ns/partitioned") == [f"persistent://{bank}/ns/J"]


def test_undo_of_an_adoption_leaves_alone_what_another_topology_took_over_since(workspace: Workspace) -> None:
    """It took the marker off: the topic was nobody's from then on, whatever the ledger of its owner said."""
    workspace.topology(f"K: {SMALL}", name="one")
    workspace.apply()
    workspace.make_topic("J", 1, "s")
    workspace.topology(f"K: {SMALL}\nJ: {SMALL}", name="one")
    workspace.apply()
    assert workspace.marker("J") == "one"
    other = workspace.topology(f"J: {SMALL}", name="other")
    workspace.apply(str(other), "--take-over")
    assert workspace.marker("J") == "other"
    applies = workspace.run("history", workspace.namespace, "--format", "json").json()["applies"]
    refused = workspace.run("undo", applies[1]["id"], workspace.namespace, "--auto-approve", code=4)
    assert "K422" in refused.text
    assert workspace.marker("J") == "other"
    workspace.assert_settled(str(other))


def test_topics_and_subscriptions_that_others_named_as_they_like_end_no_plan(workspace: Workspace) -> None:
    """Whoever may produce makes them, where topics are created automatically. `..` ended every command as a defect of kodoctl,
    a NUL every command with what a web server says.
    """
    workspace.topology(f"J: {SMALL}")
    workspace.apply()
    made = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 1}
    workspace.admin("POST", f"namespaces/{workspace.namespace}/autoTopicCreation", made)
    names = ["n\0l", "a?b#c", "a%2Fb", "a\nb"]
    standalone = workspace.broker.cluster == STANDALONE
    if standalone:  # on a cluster nobody can make these: ZooKeeper, where its metadata is, refuses relative paths
        names += ["..", "."]
    with workspace.client() as client:
        for name in names:
            client.create_producer(workspace.full(name)).close()
        for name in [*names, "../x"]:
            client.subscribe(workspace.full("J"), name).close()
    if standalone:
        workspace.admin("POST", f"{workspace.path('J')[:-1]}%2E%2E/permissions/anna", ["produce"])
    shown = workspace.plan_json()
    assert {f"topic.{workspace.full(name)}" for name in names} <= set(shown["unmanaged"])
    assert {f"subscription.{workspace.full('J')}/{name}" for name in [*names, "../x"]} <= set(shown["unmanaged"])
    workspace.assert_settled()
    workspace.run("drift")
    assert not standalone or "it is a relative path" in workspace.run("import", workspace.namespace).out
    workspace.run("destroy", "topologies", "--auto-approve", "--allow-destroy", f"topic.{workspace.full('J')}")
    left = workspace.admin("GET", f"persistent/{workspace.namespace}/partitioned")
    assert set(left) == {workspace.full(name) for name in names}
