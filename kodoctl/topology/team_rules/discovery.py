"""Places of rules files: every `kodoctl-rules.yaml` in the folder of a topology file, and above it in the repository."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kodoctl.topology.load import RULES_FILE

if TYPE_CHECKING:
    from kodoctl.topology.loaded_topology import SourceFile


def places_of_rules(files: Iterable[SourceFile]) -> list[Path]:
    """Paths where a rules file for these topologies may lie, each once, the highest folder first. Outside of a
    repository they end at the working folder, or at that of a topology that lies elsewhere.
    """
    folders = dict.fromkeys(folder_of(file) for file in files)
    return [
        Path(os.path.relpath(one)) for one in dict.fromkeys(place for folder in folders for place in _above(folder))
    ]


def folder_of(file: SourceFile) -> Path:
    """Folder of a topology file, links followed; the working folder for standard input."""
    return file.path.parent.resolve()


def _above(folder: Path) -> Iterator[Path]:
    above = [folder, *folder.parents]
    top = next((number for number, one in enumerate(above) if os.path.lexists(one / ".git")), None)
    if top is None:
        here = Path.cwd()
        top = above.index(here) if here in above else 0
    return (one / RULES_FILE for one in reversed(above[: top + 1]))
