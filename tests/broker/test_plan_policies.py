"""Every policy of the table, on a topic and on a namespace, from the file to the broker and back.

The story of all policies is told once for each level; every policy then has a test of its own for what it saw.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from kodoctl.topology.model.policies import NAMESPACE_POLICY_NAMES, TOPIC_POLICY_NAMES
from tests.broker.policy_table import INHERIT, ROWS, Row, Value
from tests.brokers.broker import Broker
from tests.brokers.workspace import Json, Workspace, isolated

pytestmark = pytest.mark.broker

OLD = os.environ.get("KODOCTL_TEST_PULSAR", "4.2") == "4.0"
TOPIC_ROWS = {row.name: row for row in ROWS if row.topic and not (OLD and row.name == "subscription_expiry")}
NAMESPACE_ROWS = {row.name: row for row in ROWS if row.namespace and not (OLD and row.name == "metric_properties")}
APART = {"replication", "entry_filters"}
"""Policies of both levels with tests of their own."""


@dataclass
class Story:
    """What the broker and kodoctl said along the way: stage -> policy -> what a plain GET answered; stage -> document."""

    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    plans: dict[str, Json] = field(default_factory=dict)
    drifts: dict[str, Json] = field(default_factory=dict)
    settled: dict[str, str] = field(default_factory=dict)
    text: str = ""


@dataclass
class Teller:
    """Tells the story of one level."""

    workspace: Workspace
    level: str
    rows: Mapping[str, Row]
    story: Story = field(default_factory=Story)

    def file(self, which: str | None) -> None:
        """The file with one value of every policy; None: with none."""
        values = {name: getattr(row, which).text for name, row in self.rows.items()} if which else {}
        if self.level == "namespace":
            listed = "".join(f"  {name}: {text}\n" for name, text in values.items())
            head = f"namespace_policies:\n{listed}" if values else "namespace_policies: {}\n"
            self.workspace.topology("{}", head)  # no topic is loaded where the driver of `offload` is not installed
            return
        topics = [
            f"{name}: {{subscriptions: {{s: {{states: [], dead_letter: false}}}}"
            f"{f', policies: {{{name}: {values[name]}}}' if values else ''}}}"
            for name in self.rows
        ]
        self.workspace.topology("\n".join(topics))

    def path(self, row: Row) -> str:
        if self.level == "namespace":
            return f"namespaces/{self.workspace.namespace}"
        return self.workspace.path(row.name)

    def look(self, stage: str) -> None:
        """What the broker says now, asked without kodoctl."""
        found = {}
        for name, row in self.rows.items():
            last = row.namespace if self.level == "namespace" else row.topic
            reply = self.workspace.broker.admin("GET", f"{self.path(row)}/{last}")
            assert reply.ok, reply.text
            is_json = row.name != "resource_group"  # answered as bare text
            answer: Any = (reply.json() if is_json else reply.text) if reply.text else None
            if row.name == "properties":
                answer = {key: value for key, value in answer.items() if not key.startswith("kodoctl")} or None
            found[name] = answer
        self.story.seen[stage] = found

    def apply(self, stage: str) -> None:
        self.workspace.apply()
        self.story.settled[stage] = self.workspace.plan().summary
        self.look(stage)

    def plan(self, stage: str) -> None:
        self.story.plans[stage] = self.workspace.plan_json()

    def by_hand(self, stage: str) -> None:
        """Somebody sets every policy without kodoctl; then what drift and plan say."""
        for row in self.rows.values():
            method, last, body, query = row.request(self.level)
            self.workspace.admin(method, f"{self.path(row)}/{last}", body, **query)
        self.look(f"{stage} by hand")
        drift = self.workspace.run("drift", "--format", "json", code=None)
        assert drift.code in (0, 3), drift.text
        self.story.drifts[stage] = {"code": drift.code, **drift.json()}
        self.plan(stage)

    def tell(self) -> Story:
        if self.level == "topic":  # a topic that is loaded stays so when it gets a driver that is not installed
            self.file(None)
            self.workspace.apply()
        self.file("one")
        self.apply("created")
        self.file("two")
        self.plan("changed")
        self.story.text = self.workspace.plan().out
        self.apply("changed")
        self.by_hand("declared")
        self.apply("healed")
        self.file(None)
        self.plan("removed")
        self.apply("removed")
        self.by_hand("undeclared")
        return self.story


def _tell(broker: Broker, folder: Path, level: str, rows: Mapping[str, Row]) -> Story:
    tenant = f"t-{level}-{secrets.token_hex(3)}"
    broker.tenant(tenant)
    for name in ("one", "two", "hand"):
        assert broker.admin("PUT", f"resourcegroups/group-{name}", {"publishRateInMsgs": 1000}).ok
        assert broker.admin("PUT", f"persistent/public/default/shadow-{name}/partitions", 1).status_code in (204, 409)
    with isolated(folder):
        return Teller(Workspace(broker, folder, tenant), level, rows).tell()


@pytest.fixture(scope="module")
def on_topics(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return _tell(broker, tmp_path_factory.mktemp("topics"), "topic", TOPIC_ROWS)


@pytest.fixture(scope="module")
def on_namespace(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return _tell(broker, tmp_path_factory.mktemp("namespace"), "namespace", NAMESPACE_ROWS)


@dataclass(frozen=True)
class Case:
    """One policy on one level, with the story it was part of."""

    row: Row
    level: str
    story: Story

    def seen(self, stage: str) -> Any:
        return self.story.seen[stage][self.row.name]

    def fields(self, document: Json, group: str = "changes") -> list[Json]:
        """Every field that a plan or a drift changes for this policy; on topics, of the whole object it is declared on."""
        changes = [change for change in document[group] if change["action"] == "update"]
        if self.level == "topic":
            changes = [change for change in changes if change["address"].endswith(f"/{self.row.name}")]
            return [one for change in changes for one in change["fields"]]
        wanted = f"policies.{self.row.name}"
        return [one for change in changes for one in change["fields"] if one["name"] == wanted]

    def is_unset(self, answer: Any) -> bool:
        return answer is None or str(answer).lower() == str(self.row.unset).lower()

    def assert_one_field(
        self, document: Json, before: Value | None, after: Value | None, group: str = "changes"
    ) -> None:
        """Exactly one field of this policy's object differs, and it says from what to what."""
        (found,) = self.fields(document, group)
        assert found["name"] == f"policies.{self.row.name}"
        for value, shown in ((before, found["before"]), (after, found["after"])):
            if value is None or value.text == INHERIT:
                assert self.is_unset(shown)
            else:
                assert value.is_said_by(shown), found


