"""JSON Schema for editors, which complete and check topology files by it: the schema file, and the line of a topology
file that names it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kodoctl.cli.common.console import tell
from kodoctl.topology.path_guard import repository_root

NAME: Final = "topology.v1.json"
_LARGEST: Final = 8 << 20  # bytes: what is larger is no schema of ours


@dataclass(frozen=True, slots=True)
class EditorSchema:
    """Reference from a topology file to the JSON Schema for editors. `line`: first line of the topology file, which
    names the schema; "" for no reference. `missing`: path where the schema file has to be written; None if it exists.
    """

    line: str = ""
    missing: Path | None = None

    def write(self) -> None:
        """Writes the schema to `missing`, if that is not None, and prints its path. Does nothing if the file exists
        meanwhile or cannot be written; users can then run `kodoctl schema`.
        """
        from kodoctl.topology.json_schema.file_schema import schema_text

        if self.missing is not None:
            try:
                with self.missing.open("x", encoding="utf-8") as stream:
                    stream.write(f"{schema_text()}\n")
            except OSError:
                return
            tell(f"{os.path.relpath(self.missing)} written: the schema for editors.")


def editor_schema(file: Path) -> EditorSchema:
    """Reference from a topology file to the nearest schema file of kodoctl: in the folder of the topology file, in a
    folder above it in the repository, or in the folder `schemas` of one of these. If there is none, `missing` is a path
    in the folder of the topology file; if another file has that path, there is no reference.
    """
    folder = Path(os.path.normpath(file.absolute())).parent
    for place in _places(folder):
        for found in (place / NAME, place / "schemas" / NAME):
            if _is_ours(found):
                return EditorSchema(_line(os.path.relpath(found, folder)))
    beside = folder / NAME
    return EditorSchema() if os.path.lexists(beside) else EditorSchema(_line(NAME), beside)


def _places(folder: Path) -> list[Path]:
    """The folder and those above it up to the root of its repository; outside of a repository only the
    folder itself.
    """
    above = [folder, *folder.parents]
    return above[: above.index(repository_root(folder) or folder) + 1]


def _line(path: str) -> str:
    return f"# yaml-language-server: $schema={Path(path).as_posix()}\n"


def _is_ours(file: Path) -> bool:
    from kodoctl.topology.json_schema.file_schema import SCHEMA_ID

    try:
        if not file.is_file() or file.stat().st_size > _LARGEST:
            return False
        document = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("$id") == SCHEMA_ID
