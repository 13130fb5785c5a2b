"""Headers of the Go library soften, read where `compat: soften` is declared. Pure.

Its topics have the names of ours, so that workers may take over messages that it left in them. Level and state are
those of the topic, as ever; the headers say what has happened so far: attempts, due time, reason and origin. A message
that a kodo worker has moved once carries control properties, and its old headers, untouched, count no more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.envelope import (
    FRESH,
    HEADER_NAMES,
    MAX_REASON,
    BrokenHeadersError,
    Delivery,
    Headers,
    State,
)
from kodoctl.topology.names import whole_topic

if TYPE_CHECKING:
    from kodo_consumer.core.values.policy import Lane

ORIGIN_ID: Final = "X-ORIGIN-MESSAGE-ID"
ORIGIN_TOPIC: Final = "X-ORIGIN-TOPIC"
ORIGIN_TIME: Final = "X-ORIGIN-PUBLISH-TIME"
PREVIOUS_ERROR: Final = "X-Previous-Error"
CONSUME_TIME: Final = "X-Consume-Time"
REENTRANT_TIME: Final = "X-Reentrant-Time"
_COUNTERS: Final = {
    State.RETRYING: "X-Retrying-Message-Counter",
    State.PENDING: "X-Pending-Message-Counter",
    State.BLOCKING: "X-Blocking-Message-Counter",
}
NAMES: Final = frozenset({
    ORIGIN_ID, ORIGIN_TOPIC, ORIGIN_TIME, "X-ORIGIN-LEVEL", "X-ORIGIN-STATUS", "X-Previous-Level", "X-Previous-Status",
    PREVIOUS_ERROR, CONSUME_TIME, REENTRANT_TIME, "X-Message-Counter", "X-Ready-Message-Counter",
    "X-Dead-Message-Counter", *_COUNTERS.values(),
})  # fmt: skip
"""Names of all headers that the library writes."""
_TIME: Final = re.compile(r"(\d{14})(?:\.(\d{1,3}))?", re.ASCII)
_COUNTS: Final = re.compile(r"(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
_MOST: Final = 1_000_000


def speaks(properties: Mapping[str, str]) -> bool:
    """True if the headers of the Go library soften count: the message has some, and none that a kodo worker or a recall
    writes.
    """
    return HEADER_NAMES.isdisjoint(properties) and not NAMES.isdisjoint(properties)


def read(delivery: Delivery, lane: Lane) -> Headers:
    """Returns the headers of the Go library soften as control headers, FRESH if there are none; whether they count,
    `speaks` says. Raises BrokenHeadersError for a counter or a time, of those that count here, that soften would not
    have written. `lane`: the lane from which the message was received.

    Soften's origin id names a whole batch, so the origin id of a moved message is its present position here. In a
    waiting state one more attempt counts for the move there, which soften counts when the message is taken out again.
    """
    properties = delivery.properties
    if NAMES.isdisjoint(properties):
        return FRESH
    counted = {state: _counter_part(properties, name) for state, name in _COUNTERS.items()}
    if lane.state in counted:
        counted[lane.state] += 1
    was_moved = ORIGIN_ID in properties or lane.state is not State.READY
    return Headers(
        retrying=counted[State.RETRYING],
        pending=counted[State.PENDING],
        blocking=counted[State.BLOCKING],
        due=_time(properties, CONSUME_TIME) or _time(properties, REENTRANT_TIME),
        hop=1 if was_moved else 0,
        reason=properties[PREVIOUS_ERROR][:MAX_REASON] if PREVIOUS_ERROR in properties else None,
        origin_id=delivery.position if was_moved else None,
        origin_topic=whole_topic(properties.get(ORIGIN_TOPIC, lane.topic)) if was_moved else None,
        origin_time=(_time(properties, ORIGIN_TIME) or delivery.publish_time) if was_moved else None,
    )


def without(delivery: Delivery) -> Delivery:
    """The message without the headers of soften: a transfer to another ground topic begins anew there."""
    kept = {name: value for name, value in delivery.properties.items() if name not in NAMES}
    return delivery._replace(properties=kept)


def _counter_part(properties: Mapping[str, str], name: str) -> int:
    """The part of a counter (`publish:consume:reckon`) that is compared with a maximum: the last one, 0 if absent."""
    text = properties.get(name)
    if text is None:
        return 0
    match = _COUNTS.fullmatch(text)
    if match is None:
        raise BrokenHeadersError(name)
    return min(_MOST, int(match[3] or 0))


def _time(properties: Mapping[str, str], name: str) -> int | None:
    """Ms since the epoch of `YYYYMMDDHHMMSS.fff`, UTC; zeros at the end of the fraction are left out there."""
    text = properties.get(name)
    if text is None:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise BrokenHeadersError(name)
    try:
        whole = datetime.strptime(match[1], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        raise BrokenHeadersError(name) from None
    return int(whole.timestamp()) * 1000 + int((match[2] or "0").ljust(3, "0"))
