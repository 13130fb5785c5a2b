"""Stand-in for the admin port of a broker with more topics than the broker of this machine holds.

A real broker holds the first few topics of a topology. The stand-in answers for topic number N as that broker answered for topic
number N modulo their count, with the name in place, and passes on every request that is about no topic. Topic policies need no
stand-in: the real broker's change log gets a copy of the event of a real topic for each further one, and kodoctl reads it there.
"""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import re
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from kodoctl.protocol.properties import LEDGER_PREFIX
from kodoctl.pulsar.values import ledger as ledgers
from kodoctl.topology.names import NamespaceName

_NUMBERED = re.compile(r"(?<![\w-])(t|topic-)(\d{6})(?!\d)")
_BASE = "/admin/v2/persistent/"
_ABSENT = 999_999  # the number of a topic that never exists


class Answer(NamedTuple):
    status: int
    body: bytes


@dataclass(frozen=True)
class Estate:
    """The namespace that the stand-in enlarges: topics numbered 0 to `real` - 1 exist, those up to `grounds` - 1 seem to."""

    admin_url: str
    broker_url: str
    namespace: str  # TENANT/NAMESPACE
    real: int
    grounds: int

    def expand(self, text: str) -> Iterator[str]:
        """Yields a text that names a topic once for each topic that is like it; another text as it is."""
        found = _NUMBERED.search(text)
        if found is None:
            yield text
            return
        for number in range(int(found[2]), self.grounds, self.real):
            yield _renumbered(text, number)

    def real_name(self, text: str) -> str:
        """The text with the number of the real topic that a topic is like."""
        return _NUMBERED.sub(lambda found: f"{found[1]}{int(found[2]) % self.real:06d}", text)


def _renumbered(text: str, number: int) -> str:
    return _NUMBERED.sub(lambda found: f"{found[1]}{number:06d}", text)


class StandIn:
    """An admin port on a thread of its own: `requests` counts by method. Used as a context."""

    def __init__(self, *estates: Estate) -> None:
        """All estates are of one broker."""
        self.requests: Counter[str] = Counter()
        self._estates = {estate.namespace: estate for estate in estates}
        self._deleted: set[str] = set()  # TENANT/NAMESPACE/TOPIC
        self._known: dict[str, Answer] = {}
        self._host = urlsplit(estates[0].admin_url).netloc
        self._loop = asyncio.new_event_loop()
        self._threads = ThreadPoolExecutor(16)

    def __enter__(self) -> Self:
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=64))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._threads.shutdown()

    @property
    def topics(self) -> int:
        """Number of partitioned topics that there seem to be."""
        lists = [self._alike("GET", f"{_BASE}{namespace}/partitioned") for namespace in self._estates]
        return sum(len(json.loads(one.body)) for one in lists if one)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
                length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
                kind = re.search(rb"(?i)\r\ncontent-type: *(\S+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                self.requests[method] += 1
                answer = self._alike(method, path)
                if answer is None:
                    sent = (method, path, body, kind[1].decode() if kind else "application/json")
                    answer = await self._loop.run_in_executor(self._threads, self._ask, *sent)
                packed = gzip.compress(answer.body, 1) if len(answer.body) > 32 else answer.body  # as the broker does
                form = b"Content-Encoding: gzip\r\n" if packed is not answer.body else b""
                head = b"HTTP/1.1 %d _\r\nContent-Type: application/json\r\n%b" % (answer.status, form)
                writer.write(head + b"Content-Length: %d\r\n\r\n" % len(packed) + packed)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _alike(self, method: str, path: str) -> Answer | None:
        """The answer about one topic, or the list of topics; None: the real broker has to be asked."""
        name = "/".join(path.removeprefix(_BASE).split("/")[:3])  # TENANT/NAMESPACE and, if it is about one, a topic
        estate = self._estates.get("/".join(name.split("/")[:2]))
        if estate is None or not path.startswith(_BASE):
            return None
        if method == "GET" and path in (f"{_BASE}{estate.namespace}", f"{_BASE}{estate.namespace}/partitioned"):
            names = [one for name in json.loads(self._recorded(path).body) for one in estate.expand(name)]
            left = [one for one in names if one.partition("://")[2].partition("-partition-")[0] not in self._deleted]
            return Answer(200, json.dumps(left).encode())
        local = _NUMBERED.search(path)
        if local is None:
            return None
        if method == "GET":
            there = _renumbered(path, _ABSENT) if name in self._deleted else estate.real_name(path)
            was, now = _NUMBERED.search(there)[0].encode(), local[0].encode()
            known = self._recorded(there)
            return Answer(known.status, known.body.replace(was, now))
        if method == "DELETE":
            self._deleted.add(name)
            return None if int(local[2]) < estate.real else Answer(204, b"")
        raise NotImplementedError(f"{method} {path}")

    def _recorded(self, path: str) -> Answer:
        if path not in self._known:
            self._known[path] = self._ask("GET", path)
        return self._known[path]

    def _ask(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> Answer:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        try:
            connection.request(method, path, body or None, {"Content-Type": kind})
            reply = connection.getresponse()
            return Answer(reply.status, reply.read())
        finally:
            connection.close()


def enlarge(estate: Estate, topology: str) -> None:
    """Adds the topics that the broker does not hold to the topology's ledger and to the namespace's log of policies."""
    _enlarge_ledger(estate, topology)
    _enlarge_policies(estate)


def _enlarge_ledger(estate: Estate, topology: str) -> None:
    path = f"{estate.admin_url}/admin/v2/namespaces/{estate.namespace}"
    with urllib.request.urlopen(path) as answer:
        text = json.load(answer)["properties"][f"{LEDGER_PREFIX}{topology}"]
    tenant, _, name = estate.namespace.partition("/")
    found = ledgers.decode(topology, NamespaceName(tenant, name), text)

    def each(values: dict[str, Any]) -> dict[str, Any]:
        return {one: value for key, value in values.items() for one in estate.expand(key)}

    whole = replace(found, owned=each(dict(found.owned)), consumers=each(dict(found.consumers)))
    body = json.dumps({f"{LEDGER_PREFIX}{topology}": ledgers.encode(whole)}).encode()
    request = urllib.request.Request(f"{path}/properties", body, {"Content-Type": "application/json"}, method="PUT")
    urllib.request.urlopen(request).close()


def _enlarge_policies(estate: Estate) -> None:
    import _pulsar
    import pulsar

    topic = f"persistent://{estate.namespace}/__change_events"
    with urllib.request.urlopen(
        f"{estate.admin_url}/admin/v2/schemas/{estate.namespace}/__change_events/schema"
    ) as answer:
        definition = json.loads(json.load(answer)["data"])

    class Written(pulsar.schema.Schema):
        """The schema of events that are encoded already."""

        def __init__(self) -> None:
            super().__init__(bytes, _pulsar.SchemaType.AVRO, definition, definition["name"])

        def encode(self, data: bytes) -> bytes:
            return data

    client = pulsar.Client(estate.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        last: dict[str, bytes] = {}
        while reader.has_message_available():
            message = reader.read_next(10_000)
            last[message.partition_key()] = message.data()
        producer = client.create_producer(topic, schema=Written(), block_if_queue_full=True, batching_enabled=False)
        done: Callable[..., None] = lambda *_: None  # noqa: E731
        for key, data in last.items():
            was = _NUMBERED.search(key)
            for name in estate.expand(key):
                if was and name != key:
                    event = data.replace(was[0].encode(), _NUMBERED.search(name)[0].encode())
                    producer.send_async(event, done, partition_key=name)
        producer.flush()
    finally:
        client.close()
