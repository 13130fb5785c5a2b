"""Makes a grown tenant by the admin API, as people without kodoctl make one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pulsar
import requests

from tests.brokers.workspace import EARLIEST, Workspace


@dataclass(frozen=True)
class Estate:
    """A grown tenant, and what an import of it is to say.

    Attributes:
        build: makes it.
        adopted: number of objects that the plan of the imported files adopts.
        left_out: all that the import leaves out -> how the reason begins. Names are printed ones without the domain
            `persistent://` and without the tenant.
        created: number of holders of dead letters that the plan creates.
    """

    build: Callable[[EstateBuilder], None]
    adopted: int
    left_out: Mapping[str, str]
    created: int = 0


A_GRANT = "a grant on a topic; the format declares roles that produce, work and recall"
A_SCHEMA = "a schema ({}); declare it as `payload` of the topic"
ITS_TOPIC = "its topic is left out"
JAVAS_RETRY = "Java clients name theirs so; it is a ground topic of its own in the file"
NOT_PERSISTENT = "a non-persistent topic; the format knows persistent ones"
NO_FAMILY = "it ends in {} and does not fit a family: no topic, or no subscription of it, has the name before that"
TERMINATED = "it takes no more messages; the format has no such state"


class EstateBuilder:
    """Requests of the admin API about one Pulsar tenant. Topics are named `NAMESPACE/LOCAL`, settings by their path."""

    def __init__(self, workspace: Workspace) -> None:
        self.tenant, self.cluster = workspace.tenant, workspace.broker.cluster
        self._base = f"{workspace.broker.admin_url}/admin/v2"
        self._workspace = workspace
        self._http = requests.Session()

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def send(self, method: str, path: str, body: object = None, **query: str) -> None:
        """One request, which must succeed."""
        reply = self._http.request(method, f"{self._base}/{path}", json=body, params=query, timeout=30)
        assert reply.ok, f"{method} {path}: {reply.status_code} {reply.text}"

    def namespaces(self, *names: str, bundles: int = 0) -> None:
        """Makes namespaces. `bundles`: 0: as many as the broker gives."""
        for name in names:
            body = {"bundles": {"numBundles": bundles}} if bundles else None
            self.send("PUT", f"namespaces/{self.tenant}/{name}", body)

    def set_on_namespace(self, name: str, setting: str, value: Any, method: str = "POST", **query: str) -> None:
        """Sets a policy of a namespace."""
        self.send(method, f"namespaces/{self.tenant}/{name}/{setting}", value, **query)

    def grant(self, place: str, role: str, *actions: str, domain: str = "persistent") -> None:
        """Grants on a namespace, or on a topic."""
        space, slash, _ = place.partition("/")
        path = self._path(place, domain) if slash else f"namespaces/{self.tenant}/{space}"
        self.send("POST", f"{path}/permissions/{quote(role, safe='')}", list(actions))

    def topics(self, space: str, topics: Mapping[str, int], domain: str = "persistent") -> None:
        """Makes topics by local name -> number of partitions, 0 for a plain one."""
        for local, partitions in topics.items():
            path = self._path(f"{space}/{local}", domain)
            if partitions:
                self.send("PUT", f"{path}/partitions", partitions)
            else:
                self.send("PUT", path)

    def set_on_topic(self, topic: str, setting: str, value: Any = None, method: str = "POST", **query: str) -> None:
        """Sets a policy of a topic, or another state."""
        self.send(method, f"{self._path(topic)}/{setting}", value, **query)

    def subscribe(self, topic: str, *names: str) -> None:
        """Makes subscriptions from the earliest message on."""
        for name in names:
            self.send("PUT", f"{self._path(topic)}/subscription/{_twice(name)}", EARLIEST)

    def set_on_subscription(self, topic: str, name: str, setting: str, value: Any, *, method: str) -> None:
        """Sets a state of a subscription."""
        self.send(method, f"{self._path(topic)}/subscription/{_twice(name)}/{setting}", value)

    def schema(self, topic: str, kind: str, text: str = "") -> None:
        """Registers a schema, the next version if the topic has one."""
        space, _, local = topic.partition("/")
        body = {"type": kind, "schema": text, "properties": {}}
        self.send("POST", f"schemas/{self.tenant}/{space}/{_twice(local)}/schema", body)

    @contextlib.contextmanager
    def client(self) -> Iterator[pulsar.Client]:
        """A client of the binary port."""
        with self._workspace.client() as client:
            yield client

    def full(self, topic: str) -> str:
        """The full name of a topic."""
        return f"persistent://{self.tenant}/{topic}"

    def _path(self, topic: str, domain: str = "persistent") -> str:
        space, _, local = topic.partition("/")
        return f"{domain}/{self.tenant}/{space}/{quote(local, safe='')}"


def _twice(name: str) -> str:
    """Percent-encoded twice: Pulsar decodes names of subscriptions, and of topics with schemas, twice in paths."""
    return quote(quote(name, safe=""), safe="")
