"""What is no business of the topology: `kodo-consumer.toml` in the working folder or above it, or the environment."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from consumer.envelope import Duration, UnitError
from kodoctl.errors import KodoctlError, Where, error

FILE: Final = "kodo-consumer.toml"
_DRAIN: Final = "drain_timeout"


@dataclass(frozen=True, slots=True)
class Settings:
    """`drain_timeout`: ms that running handlers and receipts are waited for at the end."""

    drain_timeout: int = 30_000


def read_settings(environ: Mapping[str, str], folder: Path) -> Settings:
    """KODO_CONSUMER_DRAIN_TIMEOUT over the file's `drain_timeout` over the default. Raises KodoctlError."""
    file = next((p / FILE for p in (folder, *folder.parents) if (p / FILE).is_file()), None)
    values: dict[str, Any] = {}
    where = Where(str(file)) if file else None
    if file is not None:
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            raise KodoctlError(error("K708", "cannot read settings", str(problem), where)) from None
        if unknown := [key for key in values if key != _DRAIN]:
            detail = f"unknown: {', '.join(unknown)}; there is {_DRAIN}"
            raise KodoctlError(error("K708", "cannot read settings", detail, where))
    text = environ.get("KODO_CONSUMER_DRAIN_TIMEOUT", values.get(_DRAIN))
    if text is None:
        return Settings()
    try:
        return Settings(Duration.parse(str(text)))
    except UnitError as problem:
        raise KodoctlError(error("K708", "cannot read settings", f"{_DRAIN}: {problem}", where)) from None
