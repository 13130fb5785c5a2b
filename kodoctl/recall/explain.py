"""Control properties in words, and a message as JSON: what peek shows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from kodoctl.recall.letter import Letter
from kodoctl.topology import control

PREVIEW: Final = 400  # characters of a payload
Json = dict[str, Any]


def _moment(text: str) -> str:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        return "no moment"
    try:
        return datetime.fromtimestamp(int(text) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "no moment"


def _always(words: str) -> Callable[[str], str]:
    return lambda _: words


_MEANS: Final[dict[str, Callable[[str], str]]] = {
    control.ID: _always("identity, given by the producer"),
    control.SEQ: _always("producer run, partition and number"),
    control.ORIGIN_ID: _always("where it was first stored: ledger:entry:partition:batch"),
    control.ORIGIN_TOPIC: _always("the topic it was first stored in"),
    control.ORIGIN_TIME: lambda text: f"first published {_moment(text)}",
    control.ATTEMPTS_RETRYING: _always("failed handler runs"),
    control.ATTEMPTS_PENDING: _always("waits for a rate"),
    control.ATTEMPTS_BLOCKING: _always("waits for a quota"),
    control.ATTEMPTS_BACKUP: _always("failed runs in a backup level"),
    control.DUE: lambda text: f"not before {_moment(text)}",
    control.RESERVED: lambda text: f"a limiter reserved {_moment(text)}",
    control.REASON: _always("why it was moved last"),
    control.QUOTA: _always("a quota has counted it"),
    control.HOP: _always("moves so far"),
    control.FOR: _always("only this subscription handles it"),
    control.FROM_LEVEL: _always("the level it died in"),
    control.PARENT: _always("the message whose handler sent this one"),
    control.RECALL: _always("sent by a recall"),
    control.AGAIN: _always("by a recall that sends again what is done: handled once for it"),
    control.ENCRYPTION: _always("what the owner of its key needs to read the payload"),
    control.SCHEMA: _always("schema version of the payload"),
}


def as_json(letter: Letter) -> Json:
    """One message for `peek --json`; the payload as text where it is one."""
    marks = {name: value for name, value in letter.properties.items() if name.startswith(control.PREFIX)}
    return {
        "topic": letter.topic,
        "position": str(letter.position),
        "published": letter.publish_time,
        "event_time": letter.event_time,
        "key": letter.key,
        "ordering_key": letter.ordering_key,
        "size": None if letter.payload is None else len(letter.payload),
        "properties": {name: value for name, value in sorted(letter.properties.items()) if name not in marks},
        "control": [
            {"name": name, "value": value, "means": _MEANS[name](value) if name in _MEANS else ""}
            for name, value in sorted(marks.items())
        ],
        "broken": letter.broken,
        "preview": preview(letter),
    }


def preview(letter: Letter) -> str:
    """The beginning of the payload as text; of bytes that are no text, as hexadecimal digits."""
    if letter.payload is None:
        return ""
    text = letter.text
    if text is None:
        shown = letter.payload[: PREVIEW // 4].hex(" ")
        return f"{shown} …" if len(letter.payload) > PREVIEW // 4 else shown
    return text if len(text) <= PREVIEW else f"{text[: PREVIEW - 1]}…"
