"""The schema by which a recall edits payloads, and where the ledger of recalls is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kodoctl.cli.common.ledger_option import ledger_named
from kodoctl.cli.letters.recall_options import declared_schema
from kodoctl.errors import InvalidFileError
from kodoctl.topology.load import choose_environment, load_set, read_files
from kodoctl.topology.loaded_topology import LoadedTopology

AVRO = '{"type": "record", "name": "R", "fields": []}'


def loaded(folder: Path, kind: str, content: str | None) -> LoadedTopology:
    if content is not None:
        (folder / "schema").write_text(content, encoding="utf-8")
    body = f"version: 1\nname: n\ntenant: k\nnamespace: n\ntopics: {{orders: {{payload: {{type: {kind}, schema: schema}}}}}}\n"
    (folder / "t.yaml").write_text(body, encoding="utf-8")
    files = read_files([str(folder / "t.yaml")])
    (found,) = load_set(files, choose_environment(files, None)).topologies
    return found


@pytest.mark.parametrize(
    ("kind", "content", "schema"),
    [("json", '{"type": "object"}', {"type": "object"}), ("json", "true", None), ("avro", AVRO, None)],
)
def test_a_schema_that_is_declared_is_what_an_edit_must_fit(
    tmp_path: Path, kind: str, content: str, schema: object
) -> None:
    assert declared_schema(loaded(tmp_path, kind, content), "orders") == schema
    assert declared_schema(loaded(tmp_path, kind, content), "others") is None


@pytest.mark.parametrize("content", [None, "{", '{"pattern": "(?=a)"}', '{"$ref": "http://127.0.0.1:9/x"}'])
def test_no_payload_is_edited_by_a_schema_that_cannot_be_used(tmp_path: Path, content: str | None) -> None:
    with pytest.raises(InvalidFileError, match="K304"):
        declared_schema(loaded(tmp_path, "json", content), "orders")


@pytest.mark.parametrize(("given", "landing", "ledger"), [
    (None, "", ".kodoctl/recall"),
    (None, ".kodoctl/landing", ".kodoctl/recall"),
    (None, "/var/lib/kodo/landing/", "/var/lib/kodo/recall"),
    (None, "/landing", "/recall"),
    (None, "s3a://kodo/landing", "s3a://kodo/recall"),
    (None, "s3a://kodo", "s3a://kodo/.recall"),
    (None, "file:///srv/landing", "file:///srv/recall"),
    ("here", "/var/lib/kodo/landing", "here"),
])  # fmt: skip
def test_the_ledger_is_beside_the_landing_wherever_a_command_runs(given: str | None, landing: str, ledger: str) -> None:
    assert ledger_named(given, landing) == ledger


def test_a_landing_named_by_a_relative_path_has_its_ledger_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ledger_named(None, "data/landing") == str(tmp_path / "data/recall")
