"""schemas/topology.v1.json: generated, checked in, complete, and of one mind with the loader."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kodoctl.topology.json_schema.editor_help import add_editor_help
from kodoctl.topology.json_schema.file_schema import schema_text, topology_schema
from kodoctl.topology.json_schema.rules_schema import rules_schema
from tests.unit.topology.topology_files import HEAD

ROOT = Path(__file__).parents[4]
TOPOLOGIES = sorted((ROOT / "topologies").rglob("*.yaml"))


def test_the_schema_in_the_repository_is_the_one_that_the_models_give() -> None:
    assert (ROOT / "schemas/topology.v1.json").read_text(encoding="utf-8") == schema_text() + "\n"


def models() -> list[tuple[str, dict[str, Any]]]:
    schema = topology_schema()
    named = [(name, model) for name, model in schema["$defs"].items() if not name.startswith("Patch")]
    return [("Topology", schema), *((name, model) for name, model in named if "properties" in model)]


@pytest.mark.parametrize(("name", "model"), models())
def test_every_field_has_a_description_and_an_example_that_the_schema_accepts(name: str, model: dict[str, Any]) -> None:
    assert model["description"], name
    for key, prop in model["properties"].items():
        assert prop.get("description"), f"{name}.{key} has no description"
        samples = prop.get("examples") or [prop[word] for word in ("const",) if word in prop] or prop.get("enum")
        samples = samples or resolved(prop).get("enum")
        assert samples, f"{name}.{key} has no example"
        validator = jsonschema.Draft202012Validator({**prop, "$defs": topology_schema()["$defs"]})
        for sample in samples:
            assert validator.is_valid(sample), f"{name}.{key}: {sample!r}"


def resolved(prop: dict[str, Any]) -> dict[str, Any]:
    return topology_schema()["$defs"][prop["$ref"].rsplit("/", 1)[1]] if "$ref" in prop else prop


def errors(document: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(topology_schema())
    return [found.json_path for found in validator.iter_errors(document)]


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(topology_schema())


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_our_topologies_are_valid_to_editors(path: Path) -> None:
    assert not errors(yaml.safe_load(path.read_text(encoding="utf-8")))


def document(**more: Any) -> dict[str, Any]:
    return {**yaml.safe_load(HEAD), "topics": {"orders": {"subscriptions": {"billing": {}}}}, **more}


@pytest.mark.parametrize(
    "overlay",
    [
        {},
        {"production": True},
        {"namespace": "other", "description": None, "create_tenant": None},
        {"defaults": {"partitions": 16, "policies": {"retention": {"time": "1d"}, "ttl": None}}},
        {"topics": {"orders": None}},
        {"topics": {"orders": {"levels": None, "backup": True, "subscriptions": {"billing": {"type": "failover", "tenant_weights": {"u1": None}, "dead_letter": {"ttl": None}, "audit": False, "retrying": None}}}}},
        {"topics": {"orders": {"subscriptions": {"billing": {"limits": [{"kind": "rate", "limit": "1/s"}]}}}}},
    ],
)  # fmt: skip
def test_overlays_ask_for_nothing_and_let_null_delete(overlay: dict[str, Any]) -> None:
    assert not errors(document(environments={"prod": overlay}))


@pytest.mark.parametrize(
    "overlay",
    [
        None,
        5,
        {"production": None},
        {"name": "other"},
        {"version": 1},
        {"environments": {}},
        {"partitions": 5},
        {"defaults": {"partitons": 16}},
        {"topics": {"orders": {"subscriptions": {"billing": {"type": "sharde"}}}}},
        {"topics": {"orders": {"subscriptions": {"billing": {"limits": [{"kind": "rate"}]}}}}},
    ],
)
def test_overlays_are_checked_like_the_file(overlay: Any) -> None:
    assert errors(document(environments={"prod": overlay}))


@pytest.mark.parametrize(
    "more", [{"description": None}, {"topics": {"orders": None}}, {"defaults": {"partitions": None}}, {"tenant": None}]
)
def test_null_stands_only_in_overlays(more: dict[str, Any]) -> None:
    assert errors(document(**more))


def test_an_overlay_repeats_descriptions_alone() -> None:
    """Editors show no description through a reference; all else is said once."""
    schema = topology_schema()
    patches = {name: model for name, model in schema["$defs"].items() if name.startswith("Patch")}
    assert len(json.dumps(patches)) < len(json.dumps(schema)) / 2
    of = schema["$defs"]["Subscription"]["properties"]["type"]
    leaf = patches["PatchSubscription"]["properties"]["type"]
    assert leaf == {
        "description": of["description"],
        "anyOf": [{"$ref": "#/$defs/Subscription/properties/type"}, {"type": "null"}],
    }
    assert not [
        f"{name}.{key}"
        for name, model in patches.items()
        for key, prop in model.get("properties", {}).items()
        if not prop["description"]
    ]


def maps(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, map) of each map of a schema that is no example."""
    if isinstance(schema, dict):
        yield path, schema
        for key, value in schema.items():
            if key not in {"examples", "default", "const"}:
                yield from maps(value, f"{path}.{key}")
    elif isinstance(schema, list):
        for item in schema:
            yield from maps(item, path)


@pytest.mark.parametrize("schema", [topology_schema, rules_schema])
def test_editors_say_what_a_choice_means_and_what_a_pattern_wants(schema: Callable[[], dict[str, Any]]) -> None:
    found = list(maps(schema(), ""))
    patterns = {path: one for path, one in found if isinstance(one.get("pattern"), str)}
    assert len(patterns) > 1
    assert not [path for path, one in patterns.items() if not one.get("patternErrorMessage")]
    choices = {path: one for path, one in found if isinstance(one.get("enum"), list)}
    assert choices
    assert not [
        (path, one["enum"]) for path, one in choices.items() if len(one.get("enumDescriptions", ())) != len(one["enum"])
    ]


def test_a_choice_that_is_not_known_has_no_meanings() -> None:
    schema = {"enum": ["a", "b"]}
    add_editor_help(schema)
    assert schema == {"enum": ["a", "b"]}


def test_titles_are_words() -> None:
    titles = [model["title"] for name, model in topology_schema()["$defs"].items() if not name.startswith("Patch")]
    assert "Backlog quota" in titles
    assert not [title for title in titles if not re.fullmatch(r"[A-Z][a-z]+( [a-z]+)*", title)]
