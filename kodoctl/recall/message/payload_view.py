# pure: every branch is tested
"""View of a payload for people: JSON or Avro by the declared schema, with everything redacted that the file declares.

Two declarations redact: `payloads.mask` names values by JSON path, `error_text.redact` has patterns. A part that cannot
be searched is not shown at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodoctl.protocol import properties
from kodoctl.protocol.json_payload import JsonPayloadError, read_json
from kodoctl.protocol.properties import REDACTED

if TYPE_CHECKING:
    from kodoctl.recall.message.stored_message import DeadLetter
    from kodoctl.topology.json_paths import JsonPath

MASK: Final = "***"
SEARCHED: Final = 4_096  # characters of a line that patterns search: the time of a search may grow with their square
MOST_SEARCHED: Final = 65_536  # characters of a payload
_BYTES: Final = 100  # shown of a payload that is no text
Read = Callable[[bytes, str], Any]
"""Reads a payload by its declared schema: gets bytes and schema version ("": the declared one). Raises ValueError."""


@dataclass(frozen=True, slots=True)
class PayloadForm:
    """Declaration of a topic's payloads.

    Args:
        kind: `json`, `avro`, or "" for none.
        read: reader of payloads by the declared schema; None: no schema. It may ask the broker for a schema version.
        mask: paths whose values are replaced by MASK.
        redact: patterns whose matches are replaced by REDACTED.
        tenant_by: the property with the tenant, or `key` for the message key; None: messages have no tenant.
    """

    kind: str = ""
    read: Read | None = None
    mask: tuple[JsonPath, ...] = ()
    redact: tuple[re.Pattern[str], ...] = ()
    tenant_by: str | None = None

    @property
    def keeps_text(self) -> bool:
        """True if a payload that is text may be shown as it is stored: payloads are not Avro, and nothing is masked or
        redacted. `payload_view` formats a JSON document all the same.
        """
        return self.kind != "avro" and not self.mask and not self.redact


NO_FORM: Final = PayloadForm()


@dataclass(frozen=True, slots=True)
class PayloadView:
    """A payload for people. `kind`: `json` or `avro` for a document, `text`, `bytes`, or `none` for a tombstone; it is
    `bytes` also for a text that is not shown because values in it would have to be masked. `text`: lines, of `bytes`
    the first 100 as hexadecimal digits; "" for a tombstone, an empty payload, and if nothing may be shown. `note`: text
    about a misfit with the declaration, or about the reason why nothing is shown, "" for none.
    """

    kind: str
    text: str
    note: str = ""

    def beginning(self, most: int) -> str:
        """The text cut to `most` characters, … included. The lines of a JSON or Avro document are joined to one; those
        of a text stay.
        """
        line = " ".join(one.strip() for one in self.text.splitlines()) if self.kind in ("json", "avro") else self.text
        return line if len(line) <= most else f"{line[: most - 1]}…"


def payload_view(letter: DeadLetter, form: PayloadForm) -> PayloadView:
    """Makes the view of a message's payload, masked and redacted as `form` declares. Never raises, whatever the payload
    is. May wait for the broker, as `form.read` does.
    """
    if letter.payload is None:
        return PayloadView("none", "")
    lines, note = _document_lines(letter.payload, letter.properties, form)
    if lines is not None:
        return _shown(form.kind or "json", lines, note, form)
    if form.mask:
        return PayloadView(
            "bytes", "", _join(note, "not shown: the file masks values of it, and they cannot be located")
        )
    if letter.text is None:
        if form.redact:
            return PayloadView("bytes", "", _join(note, "not shown: the file redacts texts, and it is none"))
        rest = " …" if len(letter.payload) > _BYTES else ""
        return PayloadView("bytes", letter.payload[:_BYTES].hex(" ") + rest, note)
    return _shown("text", letter.text.splitlines() or [""], note, form)


def shown_member(letter: DeadLetter, form: PayloadForm, text: str) -> str | None:
    """Name of the first top-level member of the payload whose value is `text`; None: there is none. Values are compared
    as `payload_view` shows them, masked and redacted, so that a search cannot reveal others; a number or a truth value
    as JSON writes it; null and values of several lines are never equal.
    """
    if letter.payload is None or (form.kind != "avro" and not _may_have(letter.payload, text)):
        return None
    view = payload_view(letter, form)
    lines = view.text.split("\n") if view.kind in ("json", "avro") else []
    members = (_member(one) for one in lines if one.startswith('  "'))
    return next((name for name, value in members if value == text), None)


def _may_have(payload: bytes, text: str) -> bool:
    """False if no text or number in a JSON payload is `text`, seen at once, so that few payloads are parsed."""
    return text.encode() in payload or b"\\" in payload


def _member(line: str) -> tuple[str, str | None]:
    """Name and value of a member of a document, by its line; the value is None if it goes on in other lines, or is
    null.
    """
    try:
        ((name, value),) = json.loads(f"{{{line.removesuffix(',')}}}").items()
    except ValueError:
        return "", None
    if value is None or isinstance(value, str):
        return name, value
    return name, json.dumps(value)


def _document_lines(payload: bytes, given: Mapping[str, str], form: PayloadForm) -> tuple[list[str] | None, str]:
    """Lines of the payload as a document, None if it is none, and a note about the declared schema."""
    note = ""
    try:
        if form.read is not None:
            try:
                return _lines(form.read(payload, given.get(properties.SCHEMA, "")), form), ""
            except ValueError as problem:
                note = str(problem)
        return (None, note) if form.kind == "avro" else (_lines(read_json(payload), form), note)
    except JsonPayloadError as problem:
        return None, note or str(problem) if form.kind else ""
    except RecursionError:
        return None, "nested too deeply"


def _lines(value: Any, form: PayloadForm) -> list[str]:
    """Lines of a document, with masked values, and with the matches in each of its texts replaced."""
    plain = _plain_searchable if form.redact else _plain
    copy = json.loads(json.dumps(value, default=plain, skipkeys=True))
    for path in form.mask:
        path.replace(copy, MASK)
    if form.redact:
        copy = _redacted(copy, form)
    return json.dumps(copy, ensure_ascii=False, indent=2).splitlines()


def _plain(value: Any) -> str:
    """Text of an Avro value that JSON does not know: bytes as hexadecimal digits, times and numbers as they print."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _plain_searchable(value: Any) -> str:
    """The same where patterns redact: they find nothing in hexadecimal digits, so bytes are not shown."""
    return REDACTED if isinstance(value, bytes) else _plain(value)


