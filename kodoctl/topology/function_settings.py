# pure: every branch is tested
"""Settings of functions in one form: a function worker stores all numbers as floating point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def settings_text(settings: Mapping[str, Any]) -> str:
    """Canonical JSON text of a function's settings. Numbers that the worker stores alike have the same text: 5 and 5.0,
    and whole numbers that differ beyond 53 bits.
    """
    import json  # most files declare no function

    return json.dumps(_stored(settings), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _stored(value: Any) -> Any:
    match value:
        case Mapping():
            return {name: _stored(one) for name, one in value.items()}
        case list():
            return [_stored(one) for one in value]
        case int() | float() if not isinstance(value, bool):
            return int(float(value)) if float(value).is_integer() else float(value)
        case _:
            return value
