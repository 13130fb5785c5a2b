"""Escaping of text from files and clusters, so that it cannot forge output: on terminals, in Markdown, in the log of a
CI job.
"""

from __future__ import annotations

import re
from typing import Final

_COMMAND: Final = re.compile(r"(?<!\S)::(?=[A-Za-z].*?::)|##(?=\[)")
"""Command to the runner of a CI job, which reads the job's log: `::name::text` at the start of a line (where any word
may be after folding), or `##[name]text` anywhere.
"""
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>#|~])")
MAX_SHOWN: Final = 500


def printable(text: str) -> str:
    """The text with escapes for all characters that print nothing of their own: controls, line breaks,
    directional overrides. In a command to the runner of a CI job, which reads the log, one character is escaped
    too.
    """
    shown = text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)
    return _COMMAND.sub(_disarm, shown) if "::" in shown or "##[" in shown else shown


def _disarm(found: re.Match[str]) -> str:
    return "\\x3a:" if found[0] == "::" else "#\\x23"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def one_line(value: object, limit: int = MAX_SHOWN) -> str:
    """A value as escaped text on one line; more than `limit` characters, counted before escaping, end with `…`."""
    text = str(value)
    return printable(text) if len(text) <= limit else f"{printable(text[: limit - 1])}…"


def markdown(value: object, limit: int = MAX_SHOWN) -> str:
    """Returns a value as text on one line that stands as it is within a line of Markdown and mentions nobody.

    Longer values are cut to `limit` characters, counted before escaping: the result may be longer. An invisible
    U+200B stands behind each `@`. Marks that only count at the start of a line, such as `- ` or `1.`, are not escaped.
    """
    return _MARKDOWN.sub(r"\\\1", one_line(value, limit)).replace("@", "@\u200b")


def code(value: object) -> str:
    """A value as inline code of Markdown; its backticks become `'`."""
    return "`" + one_line(value).replace("`", "'") + "`"
