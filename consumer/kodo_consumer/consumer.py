"""`Consumer`, the object of an application: it loads a topology, takes a handler, and runs a worker until it is
stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Concatenate, Literal, TypeVar, Unpack, overload
from weakref import WeakSet

from kodo_consumer.adapters.tracing.setup import runs_of
from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.core.payloads.schema_versions import SchemaVersions
from kodo_consumer.core.state.observer import Observers
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.counters import Counts
from kodo_consumer.core.values.lane_selection import (
    given_selection,
    lane_lines,
    limit_warnings,
    select_lanes,
    slots_text,
)
from kodo_consumer.policy_builder import choose_subscription, lint_warnings, policy_of
from kodo_consumer.running.multi_run import run_all
from kodo_consumer.running.running_worker import RunningWorker, check_idle, start_worker, started_worker
from kodo_consumer.runtime.acknowledged_hooks import AcknowledgedHooks, await_on
from kodo_consumer.runtime.batch_executor import Batching
from kodo_consumer.runtime.dependencies import inject
from kodo_consumer.runtime.disabled_loggers import enable_loggers
from kodo_consumer.runtime.failure_forecast import FailureForecast
from kodo_consumer.runtime.handler_spec import HandlerSpec, MessageStorage, processes_of, seconds_of
from kodo_consumer.runtime.idempotent_executor import guard_executor
from kodo_consumer.runtime.lifespans import DECLARED
from kodo_consumer.runtime.middleware import AROUND, Around, Hooks
from kodo_consumer.runtime.readable_errors import ReadableErrors
from kodo_consumer.runtime.settings import Settings, read_settings
from kodo_consumer.runtime.stray_errors import redact_stray_errors
from kodo_consumer.runtime.supervisor import WorkerSupervisor, summary
from kodo_consumer.runtime.topology_reload import Reloader, contents
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.sending.environment import ConnectionOptions, Environment
from kodoctl.errors import Diagnostic, UsageError, error

if TYPE_CHECKING:
    from kodo_consumer.adapters.tracing.handler_spans import HandlerSpans
    from kodo_consumer.core.state.observer import AcknowledgementObserver
    from kodo_consumer.core.values.broker import Broker, Cluster
    from kodo_consumer.core.values.error_text import ErrorTextReader
    from kodo_consumer.core.values.lane_selection import LaneSelection
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.message import Check, Message
    from kodo_consumer.runtime.lifespans import Lifespans
    from kodo_consumer.runtime.middleware import AsyncHandle, Handle

    _Around = (
        Callable[[Message[Any], Handle], object]
        | Callable[[list[Message[Any]], Handle], object]
        | Callable[[Message[Any], AsyncHandle], Awaitable[object]]
        | Callable[[list[Message[Any]], AsyncHandle], Awaitable[object]]
    )
    _Decide = (
        Callable[[Message[Any], BaseException | None], object]
        | Callable[[list[Message[Any]], BaseException | None], object]
    )

log = logging.getLogger("kodo.consumer")
H = TypeVar("H", bound="Callable[Concatenate[Message[Any], ...], Any]")
BatchH = TypeVar("BatchH", bound="Callable[Concatenate[list[Message[Any]], ...], Any]")
LifespanH = TypeVar("LifespanH", bound=Callable[[], Any])
Hook = TypeVar("Hook", bound=Callable[..., Any])
AroundHook = TypeVar("AroundHook", bound="_Around")
DecideHook = TypeVar("DecideHook", bound="_Decide")
ReceiveHook = TypeVar("ReceiveHook", bound="Callable[[Message[Any]], object]")
AcknowledgedHook = TypeVar("AcknowledgedHook", bound="Callable[[Message[Any], str], object]")
RedactHook = TypeVar("RedactHook", bound=Callable[[str], str])


@dataclass(frozen=True, slots=True)
class _Declared:
    """Declaration of a handler's function, and the consumer it was declared on."""

    handling: HandlerSpec
    owner: Consumer

    @property
    def lifespans(self) -> Lifespans:
        """Lifespans of the consumer."""
        return self.owner.lifespans


