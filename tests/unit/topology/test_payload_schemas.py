"""Payload schemas of a change under review against those before it: the rule, fed by hand."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kodoctl.topology.lint.linter import lint
from kodoctl.topology.load import load_set, source_of
from kodoctl.topology.payload_schemas import declared_payloads, payload_of
from tests.unit.topology.topology_files import HEAD


def changed(
    folder: Path,
    before: Any,
    now: Any,
    *,
    kind: str = "json",
    kind_before: str = "json",
    policies: str = "",
    head: str = "",
) -> list[str]:
    """What lint says about `now` where `before` was."""
    name, schema = str(folder / "trade.yaml"), folder / "order.json"
    schema.write_text(json.dumps(now))
    body = f"{HEAD}{head}topics: {{orders: {{{policies}payload: {{type: {kind}, schema: order.json}}}}}}\n"
    raw = before if isinstance(before, bytes) else json.dumps(before).encode()
    earlier = {(name, "orders"): payload_of(kind_before, schema, raw)}
    return [
        finding.detail.removeprefix(f"{schema}: ")
        for finding in lint([source_of(body.encode(), name)], earlier).findings
    ]


STRAY = "it lies outside of the repository {}, links followed, and is not read: keep it where it is reviewed"
WIDE, NARROW = {"type": "number"}, {"type": "integer"}
NARROWED = (
    "not FULL compatible: the new schema cannot read what the old one wrote: type number: only integer is accepted"
)


def test_a_schema_that_breaks_its_readers_is_found(tmp_path: Path) -> None:
    assert changed(tmp_path, WIDE, NARROW) == [NARROWED]
    assert changed(tmp_path, WIDE, WIDE) == []


@pytest.mark.parametrize(
    ("policies", "head", "found"),
    [
        ("policies: {schema_compatibility: FORWARD}, ", "", []),
        ("policies: {schema_compatibility: BACKWARD}, ", "", [NARROWED.replace("FULL", "BACKWARD")]),
        ("", "namespace_policies: {schema_compatibility: ALWAYS_COMPATIBLE}\n", []),
        ("ignore: [schema_compatibility], policies: {schema_compatibility: FORWARD}, ", "", [NARROWED]),
    ],
)
def test_the_effective_policy_says_in_which_directions(
    tmp_path: Path, policies: str, head: str, found: list[str]
) -> None:
    assert changed(tmp_path, WIDE, NARROW, policies=policies, head=head) == found


def test_another_kind_of_schema_is_another_topic(tmp_path: Path) -> None:
    (said,) = changed(tmp_path, {"type": "object"}, "string", kind="avro")
    assert said == "was json before, is avro now: no consumer can read both; use a new ground topic"


@pytest.mark.parametrize("before", [b"{", {"type": "strin"}])
def test_what_was_no_schema_promised_nothing(tmp_path: Path, before: Any) -> None:
    assert changed(tmp_path, before, NARROW) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("topics: {a: {payload: {type: avro, schema: a.json}}, b: {}}", {"a": ("avro", "a.json")}),
        ("topics: {a: {payload: {type: avro}}, b: 5, c: {payload: [x]}, d: {payload: {type: 1, schema: 2}}}", {}),
        ("topics: [a]", {}),
        ("- a", {}),
        ("{", {}),
    ],
)
def test_payloads_of_an_earlier_file_are_found_whatever_else_it_says(
    text: str, found: dict[str, tuple[str, str]]
) -> None:
    assert declared_payloads(source_of(text.encode(), "old.yaml").root) == found


def test_a_file_names_nothing_outside_of_its_repository(tmp_path: Path) -> None:
    repository, outside = tmp_path / "repository", tmp_path / "secret.json"
    (repository / ".git").mkdir(parents=True)
    (repository / "topologies").mkdir()
    outside.write_text('{"type": "number"}')
    (repository / "order.json").write_text('{"type": "number"}')
    (repository / "link.json").symlink_to(outside)
    (repository / "folder").symlink_to(tmp_path)

    def read(name: str, folder: Path = repository / "topologies") -> str | None:
        (file,) = [
            source_of(
                f"{HEAD}topics: {{a: {{payload: {{type: json, schema: {name}}}}}}}\n".encode(), str(folder / "t.yaml")
            )
        ]
        return load_set([file], None).topologies[0].payloads["a"].problem

    assert read("../order.json") is None
    for name in ("../../secret.json", str(outside), "../link.json", "../folder/secret.json"):
        assert read(name) == STRAY.format(repository), name
    assert read("secret.json", tmp_path) is None  # no repository: whoever runs kodoctl there put it there
    assert read(str(outside), Path("/")) is None


@pytest.mark.timeout(10)
def test_a_schema_file_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    text = f"{HEAD}topics: {{a: {{payload: {{type: json, schema: pipe}}}}}}\n"
    loaded = load_set([source_of(text.encode(), str(tmp_path / "t.yaml"))], None)
    assert loaded.topologies[0].payloads["a"].problem == "it is not a regular file"