_CASES = [("topic", name) for name in TOPIC_ROWS] + [("namespace", name) for name in NAMESPACE_ROWS]


@pytest.fixture(params=_CASES, ids="-".join)
def case(request: pytest.FixtureRequest) -> Case:
    level, name = request.param
    rows = TOPIC_ROWS if level == "topic" else NAMESPACE_ROWS
    return Case(rows[name], level, request.getfixturevalue("on_topics" if level == "topic" else "on_namespace"))


def test_the_table_names_every_policy_of_the_format() -> None:
    assert set(TOPIC_POLICY_NAMES) - set(TOPIC_ROWS) == {*APART, *({"subscription_expiry"} if OLD else ())}
    left = {*APART, "allowed_clusters", "bundles", *({"metric_properties"} if OLD else ())}
    assert set(NAMESPACE_POLICY_NAMES) - set(NAMESPACE_ROWS) == left


def test_a_declared_policy_is_what_the_broker_answers_and_a_second_plan_is_empty(case: Case) -> None:
    assert case.row.one.is_shown_by(case.seen("created")), case.seen("created")
    assert case.story.settled["created"].startswith("No changes")


def test_a_changed_policy_is_one_update_that_says_from_what_to_what(case: Case) -> None:
    case.assert_one_field(case.story.plans["changed"], case.row.one, case.row.two)
    assert case.row.two.is_shown_by(case.seen("changed")), case.seen("changed")
    assert case.story.settled["changed"].startswith("No changes")


def test_a_policy_changed_by_hand_is_drift_and_the_next_apply_puts_it_back(case: Case) -> None:
    assert case.row.hand.is_shown_by(case.seen("declared by hand"))
    assert case.story.drifts["declared"]["code"] == 3
    ((found),) = case.fields(case.story.drifts["declared"], "by_hand")
    assert case.row.two.is_said_by(found["after"])
    assert not case.row.two.is_said_by(found["before"])
    assert case.row.two.is_shown_by(case.seen("healed")), case.seen("healed")
    assert case.story.settled["healed"].startswith("No changes")


