"""One topic whose producer cannot be opened, on the real broker: nobody answers where it is. Others are published to meanwhile."""

from __future__ import annotations

import os
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.publisher import PulsarPublisher
from kodo_consumer.core.values.broker import Confirmed, Receipt, Unconfirmed
from kodo_consumer.core.values.envelope import Outgoing

from tests.brokers.broker import Broker
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
_PATIENCE = 6  # seconds the client waits for where a topic is


class Silence:
    """Stands before the broker's binary port, and lets no command pass that names one of `topics`: nobody answers it."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.topics: set[str] = set()
        self.kept = 0
        silence = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(target) as server:
                    threading.Thread(target=_pump, args=(server, self.request), daemon=True).start()
                    with suppress(OSError):
                        silence._commands(self.request, server)

        class Listener(socketserver.ThreadingTCPServer):
            allow_reuse_address = daemon_threads = True

        self._listener = Listener(("127.0.0.1", 0), Handler)
        self.url = f"pulsar://127.0.0.1:{self._listener.server_address[1]}"
        threading.Thread(target=self._listener.serve_forever, args=(0.05,), daemon=True).start()

    def _commands(self, client: socket.socket, server: socket.socket) -> None:
        stream = client.makefile("rb")
        while len(head := stream.read(4)) == 4:
            command = stream.read(struct.unpack(">I", head)[0])
            if any(topic.encode() in command for topic in self.topics):
                self.kept += 1
            else:
                server.sendall(head + command)

    def close(self) -> None:
        self._listener.shutdown()
        self._listener.server_close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


@contextmanager
def _silence(broker: Broker) -> Iterator[Silence]:
    place = urlsplit(broker.broker_url)
    assert place.hostname is not None
    assert place.port is not None
    found = Silence((place.hostname, place.port))
    try:
        yield found
    finally:
        found.close()


def test_one_topic_that_cannot_be_opened_holds_up_no_other(broker: Broker, namespace: str) -> None:
    good, bad = (f"persistent://{namespace}/{name}" for name in ("good", "bad"))
    for topic in (good, bad):
        assert broker.admin("PUT", f"{topic.replace('://', '/')}/partitions", 1).ok
    receipts: dict[int, Receipt] = {}
    with _silence(broker) as silence:

        def connect() -> pulsar.Client:
            quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
            return pulsar.Client(silence.url, operation_timeout_seconds=_PATIENCE, logger=quiet)

        publisher = PulsarPublisher(connect, [good], receipts.update)
        try:
            silence.topics.add("/bad")
            publisher.publish([(1, Outgoing(bad, b"1", {}))])
            eventually(lambda: silence.kept)
            publisher.publish([(ticket, Outgoing(good, b"%d" % ticket, {})) for ticket in range(10, 110)])
            eventually(lambda: all(isinstance(receipts.get(ticket), Confirmed) for ticket in range(10, 110)))
            assert 1 not in receipts, "the others came only when the client had given it up"
            eventually(lambda: 1 in receipts)
            assert isinstance(receipts[1], Unconfirmed)
            silence.topics.clear()
            tickets = iter(range(1_000, 10_000))
            eventually(lambda: _stored(publisher, receipts, bad, next(tickets)), every=0.5)
        finally:
            publisher.close()


def _stored(publisher: PulsarPublisher, receipts: dict[int, Receipt], topic: str, ticket: int) -> bool:
    publisher.publish([(ticket, Outgoing(topic, b"again", {}))])
    eventually(lambda: ticket in receipts)
    return isinstance(receipts[ticket], Confirmed)