class Consumer:
    """Consumer of one subscription of one ground topic, with its handler and, from `start` on, its worker. `policy`:
    policy of the subscription as the file declared it when it was loaded, for the lanes that the worker reads; a reload
    does not change it. `environment`: where `load` found file and cluster; None for a consumer that was not loaded from
    a file.
    """

    def __init__(
        self,
        policy: Policy,
        connect: Callable[[], tuple[Broker, Cluster]],
        *,
        settings: Settings | None = None,
        lanes: LaneSelection | None = None,
        source: tuple[Path, Callable[[], Policy], bytes | None] | None = None,
        warnings: Sequence[Diagnostic] = (),
        environment: Environment | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self._all_lanes, self._lanes = policy, lanes  # the selection comes before that of the settings
        self.policy = select_lanes(policy, lanes or self.settings.lanes)
        self._source = source  # the file, how it is read again, and what it held
        self._connect, self._warnings = connect, warnings  # of the file, told when it starts
        self.environment = environment  # where `load` found file and cluster
        self._handling: HandlerSpec | None = None
        self._hooks = Hooks()
        self._running: RunningWorker | None = None

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        topic: str | None = None,
        subscription: str | None = None,
        lanes: str | None = None,
        **place: Unpack[ConnectionOptions],
    ) -> Consumer:
        """Loads a consumer as the topology file declares it, and connects to nothing before `start`. `topic` and
        `subscription` may be left out where the file leaves no choice. `lanes`: levels, states and lanes that its
        worker reads, such as `retrying,pending`, `L1/ready` or `!B1`; other workers have to read the rest. None: those
        of the settings, or else all.

        Raises KodoctlError with every finding: the file is invalid, `kodoctl lint` finds errors that the file does not
        allow, the file has no such topic, subscription or lanes, or a payload schema cannot be read. kodoctl's rules
        find environment and connection: the options in `place`, named in ConnectionOptions, such as `env` and
        `admin_url`; KODOCTL_ variables; a context.
        """
        with ReadableErrors(path):
            surroundings = Environment.of(**place)
            text = contents(Path(path))  # before it is read: what is saved from here on is followed
            policy, warnings = _read_policy(surroundings, path, topic, subscription)  # with all lanes
            read = partial(_read_policy, surroundings, path, policy.ground, policy.subscription)
            settings, chosen = read_settings(surroundings.environ, surroundings.folder), given_selection(lanes)
            source, connect = (
                (Path(path), lambda: read()[0], text),
                partial(surroundings.reach, policy, settings.native),
            )
            return cls(
                policy,
                connect,
                settings=settings,
                lanes=chosen,
                source=source,
                warnings=warnings,
                environment=surroundings,
            )

    @overload
    def handler(self, function: H, /) -> H: ...

    @overload
    def handler(
        self, function: None = None, /, *, process: bool | int = False, inbox: MessageStorage | None = None
    ) -> Callable[[H], H]: ...

    def handler(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        process: bool | int = False,
        inbox: MessageStorage | None = None,
    ) -> Any:
        """Sets the function that handles messages, as a decorator, in place of one that was set before: a plain
        function runs on threads, an async one on one event loop.

        With `process=True` a plain function runs in processes, one for each core but no more than there are slots;
        `process=4` asks for four. A time-out or crash there costs only the process and the one message in it. With
        `inbox` (kodo_consumer.inbox.Inbox) messages are stored in the application's database, acknowledged, and handled
        from there. Raises UsageError with all reasons why the function cannot run, and if the consumer runs.
        """

        def take(function: H) -> H:
            processes = processes_of(process, self.policy.concurrency)
            return self._declare(function, HandlerSpec(function, processes, inbox=inbox))

        return take if function is None else take(function)

    @overload
    def batch_handler(self, function: BatchH, /) -> BatchH: ...

    @overload
    def batch_handler(
        self,
        function: None = None,
        /,
        *,
        max: int = 100,
        wait: str | float = "50ms",
        inbox: MessageStorage | None = None,
    ) -> Callable[[BatchH], BatchH]: ...

    def batch_handler(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        max: int = 100,  # noqa: A002  # the word people look for
        wait: str | float = "50ms",
        inbox: MessageStorage | None = None,
    ) -> Any:
        """Sets a function, plain or async, that handles up to `max` messages in a call, given as a list. A batch that
        is not full waits `wait` for more messages (a duration such as "50ms", or seconds). `inbox`: see `handler`; a
        handler that was set before is replaced, too.

        The function returns None if all are done, else an outcome for each: a list as long as the batch, or a mapping
        by message. None, True, and no entry in a mapping mean done, an exception means the same as raised for one
        message. If it raises, that counts for all, except Repeat and InvalidPayloadError: it is called again with
        parts of the list, until these end one message each. After a wrong result all have failed. Limits, turns and
        attempts count per message. Raises UsageError with all reasons why the function cannot run, and if the consumer
        runs.
        """

        def take(function: BatchH) -> BatchH:
            return self._declare(function, HandlerSpec(function, batching=Batching(max, seconds_of(wait)), inbox=inbox))

        return take if function is None else take(function)

    @overload
    def middleware(self, around: AroundHook, /) -> AroundHook: ...

    @overload
    def middleware(self, around: Literal["handle"], /) -> Callable[[AroundHook], AroundHook]: ...

    @overload
    def middleware(self, around: Literal["decide"], /) -> Callable[[DecideHook], DecideHook]: ...

    @overload
    def middleware(self, around: Literal["receive"], /) -> Callable[[ReceiveHook], ReceiveHook]: ...

    @overload
    def middleware(self, around: Literal["acknowledged"], /) -> Callable[[AcknowledgedHook], AcknowledgedHook]: ...

    @overload
    def middleware(self, around: Literal["redact"], /) -> Callable[[RedactHook], RedactHook]: ...

    def middleware(self, around: Callable[..., Any] | Around, /) -> Any:
        """Adds a hook, given as a decorator: around "handle" (the default), "receive", "decide", "acknowledged" or
        "redact". A hook around "handle" runs inside of those that were added before; hooks of the other kinds run one
        after another, in the order in which they were added. Raises UsageError for another `around`, and if the
        consumer runs; `start` raises it for hooks that cannot be called so.

        handle: `hook(message, handle)` calls `handle(message)`, and awaits it if the handler is async; its exceptions
        count as the handler's. receive: `hook(message)` gets each message before any decision about it. decide:
        `hook(message, raised)` gets the handler's exception, None when it is done, and may return another exception to
        replace it. With a batch handler, handle and decide get the list. acknowledged: `hook(message, rule)` gets a
        message once the broker has confirmed its acknowledgement, with the rule by which it ended, such as "done" or
        "retrying"; without a confirmation there is no call. redact: if the topology has `error_text`, `hook(text)` gets
        an error's text, or its stack, and returns it without secrets; if it raises, the text is dropped.
        """
        check_idle(self._running, "middleware")
        if not isinstance(around, str):
            self._hooks.add("handle", around)
            return around
        if around not in AROUND:
            raise UsageError(error("K755", "invalid middleware", f"{around!r}: there is {', '.join(AROUND)}"))
        kind: Any = around

        def take(hook: Hook) -> Hook:
            self._hooks.add(kind, hook)
            return hook

        return take

    def lifespan(self, function: LifespanH, /) -> LifespanH:
        """Adds a lifespan, as a decorator: a generator function without parameters that makes a resource, such as a
        pool of connections, yields it, and closes it. It is entered before the first message, and left after the last;
        with `process=True` in each process.

        The value is for handlers and providers with a parameter `Annotated[T, Depends(function)]`. An async lifespan
        runs on the event loop of an async handler. If a lifespan fails, the consumer does not start. Raises UsageError
        for a function that is no such generator, and if the consumer runs.
        """
        check_idle(self._running, "lifespan")
        self._hooks.lifespans.add(function)
        return function

    def take_handler(self, function: Callable[..., Any]) -> None:
        """Sets the handler, in place of one that was set before. If `handler` or `batch_handler` of another consumer of
        the same subscription declared the function, that declaration counts, and the other consumer's middleware,
        lifespans and settings replace those of this one; its lanes count if this one names none. Any other function
        becomes the handler as by `handler` without options. Raises UsageError if the function cannot run, if the other
        consumer is of another subscription, and if this one runs.
        """
        check_idle(self._running, "take_handler")
        declared = _declaration_of(function)
        if declared is None:
            self._handling = HandlerSpec(function).check()
            return
        owner = _owner(declared, self.policy)
        self._handling = declared.handling.check()
        self._hooks, self.settings, theirs = owner._hooks, owner.settings, owner._lanes  # noqa: SLF001  # of its own class
        self._lanes = self._lanes or theirs
        self.policy = select_lanes(self._all_lanes, self._lanes or self.settings.lanes)

    def take_lanes(self, lanes: str) -> None:
        """Selects the lanes that the worker reads, in place of those that `load` named. `lanes` is written as there.
        Raises UsageError for a wrong form, for every name that no lane has, if no lane is left, and if the consumer
        runs.
        """
        check_idle(self._running, "take_lanes")
        chosen = given_selection(lanes)
        self.policy, self._lanes = select_lanes(self._all_lanes, chosen or self.settings.lanes), chosen

    @property
    def handling(self) -> HandlerSpec:
        """The handler with its declaration. Raises UsageError if there is none."""
        if self._handling is None:
            detail = "decorate one with @consumer.handler before the consumer starts"
            raise UsageError(error("K707", "no handler", detail))
        return self._handling

    def check_handler(self) -> None:
        """Raises UsageError if there is no handler, or if middleware, lifespans or providers do not fit it."""
        handling, lifespans = self.handling, self._hooks.lifespans
        self._hooks.check(is_async=handling.is_async)
        lifespans.check(is_async=handling.is_async)
        inject(handling.function, lifespans.values, batches=handling.batching is not None)

    def handler_function(self, lifespans: Lifespans | None = None) -> Callable[[Any], Any]:
        """Returns the handler with its middleware, called with each message or each batch. `lifespans`: whose values
        the handler gets; None: those of the consumer. Raises UsageError as `check_handler` does, and if the settings
        want traces that cannot be made.
        """
        self.check_handler()
        return self.handling.executor_function(self._hooks, self._traces, texts=self.error_texts, lifespans=lifespans)

    @cached_property
    def payload_check(self) -> Check | None:
        """Validation of payloads by the topology's schema and the handler's annotation; None if there is neither a
        schema nor such an annotation. Made at the first use: a handler that is set later has no effect on it.
        """
        policy, model = self.policy, self.handling.model if self._handling else None
        if policy.payload_schema is None and model is None:
            return None
        return Payloads(policy.payload_type, policy.payload_schema, model)

    @cached_property
    def _traces(self) -> HandlerSpans | None:
        """Maker of spans of handler runs; None: there are no traces. Decided at the first use. Raises UsageError."""
        return runs_of(self.policy, self.settings.traces, tenant=self.settings.traces_tenant)

    @property
    def error_texts(self) -> ErrorTextReader | None:
        """Reader of the error texts that travel with messages; None where the topology keeps none."""
        return self._hooks.error_texts(self.policy)

    @property
    def lifespans(self) -> Lifespans:
        """Lifespans of the consumer, with their values once they are entered."""
        return self._hooks.lifespans

    @property
    def observers(self) -> Observers:
        """Observers that a worker notifies: the user's hooks "receive", and traces, if there are any."""
        return Observers(self._hooks.on_messages if self._hooks.any_receiving else None, self._traces)

    def observers_with(self, acknowledged: Callable[[Hooks], AcknowledgementObserver]) -> Observers:
        """Returns `observers`, with an observer that `acknowledged` makes of the hooks if any of them is for
        acknowledged messages.
        """
        hooks = self._hooks
        return replace(self.observers, acknowledged=acknowledged(hooks)) if hooks.any_acknowledged else self.observers

    def _declare(self, function: Hook, handling: HandlerSpec) -> Hook:
        check_idle(self._running, "handler")
        self._handling = handling.check()
        with suppress(AttributeError, TypeError):  # methods and objects with slots: found by their consumer
            setattr(function, DECLARED, _Declared(handling, self))
        _WITH_HANDLERS.add(self)
        return function

    def lanes(self) -> list[str]:
        """Returns a line of text for each lane of the subscription: its topic, its share of slot time and the slots
        that it may take, or that other workers read it.
        """
        return lane_lines(self.policy)

    def slots(self) -> str:
        """Returns a text with the number of messages, or batches, that its handler may work on at once, such as `32
        slots`, or `up to 64 slots` if the worker adapts the number. Raises UsageError without a handler.
        """
        return slots_text(_policy_for_handler(self.handling, self._hooks, self.settings.workers, self.policy))

    def start(self) -> None:
        """Connects, starts the worker on its own threads and returns; after `stop` it may be called again. Raises
        KodoctlError, for example if no cluster answers, a topic is missing, the consumer runs, or the processes for
        handlers cannot import the handler.
        """
        check_idle(self._running, "start")
        with ReadableErrors(self._source[0] if self._source else None):
            self._start()

    def _start(self) -> None:
        handling, check, traces = self.handling, self.payload_check, self._traces
        enable_loggers()
        self.check_handler()
        for finding in (*self._warnings, *limit_warnings(self.policy)):
            _warn(str(finding))
        scheduled = partial(_policy_for_handler, handling, self._hooks, self.settings.workers)
        policy = scheduled(self.policy)
        with ExitStack() as on_failure:
            broker, cluster = self._connect()
            on_failure.callback(cluster.close)
            broker = _through_storage(handling, broker, policy)
            on_failure.callback(broker.close)
            on_failure.callback(self.lifespans.leave)
            check, clock = _with_schemas(check, policy, cluster), SystemClock()
            forecast = FailureForecast(lambda: self._running.worker.policy if self._running else policy)
            runner = handling.runner(self.policy, check, self._hooks, traces, forecast)
            on_failure.callback(runner.stop)
            runner = guard_executor(runner, policy, self.settings, clock)
            on_failure.callback(runner.stop)
            redact_stray_errors(self.error_texts, self)
            observers = self.observers_with(
                lambda hooks: AcknowledgedHooks(hooks, await_on(hooks.loop), lambda problem: worker.fail(problem))  # noqa: PLW0108  # made later
            )
            if observers.acknowledged is not None:
                on_failure.callback(observers.acknowledged.close)
            worker = Worker(policy, broker, runner, clock, _rng(), check, observers)
            handling.allow_deferral(worker, self.settings)
            reloader = partial(_reloader, self._source, self._lanes or self.settings.lanes, scheduled, self.policy)
            self._running = start_worker(worker, runner, (broker, cluster), self.settings, reloader, self.lifespans)
            on_failure.pop_all()

    @property
    def address(self) -> str | None:
        """`host:port` of metrics and health; None before the start, and if the settings name no port."""
        return self._running.window.address if self._running and self._running.window else None

    def reload(self) -> None:
        """Reads the topology file again, even if it did not change. When it returns, the worker has applied the new
        contents, or has logged why it refuses them; it raises nothing for them. Does nothing before the start, and
        without a file.
        """
        if self._running is not None:
            self._running.reload()

    def stop(self) -> None:
        """Drains the worker, which blocks until running handlers end or the drain time is over, and disconnects;
        further calls do nothing. Raises the error that broke the worker, if there is one, and UsageError before the
        start.
        """
        started_worker(self._running, "stop").stop()

    @property
    def counts(self) -> Counts:
        """Copy of the counts since the start, which does not change later; before the start all counts are 0."""
        return self._running.counts if self._running else Counts()

    @property
    def in_flight(self) -> dict[str, int]:
        """Number of messages that are received and not acknowledged yet, by lane (`L1/ready`), for each lane that the
        worker reads. Empty before the start.
        """
        return self._running.in_flight if self._running else {}

    @property
    def problems(self) -> list[str]:
        """Reasons why the worker does not do its work just now, those that `/readyz` lists; empty while it works, "not
        started" before the start. For a readiness probe of the program's own.
        """
        return self._running.view.not_ready() if self._running else ["not started"]

    def summary(self) -> list[str]:
        """Returns lines of text with the counts since the start; none before it."""
        return list(summary(self._running.worker)) if self._running else []

    def wait(self, seconds: float | None = None) -> bool:
        """Blocks until the worker was stopped or broke, at most `seconds` (None: without limit). Returns False if the
        time ran out first. Does not raise the error of a worker that broke, as `stop` does; raises UsageError before
        the start.
        """
        return started_worker(self._running, "wait").wait(seconds)

    def run(self, say: Callable[[str], object] = log.info) -> None:
        """Starts the consumer, and blocks until SIGTERM or SIGINT, then drains the worker and returns. A second signal
        ends the process at once; SIGHUP reads the topology file again. If the worker breaks, drains it and raises its
        error. Raises as `start` does, and UsageError outside of the main thread.

        `say` gets a line for each lane after the start, and the summary at the end. Everything else goes to the log
        `kodo.consumer`, which is standard error if logging is not set up. Several consumers are run by
        `kodo_consumer.run_all`.
        """
        run_all(self, say=say)


