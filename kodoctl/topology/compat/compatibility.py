"""Compatibility of payload schemas when one changes: whether consumers can still read payloads. For Avro and JSON
Schema.

The terms are those of Pulsar's `schema_compatibility`. *Backward*: consumers with the new schema read payloads of the
old one. *Forward*: consumers with the old schema read payloads of the new one. FULL, Pulsar's default, requires both.
`_TRANSITIVE` requires the same here, because only one earlier version is available.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from kodoctl.topology.compat import avro, json_compat

DEFAULT: Final = "FULL"
_READER: Final = "the {reader} schema cannot read what the {writer} one wrote"
_Judge = Callable[[Any, Any], Iterator[str]]


def what_breaks(kind: str, old: Any, new: Any, mode: str = DEFAULT) -> list[str]:
    """Returns the reasons why the change of a schema from `old` to `new` breaks the compatibility `mode`; [] if it does
    not. `kind`: `json` or `avro`; `old`, `new`: parsed JSON of valid schemas; `mode`: a value of the policy
    `schema_compatibility`. A reason is also that schemas cannot be compared: JSON Schema of draft 1 to 4, and schemas
    that are nested too deeply.
    """
    base = mode.removesuffix("_TRANSITIVE")
    if old == new or base == "ALWAYS_COMPATIBLE":
        return []
    if base == "ALWAYS_INCOMPATIBLE":
        return ["schema_compatibility ALWAYS_INCOMPATIBLE allows no change"]
    if kind == "json" and not all(map(json_compat.can_judge, (old, new))):
        return ["only JSON Schema from draft 6 on can be compared"]
    refuses: _Judge = avro.cannot_read if kind == "avro" else json_compat.refuses
    found: list[str] = []
    try:
        if base in ("BACKWARD", "FULL"):
            found += [f"{_READER.format(reader='new', writer='old')}: {reason}" for reason in refuses(new, old)]
        if base in ("FORWARD", "FULL"):
            found += [f"{_READER.format(reader='old', writer='new')}: {reason}" for reason in refuses(old, new)]
    except RecursionError:
        return ["the schemas are nested too deeply to be compared"]
    return found
