"""Compression of messages that go on to another topic: workers' moves, recalls, releases.

A topic stores a message above its maximum if the producer compresses the message, and the client library tells no
reader how a message was compressed. So a message goes on as it is; only a message that is too large for that goes
compressed.

No message goes on in chunks. With pulsar-client 3.13 no consumer ever gets a chunked message whose first part was
stored twice, as after a lost connection: the move would lose it. A part without its first part stops a shared
subscription for every later message.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

_OTHER_ZLIB: Final = 32  # one part in so many: the client library's copy of zlib may pack less well than Python's
TOO_LARGE: Final = "compressed as well; messages are not sent on in chunks"


def compression(largest: int) -> Any:
    """The type of compression for a topic of the maximal size `largest`, 0: it has none of its own. Where it has one,
    the size is to be measured before the message is sent, and Python has zlib.
    """
    import pulsar

    return pulsar.CompressionType.ZLib if largest else pulsar.CompressionType.ZSTD


def fits_compressed(payload: bytes | None, size: int, largest: int) -> bool:
    """True if a message of `size` bytes is within the maximal size of its topic when its payload is compressed. The
    broker answers a larger one by cutting the connection, and the client sends it again, for ever.
    """
    if not payload:
        return False
    packed = len(zlib.compress(payload))
    return size - len(payload) + packed + packed // _OTHER_ZLIB <= largest
