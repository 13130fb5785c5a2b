"""The repository that a file lies in, however its folder is named, and what a file in it may name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kodoctl.cli.topology.editor_schema import editor_schema
from kodoctl.topology.json_schema.file_schema import SCHEMA_ID
from kodoctl.topology.path_guard import repository_root, why_outside_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two folders, beside a folder that is in none."""
    for folder in ("repo/.git", "repo/topologies/deep", "repo/schemas", "beside"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path / "repo"


@pytest.mark.parametrize(
    ("here", "folder", "is_inside"),
    [
        ("repo/topologies", ".", True),
        ("repo/topologies", "deep", True),
        ("repo/topologies/deep", "../../schemas", True),
        (".", "repo/topologies", True),
        ("repo/topologies", "../../beside", False),
        ("repo", "..", False),
        (".", ".", False),
    ],
)
def test_the_root_of_a_repository_is_found_from_a_relative_folder(
    repository: Path, monkeypatch: pytest.MonkeyPatch, here: str, folder: str, *, is_inside: bool
) -> None:
    monkeypatch.chdir(repository.parent / here)
    assert repository_root(Path(folder)) == (repository if is_inside else None)
    problem = why_outside_repository(Path(folder), repository.parent / "beside" / "secret")
    assert (problem or "").startswith("it lies outside of the repository") is is_inside


def test_a_folder_that_is_gone_hinders_no_absolute_path(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = repository.parent / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert repository_root(repository / "topologies") == repository
    assert why_outside_repository(repository, repository / "topologies" / "t.yaml") is None


def test_the_schema_for_editors_is_looked_for_in_the_repository_of_the_file(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file beside the repository that was named from inside of it was given the repository's schema."""
    ours = repository / "schemas" / "topology.v1.json"
    ours.write_text(json.dumps({"$id": SCHEMA_ID}), encoding="utf-8")
    monkeypatch.chdir(repository / "topologies")
    beside = repository.parent / "beside" / "t.yaml"
    for named in (Path("../../beside/t.yaml"), beside):
        assert editor_schema(named).missing == beside.with_name("topology.v1.json")
    assert "../schemas/topology.v1.json" in editor_schema(Path("t.yaml")).line
