"""What is no business of the topology: `kodo-consumer.toml` in the working folder or above it, or the environment."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from consumer.envelope import Duration, UnitError
from kodoctl.errors import Diagnostic, KodoctlError, Where, error

FILE: Final = "kodo-consumer.toml"
VARIABLE: Final = "KODO_CONSUMER_"  # and the name of the setting in capitals

_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "drain_timeout": lambda value: Duration.parse(str(value)),
}
"""How each setting is read, from the file's value or a variable's text. They raise ValueError with what is allowed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`drain_timeout`: ms that running handlers and receipts are waited for at the end."""

    drain_timeout: int = 30_000


def read_settings(environ: Mapping[str, str], folder: Path) -> Settings:
    """KODO_CONSUMER_DRAIN_TIMEOUT and its like over the file over the defaults. Raises KodoctlError with every finding."""
    file = next((p / FILE for p in (folder, *folder.parents) if (p / FILE).is_file()), None)
    given: dict[str, Any] = {}
    where = Where(str(file)) if file else None
    if file is not None:
        try:
            given = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            raise KodoctlError(error("K708", "cannot read settings", str(problem), where)) from None
    findings: list[Diagnostic] = []
    if unknown := [key for key in given if key not in _READERS]:
        detail = f"unknown: {', '.join(unknown)}; there is {', '.join(_READERS)}"
        findings.append(error("K708", "cannot read settings", detail, where))
    values: dict[str, Any] = {}
    for name, read in _READERS.items():
        variable = VARIABLE + name.upper()
        text = environ.get(variable, given.get(name))
        if text is None:
            continue
        try:
            values[name] = read(text)
        except (ValueError, UnitError) as problem:
            place = Where(variable) if variable in environ else where
            findings.append(error("K708", "cannot read settings", f"{name}: {problem}", place))
    if findings:
        raise KodoctlError(*findings)
    return Settings(**values)
