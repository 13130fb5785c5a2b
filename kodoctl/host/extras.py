"""Extras of pyproject.toml: libraries that only some commands need, and the command that installs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal

from kodoctl.errors import Diagnostic, UsageError, error

Extra = Literal["avro", "database", "otel", "postgres", "recall", "spark", "sql", "ui"]
"""Name of an extra that an installation may lack."""
_MISSING: Final[Mapping[Extra, Callable[[str], Diagnostic]]] = {
    "database": lambda detail: error("K721", "database cannot be used", detail),
    "recall": lambda detail: error("K556", "the ledger is not installed", detail),
    "spark": lambda detail: error("K570", "Spark is not installed", f"{detail} (some 1 GB; Java 17 or 21 as well)"),
    "sql": lambda detail: error("K812", "DuckDB is not installed", f"{detail} (some 200 MB, without Spark and Java)"),
    "ui": lambda detail: error("K035", "the console is not installed", detail),
}
"""Extra -> maker of the finding where it is missing, from a text that names the library and how to install it."""


def install_command(extra: Extra) -> str:
    """Text that tells people how to install an extra: a command of pip, and where to run it."""
    return f"pip install '.[{extra}]' in a clone of kodoctl"


@contextmanager
def needs_extra(extra: Literal["database", "recall", "spark", "sql", "ui"]) -> Iterator[None]:
    """Context for imports of the libraries of an extra. Any ImportError in it becomes UsageError, with the command that
    installs the extra; also one of a library that is there and cannot be loaded.
    """
    try:
        yield
    except ImportError as problem:
        library = str(problem.name).partition(".")[0]
        raise UsageError(_MISSING[extra](f"{library} is missing: {install_command(extra)}")) from None
