"""Packed documents: what was packed comes back, and nothing else is taken for a document."""

from __future__ import annotations

import base64
import zlib

import pytest

from kodoctl.pulsar.values.packed_text import pack, unpack


def test_a_document_comes_back() -> None:
    assert unpack(pack(b"{}" * 1_000, 9)) == b"{}" * 1_000


@pytest.mark.parametrize("damaged", [zlib.compress(b"{}")[:-1], zlib.compress(b"{}") + b"x", b"no zlib"])
def test_a_damaged_text_is_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack(base64.b64encode(damaged).decode())
