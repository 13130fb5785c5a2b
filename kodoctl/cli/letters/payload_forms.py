"""Forms of payloads as a topology file declares them: its schemas, masks and patterns, for views of messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kodoctl.cli.common.extension_points import PAYLOAD_READER, load
from kodoctl.pulsar.admin.admin import Admin, must, schema_path
from kodoctl.recall.message.payload_view import NO_FORM, PayloadForm
from kodoctl.topology.json_paths import JsonPath
from kodoctl.topology.model.subscription import ErrorText
from kodoctl.topology.names import State

if TYPE_CHECKING:
    from kodoctl.topology.expand import Expansion, FamilyTopic
    from kodoctl.topology.names import TopicName

_MOST_VERSIONS: Final = 100  # requested of the broker: senders choose the versions that messages name


def payload_form(admin: Admin, expansion: Expansion, topic: FamilyTopic) -> PayloadForm:
    """Form of the payloads in a topic: their schema, masks, patterns to redact and the property of the tenant. The
    patterns of all subscriptions redact, because a secret that must not be in the error texts of one subscription is in
    the payloads that all of them share. Topics of audit records have the form NO_FORM, because no record contains a
    part of a payload. Sends nothing; the form's reader later requests the schema versions that messages name, at most
    100 for one form.
    """
    if topic.state is None:
        return NO_FORM
    loaded = expansion.topology
    spec = loaded.spec.topics[topic.ground]
    landed = spec.payloads or loaded.spec.payloads
    texts = [one.error_text for one in spec.subscriptions.values()]
    patterns = dict.fromkeys(one for text in texts if isinstance(text, ErrorText) for one in text.redact)
    declared = loaded.payloads.get(topic.ground)
    return PayloadForm(
        "" if declared is None else declared.type,
        None if declared is None else _reader(admin, expansion, topic.ground, declared.type, declared.definition),
        tuple(JsonPath.parse(one) for one in (landed.mask if landed is not None else ())),
        tuple(re.compile(one) for one in patterns),
        spec.fair_by,
    )


def _reader(
    admin: Admin, expansion: Expansion, ground: str, kind: str, definition: Any
) -> Callable[[bytes, str], Any] | None:
    """Reader of payloads by a schema; None for a schema that allows everything, or that cannot be read."""
    if not isinstance(definition, dict):
        return None
    ready = {str(one.level): one.name for one in expansion.topics if one.ground == ground and one.state is State.READY}
    known: dict[str, Mapping[str, Any] | None] = {}

    def schema_of(version: str) -> Mapping[str, Any] | None:
        level, _, number = version.partition(":")
        if version not in known and level in ready and number.isdecimal() and len(known) < _MOST_VERSIONS:
            known[version] = _definition(admin, ready[level], number)
        return known.get(version)

    reader: Callable[[bytes, str], Any] = load(PAYLOAD_READER)(kind, definition, schema_of)
    return reader


def _definition(admin: Admin, topic: TopicName, number: str) -> Mapping[str, Any] | None:
    """Avro definition of a schema version of the broker; None: there is no such version, or it is not Avro."""
    reply = admin.call("GET", f"{schema_path(topic)}/schema/{number}")
    if reply.missing:
        return None
    given = must(reply, f"reading schema {number} of {topic}")
    definition = json.loads(given["data"]) if given.get("type") == "AVRO" else None
    return definition if isinstance(definition, dict) else None
