"""Extras of pyproject.toml: libraries that only some commands need, and the command that installs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal

from kodoctl.errors import UsageError, error

Extra = Literal["avro", "database", "otel", "postgres", "recall", "spark", "sql", "ui"]
"""Name of an extra that an installation may lack."""
_MISSING: Final[Mapping[Extra, tuple[str, str, str]]] = {
    "database": ("K721", "database cannot be used", ""),
    "recall": ("K556", "the ledger is not installed", ""),
    "spark": ("K570", "Spark is not installed", " (some 1 GB; Java 17 or 21 as well)"),
    "sql": ("K812", "DuckDB is not installed", " (some 200 MB, without Spark and Java)"),
    "ui": ("K035", "the console is not installed", ""),
}
"""Extra -> code and summary of the error where it is missing, and text after the command that installs it."""


def install_command(extra: Extra) -> str:
    """Command that installs an extra, for people."""
    return f"pip install '.[{extra}]' in a clone of kodoctl"


@contextmanager
def needs_extra(extra: Literal["database", "recall", "spark", "sql", "ui"]) -> Iterator[None]:
    """Context in which libraries of an extra are imported. Raises UsageError if one of them is missing."""
    try:
        yield
    except ImportError as problem:
        code, summary, note = _MISSING[extra]
        library = str(problem.name).partition(".")[0]
        detail = f"{library} is missing: {install_command(extra)}{note}"
        raise UsageError(error(code, summary, detail)) from None
