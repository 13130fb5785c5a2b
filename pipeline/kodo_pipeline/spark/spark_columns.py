# pure: every branch is tested
"""Position and cause of a message as Spark SQL expressions, for tables that group by them. Pure: returns text only.

Their values are those of `kodoctl.recall.message.stored_message` and `kodoctl.protocol.error_causes`; tests compare
them row by row.
"""

from __future__ import annotations

from typing import Final

from kodoctl.protocol.error_causes import MAX_CAUSE, REPLACEMENTS

POSITION: Final = "concat_ws(':', `ledger`, `entry`, `partition`, `batch_index`)"
"""SQL expression over the columns of kodo_pipeline.landing.tables.MESSAGES."""


def cause_column(reason: str, error: str) -> str:
    """SQL expression of the cause, as `kodoctl.protocol.error_causes` defines it. `reason`, `error`: SQL expressions,
    either of which may be NULL or empty; if both are, the cause is NULL.
    """
    text = f"concat_ws(': ', nullif({reason}, ''), nullif({error}, ''))"
    for pattern, instead in REPLACEMENTS:
        text = f"regexp_replace({text}, {sql_literal(pattern)}, {sql_literal(instead)})"
    return f"nullif(left({text}, {MAX_CAUSE}), '')"


def sql_literal(text: str) -> str:
    """A text as a literal of Spark SQL. A quote, a backslash and every character that is not printable ASCII is
    escaped.
    """
    return "'" + "".join(c if c.isascii() and c.isprintable() and c not in "'\\" else _escape(c) for c in text) + "'"


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
