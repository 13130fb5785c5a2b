"""A plan file that was edited, that another version made, or that is no plan file: refused, never a traceback."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kodoctl.documents.json_form import digest
from kodoctl.errors import InvalidFileError, KodoctlError, RefusedError, Where, warning
from kodoctl.plan import serialization
from kodoctl.plan.changes import ChangeContext, Create, Delete, Forget
from kodoctl.plan.plan import Plan
from kodoctl.plan.plan_file import dumps, loads, to_json
from kodoctl.plan.staleness import staleness
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import TopicResource
from tests.samples.inventories import HERE, empty, planned, topology, wanted

J = TopicName(HERE, "J")


def _plan(**parts: Any) -> Plan:
    return replace(planned(wanted(topology()), empty()), **parts)


@given(st.data())
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
    document = {**to_json(_plan()), **parts}
    del document["seal"]
    return json.dumps({**document, "seal": digest(document)})


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


CREATE: Any = serialization.change_to_json(Create(TopicResource(J, 1, {}), ChangeContext("trade")))


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
        loads(json.dumps({**document, "seal": digest(document)}), "plan.json")
