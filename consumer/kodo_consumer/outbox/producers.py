"""Producers of a relay: one for each topic that rows name, opened with its first row."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kodoctl.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from kodo_consumer.core.values.broker import Receipt
    from kodo_consumer.core.values.send_target import SendTarget
    from kodo_consumer.outbox.outbox_row import Row
    from kodo_consumer.outbox.target_topics import OutboxTopics
    from kodo_consumer.producer import Producer
    from kodoctl.topology.loaded_topology import LoadedTopology


class Senders:
    """Sends rows with one producer for each topic, which is opened with the first row of the topic. `connect`: returns
    a connected producer.
    """

    def __init__(self, send_targets: OutboxTopics, connect: Callable[[SendTarget], Producer]) -> None:
        self.send_targets = send_targets
        self._connect = connect
        self._producers: dict[str, Producer] = {}
        self._lock = threading.Lock()  # a producer is opened by the routes that all of them have

    def post(self, row: Row, on_receipt: Callable[[Receipt], None]) -> None:
        """Sends a row, with the row's id as `kodo-id`, without waiting for the receipt, with which `on_receipt` is
        called on another thread (with a failure by `close`, on the thread that closes). Blocks while a topic is opened
        for its first row, and for 90 s at most while too many messages of the producer have no receipt.

        Raises UsageError or ValueError for a row that can never be sent, ClusterError if the topic cannot be reached or
        takes no more messages now, or in place of a UsageError of `connect`, InvalidFileError for a payload schema that
        cannot be used, and other errors of `connect`.
        """
        properties = row.message_properties()
        with self._lock:
            producer = self._producers.get(row.topic)
            if producer is None:
                self.send_targets.form(row.topic)  # a topic that is not in the file is the row's fault
                producer = self._producers[row.topic] = self._open(row.topic)
        producer.post(row.body, on_receipt, key=row.key, properties=properties, id=row.id)

    def _open(self, topic: str) -> Producer:
        send_target = self.send_targets.send_target(topic)
        try:
            return self._connect(send_target)
        except UsageError as problem:  # of the surroundings, such as a token's file: it would meet every row
            raise ClusterError(*problem.diagnostics) from problem

    def follow(self, topology: LoadedTopology) -> None:
        """Uses the routes of this topology for all further rows; the topology may differ from the present one in routes
        only. Waits while a producer is opened. Thread-safe.
        """
        with self._lock:
            self.send_targets.follow(topology)
            for topic, producer in self._producers.items():
                producer.follow_routes(self.send_targets.send_target(topic).dispatch)

    def close(self) -> None:
        """Closes all producers, one after the other. Waits at most 5 s for the receipts of each, and as long for the
        last marks of each of its levels; missing receipts raise nothing.
        """
        for producer in self._producers.values():
            with suppress(ClusterError):  # whoever waited for receipts has waited before
                producer.close(timeout=5.0)
