# pure: every branch is tested
"""Settings of functions in one form, because a function worker stores all numbers as floating point; and without values
whose names say that they are secret, also in texts of errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

HIDDEN: Final = "(not shown)"
_SECRET: Final = re.compile("passw|secret|token|credential|api_?-?key|private_?-?key", re.IGNORECASE)
_USER_INFO: Final = re.compile(r"(://|:thin:)\S+(?=@)", re.IGNORECASE)  # of an address; `:thin:` is Oracle's
_NAMED_VALUE: Final = re.compile(
    rf"""((?:{_SECRET.pattern})[\w.-]*["']?\s*[=:]\s*|\bbearer\s+)("[^"]*"|'[^']*'|[^\s&;]+)""", re.IGNORECASE
)


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


def is_secret_name(name: str) -> bool:
    """True if the name of a setting says that its value is secret."""
    return _SECRET.search(name) is not None


def without_secrets(value: Any, name: str = "") -> Any:
    """Returns settings with `(not shown)` (HIDDEN) in place of each value, at any depth, whose name says that it is
    secret. `name`: name of the setting whose value is given, "" for the settings as a whole.
    """
    if value is not None and is_secret_name(name):
        return HIDDEN
    match value:
        case Mapping():
            return {key: without_secrets(one, str(key)) for key, one in value.items()}
        case list():
            return [without_secrets(one) for one in value]
        case _:
            return value


def text_without_secrets(text: str) -> str:
    """Returns a text, such as an error, with `(not shown)` (HIDDEN) in place of user and password of each address, and
    of each value after a name that says that it is secret (`password=…`). A secret without address or name is not
    recognised.
    """
    return _NAMED_VALUE.sub(rf"\1{HIDDEN}", _USER_INFO.sub(rf"\1{HIDDEN}", text))