def test_a_policy_taken_out_of_the_file_is_unset(case: Case) -> None:
    fields = case.fields(case.story.plans["removed"])
    if case.is_unset(case.row.two.raw):  # what the file said last is what Pulsar answers without a value
        assert fields == []
    else:
        case.assert_one_field(case.story.plans["removed"], case.row.two, None)
    assert case.is_unset(case.seen("removed")), case.seen("removed")
    assert case.story.settled["removed"].startswith("No changes")


def test_setting_by_hand_what_the_file_does_not_name_is_drift_on_a_topic_and_nothing_on_a_namespace(case: Case) -> None:
    assert case.row.hand.is_shown_by(case.seen("undeclared by hand"))
    drift, plan = case.story.drifts["undeclared"], case.story.plans["undeclared"]
    if case.level == "topic":
        assert drift["code"] == 3
        case.assert_one_field(drift, case.row.hand, None, "by_hand")
        case.assert_one_field(plan, case.row.hand, None)
    else:
        assert drift["code"] == 0
        assert case.fields(plan) == case.fields(drift, "by_hand") == []


_BARE = str.maketrans("", "", "[]")


def _change(before: str, after: str) -> str:
    """Both values as a plan shows them: of maps only the keys that differ."""
    if not before.startswith("{"):
        return f"{before.strip('[]')} → {'unset' if after == INHERIT else after.strip('[]')}"
    inner = "s." if before.startswith("{s: {") else ""
    if inner:
        before, after = before[4:-1], after[4:-1]
    flat = (re.sub(r", settings: \{.*?\}", "", text) for text in (before, after))
    old, new = (dict(one.split(": ") for one in text.strip("{}").split(", ")) for text in flat)
    sides = {key: (old.get(key, "unset"), new.get(key, "unset")) for key in (*old, *new)}
    return ", ".join(f"{inner}{key} {one} → {two}".translate(_BARE) for key, (one, two) in sides.items() if one != two)


def test_the_text_of_a_plan_shows_each_change_with_both_values(case: Case) -> None:
    text = " ".join(case.story.text.split())
    assert f"{case.row.name} {_change(case.row.one.text, case.row.two.text)}" in text


@pytest.mark.parametrize("level", ["topic", "namespace"])
def test_nothing_else_is_seen_than_what_was_made(level: str, request: pytest.FixtureRequest) -> None:
    """Pulsar keeps things of its own beside ours, such as the cursor of a compacted topic."""
    story: Story = request.getfixturevalue("on_topics" if level == "topic" else "on_namespace")
    for plan in story.plans.values():
        assert plan["unmanaged"] == []
        assert {change["action"] for change in plan["changes"]} == {"update"} or not plan["changes"]


def test_replication_is_managed_only_where_it_is_named(broker: Broker, tmp_path: Path) -> None:
    """A broker of one cluster: one value that can be named, and then is left alone."""
    tenant = f"t-replication-{secrets.token_hex(3)}"
    broker.tenant(tenant)
    with isolated(tmp_path):
        workspace = Workspace(broker, tmp_path, tenant)
        here = f"{{replication: [{broker.cluster}]}}"
        small = f"{{policies: {here}, subscriptions: {{s: {{states: [], dead_letter: false}}}}}}"
        workspace.topology(f"J: {small}", f"namespace_policies: {here}\n")
        workspace.apply()
        assert workspace.policy("J", "replication") == [broker.cluster]
        assert workspace.admin("GET", f"namespaces/{workspace.namespace}/replication") == [broker.cluster]
        workspace.assert_settled()
        workspace.topology("J: {subscriptions: {s: {states: [], dead_letter: false}}}", "namespace_policies: {}\n")
        workspace.assert_settled()
        assert workspace.policy("J", "replication") == [broker.cluster]
        workspace.topology(
            "J: {policies: {replication: inherit}, subscriptions: {s: {states: [], dead_letter: false}}}"
        )
        workspace.apply()
        assert not workspace.policy("J", "replication")
        workspace.assert_settled()


