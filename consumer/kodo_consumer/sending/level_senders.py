"""Level senders: the senders of one producer, one for each level of its ground topic."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kodo_consumer.core.values.limit_policy import NOBODY, value_of
from kodo_consumer.core.values.object_use import misuse_error
from kodo_consumer.sending.numbered_publisher import NumberedPublisher
from kodoctl.topology.route_facts import RouteFacts

if TYPE_CHECKING:
    from kodo_consumer.core.checks.message_validation import MessageValidator, NewMessage
    from kodo_consumer.core.values.broker import Broker
    from kodo_consumer.core.values.envelope import Level
    from kodo_consumer.core.values.route_table import DispatchTable
    from kodo_consumer.core.values.send_target import SendTarget
    from kodo_consumer.runtime.topology_reload import FileReloader
    from kodo_consumer.sending.backpressure import Backpressure
    from kodo_consumer.sending.pending_messages import OnStored
    from kodoctl.protocol.signing import Signer
    from kodoctl.topology.loaded_topology import LoadedTopology


class LevelSender:
    """Sends the messages of one producer to the topic of one level, with a receipt for each. Thread-safe. `await_room`,
    `wait` and `give_up`: these methods of its NumberedPublisher.
    """

    def __init__(
        self,
        topic: str,
        broker: Broker,
        form: MessageValidator,
        signer: Signer | None,
        *,
        numbered: bool,
    ) -> None:
        self.topic, self._broker = topic, broker
        self._out = NumberedPublisher(topic, broker, form, signer, numbered=numbered)
        self.await_room, self.wait, self.give_up = self._out.await_room, self._out.wait, self._out.give_up

    @property
    def backpressure(self) -> Backpressure:
        """How messages wait for receipts and for room."""
        return self._out.backpressure

    def publish(self, message: NewMessage, on_receipt: OnStored, partition: int | None = None) -> PostedMessage:
        """Publishes a message, whose receipt `on_receipt` gets later, on any thread. Blocks while too many messages
        have no receipt, but not with a `partition`, which `await_room` returned (None: it is chosen here), and not in a
        callback. Raises ClusterError if there is no room within 90 s, and UsageError if the message is too large or the
        sender is closed.
        """
        ticket = self._out.publish(message, on_receipt, partition)
        return PostedMessage(self, message.id, ticket, len(message.payload or b""))

    def check_waiting(self, call: str) -> None:
        """Raises UsageError if this thread delivers receipts, because it would wait for itself. `call`: name of the
        call that waits.
        """
        if self._out.is_calling:
            detail = (
                f"{call}: in a callback with a receipt it would wait for itself; post there, or call another thread"
            )
            raise misuse_error(detail)

    def close(self, timeout: float) -> None:
        """Gives up messages without a receipt, whose callbacks get a failure; waits at most `timeout` seconds (never
        more than 20) for the receipts of the last marks, which are messages with the last sequence numbers; and closes
        the sender and its broker.
        """
        self._out.close(timeout)
        self._broker.close()


class PostedMessage(NamedTuple):
    """A message that was published, perhaps with a receipt by now. `by`: its sender; `name`: its identity (`kodo-id`);
    `ticket`: its number at the sender; `size`: bytes of payload.
    """

    by: LevelSender
    name: str
    ticket: int
    size: int

    def give_up(self) -> None:
        """Stops waiting for the receipt of the message: its callback gets a failure, and a later receipt is ignored.
        Does nothing if the receipt has come.
        """
        self.by.give_up(self.ticket)


class LevelSenders:
    """Senders of one producer for the other levels of its ground topic, to which routes send messages. Each is opened
    when its first message comes. Thread-safe.
    """

    def __init__(
        self,
        send_target: SendTarget,
        table: DispatchTable | None,
        open_level: Callable[[Level], LevelSender],
        reloader_of: Callable[[LevelSenders], FileReloader[LoadedTopology]] | None = None,
    ) -> None:
        self._level, self._fair_by, self._table, self._open = send_target.level, send_target.fair_by, table, open_level
        self._lock = threading.Lock()
        self._opened: dict[Level, LevelSender] = {}
        self._is_over = False
        self._reloader = None if reloader_of is None else reloader_of(self)

    def reload(self) -> None:
        """Reads the topology file again, even if it did not change, and follows its routes or logs why not. Does
        nothing if the producer has no file.
        """
        if self._reloader is not None:
            self._reloader.reload(always=True)

    def watch(self) -> None:
        """Starts a thread that reads the topology file again whenever it changes, until `stop`. Does nothing if the
        producer has no file.
        """
        if self._reloader is not None:
            self._reloader.start()

    def stop(self) -> None:
        """Ends the watch of the file, and waits about a second for its thread; `watch` does nothing afterwards. Open
        senders stay open, and `choose` opens no more.
        """
        self._is_over = True
        if self._reloader is not None:
            self._reloader.stop()

    def follow(self, table: DispatchTable | None) -> None:
        """Uses these routes (None: no routes) from the next message on. Open senders stay open, because they may wait
        for receipts.
        """
        self._table = table

    @property
    def is_empty(self) -> bool:
        """True if there are no routes."""
        return self._table is None

    @property
    def open_senders(self) -> list[LevelSender]:
        """Senders that are open at this moment."""
        with self._lock:
            return list(self._opened.values())

    def choose(self, message: NewMessage) -> LevelSender | None:
        """Returns the sender of the level to which the routes send a message. None: the message stays on the level of
        the producer. The first message for another level opens the sender of that level: this call, and all that choose
        another level meanwhile, block until it is open; those whose message stays do not. Raises KodoctlError if the
        sender cannot be opened: ClusterError, or UsageError if the level takes no messages, or after `stop`.
        """
        table = self._table
        if table is None:
            return None
        identity, payload, properties, key = message[:4]
        tenant = value_of(self._fair_by, properties, key) if self._fair_by else NOBODY
        to = table.choose(RouteFacts(properties, key, tenant, identity, len(payload or b""), self._level))
        if to is self._level:
            return None
        with self._lock:
            if to not in self._opened:
                if self._is_over:  # nobody would close it
                    raise misuse_error(f"{to}: this producer was closed meanwhile; the message was not sent")
                self._opened[to] = self._open(to)
            return self._opened[to]