_WITH_HANDLERS: WeakSet[Consumer] = WeakSet()


def _declaration_of(function: Callable[..., Any]) -> _Declared | None:
    """Declaration of a function; None for one that was not declared."""
    found = getattr(function, DECLARED, None)
    if isinstance(found, _Declared):
        return found
    owners = [(one.handling, one) for one in _WITH_HANDLERS if one.handling.function == function]
    return _Declared(*owners[0]) if owners else None


def _reloader(
    source: tuple[Path, Callable[[], Policy], bytes | None] | None,
    chosen: LaneSelection | None,
    scheduled: Callable[[Policy], Policy],
    policy: Policy,
    service: WorkerSupervisor,
) -> Reloader | None:
    """Reader of the topology file while the worker runs; None if the policy does not come from a file."""
    if source is None:
        return None
    file, read, text = source
    follow: Callable[[Policy], None] = lambda policy: service.apply_policy(scheduled(policy))  # noqa: E731
    return Reloader(file, lambda: select_lanes(read(), chosen), policy, follow, text)


def _owner(declared: _Declared, policy: Policy) -> Consumer:
    """The consumer on which a handler was declared. Raises UsageError if it is of another subscription than `policy`."""
    theirs, ours = (f"{one.ground} {one.subscription}" for one in (declared.owner.policy, policy))
    if ours != theirs:
        detail = (
            f"{declared.handling.name} is the handler of {theirs}, not of {ours}: name what it is for, or name a function"
            " without @consumer.handler"
        )
        raise UsageError(error("K763", "handler of another subscription", detail))
    return declared.owner


