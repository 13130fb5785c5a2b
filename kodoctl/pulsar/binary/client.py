"""Client of the binary port, opened when first needed: for bulk reads, the journal and the lease. Every wait has a
limit (kodoctl.pulsar.binary.deadlines).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.binary.deadlines import Patience
from kodoctl.pulsar.binary.message_decoding import as_they_are
from kodoctl.pulsar.connection.client_options import OPERATION_TIMEOUT_S, create_client, knock
from kodoctl.pulsar.connection.native_border import MESSAGES, NativeMessage, result_of
from kodoctl.pulsar.connection.peer import PortError
from kodoctl.pulsar.connection.wait_monitor import FAIL_OVER_S, WaitMonitor

if TYPE_CHECKING:
    from kodo_fast import MessageBorder

    from kodoctl.pulsar.connection.connection import Connection

T = TypeVar("T")
CALL_S: Final = OPERATION_TIMEOUT_S + 5.0  # of a call that has the client library's own time-out
CLOSE_S: Final = 5.0
_CHUNK: Final = 64  # messages taken at once
_BUNDLE: Final = 500  # by the native border
_BUNDLE_BYTES: Final = 8 * 1024 * 1024


class BrokerClient:
    """Client of the binary port, which opens at most one `pulsar.Client` at a time, when first needed. A second `close`
    does nothing; a later `get` opens a new client. `problem`: the error of the `get` for which no broker answered,
    which each later `get` raises again; None: there was no such `get`.

    The client library's own log is not shown, because kodoctl reports errors itself.
    """

    def __init__(self, connection: Connection, waits: WaitMonitor | None = None) -> None:
        self._connection = connection
        self._client: Any = None
        self._lock = threading.Lock()
        self.patience = Patience(waits or WaitMonitor())
        self.problem: PortError | None = (
            None  # why nobody answered when a client was first needed: nobody is asked again
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def available(self) -> bool:
        """True if the connection has an address of the binary port."""
        return self._connection.broker_url is not None

    @property
    def border(self) -> MessageBorder | None:
        """The native border (C++ module that reads and sends messages in bundles); None if this process does not use
        it.
        """
        return MESSAGES.choose(native=self._connection.native).border

    def get(self) -> Any:
        """Returns the `pulsar.Client`; the first call probes the address, and opens it. Raises ClusterError if the
        connection has no address of the binary port, PortError if no broker answers there; later calls then raise the
        same error without a probe.
        """
        with self._lock:
            if self.problem is not None:
                raise self.problem
            if self._client is None:
                try:
                    with self.patience.waits.during(f"an answer of {self._connection.broker_url}"):
                        knock(self._connection)
                except PortError as problem:
                    self.problem = problem
                    raise
                self._client = create_client(self._connection)
            return self._client

    def ask(
        self,
        work: Callable[[Any], T],
        what: str,
        *,
        limit: float = FAIL_OVER_S,
        late: Callable[[T], object] = lambda _: None,
        patience: Patience | None = None,
        new_topic: bool = False,
    ) -> T:
        """Calls `work` with the `pulsar.Client` in another thread, and returns its result. Repeats the call while
        topics move from one broker to another or cannot be opened. Raises the library's last error, UnansweredError if
        a call does not return within CALL_S seconds or the wait is interrupted, and the errors of `get`.

        Args:
            what: name of the awaited thing, for messages.
            limit: seconds for which the call is repeated; 0: one call.
            late: takes a result that comes after the call was given up, to close it.
            patience: ends the wait after an interruption, and reports long waits; changes neither `limit` nor CALL_S.
                None: that of this client.
            new_topic: the topic may have been created a moment ago, so the call is also repeated if a broker does not
                know it.
        """
        client = self.get()
        waiting = patience or self.patience
        with waiting.waits.during(what, limit or CALL_S) as wait:
            while True:
                try:
                    return waiting.call(partial(work, client), what, CALL_S, late)
                except _transient(new_topic=new_topic) as problem:
                    if not limit or not wait.again(f"{what}: {problem}"):
                        raise

    @contextlib.contextmanager
    def reader(
        self, topic: str, start: Any, what: str, *, limit: float = FAIL_OVER_S, bulk: bool = False, **options: Any
    ) -> Iterator[BoundedReader]:
        """Context with a reader that begins at the message id `start` and is closed at the end. `what`: name of the
        data, for progress messages; `limit`: as in `ask`, also for each `take`; `bulk`: `take` may return messages of
        type NativeMessage. Raises the same errors as `ask`.
        """
        options = {"receiver_queue_size": 1000, **as_they_are(), **options}
        opened = self.ask(
            lambda client: client.create_reader(topic, start, **options),
            f"a reader of {what}",
            limit=limit,
            late=_close,
        )
        try:
            yield BoundedReader(opened, self.patience, what, limit, self.border if bulk else None)
        finally:
            with contextlib.suppress(Exception):
                self.patience.call(opened.close, f"the end of the reader of {what}", CLOSE_S)

    def partitions(self, topic: str, *, limit: float = FAIL_OVER_S) -> list[str]:
        """Full names of a topic's partitions, or its own name if it has none. `limit`: as in `ask`, whose errors this
        raises.
        """
        found: list[str] = self.ask(
            lambda client: client.get_topic_partitions(topic), f"the partitions of {topic}", limit=limit
        )
        return found

    def probe(self) -> None:
        """Checks that the binary port answers, by a lookup of a topic that does not exist; a refusal counts as an
        answer. A broker whose automatic topics are partitioned creates the topic. Raises ClusterError.
        """
        import pulsar

        try:
            self.partitions("persistent://public/default/kodoctl-probe", limit=0)
        except (pulsar.TopicNotFound, pulsar.AuthorizationError):  # of somebody who may not look there, but is known
            pass
        except pulsar.PulsarException as problem:
            detail = f"{self._connection.broker_url}: {problem}; a wrong token or certificate shows here as a time-out"
            raise ClusterError(error("K518", "the broker's binary port does not answer", detail)) from None

    def close(self) -> None:
        """Closes the client, if there is one. If that takes more than CLOSE_S seconds, the client is abandoned. Never
        raises.
        """
        if self._client is not None:
            client, self._client = self._client, None
            with contextlib.suppress(Exception):  # it ends with the process in any case
                self.patience.call(client.close, "the end of the connection to the broker", CLOSE_S)


class BoundedReader:
    """Reader of the client library whose waits have limits. `limit`: seconds for which `take` is repeated while the
    broker is not connected or fails; 0: `take` tries once. `border`: native border, which reads messages in bundles;
    None, or a border that does not know this reader: Python's binding reads them one by one.
    """

    def __init__(
        self, reader: Any, patience: Patience, what: str, limit: float, border: MessageBorder | None = None
    ) -> None:
        self._reader, self._patience, self._what, self._limit = reader, patience, what, limit
        self._take = partial(_take, reader)
        if border is not None:
            with contextlib.suppress(RuntimeError, TypeError, AttributeError):  # it does not know this object
                native = border.reader(reader._reader, NativeMessage)  # noqa: SLF001  # named nowhere else
                self._take = partial(_take_bundle, reader, native)

    def take(self, seconds: float) -> list[Any] | None:
        """Returns the next stored messages (of the client library, or NativeMessage with a border): an empty list if
        none came within `seconds`, None if no stored message is left.

        None is needed because the client may report more messages and then return none. While the broker is not
        connected, the reader waits for another one, up to its own limit. Raises the same errors as `BrokerClient.ask`.
        If the library fails after some messages, these are returned; after UnansweredError some may be lost.
        """
        what, is_away = f"messages of {self._what}", False
        with self._patience.waits.during(what, self._limit or CALL_S) as wait:
            while True:
                try:
                    found = self._patience.call(partial(self._take, seconds), what, CALL_S + seconds)
                except _transient() as problem:
                    if not self._limit or not wait.again(f"{what}: {problem}"):
                        raise
                else:
                    if found != [] or wait.seconds >= self._limit:
                        return found
                    was_away, is_away = is_away, not self._reader.is_connected()
                    if not (was_away or is_away):
                        return found

    @property
    def is_connected(self) -> bool:
        """True if the reader has a connection to its broker; without one, it connects again by itself."""
        return bool(self._reader.is_connected())

    def arrivals(self) -> list[Any]:
        """Returns the messages that have already arrived at this reader, a bundle at most, without waiting for more. []
        if no message has arrived, or the reader has no connection.
        """
        import pulsar

        found: list[Any] = []
        with contextlib.suppress(pulsar.PulsarException):
            while len(found) < _BUNDLE:
                found.append(self._reader.read_next(1))
        return found

    def next(self, seconds: float) -> Any:
        """Waits at most `seconds` for the next message, stored or not yet. Raises pulsar.Timeout, UnansweredError."""
        what = f"messages of {self._what}"
        return self._patience.call(lambda: self._reader.read_next(int(seconds * 1000)), what, CALL_S + seconds)

    def seek(self, since: int) -> None:
        """Moves the reader to a publish time, ms since the epoch. Raises the same errors as `BrokerClient.ask`."""
        self._patience.call(lambda: self._reader.seek(since), f"a place in {self._what}", CALL_S)


def _take(reader: Any, seconds: float) -> list[Any] | None:
    import pulsar

    if not reader.has_message_available():
        return None
    found: list[Any] = []
    try:
        found.append(reader.read_next(int(seconds * 1000)))
        while len(found) < _CHUNK and reader.has_message_available():
            found.append(reader.read_next(1))
    except pulsar.Timeout:
        pass
    except pulsar.PulsarException:
        if not found:  # else the next call raises it, if it lasts: the reader gives no message twice
            raise
    return found


def _take_bundle(reader: Any, native: Any, seconds: float) -> list[Any] | None:
    """Does the same as `_take` by the native border. Messages that only the binding can read are `pulsar.Message`."""
    import pulsar

    if not reader.has_message_available():
        return None
    found: list[Any]
    found, others, result = native.read(_BUNDLE, _BUNDLE_BYTES, int(seconds * 1000))
    if result and not found:
        name = result_of(result).name
        raise getattr(pulsar, name, pulsar.PulsarException)(f"Pulsar error: {name}")
    for index, raw in others:
        found[index] = message = pulsar.Message()
        message._message = raw  # noqa: SLF001  # as the client library's own `read_next` wraps it
    return found


def _close(opened: Any) -> None:
    with contextlib.suppress(Exception):
        opened.close()


def _transient(*, new_topic: bool = False) -> tuple[type[Exception], ...]:
    """Types of errors that the client library raises while a topic moves or its broker cannot open it; with `new_topic`
    also while the broker does not know it yet.
    """
    import pulsar

    return (
        *((pulsar.TopicNotFound,) if new_topic else ()),
        pulsar.Timeout,
        pulsar.ConnectError,
        pulsar.NotConnected,
        pulsar.ServiceUnitNotReady,
        pulsar.BrokerPersistenceError,
        pulsar.BrokerMetadataError,
        pulsar.LookupError,
        pulsar.TooManyLookupRequestException,
    )
