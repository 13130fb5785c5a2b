"""Folder of a catalogue: pages that kodoctl wrote are replaced, and nothing else in it is touched."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kodoctl.errors import UsageError, error
from kodoctl.host.private_files import make_folder, write_whole

MARK: Final = "kodoctl-docs.json"
"""Name of the file that says which pages of a folder are ours."""
_FORMAT: Final = "kodoctl docs 1"


def check_folder(folder: Path) -> list[str]:
    """Returns the paths, relative to a folder, of the pages of an earlier catalogue there, which its mark (MARK) lists;
    [] if the folder is missing or empty. Raises UsageError (K033) for a folder with files but without our mark, for one
    that cannot be listed, and for a path that is no folder. Writes nothing.
    """
    if not os.path.lexists(folder):
        return []
    if not folder.is_dir():
        raise _refusal(f"{folder} is not a folder")
    try:
        mark: Any = json.loads((folder / MARK).read_bytes())
    except (OSError, ValueError, RecursionError):
        mark = None
    if isinstance(mark, dict) and mark.get("format") == _FORMAT and isinstance(mark.get("pages"), list):
        return [page for page in mark["pages"] if isinstance(page, str) and _is_page(page)]
    try:
        has_files = any(folder.iterdir())
    except OSError as problem:
        raise _refusal(f"{folder} cannot be listed ({problem.strerror})") from None
    if has_files:
        raise _refusal(f"{folder} has files, and no {MARK} that says kodoctl made them")
    return []


def _refusal(detail: str) -> UsageError:
    return UsageError(error("K033", "not a folder of kodoctl docs", f"{detail}: name an empty or a new one with --out"))


def _is_page(path: str) -> bool:
    """True for the path of a page: in the folder or one below it, of characters that the system takes."""
    *above, name = path.split("/")
    return path.isprintable() and name.endswith(".html") and len(above) < 2 and not {"", ".", ".."} & {*above, name}


def write_pages(folder: Path, pages: Mapping[str, str], earlier: list[str]) -> None:
    """Writes the pages (`pages`: path in the folder -> text) and the mark, creates missing folders, and removes pages
    of the earlier catalogue (`earlier`) that are not in `pages`.

    Raises UsageError: K033, before any page is written, if a page has the path of a file that kodoctl did not write, or
    if a folder for pages is a link; K020 with the system's reason: if pages were written before, the mark names the old
    and the new ones.
    """
    if others := [path for path in pages if path not in earlier and os.path.lexists(folder / path)]:
        raise _refusal(f"kodoctl did not write {', '.join(others)} in {folder}, and would replace it")
    try:
        below = {folder / Path(path).parent for path in pages}
        for one in sorted(below):
            if one.is_symlink() and one != folder:
                raise _refusal(f"{one} is a link")
            make_folder(one)
        _write_mark(folder, {*pages, *earlier})
        for path, text in pages.items():
            write_whole(folder / path, text.encode())
        for path in {*earlier} - {*pages}:
            if not (folder / path).parent.is_symlink():
                (folder / path).unlink(missing_ok=True)
        _write_mark(folder, {*pages})
    except OSError as problem:
        detail = f"{problem.filename or folder}: {problem.strerror}"
        raise UsageError(error("K020", "cannot write file", detail)) from None


def _write_mark(folder: Path, pages: set[str]) -> None:
    document = {"format": _FORMAT, "pages": sorted(pages)}
    write_whole(folder / MARK, f"{json.dumps(document, indent=2)}\n".encode())
