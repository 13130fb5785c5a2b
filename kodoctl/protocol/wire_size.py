"""Size of a message on the wire, in bytes, as the broker counts it against a limit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FRAME: Final = 8  # bytes around each text of a message's metadata, at most


def on_the_way(payload: bytes | None, properties: Mapping[str, str], *texts: str) -> int:
    """Upper bound of the bytes that the broker counts for a message: payload, properties, and the metadata that the
    client adds. `texts`: the message's keys, and the producer's name if one was set.
    """
    strings = [*properties, *properties.values(), *texts]
    return len(payload or b"") + sum(len(text.encode()) + _FRAME for text in strings) + _FRAME * 16
