# adapter: runs Spark
"""Signatures of producers' marks, verified by the tasks of Spark that read the marks, with the platform's keys."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from kodoctl.protocol.signing import Signer

if TYPE_CHECKING:
    from pyspark.sql import Column

    from kodoctl.pulsar.connection.secret import Secret


def genuine(keys: Secret) -> Column:
    """Condition on rows of `events`: the message has no payload, or an empty one, and a valid signature by one of the
    keys for the topic that it is stored on. False for rows with a payload: no mark has one, and the audit reads no
    payloads. `keys`: text that kodoctl.protocol.signing.Signer.parse accepts.
    """
    from pyspark.sql import functions as F

    def is_signed_empty(topic: str, size: int | None, properties: Mapping[str, str] | None) -> bool:
        return size == 0 and properties is not None and is_signed(keys, topic, properties)

    return F.udf(is_signed_empty, "boolean", useArrow=False)("msg_topic", "size", "properties")


def is_signed(keys: Secret, topic: str, properties: Mapping[str, str]) -> bool:
    """True if the properties have a valid signature by one of the keys, for the topic (full name), and for an empty
    payload or for none: both have the size 0, and the audit reads no payloads. Raises ValueError if `keys` are no keys.
    """
    signer = _signer(keys)
    return signer.genuine(topic, b"", properties) or signer.genuine(topic, None, properties)


@lru_cache(maxsize=4)
def _signer(keys: Secret) -> Signer:
    return Signer.parse(keys.reveal())