def test_clusters_that_are_allowed_and_bundles_are_declared(broker: Broker, tmp_path: Path) -> None:
    """A broker of one cluster: one value. The number of bundles is that of the creation, whatever the file says later."""
    tenant = f"t-clusters-{secrets.token_hex(3)}"
    broker.tenant(tenant)
    with isolated(tmp_path):
        workspace = Workspace(broker, tmp_path, tenant)
        workspace.topology("{}", f"namespace_policies: {{allowed_clusters: [{broker.cluster}], bundles: 8}}\n")
        workspace.apply()
        assert workspace.dump()["allowed_clusters"] == [broker.cluster]
        assert workspace.dump()["bundles"]["numBundles"] == 8
        workspace.assert_settled()
        workspace.topology("{}", "namespace_policies: {bundles: 16}\n")
        plan = workspace.plan()
        assert plan.summary.startswith("No changes")
        assert f"{workspace.namespace} has 8 bundles, the file says 16" in " ".join(plan.text.split())
        refused = workspace.topology("{}", "namespace_policies: {allowed_clusters: [mars]}\n")
        assert "mars; the cluster knows" in " ".join(workspace.plan(str(refused), code=4).text.split())


def test_what_somebody_set_by_hand_is_imported_and_the_plan_only_adopts(broker: Broker, tmp_path: Path) -> None:
    """Each policy of both levels: nothing is lost, and nothing of it is in the list of what is left out."""
    tenant = f"t-import-{secrets.token_hex(3)}"
    broker.tenant(tenant)
    with isolated(tmp_path):
        workspace = Workspace(broker, tmp_path, tenant)
        workspace.admin("PUT", f"namespaces/{tenant}/ns")
        workspace.admin("PUT", f"namespaces/{tenant}/whole")
        for name in TOPIC_ROWS:
            workspace.make_topic(name, 1, "s")
        for row in TOPIC_ROWS.values():
            method, last, body, query = row.request("topic")
            workspace.admin(method, f"{workspace.path(row.name)}/{last}", body, **query)
        for row in NAMESPACE_ROWS.values():
            method, last, body, query = row.request("namespace")
            workspace.admin(method, f"namespaces/{tenant}/whole/{last}", body, **query)
        files = tmp_path / "topologies"
        workspace.run("import", tenant, "--out", str(files))
        text = {file.stem: file.read_text(encoding="utf-8") for file in files.glob("*.yaml")}
        assert "Left out" not in text["ns"] + text["whole"], text
        written = yaml.safe_load(text["ns"])["topics"]
        expected = {name for name, row in TOPIC_ROWS.items() if row.hand.raw != row.unset}
        assert {name for name, topic in written.items() if name in topic.get("policies", {})} == expected
        shown = yaml.safe_load(text["whole"])["namespace_policies"]
        assert set(shown) == {name for name, row in NAMESPACE_ROWS.items() if row.hand.raw != row.unset}
        for name, value in shown.items():
            assert NAMESPACE_ROWS[name].hand.is_said_by(value), (name, value)
        actions = {change["action"] for change in workspace.plan_json()["changes"]}
        assert actions == {"adopt"}


def test_an_entry_filter_that_is_not_installed_is_refused_by_its_name_and_can_be_removed(
    broker: Broker, tmp_path: Path
) -> None:
    """Pulsar accepts any filter in the request that creates a namespace, and later only one that is installed."""
    tenant = f"t-filters-{secrets.token_hex(3)}"
    broker.tenant(tenant)
    with isolated(tmp_path):
        workspace = Workspace(broker, tmp_path, tenant)
        filters = {"entryFilterNames": "a,b"}
        workspace.admin("PUT", f"namespaces/{tenant}/ns", {"entryFilters": filters})
        workspace.topology("{}", "namespace_policies: {entry_filters: [a, b]}\n")
        assert {change["action"] for change in workspace.plan_json()["changes"]} == {"adopt"}
        workspace.apply()
        workspace.topology("{}", "namespace_policies: {entry_filters: [c]}\n")
        assert "Entry filter 'c' not found" in " ".join(workspace.apply(code=1).text.split())
        assert workspace.dump()["entryFilters"] == filters
        workspace.topology("{}", "namespace_policies: {}\n")
        workspace.apply()
        assert "entryFilters" not in workspace.dump()
        workspace.assert_settled()
        groups = "namespace_policies: {resource_group: nobodys}\n"
        new = workspace.topology("{}", groups, name="new", namespace="new")
        assert "ResourceGroup does not exist" in " ".join(workspace.apply(str(new), code=1).text.split())
        new.unlink()
        workspace.topology("J: {policies: {entry_filters: [c]}}", "namespace_policies: {}\n")
        assert "Entry filter 'c' not found" in " ".join(workspace.apply(code=1).text.split())
