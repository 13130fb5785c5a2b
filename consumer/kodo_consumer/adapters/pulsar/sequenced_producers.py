"""Producers with fixed names and with numbers of the caller's, so that a broker that deduplicates stores each message
once, whoever sends it again: another process, or the client library after a lost connection.

There are no batches: of a batch, the client library tells the broker the number of the first message alone (measured),
so that the others of the last batch before a kill would be stored again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar

from kodo_consumer.adapters.pulsar.client_close import close_client
from kodo_consumer.adapters.pulsar.receipts import NEVER
from kodo_consumer.adapters.pulsar.refusals import cannot_publish
from kodo_consumer.adapters.pulsar.schema_passthrough import PassThrough
from kodo_consumer.core.values.broker import Rejected, Unconfirmed
from kodoctl.errors import ClusterError
from kodoctl.pulsar.admin.admin import topic_path
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.binary.compression_types import compression_type
from kodoctl.pulsar.connection.client_options import create_client, knock
from kodoctl.topology.names import TopicName

if TYPE_CHECKING:
    from kodo_consumer.core.values.envelope import Outgoing
    from kodo_consumer.core.values.send_target import SendTarget
    from kodoctl.pulsar.connection.connection import Connection

OnAnswer = Callable[[Any, Unconfirmed | Rejected | None], None]
"""Called with the token of a message and its receipt (None: the message is stored), on a thread of the client library
or within the `send` of the message. Exceptions are suppressed on a thread of the library.
"""
DROPPED: Final = Unconfirmed("the broker took it for one that it has")


class SequencedClient:
    """Client for producers with fixed names, so that a broker that deduplicates stores each numbered message once. The
    constructor checks that a broker answers. The constructor, `partitions` and `open` raise ClusterError.
    """

    def __init__(self, connection: Connection) -> None:
        knock(connection)
        self._client = create_client(connection)

    def partitions(self, topic: str) -> list[str]:
        """Full names of a topic's partitions in order; of a topic without partitions, the topic's name alone. Blocks
        until the broker answers, or the client gives up. Raises ClusterError (K714).
        """
        try:
            return list(self._client.get_topic_partitions(topic))
        except pulsar.PulsarException as problem:
            raise cannot_publish(topic, problem) from None

    def open(self, partition: str, name: str | None, target: SendTarget) -> SequencedProducer:
        """Opens a producer of a partition, with the compression and the Avro schema that `target` declares, and waits
        for the broker, or until the client gives up. `name`: name of the producer; None: the broker chooses a new one,
        so messages cannot be deduplicated between processes. Raises ClusterError (K714), also if a producer that is
        open on the partition, of this or another process, has the name.
        """
        declared: dict[str, Any] = {}
        if target.payload_type == "avro" and target.schema is not None:
            declared["schema"] = PassThrough(target.schema)
        if target.compression:
            declared["compression_type"] = compression_type(target.compression)
        try:
            producer = self._client.create_producer(
                partition,
                producer_name=name,
                send_timeout_millis=0,  # a result that is not known would be a number that is not known
                max_pending_messages=0,  # who sends has a limit of its own
                batching_enabled=False,
                **declared,
            )
        except pulsar.PulsarException as problem:
            raise cannot_publish(partition, problem) from None
        return SequencedProducer(producer)

    def close(self) -> None:
        """Closes the client with all its producers, or leaves it open after about 5 s. Messages without a receipt are
        given up; `on_answer` is perhaps never called for them. Errors of the client library are logged, not raised.
        """
        close_client(self._client, "a source")


class SequencedProducer:
    """Producer of one partition. `last_stored`: highest sequence number under the producer's name that the broker knew
    when the producer was opened; -1: none, such as where the broker does not deduplicate, or has forgotten the name.
    """

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._sent = 0
        self.last_stored = int(producer.last_sequence_id())

    def is_stored(self, number: int) -> bool:
        """True if the number is at most `last_stored`: the broker would drop a message with it. Messages that this
        producer sends do not count.
        """
        return number <= self.last_stored

    def send(self, number: int | None, message: Outgoing, token: Any, on_answer: OnAnswer) -> None:
        """Queues a message in the client, without its topic, ordering key, due time and schema version; does not wait.
        `on_answer` gets `token` and the receipt (None: stored), on a thread of the client library or within this call.
        A pulsar.PulsarException is answered as unconfirmed; other exceptions pass, such as TypeError for properties
        that are no dict, and the message is not answered then.

        `number`: sequence number, at least 1 and above each number that was passed to this object before, also of a
        message that was not sent: else the message is not sent, and is answered as Rejected, because a broker that
        deduplicates would drop it. None: the client library numbers; one object gets either numbers or None. A message
        that the broker dropped as a duplicate, such as one whose number `is_stored`, is answered as DROPPED.
        """
        if number is not None and number <= self._sent:
            reason = f"its number {number} is not above {self._sent}, which was sent before: the broker would drop it"
            on_answer(token, Rejected(reason))
            return
        self._sent = self._sent if number is None else number
        numbered = {} if number is None else {"sequence_id": number}
        try:
            self._producer.send_async(
                message.payload,
                partial(_pass_answer, token, on_answer),
                properties=message.properties,
                partition_key=message.key or None,
                event_timestamp=message.event_time or None,
                **numbered,
            )
        except pulsar.PulsarException as problem:
            on_answer(token, Unconfirmed(type(problem).__name__))

    def close(self) -> None:
        """Closes the producer, which frees its name, and waits for the broker. Errors are suppressed: after one the
        name may stay taken.
        """
        with contextlib.suppress(Exception):
            self._producer.close()


def _pass_answer(token: Any, on_answer: OnAnswer, result: Any, position: Any) -> None:
    """Passes a result on. Suppresses every exception: one that escaped would end the process."""
    with contextlib.suppress(BaseException):
        if result != pulsar.Result.Ok:
            never = NEVER.get(result)
            on_answer(token, Unconfirmed(result.name) if never is None else Rejected(never))
        elif position is None or position.ledger_id() < 0:
            on_answer(token, DROPPED)
        else:
            on_answer(token, None)


def is_deduplicating(connection: Connection, partition: str) -> bool | None:
    """True if the broker deduplicates the messages of a partition, which it must have loaded; False if it does not.
    None: unknown, because no answer came, or an error, such as for a role that may not read this. Does not wait for a
    cluster that fails over. Raises no ClusterError.
    """
    admin = HttpAdmin(connection, limit=0.0)
    try:
        reply = admin.call("GET", f"{topic_path(TopicName.parse(partition))}/internalStats")
        return "pulsar.dedup" in reply.data["cursors"] if reply.ok else None
    except ClusterError:
        return None
    finally:
        admin.close()