def _read_policy(
    surroundings: Environment, path: str | Path, topic: str | None, subscription: str | None
) -> tuple[Policy, list[Diagnostic]]:
    """Policy with all lanes and with the signing keys, from the file's present contents, and warnings of lint. Raises
    KodoctlError.
    """
    keys = read_settings(surroundings.environ, surroundings.folder).signing_keys
    loaded = surroundings.topology(path)
    warnings = lint_warnings(loaded)
    return replace(policy_of(loaded, *choose_subscription(loaded, topic, subscription)), signer=keys), warnings


def _through_storage(handling: HandlerSpec, broker: Broker, policy: Policy) -> Broker:
    """Broker that delivers messages from the handler's inbox; without one the broker itself. Raises KodoctlError, after
    closing the broker.
    """
    if handling.inbox is None:
        return broker
    try:
        return handling.inbox.open(broker, policy)
    except BaseException:
        broker.close()
        raise


def _policy_for_handler(handling: HandlerSpec, hooks: Hooks, workers: int, policy: Policy) -> Policy:
    """Policy for a worker that runs this handler, and that expects at least `workers` workers."""
    expected = max(policy.expected_workers, workers)
    return replace(handling.policy_for_worker(policy, hooks), expected_workers=expected)


def _with_schemas(check: Check | None, policy: Policy, cluster: Cluster) -> Check | None:
    """The check of payloads, completed by a reader that asks the cluster for unknown schema versions."""
    if isinstance(check, Payloads):
        return check.with_model(check.model, SchemaVersions(policy, cluster).definition)
    return check


@lru_cache(maxsize=1_000)
def _warn(text: str) -> None:
    """Logs a warning: each text once in a process, however many consumers share the file."""
    log.warning("%s", text)


def _rng() -> Random:
    return Random()  # noqa: S311  # spreads waits, no secret
