"""Decoder of messages of the client library into plain values: one function for every place that reads messages.

A producer chooses every byte of the metadata of a message. Clients in other languages send bytes that are not text, and
payloads encrypted for others: no such message may stop its reader, or make later messages inaccessible. The client
library raises when such bytes are accessed, and by default it neither delivers nor acknowledges encrypted messages:
every subscription and every reader must be made with `as_they_are()`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Any

from kodoctl.protocol.properties import ENCRYPTED, ENCRYPTION

Content = tuple[bytes | None, dict[str, str], str, str, int, int, str]
"""Payload, properties, key, ordering key, event time, publish time, and a text about the parts that cannot be read ("":
none). Times are ms since the epoch, 0 = none; payload None: a tombstone. An encrypted payload is as it was stored (of a
batch: the whole batch), and the property `kodo-encryption` has the metadata that the owner of its key needs to read it,
because a producer cannot write those again. A plain tuple, because every message needs one.
"""


def schema_version(message: Any) -> int:
    """Number of the schema version with which a message was written; negative if it has no valid one. Decoded here
    because the client library's own text of it fails for 128 and above.
    """
    version: int = message._message.int_schema_version()  # noqa: SLF001  # it has no other way to ask
    return version


def unreturned_count(message: Any) -> int:
    """Number of messages that the broker counted as sent together with this one, and that the client library never
    counts as received.

    The client counts an encrypted batch as one message; the broker counts each message in it. Once these are as many as
    the consumer's queue holds, the broker sends this consumer nothing more, until a new consumer is made.
    """
    try:
        context = message.encryption_context()
        return 0 if context is None else max(0, context.batch_size() - 1)
    except Exception:  # noqa: BLE001  # nothing that a producer chose may end whoever reads
        return 0


def as_they_are() -> dict[str, Any]:
    """Arguments of `subscribe` and `create_reader` that make the client deliver encrypted messages as stored."""
    import pulsar

    return {"crypto_failure_action": pulsar.ConsumerCryptoFailureAction.CONSUME}


def content(message: Any, *, alone: bool = True) -> Content:
    """Decodes the content of a message. Returns (payload, properties, key, ordering key, event time, publish time, text
    about the parts that cannot be read, "" for none). Never raises, whatever bytes the producer chose.

    `alone`: False for a message of a batch that the client split; such a message cannot be encrypted.
    """
    payload = message.data()
    try:
        if not alone or message.encryption_context() is None:
            return (
                payload if payload or not message.has_null_value() else None,
                message.properties(),
                message.partition_key(),
                message.ordering_key(),
                message.event_timestamp(),
                message.publish_timestamp(),
                "",
            )
    except Exception:  # noqa: BLE001, S110  # most often bytes that are no text; whatever it is, it is reported below
        pass
    return _field_by_field(message, payload, alone=alone)


def _field_by_field(message: Any, payload: bytes, *, alone: bool) -> Content:
    """The readable part of a message's content, and a text about the parts that were lost. The client gives all
    properties or none.
    """
    lost: list[str] = []
    null = not payload and _read_field(lost, "null value", message.has_null_value, other=False)
    properties = _read_field(lost, "properties", message.properties, other={})
    key = _read_field(lost, "key", message.partition_key, other="")
    ordering_key = _read_field(lost, "ordering key", message.ordering_key, other="")
    happened = _read_field(lost, "event time", message.event_timestamp, other=0)
    published = _read_field(lost, "publish time", message.publish_timestamp, other=0)
    context = _read_field(lost, "encryption", message.encryption_context, other=None) if alone else None
    if context is not None:
        properties = {**properties, ENCRYPTION: _encryption(context, lost)}
    broken = [f"not UTF-8 text, and lost: {', '.join(lost)}"] * bool(lost) + [ENCRYPTED] * (context is not None)
    return None if null else payload, properties, key, ordering_key, happened, published, "; ".join(broken)


def _encryption(context: Any, lost: list[str]) -> str:
    """Returns wrapped keys with their names, the cipher's parameter, algorithm, compression and sizes, as JSON. Bytes
    are base64. Adds to `lost` if a part cannot be read.
    """
    names = "encryption"
    facts = {
        "keys": [
            {
                "name": _read_field(lost, names, partial(getattr, key, "key"), other=None),
                "value": _base64(key.value),
                "metadata": _read_field(lost, names, partial(getattr, key, "metadata"), other=None),
            }
            for key in context.keys()  # noqa: SIM118  # no mapping
        ],
        "param": _base64(context.param()),
        "algorithm": _read_field(lost, names, context.algorithm, other=None),
        "compression": _read_field(lost, names, lambda: context.compression_type().name, other=None),
        "uncompressed_size": context.uncompressed_message_size(),
        "batch_size": context.batch_size(),
    }
    return json.dumps(facts, separators=(",", ":"))


def _read_field(lost: list[str], what: str, ask: Callable[[], Any], *, other: Any) -> Any:
    try:
        return ask()
    except Exception:  # noqa: BLE001  # whatever the client makes of bytes that a stranger chose
        if what not in lost:
            lost.append(what)
        return other


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
