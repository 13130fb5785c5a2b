"""Topic policies of many topics: in bulk, checked against a few single requests, else by single requests alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from kodoctl.pulsar.admin import Admin, must, topic_path
from kodoctl.pulsar.bulk import BulkPolicies, BulkUnavailableError, read_bulk
from kodoctl.pulsar.client import BrokerClient
from kodoctl.pulsar.policies import DELAYED_DELIVERY, NO_DELETE_ON_TOPIC, TOPIC_CODECS, Codec, read_topic_policies
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.policies import Policies

CANARIES: Final = 2  # topics whose bulk-read policies are compared with single requests
_ALWAYS_CHECKED: Final = ("retention", "ttl")
_OTHER_STORE: Final = (5,)  # from here on a broker may keep topic policies in its metadata store


@dataclass(frozen=True, slots=True)
class TopicPolicyReading:
    """Explicit policies of topics, and how they were read."""

    policies: Mapping[TopicName, Policies]
    delayed: frozenset[str]
    how: str

    def of(self, topic: TopicName) -> Policies:
        """Policies of one topic; {} when nothing is set."""
        return self.policies.get(topic, {})


class PolicyReader:
    """Reads the policies of topics, whole namespaces at a time."""

    def __init__(
        self, admin: Admin, client: BrokerClient, pool: ThreadPoolExecutor, version: tuple[int, ...] = ()
    ) -> None:
        self._admin, self._client, self._pool, self._version = admin, client, pool, version

    def read(
        self, namespace: NamespaceName, topics: Sequence[TopicName], *, validates: bool, checked: bool = True
    ) -> TopicPolicyReading:
        """The same answer either way; `how` says which way and why. `validates`: what counts for schema validation where a
        topic says nothing; `checked`: whether single requests, which need more rights, are held against the bulk.
        """
        if not topics:
            return TopicPolicyReading({}, frozenset(), "none needed")
        try:
            bulk = read_bulk(self._admin, self._client, namespace)
            found = {topic: _settled(read_topic_policies(bulk.of(topic.full)), validates=validates) for topic in topics}
            if bulk.there and checked:
                self._canary(topics, found, bulk)
            elif not bulk.there and (not self._version or self._version >= _OTHER_STORE):
                raise BulkUnavailableError("there is no system topic with policies")  # noqa: TRY301  # one way to fall back
        except BulkUnavailableError as problem:
            return self._one_by_one(topics, str(problem), validates=validates)
        return TopicPolicyReading(found, bulk.delayed, "in bulk")

    def _canary(self, topics: Sequence[TopicName], found: Mapping[TopicName, Policies], bulk: BulkPolicies) -> None:
        """Compares a few topics with single requests: a newer broker may keep its policies elsewhere."""
        sample = sorted(topics, key=lambda topic: -len(found[topic]))[:CANARIES]
        checks = [
            (topic, codec)
            for topic in sample
            for codec in TOPIC_CODECS
            if (codec.name in found[topic] or codec.name in _ALWAYS_CHECKED) and codec.name not in NO_DELETE_ON_TOPIC
        ]
        for (topic, codec), raw in zip(checks, self._pool.map(lambda check: self._get(*check), checks), strict=True):
            single = codec.shape.decode(raw) if is_set(raw) else None
            if single != found[topic].get(codec.name):
                detail = f"{codec.name} of {topic} differs between bulk ({bulk.events} events) and single read"
                raise BulkUnavailableError(detail)

    def _one_by_one(self, topics: Sequence[TopicName], why: str, *, validates: bool) -> TopicPolicyReading:
        checks = [(topic, codec) for topic in topics for codec in TOPIC_CODECS]
        found: dict[TopicName, dict[str, Any]] = {topic: {} for topic in topics}
        for (topic, codec), raw in zip(checks, self._pool.map(lambda check: self._get(*check), checks), strict=True):
            value = codec.shape.decode(raw) if is_set(raw) else None
            if value is False and validates and codec.name == "schema_validation":
                value = self._own_validation(topic, codec)
            if value is not None:
                found[topic][codec.name] = value
        delayed = self._pool.map(lambda topic: (topic, self._get_path(topic, DELAYED_DELIVERY)), topics)
        return TopicPolicyReading(
            found, frozenset(topic.full for topic, raw in delayed if is_set(raw)), f"one by one ({why})"
        )

    def _own_validation(self, topic: TopicName, codec: Codec) -> bool | None:
        """Under a namespace that validates: what counts is `false` only where the topic itself says so."""
        return None if self._get_path(topic, codec.bulk_name, applied="true") else False

    def _get(self, topic: TopicName, codec: Codec) -> Any:
        return self._get_path(topic, codec.bulk_name)

    def _get_path(self, topic: TopicName, path: str, **query: str) -> Any:
        reply = self._admin.call("GET", f"{topic_path(topic)}/{path}", query=query or None)
        if reply.status == 404:  # the topic went away, or this broker does not have the policy
            return None
        return must(reply, f"reading {path} of {topic}")


def _settled(policies: Policies, *, validates: bool) -> Policies:
    """Single requests cannot tell an unset schema validation from `false`. It matters only under a namespace that validates;
    elsewhere both are `false`, whichever way it was read.
    """
    return policies if validates or "schema_validation" in policies else {**policies, "schema_validation": False}


def is_set(raw: Any) -> bool:
    """204, an empty body, null, {} and [] all mean unset (pulsar-measured §1.1)."""
    return raw is not None and raw not in ("", {}, [], "null")
