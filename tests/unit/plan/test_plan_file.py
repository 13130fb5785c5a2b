"""The plan file: the same plan after a round trip, and nothing else than what kodoctl wrote."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kodoctl.errors import (
    Diagnostic,
    InvalidFileError,
    KodoctlError,
    RefusedError,
    Remedy,
    Severity,
    Where,
    error_with_remedy,
    warning,
)
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
from kodoctl.plan.staleness import staleness
from kodoctl.topology.model.policies import TOPIC_POLICY_NAMES, Foreign
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
from tests.inventories import HERE, applied, empty, planned, policy_values, topology, topology_texts, wanted

J = TopicName(HERE, "J")


def _plan(**parts: Any) -> Plan:
    return replace(planned(wanted(topology()), empty()), **parts)


@given(topology_texts(), topology_texts())
@settings(deadline=None, max_examples=50)
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
            return FieldChange(kind, "a", None)


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
@settings(deadline=None)
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


@given(st.data())
@settings(deadline=None)
def test_a_plan_file_with_one_character_changed_is_refused(data: st.DataObject) -> None:
    text = dumps(_plan())
    position = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(exclude_categories=["Cs"]))
    edited = text[:position] + other + text[position + 1 :]
    with contextlib.suppress(ValueError):
        assume(json.loads(edited) != json.loads(text))  # white space means nothing
    with pytest.raises(KodoctlError) as caught:
        loads(edited, "plan.json")
    assert caught.value.diagnostics[0].code in ("K530", "K531", "K532")


def _edited(**parts: Any) -> str:
    """A plan file that somebody edited and sealed again."""
    document = to_json(_plan())
    del document["seal"]
    document |= parts
    return json.dumps({**document, "seal": serialization.digest(document)})


def test_an_edited_plan_is_refused_even_where_the_edit_looks_harmless() -> None:
    document = to_json(_plan(findings=(warning("K999", "careful"),)))
    document["findings"] = []
    with pytest.raises(RefusedError, match="does not match its seal"):
        loads(json.dumps(document), "plan.json")


def test_a_plan_of_another_format_is_refused_with_both_versions() -> None:
    with pytest.raises(RefusedError, match=r"it has format 2, this kodoctl .* reads 1"):
        loads(json.dumps({"format_version": 2}), "plan.json")


def test_a_plan_of_another_kodoctl_is_refused_because_it_may_mean_something_else() -> None:
    with pytest.raises(RefusedError, match=r"made by 0\.0\.0"):
        loads(_edited(kodoctl_version="0.0.0"), "plan.json")


def test_a_recall_plan_is_told_as_that_with_the_command_that_carries_it_out() -> None:
    with pytest.raises(InvalidFileError, match=r"it is a recall plan: `kodoctl recall apply r\.json`"):
        loads(_edited(dead_topic="persistent://acme/ns/J-s-DLQ"), "r.json")


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "no json", "1", "[" * 100_000, '{"format_version": 1}'])
def test_what_is_no_plan_file_is_called_so(text: str) -> None:
    with pytest.raises(KodoctlError) as caught:
        loads(text, "some.json")
    assert caught.value.diagnostics[0].where == Where("some.json")


CREATE = serialization.change_to_json(Create(TopicResource(J, 1, {}), ChangeContext("trade")))


@pytest.mark.parametrize(
    "parts",
    [
        {"changes": [{"action": "create"}]},
        {
            "changes": [
                {**serialization.change_to_json(Forget("topic.x", None, ChangeContext("trade"))), "action": "explode"}
            ]
        },
        {
            "changes": [
                {
                    **serialization.change_to_json(Delete(TopicResource(J, 1, {}), ChangeContext("trade"))),
                    "before": {"kind": "moon"},
                }
            ]
        },
        {"namespaces": ["no namespace"]},
        {"owners": [{}]},
        {"cluster": None},
        {"changes": 5},
        {"changes": [{**CREATE, "after": {**CREATE["after"], "policies": 5}}]},
        {"changes": [{**CREATE, "after": {**CREATE["after"], "partitions": "x"}}]},
        {"changes": [{**CREATE, "after": {**CREATE["after"], "name": 5}}]},
        {"changes": [{**CREATE, "owner": {}}]},
        {"changes": [{**CREATE, "address": "topic.other"}]},
        {"fingerprints": []},
        {"elsewhere": ["ab"]},
        {"refused": True},
        {"more": 1},
    ],
    ids=[
        "no members",
        "unknown action",
        "unknown kind",
        "bad name",
        "bad owner",
        "no cluster",
        "no list",
        "policies",
        "partitions",
        "name",
        "owner",
        "address",
        "fingerprints",
        "elsewhere",
        "verdict",
        "unknown key",
    ],
)
def test_a_sealed_file_that_says_nonsense_is_an_invalid_file_and_no_traceback(parts: dict[str, Any]) -> None:
    with pytest.raises(InvalidFileError) as caught:
        loads(_edited(**parts), "plan.json")
    assert caught.value.diagnostics[0].code == "K530"
    assert "another build of the same version: plan again" in caught.value.diagnostics[0].detail


def _places(document: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [here, *(place for key, value in inside for place in _places(value, (*here, key)))]


@given(st.data())
@settings(deadline=None)
def test_whatever_stands_in_a_sealed_file_it_is_a_plan_or_refused(data: st.DataObject) -> None:
    document = json.loads(dumps(planned(wanted(topology("{J: {policies: {ttl: 1d}, producers: [anna]}}")), empty())))
    del document["seal"]
    *way, last = data.draw(st.sampled_from(_places(document)[1:]))
    inside = document
    for key in way:
        inside = inside[key]
    junk = [None, True, -1, 1.5, "", "x", "policies.x", "actions", [], {}, [1, "a"], {"a": {}}, float("nan")]
    inside[last] = data.draw(st.sampled_from(junk))
    with contextlib.suppress(KodoctlError):
        found = loads(_edited(**document), "plan.json")
        staleness(found, empty())
        assert loads(dumps(found), "plan.json") == found


@pytest.mark.parametrize("depth", range(900, 1_000))
def test_a_file_may_nest_as_deeply_as_it_likes(depth: int) -> None:
    with pytest.raises(KodoctlError):
        loads('{"format_version": 1, "a": ' + "[" * depth + "]" * depth + "}", "plan.json")


def test_a_file_without_the_version_that_made_it_is_of_another_kodoctl() -> None:
    document = json.loads(_edited())
    del document["kodoctl_version"], document["seal"]
    with pytest.raises(RefusedError, match="made by None"):
        loads(json.dumps({**document, "seal": serialization.digest(document)}), "plan.json")


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
    assert serialization.describe(SubscriptionResource(J, "s")) == "there"
    assert serialization.describe(GrantResource(J, "r", frozenset({"consume"}))) == 'actions ["consume"]'
    assert serialization.describe(SchemaResource(J, "AVRO", "{}")) == "type AVRO, definition {}"


SCHEMA = json.loads((Path(__file__).parents[3] / "schemas/plan.v1.json").read_text(encoding="utf-8"))
FITS = jsonschema.Draft202012Validator(SCHEMA)


@given(topology_texts(), topology_texts())
@settings(deadline=None, max_examples=25)
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
@settings(deadline=None, max_examples=50)
def test_the_published_schema_describes_every_kind_of_change(change: Change) -> None:
    found = serialization.change_to_json(replace(change, about=ChangeContext("trade")))
    jsonschema.Draft202012Validator({**SCHEMA["$defs"]["change"], "$defs": SCHEMA["$defs"]}).validate(found)
