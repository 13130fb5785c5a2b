"""Conversion of Spark errors to diagnostics: those of kodoctl that the error text contains, else a known cause, else
the first words of the text. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from kodoctl.errors import ClusterError, Diagnostic, KodoctlError, UsageError, error

_TOLD: Final = re.compile(r"\b(K\d{3}) error ([^:\n]+): ([^\n]+)")
_NO_CONNECTOR: Final = re.compile(
    r"Class org\.apache\.hadoop\.fs\.(\w+)\.\S+ not found|No FileSystem for scheme \"?(\w+)"
)
_GONE: Final = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.+?)\.(?=\s|$)")
_WORDS: Final = 500  # characters


def findings(text: str) -> Iterator[Diagnostic]:
    """Yields the diagnostics of kodoctl that the text of a Spark error contains, each with the first line of its
    detail.
    """
    for code, matches in groupby(_TOLD.finditer(text), key=lambda match: match[1]):
        yield from (error(code, match[2].strip(), match[3].strip()) for match in matches)


def _connector(text: str) -> Diagnostic | None:
    """Diagnostic if Spark has no connector for the store's scheme; else None."""
    if (found := _NO_CONNECTOR.search(text)) is None:
        return None
    detail = f"{found[1] or found[2]}:// is unknown to it: docs/how-to/object-stores.md names a connector for --conf"
    return error("K579", "Spark has no connector for the store", detail)


def _missing_file(text: str) -> Diagnostic | None:
    """Diagnostic if a file of a table is missing; else None."""
    if (found := _GONE.search(text)) is None:
        return None
    detail = f"{found[1]} is gone, and its table names it: bring it back, or land elsewhere with --landing"
    return error("K573", "the landing cannot be used", detail)


def words(text: str) -> str:
    """Beginning of the text of an error, on one line, with at most 500 characters."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip())[:_WORDS]


def spark_error(text: str, otherwise: Diagnostic) -> KodoctlError:
    """Makes the error for the text of a Spark error, for the caller to raise: ClusterError with the diagnostics of
    kodoctl in it, else that of a known cause (UsageError without a connector for the store), else KodoctlError with
    `otherwise`.
    """
    if found := list(dict.fromkeys(findings(text))):
        return ClusterError(*found)
    if lacking := _connector(text):
        return UsageError(lacking)
    if gone := _missing_file(text):
        return KodoctlError(gone)
    return KodoctlError(otherwise)
