"""Compression types of the client library, by the algorithms of the topology file."""

from __future__ import annotations

from typing import Any, Final

from kodoctl.protocol.compression import NONE, ZLIB, ZSTD

_LIBRARY: Final = {NONE: "NONE", "lz4": "LZ4", ZLIB: "ZLib", ZSTD: "ZSTD", "snappy": "SNAPPY"}


def compression_type(algorithm: str) -> Any:
    """Returns the `pulsar.CompressionType` of an algorithm, named as in the file."""
    import pulsar

    return getattr(pulsar.CompressionType, _LIBRARY[algorithm])
