"""Headers of a message that is sent. A recalled message has the headers of its dead letter, except those of the way to
the dead letter topic; a released, moved or lost message has all its headers, except those that make it wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kodoctl.protocol import properties
from kodoctl.protocol.signing import Signer, strip_platform_properties
from kodoctl.recall.message.stored_message import ATTEMPTS, DeadLetter

RESET: Final = frozenset({
    *ATTEMPTS, properties.DUE, properties.RESERVED, properties.HOP, properties.ROUTES, properties.FOR, properties.REASON,
    properties.QUOTA, properties.FROM_LEVEL, properties.RECALL, properties.AGAIN, properties.RELEASE, properties.SIGNATURE,
    properties.ERROR, properties.ERROR_STACK,
})  # fmt: skip
"""Headers that a recalled message loses: its counters and its quota start again, and nothing makes it wait."""
_WAITED: Final = frozenset({properties.DUE, properties.FOR, properties.RELEASE, properties.SIGNATURE})


def trusted_letter(letter: DeadLetter, signer: Signer | None) -> DeadLetter:
    """Returns the letter; if there are keys (`signer`) and it has no valid signature by one of them, without its
    platform properties (those that begin with `kodo-`, except that of encryption), which anybody may have written.
    """
    if signer is None or signer.genuine(letter.topic, letter.payload, letter.properties):
        return letter
    return replace(letter, properties=strip_platform_properties(letter.properties))


def recalled_properties(
    letter: DeadLetter, recall_id: str, subscription: str, *, ready: bool, again: bool = False
) -> Mapping[str, str]:
    """Properties of a recalled letter, not signed: its own and its recall id, without those in RESET (counters, due
    time, reason and others of its way to the dead letters). Identity and origin stay. A letter without an origin gets
    its present place as its origin, as in a first hop.

    `ready`: the target is a ready topic, which every subscription reads, so that a header names the subscription that
    must handle the message. `again`: a header makes a consumer that remembers the message as done handle it once more
    for this recall.
    """
    kept = _with_origin(letter, RESET)
    kept[properties.RECALL] = recall_id
    if again:
        kept[properties.AGAIN] = "1"
    if ready:
        kept[properties.FOR] = subscription
    return kept


def released_properties(
    letter: DeadLetter, release_id: str, subscription: str, *, due: int, ready: bool
) -> Mapping[str, str]:
    """Properties of a released or moved message, not signed: its own, counters included, and its recall id, without
    those that make it wait. A hop (number of moves) that is 0 or missing becomes 1, because routes would take the
    message for a new one. A limiter's reservation stays: a refusal before its time does not count as an attempt. A
    message without an origin gets one, as in `recalled_properties`.

    Args:
        release_id: recall id of the message.
        due: due time in the waiting lane that the message is moved to, ms since the epoch; 0: none.
        ready: the target is a ready topic: a header names the subscription that must handle the message.
    """
    kept = _with_origin(letter, _WAITED)
    kept[properties.RELEASE] = release_id
    if not letter.number(properties.HOP):
        kept[properties.HOP] = "1"  # else routes would take it for a new message
    if ready:
        kept[properties.FOR] = subscription
    if due:
        kept[properties.DUE] = str(due)
    return kept


def resent_properties(
    letter: DeadLetter, resend_id: str, subscription: str, *, due: int, ready: bool, revived: bool
) -> Mapping[str, str]:
    """Properties of a lost message that is sent again, not signed: its own and its recall id, without those that make
    it wait. A message without an origin gets one, as in `recalled_properties`.

    Args:
        resend_id: recall id of the message.
        due: due time, ms since the epoch; 0: none.
        ready: the target is a ready topic, which others have read: a header names the subscription that lost the
            message, and the hop stays, so that a first topic routes it as a new message. On any other topic a hop that
            is 0 or missing becomes 1.
        revived: a dead letter that cannot return to its topic, and is tried again as a recalled one is: without the
            headers in RESET, such as its counters.
    """
    kept = _with_origin(letter, RESET if revived else _WAITED)
    kept[properties.RELEASE] = resend_id
    if not ready and not letter.number(properties.HOP):
        kept[properties.HOP] = "1"
    if ready:
        kept[properties.FOR] = subscription
    if due:
        kept[properties.DUE] = str(due)
    return kept


def due_time(letter: DeadLetter, now: int, horizon: int) -> int:
    """Due time of a message that must continue to wait, in ms since the epoch; 0: it has none, or that is over. It is
    the message's own due time, but at most `horizon` ms after `now` (ms since the epoch), because its topics are made
    for no longer delay.
    """
    due = min(letter.number(properties.DUE) or 0, now + horizon)
    return due if due > now else 0


def _with_origin(letter: DeadLetter, without: frozenset[str]) -> dict[str, str]:
    """Headers of a message, except some. A message that no worker moved gets its origin here, as in a first hop."""
    kept = {name: value for name, value in letter.properties.items() if name not in without}
    if properties.ORIGIN_ID not in kept:
        kept[properties.ORIGIN_ID] = str(letter.position)
        kept[properties.ORIGIN_TOPIC] = letter.topic
        kept[properties.ORIGIN_TIME] = str(letter.publish_time)
    return kept
