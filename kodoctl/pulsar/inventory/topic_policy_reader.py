"""Reader of the policies of many topics: in bulk and compared with a few single requests, or by single requests alone.

A single request can be wrong: a broker that is shut down answers for 0.1 to 0.5 s as if no policy of its topics were
set (measured on 3 brokers, Pulsar 4.2.4: 130 of 11,236 answers in 3 of 4 restarts; never after a broker's death, nor in
unloads and splits; up to 10 s if the shutdown itself waits for a broker that hangs). Therefore "unset" in a single
request does not override a value of the bulk read, and without a bulk read "unset" counts only after two such answers,
2 s apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.admin.admin import Admin, must, path_part, topic_path
from kodoctl.pulsar.inventory.bulk_policies import BulkPolicies, BulkUnavailableError, read_bulk
from kodoctl.pulsar.inventory.policy_json import is_set
from kodoctl.pulsar.inventory.policy_requests import (
    BY_SUBSCRIPTION,
    DELAYED_DELIVERY,
    NO_DELETE_ON_TOPIC,
    TOPIC_CODECS,
    Codec,
    read_topic_policies,
)
from kodoctl.topology.names import NamespaceName, TopicName

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.client import BrokerClient
    from kodoctl.topology.model.policies import Policies, PolicyValue

CANARIES: Final = 2  # topics whose bulk-read policies are compared with single requests
_ALWAYS_CHECKED: Final = ("retention", "ttl")
_UNCHECKED: Final = NO_DELETE_ON_TOPIC | {BY_SUBSCRIPTION.name}  # single requests do not answer them as a whole
_APART_S: Final = 2.0  # seconds between two answers that something is unset
_LOOKS: Final = 6  # at a bulk and single requests that say "unset" of what is set in it
_ADVICE: Final = "a broker that is being shut down says so of all its topics: try again in a minute"
_ALL_PATHS: Final = (4, 2)  # brokers before it answer a path of _NEW with a web page and 404
_NEW: Final = frozenset({"subscriptionExpirationTime"})
_GONE: Final = object()
_BULK_NAMES: Final = frozenset(codec.bulk_name for codec in TOPIC_CODECS)
_Path = tuple[TopicName, str]
_OTHER_STORE: Final = (5,)  # from here on a broker may keep topic policies in its metadata store


@dataclass(frozen=True, slots=True)
class TopicPolicyReading:
    """Explicitly set policies of topics, as they were read.

    Args:
        policies: by topic.
        delayed: full names of topics with a delayed-delivery value.
        how: text that says whether the policies were read in bulk, and if not why.
        gone: topics that single requests found deleted; empty if the policies were read in bulk.
        others: set policies that the file format does not have, such as those for all clusters: by topic, printed name
            -> JSON value. None: not known, because single requests read only those of the format.
    """

    policies: Mapping[TopicName, Policies]
    delayed: frozenset[str]
    how: str
    gone: frozenset[TopicName] = frozenset()
    others: Mapping[TopicName, Mapping[str, Any]] | None = None

    def of(self, topic: TopicName) -> Policies:
        """Policies of one topic; {} if none is set, or if the topic was not read or is gone."""
        return self.policies.get(topic, {})


@dataclass(frozen=True, slots=True)
class _Difference:
    """A policy with different values in the bulk read and in a single request. `unset`: by the single request
    it has no value.
    """

    topic: TopicName
    policy: str
    unset: bool

    def __str__(self) -> str:
        difference = (
            "is set in bulk and unset in a single read" if self.unset else "differs between bulk and single read"
        )
        return f"{self.policy} of {self.topic} {difference}"


class PolicyReader:
    """Reader of the explicitly set policies of topics, for all given topics of a namespace at a time. `version`: of the
    broker, () if unknown; `pool`: threads for single requests; `pause`: sleeps for a number of seconds.
    """

    def __init__(
        self,
        admin: Admin,
        client: BrokerClient,
        pool: ThreadPoolExecutor,
        version: tuple[int, ...] = (),
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._admin, self._client, self._pool, self._version = admin, client, pool, version
        self._pause = pause

    def read(
        self, namespace: NamespaceName, topics: Sequence[TopicName], *, validates: bool, checked: bool = True
    ) -> TopicPolicyReading:
        """Reads the policies of these topics of a namespace, in bulk if possible, else by single requests; `how` in the
        result says which, and why. May pause for some seconds. Raises ClusterError if a request fails, or if single
        requests of a broker before Pulsar 5, or of unknown version, keep answering that a policy of the bulk read is
        unset. A topic that does not exist is no error.

        Args:
            validates: the value of schema validation that topics without one inherit, from the namespace or the broker.
                If it is False, each topic without a value gets False in a bulk read.
            checked: the bulk read is compared with single requests about CANARIES topics, which need more rights. If
                they differ, it is repeated, and at last given up for single requests.
        """
        if not topics:
            return TopicPolicyReading({}, frozenset(), "none needed", others={})
        try:
            return self._in_bulk(namespace, topics, validates=validates, checked=checked)
        except BulkUnavailableError as problem:
            return self._one_by_one(topics, str(problem), validates=validates)

    def _in_bulk(
        self, namespace: NamespaceName, topics: Sequence[TopicName], *, validates: bool, checked: bool
    ) -> TopicPolicyReading:
        look = 1
        while True:
            bulk = read_bulk(self._admin, self._client, namespace)
            if not bulk.topic_exists and (not self._version or self._version >= _OTHER_STORE):
                raise BulkUnavailableError("there is no system topic with policies")
            found = _each_once(
                bulk, topics, lambda raw: _with_validation(read_topic_policies(raw), validates=validates)
            )
            differs = self._canary(topics, found) if bulk.topic_exists and checked else None
            if differs is None:
                others = {topic: _other_policies(bulk, topic.full) for topic in topics}
                return TopicPolicyReading(found, bulk.delayed, "in bulk", others=others)
            if look == _LOOKS or (look > 1 and not differs.unset):
                break
            look += 1
            self._pause(_APART_S)
        if differs.unset and self._version < _OTHER_STORE:
            raise ClusterError(error("K580", "part of a topic cannot be read", f"{differs}; {_ADVICE}"))
        raise BulkUnavailableError(f"{differs}")

    def _canary(self, topics: Sequence[TopicName], found: Mapping[TopicName, Policies]) -> _Difference | None:
        """Compares a few topics with single requests: a newer broker may keep policies elsewhere. None: they agree."""
        sample = sorted(topics, key=lambda topic: -len(found[topic]))[:CANARIES]
        checks = [
            (topic, codec)
            for topic in sample
            for codec in TOPIC_CODECS
            if (codec.name in found[topic] or codec.name in _ALWAYS_CHECKED) and codec.name not in _UNCHECKED
        ]
        raws = self._read_each([(topic, codec.bulk_name) for topic, codec in checks])
        for topic, codec in checks:
            single = _decode(codec, raws[topic, codec.bulk_name])
            if single != found[topic].get(codec.name):
                return _Difference(topic, codec.name, unset=single is None or single is False)
        return None

    def _one_by_one(self, topics: Sequence[TopicName], why: str, *, validates: bool) -> TopicPolicyReading:
        paths = [(topic, codec.bulk_name) for topic in topics for codec in TOPIC_CODECS]
        raws = self._read_confirmed([*paths, *((topic, DELAYED_DELIVERY) for topic in topics)])
        gone = frozenset(topic for (topic, _), raw in raws.items() if raw is _GONE)
        found: dict[TopicName, dict[str, Any]] = {topic: {} for topic in topics}
        for topic in (topic for topic in topics if topic not in gone):
            for codec in TOPIC_CODECS:
                value = _decode(codec, raws[topic, codec.bulk_name])
                if value is False and validates and codec.name == "schema_validation":
                    value = self._own_validation(topic, codec)
                if value is not None:
                    found[topic][codec.name] = value
        delayed = frozenset(
            topic.full for topic in topics if topic not in gone and is_set(raws[topic, DELAYED_DELIVERY])
        )
        return TopicPolicyReading(found, delayed, f"one by one ({why})", gone)

    def _read_confirmed(self, paths: Sequence[_Path]) -> dict[_Path, Any]:
        """Reads the paths. Those that answer "unset", or "false", which can mean unset, are read again after a pause,
        and the second answer counts.
        """
        raws, began = self._read_each(paths), time.monotonic()
        if unset := [path for path in paths if not is_set(raws[path]) or raws[path] is False]:
            self._pause(max(0.0, _APART_S - (time.monotonic() - began)))
            raws |= self._read_each(unset)
        return raws

    def _read_each(self, paths: Sequence[_Path]) -> dict[_Path, Any]:
        return dict(zip(paths, self._pool.map(lambda path: self._get_path(*path), paths), strict=True))

    def _own_validation(self, topic: TopicName, codec: Codec) -> bool | None:
        """The topic's own schema validation in a namespace that validates: False if the topic itself switches
        validation off, otherwise None.
        """
        return None if self._get_path(topic, codec.bulk_name, applied="true") else False

    def _get_path(self, topic: TopicName, path: str, **query: str) -> Any:
        by_subscription = path == BY_SUBSCRIPTION.bulk_name
        reply = self._admin.call(
            "GET", f"{topic_path(topic)}/{'subscriptions' if by_subscription else path}", query=query or None
        )
        if reply.missing and self._admin.call("GET", f"{topic_path(topic)}/partitions").missing:
            return _GONE
        if reply.status == 404 and reply.foreign and path in _NEW and self._version < _ALL_PATHS:
            return None
        answer = must(reply, f"reading {path} of {topic}")
        return read_subscription_rates(self._admin, topic, answer or ()) if by_subscription else answer


def read_subscription_rates(admin: Admin, topic: TopicName, subscriptions: Iterable[str]) -> dict[str, Any]:
    """Reads the rates of these subscriptions that are set on the topic, with one request each. Returns subscription ->
    `{"dispatchRate": rate}`, as a bulk read does; a subscription without a rate is absent. Raises ClusterError.
    """
    found = {}
    for name in subscriptions:
        path = f"{topic_path(topic)}/{BY_SUBSCRIPTION.topic.replace('*', path_part(name))}"
        raw = must(admin.call("GET", path), f"reading the rate of subscription {name} of {topic}")
        if is_set(raw):
            found[name] = {"dispatchRate": raw}
    return found


def _each_once(
    bulk: BulkPolicies, topics: Iterable[TopicName], convert: Callable[[dict[str, Any]], Mapping[str, Any]]
) -> dict[TopicName, Mapping[str, Any]]:
    """Converts the policies of each topic. Topics with equal policies share one result, which saves memory."""
    known: dict[str, Mapping[str, Any]] = {}
    found = {}
    for topic in topics:
        raw = bulk.of(topic.full)
        if (text := repr(raw)) not in known:
            known[text] = convert(raw)
        found[topic] = known[text]
    return found


def _other_policies(bulk: BulkPolicies, topic: str) -> dict[str, Any]:
    others = {name: value for name, value in bulk.of(topic).items() if name not in _BULK_NAMES}
    everywhere = bulk.everywhere.get(topic, {})
    return others | {f"{name} for all clusters": value for name, value in everywhere.items()}


def _decode(codec: Codec, raw: Any) -> PolicyValue | None:
    return codec.shape.decode(raw) if raw is not _GONE and is_set(raw) else None


def _with_validation(policies: Policies, *, validates: bool) -> Policies:
    """Returns the policies with an unset `schema_validation` as False, because single requests cannot separate the two.
    The difference matters only in a namespace that validates: there the policies are unchanged.
    """
    return policies if validates or "schema_validation" in policies else {**policies, "schema_validation": False}
