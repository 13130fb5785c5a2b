"""Baseline of `plan --against REF`: the declarations in the files of a command at a git revision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kodoctl.cli.common.console import report
from kodoctl.cli.common.git import Revision
from kodoctl.errors import warning

if TYPE_CHECKING:
    from kodoctl.plan.git_baseline import Baseline
    from kodoctl.topology.expand import Expansion
    from kodoctl.topology.loaded_topology import LoadedTopology, SourceFile
    from kodoctl.topology.payload_schemas import PayloadFile

_At = Callable[[Path], Revision]


def declared_at(paths: Sequence[str], ref: str, environment: str | None) -> Baseline:
    """Objects that the files under `paths` declared at the git revision `ref`. Files that are invalid at that revision,
    or lack `environment` while others have environments, count as absent, and one warning shows the first finding.
    Raises UsageError if there is no git, no repository or no such commit, or if the clone lacks a file of the commit.
    """
    from kodoctl.plan.git_baseline import Baseline
    from kodoctl.plan.inventory import desired_inventory

    commit, expansions = expansions_at(paths, ref, environment)
    return Baseline(ref, commit, desired_inventory(expansions, environment))


def expansions_at(paths: Sequence[str], ref: str, environment: str | None) -> tuple[str, list[Expansion]]:
    """Returns (hash of the commit that `ref` names in the repository of the first path, topologies that the files under
    `paths` declared at that revision). Files that were deleted since are among them; files that the revision lacks are
    left out. `environment` is ignored if no file had environments then. Files that are invalid, or lack `environment`
    while others have environments, are left out, and one warning shows the first finding. Raises UsageError as
    `declared_at` does.
    """
    from kodoctl.topology.expand import expand
    from kodoctl.topology.load import environments_of, load_set

    at: _At = cache(lambda folder: Revision(ref, folder))
    files = list(_files(paths, at))
    loaded = load_set(files, environment if environments_of(files) else None)
    if loaded.findings:
        first = loaded.findings[0]
        detail = f"at {ref}: {first.where}: {first.detail}; what such files declared is shown as edited"
        report([warning("K407", "an earlier file cannot be read", detail)])
    expansions = [expand(replace(one, payloads=dict(_payloads(one, at)))) for one in loaded.topologies]
    return at(_folder(Path(paths[0]))).commit, expansions


def files_at(paths: Sequence[str], ref: str) -> list[SourceFile]:
    """Topology files under these paths as the git revision `ref` had them, also those that are deleted now. Raises
    UsageError as `declared_at` does.
    """
    return list(_files(paths, cache(lambda folder: Revision(ref, folder))))


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _files(paths: Sequence[str], at: _At) -> Iterator[SourceFile]:
    """Yields the named files, and every topology file below the named folders, as they were at the revision, deleted
    ones included; each once.
    """
    from kodoctl.topology.load import source_of

    seen: set[Path] = set()
    for text in paths:
        path = Path(text)
        revision = at(_folder(path))
        for file in revision.below(path) if path.is_dir() else [path]:
            if file.resolve() in seen:
                continue
            seen.add(file.resolve())
            if (data := revision.read(file)) is not None:
                yield source_of(data, str(file))


def _payloads(loaded: LoadedTopology, at: _At) -> Iterator[tuple[str, PayloadFile]]:
    """Yields (ground topic, payload schema) as the schemas were at the revision."""
    from kodoctl.topology.payload_schemas import payload_of

    for ground, payload in loaded.payloads.items():
        data = at(loaded.source.path.parent).read(payload.path)
        yield (
            ground,
            replace(payload, definition=None) if data is None else payload_of(payload.type, payload.path, data),
        )
