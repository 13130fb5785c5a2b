"""Clients of the binary port, and the watch over their connections."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pulsar

from kodo_consumer.adapters.pulsar.ack_receipts import check_receipts
from kodo_consumer.adapters.pulsar.ack_results import AckResults
from kodo_consumer.adapters.pulsar.client_consumer import Subscriber
from kodo_consumer.adapters.pulsar.cluster_admin import log_wait
from kodo_consumer.adapters.pulsar.lane_reader import PulsarLaneReader, StartupWait, readers_of
from kodo_consumer.adapters.pulsar.multi_consumer_reader import MultiConsumerReader, may_need_several
from kodo_consumer.adapters.pulsar.native_border import DELIVERIES
from kodo_consumer.adapters.pulsar.producer_factory import ProducerOptions
from kodo_consumer.adapters.pulsar.publisher import PulsarPublisher
from kodo_consumer.adapters.pulsar.refusals import cannot_publish
from kodo_consumer.core.values.broker import BorderStatus
from kodo_consumer.core.values.effects import Alarm
from kodo_consumer.runtime.threads import begin, log_end
from kodoctl.errors import ClusterError
from kodoctl.pulsar.connection.client_options import create_client
from kodoctl.pulsar.connection.discarded_messages import client_log
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from kodoctl.text.formatting import many
from kodoctl.topology.names import whole_topic

if TYPE_CHECKING:
    from kodo_consumer.adapters.pulsar.schema_passthrough import SchemaTopics
    from kodo_consumer.core.values.broker import LaneRequest, LaneSink, OnReceipts
    from kodoctl.pulsar.connection.connection import Connection

log = logging.getLogger("kodo.consumer")
_LEAVE_WITHIN: Final = 5.0  # seconds: the thread that looks at connections may wait for one
_OPEN_WITHIN: Final = 8  # seconds: a subscribe whose broker hangs is never answered; the next one asks another broker
_LOG_EVERY: Final = 1.0  # seconds
_LOOK_EVERY: Final = 1000  # ms, where the native border looks more often
_AWAY: Final = (
    pulsar.BrokerMetadataError,
    pulsar.BrokerPersistenceError,
    pulsar.ConnectError,
    pulsar.LookupError,
    pulsar.NotConnected,
    pulsar.ReadError,
    pulsar.ServiceUnitNotReady,
    pulsar.Timeout,
)
"""Errors of a broker that is away: another broker gets its topics when its session has ended."""
_WATCH_EVERY: Final = 0.05  # seconds: an unload shows as a disconnection of about 90 ms


class PulsarBroker:
    """kodo_consumer.core.values.broker.Broker over pulsar-client. The constructor connects to no broker; it raises
    ClusterError if there is no address of the binary port, or if the issuer gives no token.

    Args:
        by_key: topics whose published batches hold one key each, as Key_Shared needs it.
        ordered: topics that keep the order of keys.
        outlets: topics whose producers have schemas; None: none.
        largest: size limit of a message in bytes, by topic, where it is known.
        compression: compression algorithm by topic, where declared.
        native: False switches the native border (the C++ module) off.

    The client library's own log, unless the application has directed it elsewhere, is read for facts that only it
    contains, and is not shown: all other facts are in receipts, disconnections and errors.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        by_key: Collection[str] = (),
        ordered: Collection[str] = (),
        outlets: SchemaTopics | None = None,
        largest: Mapping[str, int] | None = None,
        compression: Mapping[str, str] | None = None,
        native: bool = True,
    ) -> None:
        self._native = DELIVERIES.choose(native=native)
        self._connection = connection
        self._options = ProducerOptions(
            by_key=by_key, ordered=ordered, outlets=outlets, largest=largest or {}, compression=compression or {}
        )
        results = AckResults(self._native.border, self._broke)
        self._subscriber = Subscriber(self._new_client(), self._native.border, results)
        self._log_position, _ = client_log().news(0)
        self._lanes: list[PulsarLaneReader | MultiConsumerReader] = []
        self._reads: set[tuple[str, str]] = set()  # topics with subscriptions
        self._patience = StartupWait()
        self._waits = WaitMonitor(log_wait)
        self._over, self._wake = threading.Event(), threading.Event()
        self._connections = border.watch() if (border := self._native.border) is not None else None
        self._watcher: threading.Thread | None = None
        self._on_broken: Callable[[BaseException], object] = log_end
        self._on_alarm: Callable[[Alarm], object] = lambda _: None

    @property
    def border(self) -> BorderStatus:
        """See Broker."""
        return BorderStatus(native=self._native.border is not None, detail=self._native.detail)

    def report_to(self, on_broken: Callable[[BaseException], object], on_alarm: Callable[[Alarm], object]) -> None:
        """See Broker."""
        self._on_broken, self._on_alarm = on_broken, on_alarm

    def open(self, request: LaneRequest, sink: LaneSink) -> PulsarLaneReader | MultiConsumerReader:
        """Reads a topic, by several consumers where the limit of unacknowledged messages may need them; returns its
        reader. Waits 5 s at most for partitions that no broker serves, and 1 s at most after a lane has waited for 5 s
        in vain; they are opened later. Raises ClusterError where the broker refuses in a way that waiting does not
        change, if the topic's partitions cannot be read, or if acknowledgements are to be confirmed and cannot be.
        """
        _warn_of_other_log()
        if request.confirms:
            check_receipts()
        self._reads.add((request.topic, request.subscription))  # before it subscribes: it receives from then on
        lane = (MultiConsumerReader if may_need_several(request) else PulsarLaneReader)(
            self._subscriber, request, sink, self._patience, self._wake_watcher
        )
        self._lanes.append(lane)
        self._begin_to_watch()
        self._wake_watcher()
        return lane

    def publisher(
        self,
        topics: Sequence[str],
        on_receipts: OnReceipts,
        largest: Mapping[str, int] | None = None,
        *,
        moves: bool = False,
    ) -> PulsarPublisher:
        """Returns a publisher with a client of its own; the caller closes the publisher. `topics`: the producer of the
        first partition of each is opened before this returns, unless the topic's backlog quota is used up; see
        PulsarPublisher for the others. `largest`: size limits in bytes by topic, in place of this broker's own for
        these topics; `moves`: messages are a worker's reroutes, stay in this cluster, and go compressed if they are too
        large. While brokers fail over the opening is tried again, once at least, for about 60 s. Raises ClusterError.
        """
        options = replace(self._options, largest={**self._options.largest, **(largest or {})}, moves=moves)
        self._begin_to_watch()
        with self._waits.during(f"producers of {many(len(topics), 'topic')} are not open yet") as wait:
            while True:
                try:
                    return PulsarPublisher(
                        self._new_client,
                        topics,
                        on_receipts,
                        options,
                        on_broken=self._broke,
                        border=self._native.border,
                    )
                except ClusterError as problem:
                    if not (isinstance(problem.__context__, _AWAY) and wait.again(problem.diagnostics[0].detail)):
                        raise

    def partitions(self, topic: str) -> Sequence[str]:
        """Full names of the topic's partitions in order; of a topic without partitions, the topic's name alone. Blocks
        until the broker answers. Raises ClusterError (K714).
        """
        try:
            return self._subscriber.partitions(topic)
        except pulsar.PulsarException as problem:
            raise cannot_publish(topic, problem) from None

    def close(self) -> None:
        """Ends the thread that watches connections, and closes the client that the lanes share; waits some seconds at
        most for each. The caller has closed lanes and publishers before.
        """
        self._over.set()
        self._wake_watcher()
        self._waits.close()
        if self._watcher is not None:
            self._watcher.join(_LEAVE_WITHIN)
        self._subscriber.close()
        self._tell_thrown_away()

    def _broke(self, problem: BaseException) -> None:
        self._on_broken(problem)

    def _new_client(self) -> Any:
        return create_client(self._connection, _OPEN_WITHIN)

    def _begin_to_watch(self) -> None:
        if self._watcher is None:
            self._watcher = begin(self._watch, "kodo-watch", self._broke, over=self._over.is_set)

    def _watch(self) -> None:
        """Checks the connections of lanes, and reads the client library's log. Runs for a client that only publishes as
        well: a log that is not read grows.
        """
        while not self._over.is_set():
            self._wait_for_a_loss()
            for lane in self._lanes:
                lane.check_connection()
            self._tell_thrown_away()

    def _wait_for_a_loss(self) -> None:
        """Waits until connections have to be checked again. If the native border can watch all consumers, the wait ends
        when the border notices a consumer without a connection, or when another event needs a check.
        """
        readers = readers_of(self._lanes)
        if readers is None or self._connections is None:
            self._wake.wait(_WATCH_EVERY if self._lanes else _LOG_EVERY)
        elif not self._wake.is_set():  # set before the watch is woken, so none is missed
            self._connections.wait(readers, _LOOK_EVERY)
        self._wake.clear()

    def _wake_watcher(self) -> None:
        self._wake.set()
        if self._connections is not None:
            self._connections.wake()

    def _tell_thrown_away(self) -> None:
        self._log_position, found = client_log().news(self._log_position)
        for one in found:
            if (whole_topic(one.topic), one.subscription) in self._reads:
                text = (
                    f"{one.topic}: Pulsar's client library cannot decompress the message at {one.place} and has acknowledged it: it"
                    " is lost to this subscription, and stays where the topic retains it"
                )
                self._on_alarm(Alarm("thrown_away", text))


@cache
def _warn_of_other_log() -> None:
    """Logs, once in a process, that messages which the client library discards cannot be reported."""
    if client_log().is_ignored:
        log.warning(
            "the program opened a pulsar.Client with a `logger` before this consumer, and Pulsar's client library has one log"
            " in a process, the first: messages that the library discards will not be reported (alarm thrown_away); start the"
            " consumer before that client, or give that client no logger"
        )
