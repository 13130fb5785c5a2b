"""Help that editors show while somebody writes a file: what each word of a choice means, and titles in words."""

from __future__ import annotations

import re
from typing import Any, Final

_AFTER_STATES: Final = {
    "retrying": "It failed, and waits for its next attempt.",
    "pending": "Its tenant was over a rate.",
    "blocking": "Its tenant was over a quota.",
}
_LEVELS: Final = {
    **{f"S{number}": f"Steered level {number} of 3, above all L levels." for number in (3, 2, 1)},
    **{f"L{number}": "Priority level above L1; the greater number goes first." for number in range(8, 1, -1)},
    "L1": "The ground topic itself.",
    **{
        f"B{number}": "Backup level, below L1: for noisy tenants, and the last stop before dead letters."
        for number in (1, 2, 3)
    },
    "D1": "The lowest level.",
}
_CHOICES: Final[tuple[dict[str, str], ...]] = (
    {
        "produce": "Send messages.",
        "consume": "Read and acknowledge messages.",
        "functions": "Manage functions.",
        "sources": "Manage sources of Pulsar IO.",
        "sinks": "Manage sinks of Pulsar IO.",
        "packages": "Manage packages.",
    },
    {
        "hold_producers": "Sends wait until there is room.",
        "fail_producers": "Sends fail.",
        "evict": "The oldest messages are dropped, and lost.",
    },
    {
        "never": "The broker deletes no topic.",
        "no_subscriptions": "The broker deletes a topic that has no subscription.",
        "caught_up": "The broker deletes a topic whose subscriptions have all caught up.",
    },
    {"partitioned": "The topic gets partitions.", "non-partitioned": "The topic is a plain one."},
    {
        "ALWAYS_INCOMPATIBLE": "No other schema is accepted.",
        "ALWAYS_COMPATIBLE": "Every schema is accepted.",
        "BACKWARD": "Consumers with the new schema can read data of the last one.",
        "FORWARD": "Consumers with the last schema can read data of the new one.",
        "FULL": "BACKWARD and FORWARD, against the last schema.",
        "BACKWARD_TRANSITIVE": "BACKWARD, against all earlier schemas.",
        "FORWARD_TRANSITIVE": "FORWARD, against all earlier schemas.",
        "FULL_TRANSITIVE": "BACKWARD and FORWARD, against all earlier schemas.",
    },
    _LEVELS,
    {"json": "Payloads are JSON.", "avro": "Payloads are Avro."},
    {"B1": "Its messages go to the backup level.", "pending": "Its messages wait in the pending state."},
    {
        "wait": "A message is acknowledged after the receipt of its record.",
        "best_effort": "Nobody waits for the receipt; an audit stays inconclusive.",
    },
    {"ready": "It is new.", **_AFTER_STATES},
    _AFTER_STATES,
    {"subscription": "All workers together.", "worker": "Each worker."},
    {
        "dispatch": "When it is sent, or received for the first time.",
        **{state: f"When it leaves {state}." for state in (*_AFTER_STATES, "backup")},
    },
    {
        "shared": "Every worker gets messages, in any order.",
        "key_shared": "Every worker gets messages; those of one key stay in order.",
        "failover": "One worker reads a partition, in order; others stand by.",
        "exclusive": "One worker reads all, in order.",
    },
    {"java": "Java.", "python": "Python.", "go": "Go."},
    {
        "at_least_once": "When its code is done with it; it can come again.",
        "at_most_once": "When its code receives it; it can be lost.",
        "effectively_once": "When its code is done with it and the result is stored, once.",
        "manual": "When its code acknowledges it.",
    },
    {
        "at_least_once": "When it is stored; it can come again.",
        "at_most_once": "When it is sent; it can be lost.",
        "effectively_once": "When it is stored, once, by numbers that the source gives.",
    },
    {"none": "A role may use any subscription.", "prefix": "A role may use subscriptions whose name begins with its own."},
    {"bookkeeper": "The copy on the bookies is read.", "tiered_storage": "The moved copy is read."},
    {"earliest": "A new subscription begins at the oldest message.", "latest": "A new subscription begins at the next message."},
    {
        "park": "The key waits, then its message becomes a dead letter.",
        "block": "The key waits without end.",
        "leave": "As on a shared subscription: messages behind it go on.",
    },
    {"single": "Level L1.", "double": "Levels L1 and L2."},
    {
        "lz4": "Fast.",
        "zlib": "Slow; for clients that have no other.",
        "zstd": "Small at moderate cost.",
        "snappy": "Fast.",
        "none": "Payloads are sent as they are.",
    },
    {"required": "Producers refuse a message without it.", "optional": "A message may have it."},
    {
        "topologies": "Files.",
        "topics": "Ground topics.",
        "subscriptions": "Subscriptions of ground topics.",
        "pulsar_topics": "Every topic that a file expands to.",
    },
    {"error": "Lint and plan fail.", "warning": "Lint and plan only say so."},
    {
        "tombstone": "A deleted row becomes a message with its key and no payload.",
        "ignore": "A deleted row becomes no message.",
    },
)  # fmt: skip


def add_editor_help(schema: dict[str, Any]) -> None:
    """Adds titles in words to the definitions of a schema, and to each choice (`enum`) the meanings of its words
    (`enumDescriptions`), in place. A choice that is not known here gets none.
    """
    for name, definition in schema.get("$defs", {}).items():
        definition["title"] = _in_words(name)
    _describe_choices(schema)


def _in_words(name: str) -> str:
    """`BacklogQuota` as `Backlog quota`."""
    return re.sub(r"(?<=[a-z])[A-Z]", lambda match: f" {match[0].lower()}", name)


def _describe_choices(schema: Any) -> None:
    if isinstance(schema, list):
        for item in schema:
            _describe_choices(item)
    elif isinstance(schema, dict):
        if isinstance(words := schema.get("enum"), list):
            choice = next((choice for choice in _CHOICES if choice.keys() == set(words)), {})
            if choice:
                schema["enumDescriptions"] = [choice[word] for word in words]
        for key, value in list(schema.items()):
            if key not in {"examples", "default", "const"}:
                _describe_choices(value)
