"""Headers of a message that is sent. A recalled message has those of the dead letter, except those of its way
to the dead letter topic; a released or moved message has all its headers, except those that make it wait; a
lost message has all its headers.
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
"""Counters begin anew, and so does its quota; nothing tells it to wait."""
_WAITED: Final = frozenset({properties.DUE, properties.FOR, properties.RELEASE, properties.SIGNATURE})


def trusted_letter(letter: DeadLetter, signer: Signer | None) -> DeadLetter:
    """The letter, without its platform properties if there are keys and no worker signed it: such properties
    cannot be believed.
    """
    if signer is None or signer.genuine(letter.topic, letter.payload, letter.properties):
        return letter
    return replace(letter, properties=strip_platform_properties(letter.properties))


def recalled_properties(
    letter: DeadLetter, recall_id: str, subscription: str, *, ready: bool, again: bool = False
) -> Mapping[str, str]:
    """Everything else travels unchanged, identity and origin above all. On a `ready` topic, which every subscription
    reads, the letter names the one it is for. A letter that no worker moved gets its origin here, as a first hop
    would. `again`: whoever remembers it as done is to handle it once more for this recall.
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
    """Counters and everything else travel unchanged: the message is where it was, only not for as long. `due`: 0, or
    when it is due in a waiting lane that it is moved to, ms since the epoch. A limiter's reservation stays: a refusal
    before that moment is no attempt.
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
    """A lost message is where it was again, and has the headers it had; on a `ready` topic, where others have had
    it, it names the subscription that lost it. On a first topic it is a new message, and routes see it. `revived`:
    a dead letter that cannot go back, and is tried again instead, as a recalled one is.
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
    """The time at which a message is due that continues to wait, in ms since the epoch; 0: now. The message's
    own due time applies, but at most `horizon` ms from now, because its topics are made for no longer delay.
    """
    due = min(letter.number(properties.DUE) or 0, now + horizon)
    return due if due > now else 0


def _with_origin(letter: DeadLetter, without: frozenset[str]) -> dict[str, str]:
    """The headers of a message except some. One that no worker moved gets its origin here, as a first hop would."""
    kept = {name: value for name, value in letter.properties.items() if name not in without}
    if properties.ORIGIN_ID not in kept:
        kept[properties.ORIGIN_ID] = str(letter.position)
        kept[properties.ORIGIN_TOPIC] = letter.topic
        kept[properties.ORIGIN_TIME] = str(letter.publish_time)
    return kept
