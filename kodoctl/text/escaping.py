"""Escaping of text from files and clusters, so that it cannot forge output: on terminals, in Markdown, in the log of a
CI job.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Final

_COMMAND: Final = re.compile(r"(?<!\S)::(?=[A-Za-z].*?::)|##(?=\[)")
"""Command to the runner of a CI job, which reads the job's log: `::name::text` at the start of a line (where any word
may be after folding), or `##[name]text` anywhere.
"""
_MAYBE_COMMAND: Final = re.compile(r"(?<!\S)::(?=[A-Za-z])|##(?=\[)")
"""Begin of such a command in one of several words: its second `::` may be in a later word."""
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>#|~])")
MAX_SHOWN: Final = 500
_ACTIVE: Final = frozenset('"$`\\!')  # characters that a shell does not take as they are in double quotes
_UNQUOTED: Final = {"\\": r"\\", "'": r"\'"}  # characters that end or change a quoted text


def printable(text: str) -> str:
    r"""The text with each character that is not printable (control characters, line breaks, directional overrides) as
    an escape such as `\n`. A workflow command (`::name::` or `##[name]`), which a CI runner would obey in its log, is
    broken by one more escape.
    """
    shown = text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)
    return _COMMAND.sub(_disarm, shown) if "::" in shown or "##[" in shown else shown


def _disarm(found: re.Match[str]) -> str:
    return "\\x3a:" if found[0] == "::" else "#\\x23"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def quoted(text: str) -> str:
    r"""The text in single quotes, with single quotes, backslashes and characters that are not printable as escapes such
    as `\'` and `\u000a`.
    """
    return f"'{''.join(_UNQUOTED.get(one, one) if one.isprintable() else _code_point(one) for one in text)}'"


def _code_point(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) <= 0xFFFF else f"\\U{ord(character):08x}"


def shell_line(words: Iterable[str]) -> str:
    """The words quoted for a shell, on one line that `printable` leaves as it is. A word with single quotes is written
    in double quotes if nothing in it means something there; one with control characters or a workflow command is
    written `$'…'`, which bash and zsh read.
    """
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    if word.isprintable() and not _MAYBE_COMMAND.search(word):
        return f'"{word}"' if "'" in word and _ACTIVE.isdisjoint(word) else shlex.quote(word)
    return f"${_MAYBE_COMMAND.sub(_disarm, quoted(word))}"


def one_line(value: object, limit: int = MAX_SHOWN) -> str:
    """`str(value)` escaped as by `printable`, on one line. A text of more than `limit` characters, counted before
    escaping, is cut and ends with `…`.
    """
    text = str(value)
    return printable(text) if len(text) <= limit else f"{printable(text[: limit - 1])}…"


def markdown(value: object, limit: int = MAX_SHOWN) -> str:
    """A value as text on one line, escaped for use inside a line of Markdown; it mentions nobody.

    Longer values are cut to `limit` characters, counted before escaping, so the result may be longer. After each `@`
    comes an invisible U+200B. Marks that only count at the start of a line, such as `- ` or `1.`, are not escaped.
    """
    return _MARKDOWN.sub(r"\\\1", one_line(value, limit)).replace("@", "@\u200b")


def code(value: object) -> str:
    """A value as a code span of Markdown, escaped and cut as by `one_line`; its backticks become `'`."""
    return "`" + one_line(value).replace("`", "'") + "`"
