"""Causes of failures: a reason and an error text in which each part that differs from message to message (a number, an
id) is replaced by `#`.

Two letters with the same cause failed in the same way. Python and Spark SQL (kodo_pipeline.spark.spark_columns) apply
one list of replacements; its expressions mean the same to both engines, because they use ASCII classes only. A match
begins at the start of a word, so that a long word is not searched from each of its letters.
"""

from __future__ import annotations

import re
from typing import Final

MAX_CAUSE: Final = 200  # characters
REPLACEMENTS: Final = (
    (
        "(?<![A-Za-z0-9_-])[A-Za-z_-]*[0-9][A-Za-z0-9_-]*",
        "#",
    ),  # numbers, ids, UUIDs, hexadecimal digits: words with a digit
    ("#(?:[.,:/]#)+", "#"),  # 12.5, 10.0.0.7:6650, 2026/11/25
)
_COMPILED: Final = tuple((re.compile(pattern), instead) for pattern, instead in REPLACEMENTS)


def cause_of(reason: str | None, error: str | None) -> str | None:
    """Cause of a failure: reason and error text, joined by `: `, with `#` for each word that has a digit (number, id),
    cut to 200 characters (MAX_CAUSE), such as `ConnectionError: bank # answered # for order #`. None if both are
    missing or empty.
    """
    text = ": ".join(part for part in (reason, error) if part)
    for pattern, instead in _COMPILED:
        text = pattern.sub(instead, text)
    return text[:MAX_CAUSE] or None
