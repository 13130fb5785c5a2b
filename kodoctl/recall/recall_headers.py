"""Headers of a recalled message: those of the dead letter, except those that its way to the dead letter topic left on
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kodoctl.protocol import properties
from kodoctl.protocol.signing import Signer, stripped
from kodoctl.recall.stored_message import ATTEMPTS, DeadLetter

RESET: Final = frozenset({
    *ATTEMPTS, properties.DUE, properties.RESERVED, properties.HOP, properties.ROUTES, properties.FOR, properties.REASON, properties.QUOTA, properties.FROM_LEVEL,
    properties.RECALL, properties.AGAIN, properties.SIGNATURE,
})  # fmt: skip
"""Counters begin anew, and so does its quota; nothing tells it to wait."""


def believed(letter: DeadLetter, signer: Signer | None) -> DeadLetter:
    """With keys: a letter that no worker signed carries nothing of the platform's that could be believed."""
    if signer is None or signer.genuine(letter.topic, letter.payload, letter.properties):
        return letter
    return replace(letter, properties=stripped(letter.properties))


def recalled_properties(
    letter: DeadLetter, recall_id: str, subscription: str, *, ready: bool, again: bool = False
) -> Mapping[str, str]:
    """Everything else travels unchanged, identity and origin above all. On a `ready` topic, which every subscription
    reads, the letter names the one it is for. A letter that no worker moved gets its origin here, as a first hop
    would. `again`: whoever remembers it as done is to handle it once more for this recall.
    """
    kept = {name: value for name, value in letter.properties.items() if name not in RESET}
    if properties.ORIGIN_ID not in kept:
        kept[properties.ORIGIN_ID] = str(letter.position)
        kept[properties.ORIGIN_TOPIC] = letter.topic
        kept[properties.ORIGIN_TIME] = str(letter.publish_time)
    kept[properties.RECALL] = recall_id
    if again:
        kept[properties.AGAIN] = "1"
    if ready:
        kept[properties.FOR] = subscription
    return kept
