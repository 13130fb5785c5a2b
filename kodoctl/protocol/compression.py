"""Compression of messages: the one rule for producers, relays, workers' moves, recalls and releases.

A topic of the file may name an algorithm, and everything that is sent to the topic or to another one of its family is
compressed with it. A topic stores a message above its maximum if the producer compresses the message, and the client
library does not tell a reader how a message was compressed. Therefore a message that is too large in the topic's own
way is sent alone, compressed in another way.

No message is sent in chunks. With pulsar-client 3.13 no consumer ever gets a chunked message whose first chunk was
stored twice, as after a lost connection: the send would lose it. A chunk without the first chunk stops a shared
subscription for every later message.
"""

from __future__ import annotations

import zlib
from typing import Final

NONE: Final = "none"
ZLIB: Final = "zlib"  # the algorithm whose result Python can measure before a message is sent
ZSTD: Final = "zstd"  # the algorithm that packs best
_OTHER_ZLIB: Final = 32  # one part in so many: the client library's copy of zlib may pack less well than Python's
_GROWTH: Final = {"lz4": 255, ZLIB: 1_000, ZSTD: 256, "snappy": 6}  # noise grows by one part in so many, at most,
_GROWTH_BYTES: Final = 128  # and by so many bytes
TOO_LARGE: Final = "compressed as well; messages are not sent on in chunks"


def next_algorithm(declared: str, tried: str) -> str:
    """Returns the algorithm with which a message is sent again, alone, after the client refused it as too large: ZSTD;
    "" if none is left, because ZSTD is `declared` or was `tried`. The client measures a message as it is stored, that
    is compressed. `declared`: algorithm of the topic, "": none; `tried`: algorithm with which the message was refused,
    "": it went as its topic declares.
    """
    return "" if ZSTD in (declared, tried) else ZSTD


def algorithm_within(declared: str, payload: bytes | None, size: int, largest: int, *, is_free: bool) -> str | None:
    """Returns a way in which a message surely fits into a topic that has its own maximum of `largest` bytes: "" (as the
    topic declares), ZLIB, or NONE (uncompressed); None if no permitted way is sure. Only zlib is measured; each other
    algorithm counts as if the payload could not be compressed. The broker would close the connection for a message that
    is too large, and the client would send it again, for ever.

    Args:
        declared: algorithm of the topic; "": none.
        size: bytes of the message with its properties, uncompressed.
        is_free: the message may be sent alone, and so overtake messages before it. Without that only "" and None are
            returned.
    """
    growth = 0
    if declared and payload:
        growth = len(payload) // _GROWTH[declared] + _GROWTH_BYTES
    if size + growth <= largest:
        return ""
    if (is_free or declared == ZLIB) and fits_compressed(payload, size, largest):
        return "" if declared == ZLIB else ZLIB
    return NONE if is_free and size <= largest else None


def fits_compressed(payload: bytes | None, size: int, largest: int) -> bool:
    """True if a message of `size` bytes (uncompressed, with its properties) surely has at most `largest` bytes when its
    payload is compressed by zlib, even if another copy of zlib packs it a little less well. False without a payload and
    for an empty one, which nothing makes smaller.
    """
    if not payload:
        return False
    packed = len(zlib.compress(payload))
    return size - len(payload) + packed + packed // _OTHER_ZLIB <= largest
