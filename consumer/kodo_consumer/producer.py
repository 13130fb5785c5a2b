"""`Producer`: sends messages to the ready topics of one ground topic, and refuses those that the topology does not
allow.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial, reduce
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from kodo_consumer.adapters.tracing.setup import sends_of
from kodo_consumer.core.checks.message_validation import MessageValidator, SendOptions, check_option_names
from kodo_consumer.core.values.broker import Broker, Confirmed, Receipt, Unconfirmed
from kodo_consumer.core.values.envelope import Level
from kodo_consumer.core.values.object_use import ObjectUse
from kodo_consumer.policy_builder import choose_topic
from kodo_consumer.runtime.disabled_loggers import enable_loggers
from kodo_consumer.runtime.readable_errors import ReadableErrors
from kodo_consumer.runtime.settings import Settings, read_settings
from kodo_consumer.runtime.topology_reload import FileReloader, contents
from kodo_consumer.sending.backpressure import Backpressure
from kodo_consumer.sending.environment import ConnectionOptions, Environment, reach_send_target
from kodo_consumer.sending.level_senders import LevelSender, LevelSenders, PostedMessage
from kodo_consumer.sending.many_sends import ManySends, SendManyError
from kodo_consumer.sending.numbered_publisher import RECEIPT_TIMEOUT
from kodo_consumer.sending.pending_messages import OnStored, UnclaimedReceipts, not_stored
from kodo_consumer.sending.route_reload import GroundLevels, level_reloader
from kodo_consumer.sending.send_hooks import Draft, FailedHook, Moment, PublishHook, SendHook, SendHooks, SentHook
from kodoctl.errors import ClusterError, UsageError, error

if TYPE_CHECKING:
    from kodo_consumer.adapters.tracing.setup import Wanted
    from kodo_consumer.core.values.route_table import DispatchTable
    from kodo_consumer.core.values.send_target import SendTarget
    from kodoctl.protocol.signing import Signer
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.topology.loaded_topology import LoadedTopology

__all__ = ["Backpressure", "Draft", "Producer", "SendManyError", "SendOptions"]
_T = TypeVar("_T")
_DEFAULTS = Settings()


class Producer:
    """Sends messages to one level of a ground topic, each with an identity (`kodo-id`), and awaits receipts.
    Thread-safe, within one process. `topic`: full name of the level's topic.

    Messages are numbered (`kodo-seq`, see kodoctl.protocol.sequence_numbers), so that a loss shows; after each minute
    with messages, and at the end, a mark without payload has the last number of each partition. `numbered` false: no
    numbers and no marks, for topics with other readers who do not expect messages without payload.

    A message that breaks the rules of `form` is refused before it is sent: a payload against the schema, a missing
    required property, a property that is not declared (if any are), or more bytes than the topic allows, for example.
    `form` None: no such rules.

    `routes`: a message goes to another level if the routes of all subscriptions choose the same one, or if exclusive
    levels send its tenant there; else it stays, and workers route it. The topic of another level is opened with the
    first message for it. Producers made by `load` read the routes again with `reload` and `watch`.
    """

    def __init__(
        self,
        topic: str,
        broker: Broker,
        *,
        form: MessageValidator | None = None,
        signer: Signer | None = None,
        numbered: bool = True,
        traces: Wanted = "auto",
        routes: LevelSenders | None = None,
    ) -> None:
        self.topic = topic
        self._routes, self._readable = routes, ReadableErrors()
        self._use = ObjectUse("producer")
        self._form = form or MessageValidator()
        self._unclaimed = UnclaimedReceipts(topic)
        self._hooks = SendHooks()
        if (trace := sends_of(traces)) is not None:
            self._hooks.add("publish", trace)
        self._sender = LevelSender(topic, broker, self._form, signer, numbered=numbered)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        topic: str | None = None,
        level: Level | str = Level.L1,
        numbered: bool = True,
        **place: Unpack[ConnectionOptions],
    ) -> Producer:
        """Returns a connected producer for a level of a ground topic. `topic` None: the file's only one. Raises
        KodoctlError, also for a draining level, and if no broker answers. Lint rules do not judge the file.

        Environment and connection are found as by Consumer.load. `reload` and `watch` read the file again; without a
        call of them a changed file has no effect.
        """
        with ReadableErrors(path) as readable:
            surroundings = Environment.of(**place)
            text = contents(Path(path))
            topology = surroundings.topology(path)
            levels = GroundLevels(topology, choose_topic(topology, topic))
            send_target = levels.send_target(str(level))
            source = Path(path), surroundings, (topology, text)
            producer = cls.to(
                send_target,
                surroundings.connection(),
                read_settings(surroundings.environ, surroundings.folder),
                siblings=levels.send_target,
                numbered=numbered,
                reloader_of=partial(level_reloader, source, levels, str(level)),
            )
        producer._readable = readable  # noqa: SLF001  # of its own class
        return producer

    @classmethod
    def to(
        cls,
        send_target: SendTarget,
        connection: Connection,
        settings: Settings = _DEFAULTS,
        *,
        siblings: Callable[[str], SendTarget] | None = None,
        numbered: bool = True,
        encoded: bool = False,
        reloader_of: Callable[[LevelSenders], FileReloader[LoadedTopology]] | None = None,
    ) -> Producer:
        """Returns a connected producer for a send target. `settings`: its signing keys, `native` and `traces` count.
        `siblings`: returns the send target of another level of its ground topic; None: the producer follows no routes,
        and `reload` and `watch` do nothing. `encoded`: payloads are bytes (or None) that the target's rules have
        encoded, and are not checked again. `reloader_of`: makes the reader of the topology file for `reload` and
        `watch`; None: there is no file. Raises KodoctlError, also if no broker answers.
        """
        enable_loggers()
        routes, signer, native = None, settings.signing_keys, settings.native
        if siblings is not None:

            def open_level(level: Level) -> LevelSender:
                other = siblings(level)
                broker, form = reach_send_target(connection, other, native=native)
                return _make_or_close(broker, lambda: LevelSender(other.topic, broker, form, signer, numbered=numbered))

            routes = LevelSenders(send_target, send_target.dispatch, open_level, reloader_of)
        broker, form = reach_send_target(connection, send_target, native=native)
        form = form.for_encoded() if encoded else form
        options: dict[str, Any] = {"form": form, "signer": signer, "numbered": numbered, "traces": settings.traces}
        return _make_or_close(broker, lambda: cls(send_target.topic, broker, routes=routes, **options))

    def reload(self) -> None:
        """Reads the topology file again, even if it did not change. Other routes apply from the next message on. A
        change that needs a new producer, or a fault of the file, also an error of lint rules, is logged, and nothing
        changes. Does nothing if the file cannot be read, and for a producer without a file. Raises UsageError after
        `close`, and in a forked process.
        """
        if self._use.check("reload") and self._routes is not None:
            self._routes.reload()

    def watch(self) -> None:
        """Reads the topology file again whenever it changes, as `reload` does, on a thread of its own until `close`; a
        change since `load` counts. If the watch fails, that is logged, and it ends. Raises as `reload`.
        """
        if self._use.check("watch") and self._routes is not None:
            self._routes.watch()

    def follow_routes(self, table: DispatchTable | None) -> None:
        """Replaces the routes, from the next message on; None: no routes, and each message stays on its level. Does
        nothing for a producer that was made without `routes`. A reload that adopts a file replaces them again.
        """
        if self._routes is not None:
            self._routes.follow(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @overload
    def interceptor(self, moment: Literal["send"], /) -> Callable[[SendHook], SendHook]: ...

    @overload
    def interceptor(self, moment: Literal["publish"], /) -> Callable[[PublishHook], PublishHook]: ...

    @overload
    def interceptor(self, moment: Literal["sent"], /) -> Callable[[SentHook], SentHook]: ...

    @overload
    def interceptor(self, moment: Literal["failed"], /) -> Callable[[FailedHook], FailedHook]: ...

    def interceptor(self, moment: Moment, /) -> Callable[[Any], Any]:
        """Adds a hook, given as a decorator: before a message is checked ("send"), after that, before it is published
        ("publish"), when its receipt has come ("sent"), or when it was published and has none ("failed"; a message that
        is refused before has no such call). Hooks of a moment are called in the order in which they were added. The
        decorator raises UsageError for another moment, for a hook that cannot be called so, and for an async one
        unless it is for "send".

        send: `hook(draft)` gets the Draft before it is checked, in the thread or task of the caller. Only `send_async`
        takes async hooks; the other calls raise UsageError for one. A hook may change payload and options, or return
        another Draft; None: the draft goes on as it is. To send nothing, raise Veto with a reason: the caller gets
        UsageError (K734). Other exceptions of a hook reach the caller, and the message is not sent.

        publish: `hook(message)` gets the CheckedMessage, whose identity and topic are known, in the same thread; it may
        add properties, and raise as above. It may return a function, which is called once with the outcome: Confirmed,
        Unconfirmed, Rejected, or the exception that kept the message from being published. Spans are such a hook.

        sent: `hook(sent)` gets a SentMessage; failed: `hook(sent, error)` also the ClusterError that `send` raises.
        Both, and the functions of "publish", must be quick: they are called on a thread that delivers receipts, or, for
        a failure, on that of the caller or of `close`. Their exceptions are logged, of one hook once in 10 s at most.
        """

        def take(hook: Any) -> Any:
            self._hooks.add(moment, hook)
            return hook

        return take

    def send(self, payload: Any, **options: Unpack[SendOptions]) -> str:
        """Sends a message, waits for the receipt, and returns the identity of the message (`kodo-id`). Bytes are sent
        as they are, None as a tombstone, any other payload as JSON (a text with its quotes), or as Avro on an Avro
        topic. `options`: key, ordering_key, properties, event_time, delay, deliver_at and id, as SendOptions explains
        them.

        Raises UsageError for anything that the topology does not allow, for an unknown option, for a veto of a hook,
        after `close`, in a forked process, and on a thread that delivers receipts of this producer; ClusterError if the
        broker refuses the message, if another level cannot be opened for it, or if there is no room, or no receipt,
        within 90 s each. Without a receipt the message may be stored nevertheless; to be sure, send it again with the
        same `id`. The topic may have it twice then.
        """
        with self._readable:
            self._check_waiting("send")
            arrived = threading.Event()
            found: list[Receipt] = []

            def on_receipt(receipt: Receipt) -> None:
                found.append(receipt)
                arrived.set()

            posted = self._post("send", payload, on_receipt, options)
            if not arrived.wait(RECEIPT_TIMEOUT):
                posted.give_up()
            receipt = found[0] if found else Unconfirmed("no receipt in time")
            if not isinstance(receipt, Confirmed):
                raise not_stored(posted.by.topic, receipt, posted.size)
            return posted.name

    async def send_async(self, payload: Any, **options: Unpack[SendOptions]) -> str:
        """Sends as `send` does, from a task of an event loop, and awaits async hooks. The loop runs other tasks while
        this one waits for room, for the receipt, and for another level to open. Raises as `send`. If the task is
        cancelled, the message may be stored nevertheless.
        """
        with self._readable:
            self._use.check("send_async")
            loop = asyncio.get_running_loop()
            arrived: asyncio.Future[Receipt] = loop.create_future()

            def on_receipt(receipt: Receipt) -> None:
                with suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(_resolve, arrived, receipt)

            draft = await self._hooks.before_async(Draft(payload, **options)) if self._hooks.needs_drafts else None
            if draft is not None:
                payload, options = draft.payload, draft.options
            check_option_names("send_async", options)
            message, by = self._form.accept(payload, _wall, **options), self._sender
            if self._routes is not None and not self._routes.is_empty:  # opening a producer must not stop the loop
                other: LevelSender | None = await loop.run_in_executor(None, self._routes.choose, message)
                by = other or by
            partition = await by.await_room(message)
            posted = self._hooks.publish(by, self._form, message, draft, on_receipt, partition)
            try:
                receipt = await asyncio.wait_for(arrived, RECEIPT_TIMEOUT)
            except TimeoutError:
                posted.give_up()
                receipt = Unconfirmed("no receipt in time")
            if not isinstance(receipt, Confirmed):
                raise not_stored(posted.by.topic, receipt, posted.size)
            return posted.name

    def post(self, payload: Any, on_receipt: OnStored | None = None, **options: Unpack[SendOptions]) -> str:
        """Sends a message and returns its identity without waiting for the receipt. `on_receipt` is called once with
        the receipt, or with a failure, on another thread (by `close`, on the thread that closes); its exceptions are
        logged. None: `flush` and `close` raise if the message failed. `options`: as of `send`.

        While 20,000 messages of a level (or a partition's part of them) have no receipt, it blocks until some come (see
        `backpressure`), except in a callback with a receipt of that level. Raises UsageError as `send` does, but not on
        a thread that delivers receipts, and ClusterError if another level cannot be opened for the message, or if there
        is no room within 90 s: the message was not sent then.
        """
        with self._readable:
            return self._post("post", payload, on_receipt or self._unclaimed.take, options).name

    def send_many(self, messages: Iterable[Any], **options: Unpack[SendOptions]) -> list[str]:
        """Sends payloads, or Drafts, as fast as receipts come, and waits for all receipts. Returns the identities, in
        the order of `messages`, which are read as they are sent. `options`: those of every message; options of a Draft
        replace them for its message.

        Raises SendManyError if any message was refused or has no receipt; all others that were read are stored. It
        reads no further after an error that others would have, too, such as of a cluster that takes no messages. An
        exception of `messages` itself, or of a hook, is raised when the messages before it have their receipts, or is
        the cause of a SendManyError if one of them failed. Raises UsageError, with nothing sent, if `messages` is a
        text, bytes, a mapping, a model of pydantic, a Draft or no iterable, if `options` have an `id`, and for a wrong
        use as `send` does.
        """
        with self._readable:
            self._check_waiting("send_many")
            check_option_names("send_many", options)
            return ManySends(self.topic, partial(self._post, "send_many"), self._unclaimed.take).send(messages, options)

    @property
    def backpressure(self) -> Backpressure:
        """How the messages of this producer, on all levels, wait for receipts and for room, now and since its start.
        Waits for room of more than a second are logged, too, once in 10 s at most for each level.
        """
        return reduce(Backpressure.plus, (one.backpressure for one in self._senders))

    def flush(self, timeout: float = RECEIPT_TIMEOUT) -> None:
        """Waits at most `timeout` seconds for the receipts of all messages and marks. Raises ClusterError with the
        number of messages that failed since the last call, if they were posted without `on_receipt`, and of those that
        have no receipt yet, which may still come. Raises UsageError after `close`, in a forked process, and on a thread
        that delivers receipts of this producer.
        """
        with self._readable:
            self._check_waiting("flush")
            self._flush(time.monotonic() + timeout)

    def _flush(self, deadline: float) -> None:
        self._unclaimed.tell(sum(one.wait(max(0.0, deadline - time.monotonic())) for one in self._senders))

    def close(self, timeout: float = RECEIPT_TIMEOUT) -> None:
        """Waits at most `timeout` seconds for the receipts of posted messages, then as long, but 20 s at most, for
        those of the last marks of each level in turn, and closes the producer, which may take longer, too. Raises
        ClusterError as `flush` does, after closing it, and UsageError, without closing it, on a thread that delivers
        receipts of this producer. Callbacks of messages without a receipt by then get a failure. A second call, or one
        in a forked process, does nothing.
        """
        if self._use.is_over:
            return
        with self._readable:
            self._check_waiting("close")
            deadline, self._use.is_closed = time.monotonic() + timeout, True
            if self._routes is not None:
                self._routes.stop()
            try:
                with ExitStack() as ends:
                    for one in self._senders:
                        ends.callback(one.close, timeout)
                    self._flush(deadline)
            except ClusterError:
                self._unclaimed.end(0.0)  # the senders gave up what the error has counted already
                raise

    @property
    def _senders(self) -> list[LevelSender]:
        """Senders of all levels."""
        return [self._sender, *(() if self._routes is None else self._routes.open_senders)]

    def _check_waiting(self, call: str) -> None:
        """Raises UsageError if the producer is closed or of another process, or if this thread delivers receipts: it
        would wait for itself.
        """
        self._use.check(call)
        for one in self._senders:
            one.check_waiting(call)

    def _post(self, call: str, payload: Any, on_receipt: OnStored, options: SendOptions) -> PostedMessage:
        self._use.check(call)
        if not callable(on_receipt):
            raise UsageError(error("K730", "not an argument of a message", "on_receipt cannot be called"))
        draft = self._hooks.before(Draft(payload, **options)) if self._hooks.needs_drafts else None
        if draft is not None:
            payload, options = draft.payload, draft.options
        check_option_names(call, options)
        message = self._form.accept(payload, _wall, **options)
        by = (None if self._routes is None else self._routes.choose(message)) or self._sender
        return self._hooks.publish(by, self._form, message, draft, on_receipt)


def _wall() -> int:
    """The time of this machine, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def _make_or_close(broker: Broker, make: Callable[[], _T]) -> _T:
    """Result of `make`, which uses the broker. Closes the broker if `make` fails."""
    try:
        return make()
    except BaseException:
        broker.close()
        raise


def _resolve(arrived: asyncio.Future[Receipt], receipt: Receipt) -> None:
    if not arrived.done():  # cancelled meanwhile
        arrived.set_result(receipt)
