"""Text from files and clusters made harmless: a topic property cannot forge output, on terminals or in Markdown."""

from __future__ import annotations

import re
from typing import Final

# C0 and C1 controls, DEL, line and paragraph separators, directional overrides: nothing of it belongs on one line.
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>#|~])")
MAX_SHOWN: Final = 500


def one_line(value: object, limit: int = MAX_SHOWN) -> str:
    """A value on one line: controls as hexadecimal escapes, and no longer than `limit` characters."""
    text = _UNPRINTABLE.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{ord(m[0]):04x}", str(value))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def markdown(value: object) -> str:
    """A value as plain text in Markdown, tables included."""
    return _MARKDOWN.sub(r"\\\1", one_line(value)).replace("@", "@\u200b")


def code(value: object) -> str:
    """A value as inline code; backticks cannot end it, pipes cannot split a table row."""
    return "`" + one_line(value).replace("`", "'").replace("|", "\\|") + "`"
