"""Hooks of `make site`: the menu is the index of docs/README.md, and links out of docs/ lead to the repository."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

_DOCS: Final = Path(__file__).parent
_ENTRY: Final = re.compile(r"^## (.+)$|^\| \[([\w./-]+\.md)\]", re.MULTILINE)
_LINK: Final = re.compile(r"\]\(((?:\.\./)+[\w./-]+)(#[\w-]+)?\)")


def on_config(config: Any) -> None:
    """Makes the menu: one entry for each section of the index."""
    menu: list[dict[str, list[str]]] = []
    for match in _ENTRY.finditer((_DOCS / "README.md").read_text(encoding="utf-8")):
        if match[1]:
            menu.append({match[1]: []})
        else:
            next(iter(menu[-1].values())).append(match[2])
    config.nav = [{"Documentation": "README.md"}, *menu]


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """The text of a page, with links to files outside of docs/ replaced by links to the repository on its forge. Its
    address is in the variable `SOURCE_URL` (such as https://github.com/OWNER/NAME/blob/main); without it, only the text
    of these links stays, in brackets. Raises FileNotFoundError for a link to a missing file.
    """
    source = os.environ.get("SOURCE_URL", "").rstrip("/")
    folder = PurePosixPath("docs", page.file.src_uri).parent

    def replaced(match: re.Match[str]) -> str:
        path = os.path.normpath(folder / match[1])
        if path.startswith("docs/"):
            return match[0]
        if not Path(_DOCS.parent, path).exists():
            raise FileNotFoundError(f"{page.file.src_uri}: no {path} in the repository")
        return f"]({source}/{path}{match[2] or ''})" if source else "]"

    return _LINK.sub(replaced, markdown)
