"""Compression of messages that are sent on to another topic: by workers' moves, recalls, releases.

A topic stores a message above its maximum if the producer compresses the message, but the client library does not tell
a reader whether and how a message was compressed. Therefore a message is sent on uncompressed, and compressed only if
it is too large otherwise.

No message is sent on in chunks. With pulsar-client 3.13 no consumer ever gets a chunked message whose first chunk was
stored twice, as after a lost connection: the move would lose it. A chunk without the first chunk stops a shared
subscription for every later message.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

_OTHER_ZLIB: Final = 32  # one part in so many: the client library's copy of zlib may pack less well than Python's
TOO_LARGE: Final = "compressed as well; messages are not sent on in chunks"


def compression(largest: int) -> Any:
    """Returns the `pulsar.CompressionType` for a topic whose own maximum message size is `largest` bytes (0: it has
    none). With a maximum it is zlib, because Python can compress by it to measure a message before it is sent; else
    zstd.
    """
    import pulsar

    return pulsar.CompressionType.ZLib if largest else pulsar.CompressionType.ZSTD


def fits_compressed(payload: bytes | None, size: int, largest: int) -> bool:
    """True if a message will be within its topic's maximum of `largest` bytes when its payload is compressed; False
    without a payload. `size`: bytes of the uncompressed message with its properties.

    A larger message must not be sent: the broker closes the connection, and the client sends it again, for ever.
    """
    if not payload:
        return False
    packed = len(zlib.compress(payload))
    return size - len(payload) + packed + packed // _OTHER_ZLIB <= largest
