"""Headers as text, and a message as JSON, for `kodoctl peek`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kodoctl.documents.json_form import row_of
from kodoctl.documents.recall_document import PeekedMessage
from kodoctl.protocol import properties
from kodoctl.protocol.properties import REDACTED
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.recall.message.payload_view import PayloadForm, payload_view

if TYPE_CHECKING:
    from kodoctl.recall.message.stored_message import DeadLetter

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


def _number(text: str) -> str:
    return "a producer's mark: how far its count has come" if "high=" in text else "producer run, partition and number"


_MEANS: Final[dict[str, Callable[[str], str]]] = {
    properties.ID: _always("identity, given by the producer"),
    properties.SEQ: _number,
    properties.ORIGIN_ID: _always("where it was first stored: ledger:entry:partition:batch"),
    properties.ORIGIN_TOPIC: _always("the topic it was first stored in"),
    properties.ORIGIN_TIME: lambda text: f"first published {_moment(text)}",
    properties.ATTEMPTS_RETRYING: _always("failed handler runs"),
    properties.ATTEMPTS_PENDING: _always("waits for a rate"),
    properties.ATTEMPTS_BLOCKING: _always("waits for a quota"),
    properties.ATTEMPTS_BACKUP: _always("failed runs in a backup level"),
    properties.DUE: lambda text: f"not before {_moment(text)}",
    properties.RESERVED: lambda text: f"a limiter reserved {_moment(text)}",
    properties.REASON: _always("why it was moved last"),
    properties.ERROR: lambda text: f"what its last error said{', redacted' if REDACTED in text else ''}",
    properties.ERROR_STACK: _always("where that error was raised, the innermost last"),
    properties.QUOTA: _always("a quota has counted it"),
    properties.HOP: _always("moves so far"),
    properties.ROUTES: _always("moves by routes"),
    properties.POSTPONED: _always("times that a handler postponed it"),
    properties.FOR: lambda text: "a mark: nobody handles it" if text == NOBODY else "only this subscription handles it",
    properties.FROM_LEVEL: _always("the level it died in"),
    properties.PARENT: _always("the message whose handler sent this one"),
    properties.RECALL: _always("sent by a recall"),
    properties.AGAIN: _always("by a recall that sends again what is done: handled once for it"),
    properties.RELEASE: _always("released or moved while it waited"),
    properties.ENCRYPTION: _always("what the owner of its key needs to read the payload"),
    properties.SCHEMA: _always("schema version of the payload"),
}


def as_json(letter: DeadLetter, form: PayloadForm | None = None) -> PeekedMessage:
    """Converts a message for `peek --format json`, with the size of the payload and a preview of at most 400
    characters. `form`: declaration of the payloads, by which preview and payload are redacted; the payload is added as
    `payload_view` shows it. None: not known, and only the preview is there, not redacted. Keys and properties are never
    redacted.
    """
    marks = {name: value for name, value in letter.properties.items() if name.startswith(properties.PREFIX)}
    view = None if form is None else payload_view(letter, form)
    row = row_of(
        PeekedMessage,
        letter,
        position=str(letter.position),
        published=letter.publish_time,
        size=None if letter.payload is None else len(letter.payload),
        properties={name: value for name, value in sorted(letter.properties.items()) if name not in marks},
        control=[
            {"name": name, "value": value, "means": _MEANS[name](value) if name in _MEANS else ""}
            for name, value in sorted(marks.items())
        ],
        preview=preview(letter) if view is None or form is None or form.keeps_text else view.beginning(PREVIEW),
    )
    if view is not None:
        row["content"] = {"kind": view.kind, "text": view.text, "note": view.note}
    return row


def preview(letter: DeadLetter) -> str:
    """The payload as stored, cut to 400 characters (PREVIEW), … included; if it is no UTF-8 text, its first 100 bytes
    as hexadecimal digits, with … if it is longer; "" for a tombstone and an empty payload. Redacts nothing.
    """
    if letter.payload is None:
        return ""
    text = letter.text
    if text is None:
        shown = letter.payload[: PREVIEW // 4].hex(" ")
        return f"{shown} …" if len(letter.payload) > PREVIEW // 4 else shown
    return text if len(text) <= PREVIEW else f"{text[: PREVIEW - 1]}…"