def _redacted(value: Any, form: PayloadForm) -> Any:
    """Copy of a value with redacted texts, before JSON escapes characters in them. A number that matches becomes a
    text.
    """
    match value:
        case dict():
            return {_redact_text(name, form): _redacted(one, form) for name, one in value.items()}
        case list():
            return [_redacted(one, form) for one in value]
        case str():
            return _redact_text(value, form)
        case int() | float() if not isinstance(value, bool):
            text = _redact_text(str(value), form)
            return value if text == str(value) else text
        case _:
            return value


def _shown(kind: str, lines: list[str], note: str, form: PayloadForm) -> PayloadView:
    """The view of these lines: each is searched as a whole, so that a pattern may name key and value."""
    if form.redact:
        if sum(map(len, lines)) > MOST_SEARCHED:
            return PayloadView(
                kind, "", _join(note, f"not shown: longer than {MOST_SEARCHED:,} characters, and redacted")
            )
        lines = [_redact_text(one, form) for one in lines]
    return PayloadView(kind, escape_surrogates("\n".join(lines)), note)


def escape_surrogates(text: str) -> str:
    """Returns the text with each lone surrogate, which UTF-8 cannot encode, replaced by a backslash escape. A JSON
    payload may contain them.
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _redact_text(text: str, form: PayloadForm) -> str:
    if len(text) > SEARCHED:
        return REDACTED
    for pattern in form.redact:
        text = pattern.sub(REDACTED, text)
    return text


def _join(*notes: str) -> str:
    return "; ".join(filter(None, notes))
