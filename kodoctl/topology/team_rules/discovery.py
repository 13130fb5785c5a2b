"""Places of rules files: every `kodoctl-rules.yaml` in the folder of a topology file, and above it in the repository."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kodoctl.topology.load import RULES_FILE
from kodoctl.topology.path_guard import repository_root

if TYPE_CHECKING:
    from kodoctl.topology.loaded_topology import SourceFile


def places_of_rules(files: Iterable[SourceFile]) -> list[Path]:
    """Paths of the rules files that these topologies may have, whether they exist or not, relative to the working
    folder and each once; of one topology the highest folder first. The highest folder is the root of the repository;
    outside of a repository the working folder, or the topology's own folder if that does not lie below it.
    """
    folders = dict.fromkeys(folder_of(file) for file in files)
    return [
        Path(os.path.relpath(one)) for one in dict.fromkeys(place for folder in folders for place in _above(folder))
    ]


def folder_of(file: SourceFile) -> Path:
    """Absolute path of a topology file's folder, links followed; of the working folder for standard input."""
    return file.path.parent.resolve()


def _above(folder: Path) -> Iterator[Path]:
    above = [folder, *folder.parents]
    top = repository_root(folder) or Path.cwd()
    end = above.index(top) if top in above else 0
    return (one / RULES_FILE for one in reversed(above[: end + 1]))
