"""Reader of payload schemas: the one that a topic has, compared with a declared one."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.admin.admin import Admin, Reply, must, schema_path
from kodoctl.topology.resources import SchemaResource

if TYPE_CHECKING:
    from kodoctl.topology.names import TopicName


def read_schema(
    admin: Admin, topic: TopicName, declared: SchemaResource | None = None, *, patient: bool = True
) -> SchemaResource | None:
    """Reads a topic's schema; None if the topic has no schema, or does not exist. The text of an AVRO schema is JSON
    with sorted keys. The text of another schema, and of an AVRO schema that is not plain JSON (brokers parse it by
    Avro's Java library, which allows comments), begins with its type, so that it never equals a declared one. Raises
    ClusterError.

    Returns the schema `declared` if the topic has it in any version, else the latest version: Pulsar keeps one version
    of each text, so that an earlier one never becomes the latest again (docs/explanation/pulsar.md#schemas). `patient`:
    False: does not send the request for the latest version again if the broker fails for a moment (as in `Admin.call`).
    """
    reply = admin.call("GET", f"{schema_path(topic)}/schema", patient=patient)
    if reply.missing:
        return None
    latest = _schema_of(topic, must(reply, f"reading the schema of {topic}"), reply)
    if declared is None or latest == declared or not reply.data.get("version"):
        return latest
    reply = admin.call("GET", f"{schema_path(topic)}/schemas")
    versions = must(reply, f"reading the versions of the schema of {topic}")["getSchemaResponses"]
    return declared if any(_schema_of(topic, one, reply) == declared for one in versions) else latest


def _schema_of(topic: TopicName, data: Any, reply: Reply) -> SchemaResource:
    if not isinstance(data, dict):
        raise ClusterError(error("K580", "part of a topic cannot be read", f"{topic}: {reply} without its schema"))
    text = str(data.get("data", ""))
    if data.get("type") == "AVRO":
        with contextlib.suppress(ValueError, RecursionError):  # whoever may produce chooses the text
            definition = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
            return SchemaResource(topic, "AVRO", definition)
    return SchemaResource(topic, "AVRO", f"{data.get('type')}: {text}")
