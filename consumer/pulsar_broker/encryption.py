"""Payloads that producers encrypted for somebody else: moved as they are, with what their key's owner needs to read them.

Measured: without a key the client by default delivers nothing and acknowledges nothing, so that such messages wait for ever,
unseen; and what encrypts a payload (its wrapped keys and parameters) is metadata that cannot be written again, only carried.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, Final

from kodoctl.topology.control import PREFIX

ENCRYPTION: Final = f"{PREFIX}encryption"


def encryption_of(context: Any) -> str:
    """JSON: wrapped keys with their names, the cipher's parameter, algorithm, compression and sizes. Bytes are base64."""
    keys = [{"name": key.key, "value": _text(key.value), "metadata": dict(key.metadata)} for key in context.keys()]  # noqa: SIM118
    return json.dumps(
        {
            "keys": keys,
            "param": _text(context.param()),
            "algorithm": context.algorithm(),
            "compression": context.compression_type().name,
            "uncompressed_size": context.uncompressed_message_size(),
            "batch_size": context.batch_size(),
        },
        separators=(",", ":"),
    )


def _text(data: bytes) -> str:
    return b64encode(data).decode()
