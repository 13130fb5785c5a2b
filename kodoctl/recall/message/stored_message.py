"""A stored message as conditions, plans and views see it. Pure: readers of the broker or of a table create these."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from kodoctl.protocol import properties as headers
from kodoctl.protocol.error_causes import cause_of

NOBODY: Final = "(none)"  # tenant of a message without the fair_by property
MAX_NUMBER: Final = 10**15
MAX_DEPTH: Final = 500  # of JSON: what parsers read depends on Python's own stack (some 900 deep) or is 1,000 (Spark's)
DIGEST: Final = 32  # hexadecimal digits of the digests in a plan: 128 bits
_NESTED: Final = frozenset({dict, list})
_TOO_DEEP: Final = f"it is nested more than {MAX_DEPTH} deep"


class NotJsonError(ValueError):
    """A text is no JSON document, or none that its reader accepts. The text of the error is the reason."""


class Position(NamedTuple):
    """Position of a stored message. Positions in one partition compare in the order of storing. `partition` -1: a plain
    topic; `batch` -1: the message is alone in its entry. A tuple, because a recall makes and looks up several for each
    dead letter.
    """

    partition: int
    ledger: int
    entry: int
    batch: int = -1

    def __str__(self) -> str:
        """`ledger:entry:partition:batch`, as the consumer writes origins."""
        return f"{self.ledger}:{self.entry}:{self.partition}:{self.batch}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The inverse of str(). Raises ValueError for a text that is not four integers with `:` between them."""
        ledger, entry, partition, batch = map(int, text.split(":"))
        return cls(partition, ledger, entry, batch)


@dataclass(frozen=True)
class DeadLetter:
    """One stored message, of a topic of dead letters or of any other topic. Times are ms since the epoch, 0: none.
    Values from its headers are as somebody wrote them; only a signature proves that a worker did.

    Args:
        topic: full name without partition.
        position: place where it is stored.
        payload: None: a tombstone; an encrypted one is as it was stored.
        properties: all properties, headers included.
        key: "" for none, as `ordering_key`.
        tenant: the party that fairness is about; NOBODY: none.
        broken: text about parts that cannot be read and are missing here, or about an encrypted payload; "" for
            neither; see `whole`.
    """

    topic: str
    position: Position
    payload: bytes | None
    properties: Mapping[str, str]
    key: str = ""
    ordering_key: str = ""
    event_time: int = 0
    publish_time: int = 0
    tenant: str = NOBODY
    broken: str = ""

    @property
    def whole(self) -> bool:
        """True if it can be sent on unchanged: no part of it is missing, even if the payload is encrypted."""
        return self.broken in ("", headers.ENCRYPTED)

    @property
    def identity(self) -> str:
        """Identity of the message over all its hops, which the idempotency store of the consumer uses as well: its
        property `kodo-id`, else the position where it was first stored (see kodoctl.protocol.properties.identity).
        """
        return headers.identity(
            self.properties.get(headers.ID), self.properties.get(headers.ORIGIN_ID), str(self.position)
        )

    @property
    def reason(self) -> str | None:
        """The reason of its last move by a worker: a failure, or, of a waiting message, a limit for example; None: the
        message has none.
        """
        return self.properties.get(headers.REASON)

    @property
    def error(self) -> str | None:
        """Redacted error text of its last failed handler run; None: the message has none."""
        return self.properties.get(headers.ERROR)

    @property
    def cause(self) -> str | None:
        """Reason and error text, with `#` for the parts that differ between messages, cut to 200 characters, so that
        letters of one cause failed in the same way; None: the message has neither.
        """
        return cause_of(self.reason, self.error)

    @property
    def level(self) -> str | None:
        """The level in which it died, such as `L1`, as the header has it: any text is possible; None: not known."""
        return self.properties.get(headers.FROM_LEVEL)

    def number(self, name: str) -> int | None:
        """Value of the header `name` if it is a whole number from 0 to MAX_NUMBER (10^15), in ASCII digits only; None
        if the header is missing or anything else.
        """
        text = self.properties.get(name)
        if text is None or not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) <= MAX_NUMBER):
            return None
        return int(text)

    @property
    def attempts(self) -> int:
        """Attempts of all states together."""
        return sum(self.number(name) or 0 for name in ATTEMPTS)

    @property
    def size(self) -> int:
        """Bytes of the payload, 0 for a tombstone."""
        return len(self.payload or b"")

    @cached_property
    def digest(self) -> str:
        """Digest of the payload (see `digest` of this module), by which a plan recognises a message."""
        return digest(self.payload)

    @cached_property
    def text(self) -> str | None:
        """The payload as UTF-8 text; None if it is not text, or a tombstone."""
        try:
            return None if self.payload is None else self.payload.decode()
        except UnicodeDecodeError:
            return None

    @cached_property
    def document(self) -> Any:
        """The payload as JSON, as `parse_json` reads it; None if it is not JSON, and also if it is null."""
        try:
            return parse_json(self.text)
        except NotJsonError:
            return None


ATTEMPTS: Final = (
    headers.ATTEMPTS_RETRYING,
    headers.ATTEMPTS_PENDING,
    headers.ATTEMPTS_BLOCKING,
    headers.ATTEMPTS_BACKUP,
)


def digest(payload: bytes | None) -> str:
    """Digest of a payload, 32 hexadecimal digits; a tombstone (None) and an empty payload have different digests."""
    return hashlib.sha256(b"-" if payload is None else b"+" + payload).hexdigest()[:DIGEST]


def tenant_of(by: str | None, properties: Mapping[str, str], key: str) -> str:
    """Tenant of a message, as the consumer finds it: the property `by`, or the key if `by` is "key"; NOBODY, which is
    `(none)`, if that is missing or empty, or `by` is None.
    """
    if by is None:
        return NOBODY
    return (key if by == "key" else properties.get(by)) or NOBODY


def parse_json(text: str | None) -> Any:
    """Parses a JSON document. Raises NotJsonError for None, and for a text that is no JSON, has NaN or Infinity, is
    nested more than MAX_DEPTH (500) deep, or has an integer with more digits than Python converts (4,300). Of a key
    that an object has twice the last value counts.
    """
    if text is None:
        raise NotJsonError("it is no text")
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise NotJsonError(_TOO_DEEP) from None
    except ValueError as problem:
        raise NotJsonError(str(problem)) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and type(document) in _NESTED and _too_deep(document):
        raise NotJsonError(_TOO_DEEP)
    return document


def _too_deep(document: Any) -> bool:
    """True if a document is more than MAX_DEPTH deep. Goes level by level, without recursion."""
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        inner = (one.values() if type(one) is dict else one for one in level)
        level = [found for values in inner for found in values if type(found) in _NESTED]
    return bool(level)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
