"""Signatures (HMAC) over the `kodo-` properties of a message (attempts, due time, identity), so that only owners of a
key can write valid ones.

Every client that may produce may write any property. With keys, the platform (workers, producers, the outbox, recalls)
signs its properties, and a worker ignores unsigned ones. The signature covers the topic, the payload and every `kodo-`
property, so that none of them can be changed, left out, or carried to another topic or payload.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from kodoctl.protocol.properties import ENCRYPTION, PREFIX, SIGNATURE
from kodoctl.topology.names import whole_topic

MIN_KEY: Final = 16  # characters of a key
_FORM: Final = "1."  # names the way a signature is made


class Signer:
    """Signs messages with the first of its keys, and accepts signatures by any of them, so that keys can be rotated.
    `repr` does not show the keys.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[str]) -> None:
        """Raises ValueError if there is no key, or one shorter than MIN_KEY characters; its text never contains a key."""
        if not keys:
            raise ValueError("no key: name at least one")
        if short := [number for number, key in enumerate(keys, 1) if len(key) < MIN_KEY]:
            raise ValueError(f"key {short[0]} has fewer than {MIN_KEY} characters: `openssl rand -base64 32` makes one")
        self._keys = [hmac.new(key.encode(), digestmod=sha256) for key in keys]

    @classmethod
    def parse(cls, value: Any) -> Signer:
        """Makes a signer from a list of keys, or from one text with commas between the keys; spaces around a key in
        that text are dropped. Raises ValueError for any other value, for no key, and for a key of fewer than 16
        characters (MIN_KEY).
        """
        keys = [key.strip() for key in value.split(",")] if isinstance(value, str) else value
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise ValueError("write a list of texts; as a variable, keys with commas between them")
        return cls(keys)

    def __repr__(self) -> str:
        return f"Signer({len(self._keys)} keys)"

    def signed(self, topic: str, payload: bytes | None, properties: Mapping[str, str]) -> dict[str, str]:
        """Returns a copy of the properties with a new signature over topic, payload and `kodo-` properties, in place of
        an old one. `topic`: full name of the topic to publish to; a partition counts as its topic. `payload`: None (a
        tombstone) is not signed as an empty one is.
        """
        return {**properties, SIGNATURE: self._mac(self._keys[0], _text(topic, payload, properties))}

    def genuine(self, topic: str, payload: bytes | None, properties: Mapping[str, str]) -> bool:
        """True if the properties contain a signature, by one of the keys, that is valid for this topic (a partition
        counts as its topic), this payload and all `kodo-` properties that are given; no signature covers any other
        property, or the key of the message.
        """
        given = properties.get(SIGNATURE)
        if given is None or not given.isascii():
            return False
        text = _text(topic, payload, properties)
        return any(hmac.compare_digest(given, self._mac(key, text)) for key in self._keys)

    @staticmethod
    def _mac(key: hmac.HMAC, text: bytes) -> str:
        mac = key.copy()
        mac.update(text)
        return _FORM + urlsafe_b64encode(mac.digest()).decode().rstrip("=")


def is_unmarked(properties: Mapping[str, str]) -> bool:
    """True if a message has no `kodo-` property except that of encryption. A platform with keys sends none such."""
    return not any(map(_claims, properties))


def strip_platform_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """A copy of the properties without those that begin with `kodo-`; that of encryption stays."""
    return {name: value for name, value in properties.items() if not _claims(name)}


def _claims(name: str) -> bool:
    """True if a reader could believe a property. The encryption property is excluded: nothing is decided by it, and
    without it the owner of an encrypted payload could no longer read that payload.
    """
    return name.startswith(PREFIX) and name != ENCRYPTION


def _text(topic: str, payload: bytes | None, properties: Mapping[str, str]) -> bytes:
    """The bytes that are signed: topic, digest of the payload and headers, each with its length, so that no two
    messages have the same bytes. A partition counts as its topic.
    """
    headers = sorted((k, v) for k, v in properties.items() if k.startswith(PREFIX) and k != SIGNATURE)
    digest = "none" if payload is None else sha256(payload).hexdigest()
    fields = [whole_topic(topic), digest, *(field for pair in headers for field in pair)]
    encoded = [field.encode("utf-8", "surrogatepass") for field in fields]
    return b"".join(b"%d:%b" % (len(field), field) for field in encoded)
