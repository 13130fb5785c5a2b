"""Texts as messages carry them: rules for a text, and the one rule by which values become texts of properties.

Producers, the outbox and its relay, handlers that transfer, and the test harness follow it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from kodoctl.text.escaping import one_line

PropertyValue = str | bool | int | float
"""Value of a property as senders may give it."""
_MAX_SHOWN: Final = 60  # characters of a name that is shown
_KINDS: Final[Mapping[type, str]] = {
    bool: "true or false", int: "a number", float: "a number", bytes: "bytes", bytearray: "bytes", memoryview: "bytes",
    dict: "a mapping", list: "a list", tuple: "a list",
}  # fmt: skip


def why_no_text(value: object) -> str:
    """Why a value is no text that a message can carry; empty: it is one."""
    if not isinstance(value, str):
        return f"{kind_of(value)}, not text"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "no Unicode text: it has half of a surrogate pair"
    return ""


def kind_of(value: object) -> str:
    """Kind of a value, in words."""
    return (
        "None" if value is None else _KINDS.get(type(value)) or f"of type {one_line(type(value).__name__, _MAX_SHOWN)}"
    )


def property_texts(properties: Any) -> tuple[dict[str, str], list[str]]:
    """Returns the properties as a message carries them, and a list of problems with the others, one text each; no
    property and one problem if `properties` is no mapping. Texts stay as they are; true, false and finite numbers are
    written as JSON writes them; nothing else becomes text, and no text with half of a surrogate pair is carried.
    """
    if not isinstance(properties, Mapping):
        return {}, [f"{kind_of(properties)}, not a mapping of names to texts"]
    texts: dict[str, str] = {}
    wrong: list[str] = []
    for name, value in properties.items():
        if why := why_no_text(name):
            wrong.append(f"the name {one_line(name, _MAX_SHOWN)!r} is {why}")
            continue
        text, why = _text_of(value)
        if why:
            wrong.append(f"{one_line(name, _MAX_SHOWN)} is {why}")
        else:
            texts[str.__str__(name)] = text
    return texts, wrong


def _text_of(value: Any) -> tuple[str, str]:
    """Text of a property's value, and the reason why there is none ("" if there is one)."""
    if isinstance(value, str):
        return str.__str__(value), why_no_text(value)  # of an enumeration that is text: its value, not its name
    if isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        try:
            return json.dumps(value), ""
        except ValueError:
            return "", "a number with too many digits"
    return "", why_no_text(value)
