"""Packed documents: what was packed comes back, and nothing else is taken for a document."""

from __future__ import annotations

import base64
import zlib

import pytest

from kodoctl.pulsar.values.packed_text import pack, unpack


def test_a_document_comes_back() -> None:
    assert unpack(pack(b"{}" * 1_000, 9)) == b"{}" * 1_000


@pytest.mark.parametrize(
    ("damaged", "text"),
    [
        (zlib.compress(b"{}")[:-1], "truncated"),
        (zlib.compress(b"{}") + b"x", "followed by something else"),
        (b"no zlib", "incorrect header check"),
    ],
)
def test_a_damaged_text_is_refused(damaged: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        unpack(base64.b64encode(damaged).decode())
