"""What counts as a JSON payload."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from kodoctl.protocol.json_payload import MAX_DEPTH, JsonPayloadError, read_json


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": [1, 2.5, null, true, "\xc3\xa4"]}', {"a": [1, 2.5, None, True, "ä"]}),
        (b"1.7976931348623157e308", 1.7976931348623157e308),
        (b"9" * 308, int("9" * 308)),
        (b'"e9999 ' + b"1" * 400 + b'"', "e9999 " + "1" * 400),
        (b'["e999", 1.5, 2, 1e-999]', ["e999", 1.5, 2, 0.0]),
        (b'{"NaN": "Infinity"}', {"NaN": "Infinity"}),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b"\xef\xbb\xbf1", 1),
        (b"9" * 199 + b"e99", float("9" * 199 + "e99")),
        ('["\u6f22", 1.5e9, 12]'.encode("utf-16-le"), ["\u6f22", 1.5e9, 12]),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)),
        (b'["' + b"[" * 300 + b'"]', ["[" * 300]),
        (json.dumps([[{}] * 300]).encode(), [[{}] * 300]),
    ],
)
def test_json_is_read(data: bytes, value: Any) -> None:
    assert read_json(data) == value


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", ""), (b"{", ""), (b"\xff", ""), (b'{"a": 1} 2', ""), (b'"\xed\xa0\x80"', ""), (b"01", ""),
        (b'{"price": NaN}', "it holds NaN, which is no JSON"),
        (b"[1, -Infinity]", "it holds -Infinity, which is no JSON"),
        (b"Infinity", "it holds Infinity, which is no JSON"),
        (b'[{"a": 1, "a": 1}]', "it holds a key twice"),
        (b'{"a": 1, "\\u0061": 2}', "it holds a key twice"),
        (b"[1e400]", "it holds a number that is too large for a double"),
        (b"-1E+0309", "it holds a number that is too large for a double"),
        (b"9" * 309, "it holds a number that is too large for a double"),
        (b"1" * 50_000, "it holds a number that is too large for a double"),
        (b"9" * 400 + b".5", "it holds a number that is too large for a double"),
        (b"1" * 250 + b"e99", "it holds a number that is too large for a double"),
        (b"9" * 210 + b".5e99", "it holds a number that is too large for a double"),
        (("1" * 5_000).encode("utf-16-le"), "it holds a number that is too large for a double"),
        ("1e400".encode("utf-16-be"), "it holds a number that is too large for a double"),
        (("9" * 309).encode("utf-32"), "it holds a number that is too large for a double"),
        (b"[" * 201 + b"]" * 201, "it is nested more than 200 levels deep"),
        (b'{"a":' * 201 + b"1" + b"}" * 201, "it is nested more than 200 levels deep"),
        (b"[" * 1_000_000, "it is nested more than 200 levels deep"),
    ],
)  # fmt: skip
def test_what_readers_would_disagree_about_is_refused(data: bytes, rule: str) -> None:
    with pytest.raises(JsonPayloadError) as raised:
        read_json(data)
    assert str(raised.value) == rule


@pytest.mark.parametrize("piece", [b"[", b"1", b'"e1', b"9e1", b'{"a":', b"1e999,", b"[1" * 10])
def test_no_payload_takes_long(piece: bytes) -> None:
    began = time.process_time()
    for end in (b"", b"]"):
        with pytest.raises(JsonPayloadError):
            read_json(b"[" + piece * 500_000 + end)
    assert time.process_time() - began < 4
