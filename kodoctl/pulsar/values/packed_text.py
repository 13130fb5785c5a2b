"""Documents packed into text, for properties and messages on the cluster. The unpacked size is limited, because other
clients may write there.
"""

from __future__ import annotations

import base64
import zlib
from typing import Final

MAX_UNPACKED: Final = 64 << 20
"""Largest size of an unpacked document in bytes."""


def pack(document: bytes, level: int) -> str:
    """Compresses a document (zlib, `level` 1 to 9) and returns it as Base64 text."""
    return base64.b64encode(zlib.compress(document, level)).decode("ascii")


def unpack(packed: str) -> bytes:
    """The inverse of `pack`. Raises ValueError for anything else, and for a document larger than MAX_UNPACKED."""
    unpacker = zlib.decompressobj()
    try:
        document = unpacker.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED)
    except zlib.error as problem:
        raise ValueError(str(problem)) from None
    if unpacker.unconsumed_tail or unpacker.unused_data or not unpacker.eof:
        raise ValueError("truncated, too large, or followed by something else")
    return document
