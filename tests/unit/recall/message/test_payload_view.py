"""Payloads for people: documents of any bytes, with everything redacted that a file declares, or not shown at all."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from kodoctl.recall.message.message_json import as_json
from kodoctl.recall.message.payload_view import NO_FORM, PayloadForm, PayloadView, payload_view, shown_member
from kodoctl.recall.message.stored_message import DeadLetter, Position
from kodoctl.topology.json_paths import JsonPath

MASKED = PayloadForm(mask=(JsonPath.parse("$..email"),))
CARDS = PayloadForm(redact=(re.compile("[0-9]{13,16}"), re.compile('"pin": "[^"]*"')))


def letter(payload: bytes | None, **properties: str) -> DeadLetter:
    return DeadLetter("persistent://kodo/trade/orders", Position(0, 7, 1, -1), payload, properties)


def view(payload: bytes | None, form: PayloadForm = NO_FORM) -> PayloadView:
    return payload_view(letter(payload), form)


def fails(_: bytes, __: str) -> Any:
    raise ValueError("breaks its schema at $.n")


@pytest.mark.parametrize(
    ("payload", "kind", "text"),
    [
        (b'{"n": [1, null]}', "json", '{\n  "n": [\n    1,\n    null\n  ]\n}'),
        (b"null", "json", "null"),
        (b"plain\ntext", "text", "plain\ntext"),
        (b"", "text", ""),
        (b"\xff\x00", "bytes", "ff 00"),
        (b"\xff" * 101, "bytes", "ff " * 99 + "ff …"),
        (None, "none", ""),
        (b"[" * 900, "text", "[" * 900),
        (("1" * 5_000).encode("utf-16-le"), "text", "1\0" * 5_000),
    ],
)
def test_any_payload_has_a_view(payload: bytes | None, kind: str, text: str) -> None:
    assert view(payload) == PayloadView(kind, text)


def test_half_of_a_character_is_no_text() -> None:
    assert view(b'{"n": "\\ud800"}').text == '{\n  "n": "\\ud800"\n}'


def test_masked_values_are_replaced_and_what_cannot_be_searched_is_not_shown() -> None:
    assert "x@y" not in view(b'{"a": [{"email": {"of": "x@y"}}]}', MASKED).text
    for payload in (b"email x@y", b'{"email": "x@y", "email": "z@y"}', b"\xff"):
        assert view(payload, MASKED) == PayloadView(
            "bytes", "", "not shown: the file masks values of it, and they cannot be located"
        )


@pytest.mark.parametrize(
    "payload",
    [
        b'{"card": "4111111111111111"}', b'{"card": 4111111111111111}', b'{"4111111111111111": 1}', b"card 4111111111111111",
        b'{"card": "\\u0034111111111111111"}', b'["4111111111111111", true, null, 1.5]', b"4111111111111111\xff",
        b'{"pin": "4111"}', b'"' + b"4111 " * 2_000 + b'"', b"4111 " * 20_000,
    ],
)  # fmt: skip
def test_no_part_of_a_payload_that_a_pattern_matches_is_shown(payload: bytes) -> None:
    shown = view(payload, CARDS)
    assert "4111" not in shown.text
    assert "[redacted]" in shown.text or shown.note.startswith("not shown")


def test_a_declared_schema_reads_the_payload_and_says_what_does_not_fit() -> None:
    record = {"raw": b"\x01", "at": datetime(2026, 1, 1, tzinfo=UTC), "card": "4111111111111111"}
    avro = PayloadForm("avro", lambda data, version: {**record, "version": version}, redact=CARDS.redact)
    shown = payload_view(letter(b"\x02", **{"kodo-schema": "L1:3"}), avro)
    assert (shown.kind, shown.note) == ("avro", "")
    assert json.loads(shown.text) == {
        "raw": "[redacted]", "at": "2026-01-01 00:00:00+00:00", "card": "[redacted]", "version": "L1:3",
    }  # fmt: skip
    assert view(b'{"n": 1}', PayloadForm("json", fails)) == PayloadView(
        "json", '{\n  "n": 1\n}', "breaks its schema at $.n"
    )
    assert view(b"{", PayloadForm("json", fails)) == PayloadView("text", "{", "breaks its schema at $.n")
    assert view(b'{"a": 1, "a": 2}', PayloadForm("json")).note == "it holds a key twice"
    assert view(b"\xff", PayloadForm("avro", fails)) == PayloadView("bytes", "ff", "breaks its schema at $.n")
    assert view(b"{}", PayloadForm("avro")) == PayloadView("text", "{}")


def test_a_record_that_is_nested_too_deeply_is_no_document() -> None:
    def read(_: bytes, __: str) -> Any:
        deep: Any = 1
        for _level in range(100_000):
            deep = [deep]
        return deep

    assert view(b"\xff", PayloadForm("avro", read)) == PayloadView("bytes", "ff", "nested too deeply")


def test_a_preview_stays_as_stored_unless_it_is_redacted_or_avro() -> None:
    stored = letter(b'{"card":"4111111111111111"}')
    assert as_json(stored)["preview"] == as_json(stored, NO_FORM)["preview"] == '{"card":"4111111111111111"}'
    assert "content" not in as_json(stored)
    row = as_json(stored, CARDS)
    assert row["preview"] == '{ "card": "[redacted]" }'
    assert row["content"] == {"kind": "json", "text": '{\n  "card": "[redacted]"\n}', "note": ""}
    assert PayloadView("text", "a\n  b" * 9).beginning(5) == "a\n  …"


def test_bytes_of_a_document_are_not_shown_where_patterns_redact() -> None:
    """No pattern finds a card number in hexadecimal digits."""

    def read(_: bytes, __: str) -> Any:
        return {"card": b"4111111111111111", "n": 1}

    assert "34313131" in view(b"x", PayloadForm("avro", read)).text
    shown = view(b"x", PayloadForm("avro", read, redact=(re.compile("[0-9]{16}"),))).text
    assert json.loads(shown) == {"card": "[redacted]", "n": 1}


@pytest.mark.parametrize(
    ("payload", "text", "member"),
    [
        (b'{"order": 4711, "n": 1}', "4711", "order"),
        (b'{"n": 1, "order": "4711"}', "4711", "order"),
        (b'{"of": "J\\u00f6rg"}', "Jörg", "of"),
        ('{"of": "Jörg"}'.encode(), "Jörg", "of"),
        (b'{"paid": true}', "true", "paid"),
        (b'{"price": 10.5}', "10.5", "price"),
        (b'{"order": 47110, "n": "4711 of 9"}', "4711", None),
        (b'{"of": {"order": 4711}, "all": ["4711"]}', "4711", None),
        (b'{"n": null}', "null", None),
        (b'["4711"]', "4711", None),
        (b"order 4711", "4711", None),
        (b"\xff4711", "4711", None),
        (None, "4711", None),
    ],
)
def test_a_value_is_found_in_the_top_level_of_a_document(payload: bytes | None, text: str, member: str | None) -> None:
    assert shown_member(letter(payload), NO_FORM, text) == member


def test_a_value_that_is_not_shown_is_not_found() -> None:
    given = letter(b'{"email": "x@y", "card": 4111111111111111, "pin": "4111", "order": 4711}')
    assert [shown_member(given, MASKED, text) for text in ("x@y", "4711")] == [None, "order"]
    hidden = [shown_member(given, CARDS, text) for text in ("4111111111111111", "4111", "4711")]
    assert hidden == [None, None, "order"]


def test_avro_is_searched_by_the_declared_schema() -> None:
    avro = PayloadForm("avro", lambda *_: {"order": 4711})
    assert shown_member(letter(b"\xce\x49"), avro, "4711") == "order"
    assert shown_member(letter(b"4711"), PayloadForm("avro", fails), "4711") is None
