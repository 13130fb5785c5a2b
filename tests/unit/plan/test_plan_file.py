"""The plan file: the same plan after a round trip, and nothing else than what kodoctl wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.errors import Diagnostic, Remedy, Severity, Where, error_with_remedy, warning
from kodoctl.plan import serialization
from kodoctl.plan.changes import (
    Adopt,
    Change,
    ChangeContext,
    Create,
    Delete,
    Effective,
    FieldChange,
    FieldUpdate,
    Forget,
    PolicyChange,
    Update,
)
from kodoctl.plan.ledger_plan import ConsumerChange
from kodoctl.plan.plan import Plan
from kodoctl.plan.plan_file import dumps, loads, to_json
from kodoctl.topology.model.policies import TOPIC_POLICY_NAMES, Foreign, Retention
from kodoctl.topology.names import TopicName
from kodoctl.topology.resource_json import resource_from_json, resource_to_json
from kodoctl.topology.resources import (
    GrantResource,
    NamespaceResource,
    Resource,
    SchemaResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
)
from kodoctl.topology.units import Duration
from tests.samples.inventories import HERE, applied, empty, planned, policy_values, topology, topology_texts, wanted
from tests.samples.profiles import examples

J = TopicName(HERE, "J")


def _plan(**parts: Any) -> Plan:
    return replace(planned(wanted(topology()), empty()), **parts)


@given(topology_texts(), topology_texts())
@examples(50)
def test_a_plan_reads_back_as_it_was_written(one: str, other: str) -> None:
    plan = planned(wanted(one), applied(wanted(other)))
    assert loads(dumps(plan), "plan.json") == plan


_TEXT = st.text(max_size=10)
_FINDINGS = st.builds(
    Diagnostic, st.sampled_from(Severity), _TEXT, _TEXT, _TEXT, st.none() | st.builds(Where, _TEXT, st.integers(0, 9), st.integers(0, 9)),
    remedy=st.none() | st.builds(Remedy, _TEXT, st.none() | _TEXT),
)  # fmt: skip
_ABOUT = st.builds(
    ChangeContext, _TEXT, _TEXT, st.none() | st.builds(Where, _TEXT, st.integers(0, 9), st.integers(0, 9)),
    st.lists(_FINDINGS, max_size=2).map(tuple), st.dictionaries(_TEXT, st.none() | st.integers() | _TEXT, max_size=2),
)  # fmt: skip


@st.composite
def _values(draw: st.DrawFn) -> tuple[str, Any]:
    name = draw(st.sampled_from(TOPIC_POLICY_NAMES))
    return name, draw(policy_values(name) | _TEXT.map(Foreign))


_POLICIES = st.lists(_values(), max_size=3).map(dict)
_RESOURCES = st.one_of(
    st.builds(TopicResource, st.just(J), st.integers(0, 9), _POLICIES, st.sampled_from([(), (1, 2)])),
    st.builds(
        SubscriptionResource,
        st.just(J),
        st.just("s"),
        st.sampled_from(["earliest", "latest"]),
        st.sampled_from([(), (0,)]),
    ),
    st.builds(NamespaceResource, st.just(HERE), st.just({}), st.none() | st.frozensets(st.sampled_from(["ttl"]))),
    st.builds(
        GrantResource, st.sampled_from([J, HERE]), st.just("spiffe://a/b"), st.frozensets(st.sampled_from(["consume"]))
    ),
    st.builds(SchemaResource, st.just(J), st.just("AVRO"), _TEXT),
    st.builds(TenantResource, st.just("acme"), st.frozensets(_TEXT), st.frozensets(_TEXT)),
)


@st.composite
def _fields(draw: st.DrawFn) -> FieldUpdate:
    kind = draw(
        st.sampled_from(
            ["policy", "partitions", "missing_on", "missing_partitions", "actions", "definition", "delayed_delivery"]
        )
    )
    match kind:
        case "policy":
            name, value = draw(_values())
            effective = Effective(draw(st.none() | st.just(value)), "namespace")
            return PolicyChange(name, draw(st.none() | st.just(value)), value, effective, None)
        case "partitions":
            return FieldChange(kind, 1, 4)
        case "actions":
            return FieldChange(kind, frozenset(), frozenset({"consume"}))
        case "missing_on" | "missing_partitions":
            return FieldChange(kind, (1, 2), ())
        case _:
            return FieldChange("definition" if kind == "definition" else "delayed_delivery", "a", None)


_CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(Create, _RESOURCES, _ABOUT),
    st.builds(
        Update,
        _RESOURCES,
        _RESOURCES,
        st.lists(_fields(), min_size=1, max_size=3).map(tuple),
        _ABOUT,
        st.booleans(),
        st.booleans(),
    ),
    st.builds(Delete, _RESOURCES, _ABOUT),
    st.builds(Adopt, _RESOURCES, _ABOUT, st.none() | _TEXT),
    st.builds(Forget, _TEXT, st.none() | _RESOURCES, _ABOUT),
)


@given(_CHANGES)
def test_every_kind_of_change_reads_back_as_it_was_written(change: Change) -> None:
    again = serialization.change_from_json(json.loads(json.dumps(serialization.change_to_json(change))))
    assert again == change
    assert again.about.evidence == change.about.evidence
    if isinstance(change, Create) and isinstance(change.after, SubscriptionResource):
        assert isinstance(again, Create)
        assert again.after.start == change.after.start  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "resource",
    [
        TenantResource("acme", frozenset({"east"}), frozenset({"admin"})),
        NamespaceResource(HERE, {}, None),
        NamespaceResource(HERE, {}, frozenset({"ttl"})),
        TopicResource(J, 3, {}, (1, 2)),
        SubscriptionResource(J, "s", "latest", (0,)),
        GrantResource(HERE, "spiffe://a/b", frozenset({"consume"})),
        GrantResource(J, "spiffe://a/b", frozenset({"consume"})),
        SchemaResource(J, "AVRO", "{}"),
    ],
)
def test_each_kind_of_resource_reads_back(resource: Resource) -> None:
    again = resource_from_json(json.loads(json.dumps(resource_to_json(resource))))
    assert again == resource


@pytest.mark.parametrize(
    "field",
    [
        FieldChange("partitions", 1, 4),
        FieldChange("actions", frozenset(), frozenset({"consume"})),
        FieldChange("missing_on", (1, 2), ()),
        FieldChange("missing_partitions", (1, 2), ()),
        FieldChange("definition", "a", None),
        PolicyChange("dispatch_rate", None, Foreign("x"), Effective(Foreign("x"), "namespace"), None),
    ],
    ids=lambda field: field.name,
)
def test_each_kind_of_field_reads_back(field: FieldUpdate) -> None:
    assert serialization.field_from_json(json.loads(json.dumps(serialization.field_to_json(field)))) == field


@pytest.mark.parametrize(
    "change",
    [
        Create(TopicResource(J, 1, {}), ChangeContext("trade", "", None)),
        Update(TopicResource(J, 1, {}), TopicResource(J, 2, {}), (FieldChange("partitions", 1, 2),), ChangeContext("trade", "", None)),
        Delete(TopicResource(J, 1, {}), ChangeContext("trade", "", None)),
        Adopt(TopicResource(J, 1, {}), ChangeContext("trade", "", None), None),
        Forget("topic.a", None, ChangeContext("trade", "", None)),
    ],
    ids=lambda change: type(change).__name__,
)  # fmt: skip
def test_each_kind_of_change_reads_back(change: Change) -> None:
    assert serialization.change_from_json(json.loads(json.dumps(serialization.change_to_json(change)))) == change


def test_consumer_changes_and_paths_are_part_of_the_file() -> None:
    plan = _plan(
        consumer_changes=(ConsumerChange("J/s", (("weights", None, {"ready": 1}),)),),
        paths=("topologies",),
        elsewhere={"other": 3},
        unmanaged=("topic.x",),
        destroying=True,
    )
    assert loads(dumps(plan), "plan.json") == plan


def test_a_resource_is_described_in_words_for_messages_about_stale_plans() -> None:
    assert serialization.describe(TopicResource(J, 3, {})) == "partitions 3"
    kept = {"ttl": Duration(60_000), "retention": Retention(time=Duration(86_400_000))}
    assert serialization.describe(TopicResource(J, 3, kept)) == "partitions 3, retention {time: 1d}, ttl 1m"
    assert serialization.describe(SubscriptionResource(J, "s")) == "there"
    assert serialization.describe(GrantResource(J, "r", frozenset({"consume"}))) == "actions consume"
    assert serialization.describe(SchemaResource(J, "AVRO", "{}")) == "type AVRO, definition {}"


SCHEMA = json.loads((Path(__file__).parents[3] / "schemas/plan.v1.json").read_text(encoding="utf-8"))
FITS = jsonschema.Draft202012Validator(SCHEMA)


@given(topology_texts(), topology_texts())
@examples(25)
def test_the_published_schema_describes_what_is_written(one: str, other: str) -> None:
    """Whatever a topology becomes."""
    FITS.validate(to_json(planned(wanted(one), applied(wanted(other)))))


def test_a_finding_is_written_with_its_remedy_and_without_one_as_before() -> None:
    refused = error_with_remedy("K403", "a share", "much", Remedy("--allow-share", "0.4"), "--allow-share=0.4")
    document = to_json(_plan(findings=(refused, warning("K405", "order", "keys move"))))
    FITS.validate(document)
    assert document["findings"] == [
        {
            "severity": "error",
            "code": "K403",
            "summary": "a share",
            "detail": "much\nif that is meant: --allow-share=0.4",
            "where": None,
            "remedy": {"flag": "--allow-share", "value": "0.4"},
        },
        {"severity": "warning", "code": "K405", "summary": "order", "detail": "keys move", "where": None},
    ]


def test_the_published_schema_knows_every_key_and_only_those() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert set(SCHEMA["required"]) == set(to_json(_plan()))
    for spoiled in ({"surprise": 1}, {"format_version": 2}, {"changes": [{"action": "explode"}]}, {"digest": "x"}):
        assert not FITS.is_valid({**to_json(_plan()), **spoiled})


@given(_CHANGES)
@examples(50)
def test_the_published_schema_describes_every_kind_of_change(change: Change) -> None:
    found = serialization.change_to_json(replace(change, about=ChangeContext("trade")))
    jsonschema.Draft202012Validator({**SCHEMA["properties"]["changes"]["items"], "$defs": SCHEMA["$defs"]}).validate(
        found
    )
