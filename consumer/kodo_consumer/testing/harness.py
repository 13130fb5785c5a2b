"""Harness: a consumer on a broker in memory, for tests that send, move the clock and look. It needs milliseconds, no
threads and no sleep.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from hashlib import sha256
from random import Random
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from kodo_consumer.core.checks.message_validation import (
    MessageValidator,
    SendOptions,
    check_option_names,
    message_arguments,
    plain_properties,
    validator_of,
)
from kodo_consumer.core.values.broker import TOO_BIG, Rejected
from kodo_consumer.core.values.envelope import Duration, Level, Outgoing, State
from kodo_consumer.core.values.object_use import ObjectUse
from kodo_consumer.core.values.send_target import level_refusal
from kodo_consumer.runtime.acknowledged_hooks import InlineAcknowledgedHooks
from kodo_consumer.runtime.batch_executor import Batching, Gatherer
from kodo_consumer.runtime.handler_errors import ExceptionReporter
from kodo_consumer.runtime.lifespans import Lifespans
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.sending.pending_messages import not_stored
from kodo_consumer.testing.manual_clock import ManualClock
from kodo_consumer.testing.memory_broker import MemoryBroker, StoredMessage
from kodoctl.errors import UsageError, error
from kodoctl.protocol.sequence_numbers import Number, new_run

if TYPE_CHECKING:
    from kodo_consumer.consumer import Consumer
    from kodo_consumer.core.values.counters import Counts
    from kodo_consumer.core.values.error_text import ErrorTextReader
    from kodo_consumer.core.values.handler_executor import WorkSource
    from kodo_consumer.core.values.outcomes import Outcome
    from kodo_consumer.core.values.wire_texts import PropertyValue
    from kodo_consumer.inbox import Inbox
    from kodo_consumer.message import Message

_MAX_STEPS: Final = 1_000_000
Around = Callable[[Any, Callable[[], Any]], Any]
"""Function that gets a message (or a Batch of messages) and its handler."""


class InlineExecutor:
    """Executor without threads: each `step` takes one message, or one batch with `batching`, and runs its handler to
    the end on the calling thread. Handlers run one after the other, and only while `step` is called.
    """

    def __init__(
        self,
        handler: Callable[[Any], Any],
        batching: Batching | None = None,
        around: Around | None = None,
        texts: ErrorTextReader | None = None,
        lifespans: Lifespans | None = None,
    ) -> None:
        self._handler, self._batching, self._around = handler, batching, around
        self._lifespans, self._resources = lifespans or Lifespans(), ExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None  # of async lifespans and their handlers
        self._holder: tuple[asyncio.Event, asyncio.Task[None]] | None = None  # of async lifespans, on `_loop`
        self._complaints = ExceptionReporter(texts)
        self._source: WorkSource | None = None
        self._finished: Message | None = None
        self._outcome: Outcome | None = None
        self.stopped = False

    def start(self, source: WorkSource) -> None:
        """Sets where `step` takes its messages from; with `batching` they are gathered without waiting. Enters the
        lifespans. Raises KodoctlError if one fails.
        """
        self._resources.enter_context(self._lifespans_entered())
        gathers = self._batching and Gatherer(source, replace(self._batching, wait=0.0), self.wake)
        self._source = cast("WorkSource", gathers) if gathers else source

    def wake(self) -> None:
        """Does nothing: messages are taken when `step` is called."""

    def time_out(self, message: Message) -> None:
        """Does nothing: the handler has returned before a time-out can be noticed."""

    def stop(self) -> None:
        """Makes every further `step` return False, leaves the lifespans and closes the event loop. An error of a plain
        lifespan at its end passes; those of lifespans on a loop are logged.
        """
        self.stopped = True
        self._resources.close()
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def crash(self) -> None:
        """Ends as a crash of the process does: cancels async lifespans where they wait, and drops plain ones."""
        self.stopped = True
        self._resources.pop_all()
        if self._loop is not None and self._holder is not None:
            leave, holder = self._holder
            leave.set()
            holder.cancel()
            self._loop.run_until_complete(holder)
            self._loop.close()
            self._loop = None

    @contextmanager
    def _lifespans_entered(self) -> Iterator[None]:
        if not self._lifespans.is_any_async:
            with self._lifespans.entered():
                yield
            return
        loop = self._loop = asyncio.new_event_loop()
        entered, leave = loop.create_future(), asyncio.Event()
        holder = loop.create_task(self._lifespans.hold(entered, leave))
        self._holder = leave, holder
        loop.run_until_complete(entered)
        yield
        leave.set()
        loop.run_until_complete(holder)

    def step(self) -> bool:
        """Hands back the last result, and handles one message (or batch). Returns False if it did neither. Raises
        exceptions of the handler that are no Exception, such as SystemExit, which are failures in a worker.
        """
        assert self._source is not None
        if self.stopped:
            return False
        handed_back = self._finished is not None
        self._finished = self._source.next(self._finished, self._outcome)
        if self._finished is None:
            return handed_back
        self._outcome = self._run(self._source, self._finished)
        self._finished = self._finished if self._outcome is not None else None  # None: it is deferred
        return True

    def _run(self, source: WorkSource, message: Message) -> Outcome | None:
        try:
            context = copy_context()  # as executors of workers do

            def call() -> None:
                context.run(self._call, message)

            if self._around is None:
                call()
            else:
                self._around(message, call)
        except Exception as problem:  # noqa: BLE001  # a failing handler is what is being tested
            return self._complaints.outcome(problem, message)
        return self._complaints.outcome_of_return(source, message)

    def _call(self, message: Message) -> None:
        result = self._handler(message)
        if inspect.isawaitable(result):
            self.await_(result)

    def await_(self, awaitable: Awaitable[Any]) -> None:
        """Runs an async handler, or a hook, to its end."""
        if self._loop is None:
            asyncio.run(_await(awaitable))
        else:
            self._loop.run_until_complete(_await(awaitable))


async def _await(result: Any) -> None:
    await result


@dataclass
class _TestSender:
    """Sender of the harness to the topic of one level. `sent`: number of messages that it sent."""

    topic: str
    form: MessageValidator
    run: str
    sent: int = 0

    @property
    def next_number(self) -> Number:
        """Sequence number of the next message."""
        return Number(self.run, 0, self.sent + 1)

    def id_of(self, stored: int) -> str:
        """Identity of the next message: the same in each run of a test, because routes with a share depend on it.
        `stored`: number of messages that the topic has ever got, so that other harnesses of a broker make other ones.
        """
        return sha256(f"{self.topic}\0{stored}".encode()).hexdigest()[:32]


class Harness:
    """One consumer, its topics, and a clock.

    Tests call `send`, `run` (does everything that can happen now) and `advance` (moves the clock, and does everything
    that is due, in order), then look at `waiting` in a lane, `dead_letters`, `broker.messages(topic)` or `counts`.
    Handlers run within these calls, one after the other: no time-out ends them, and there is no store of done messages.
    Harnesses of several subscriptions share a `broker` and a `clock`. `around` is called with each message (or Batch)
    and a function without arguments that runs its handler. `inbox`: messages go through it, of a database of the test;
    None: also those of a handler that has one go straight to it.
    """

    def __init__(
        self,
        consumer: Consumer,
        *,
        broker: MemoryBroker | None = None,
        clock: ManualClock | None = None,
        around: Around | None = None,
        inbox: Inbox | None = None,
    ) -> None:
        self._use = ObjectUse("harness", anywhere=True)
        self.clock = clock or ManualClock()
        self.broker = broker or MemoryBroker(self.clock)
        self.policy = consumer.policy
        self.broker.create_for(self.policy)
        lifespans = consumer.lifespans.copy()
        handle = consumer.handler_function(lifespans)
        self._runner = InlineExecutor(handle, consumer.handling.batching, around, consumer.error_texts, lifespans)
        rng = Random(0)  # noqa: S311  # the same jitter in every run
        check = consumer.payload_check
        observers = consumer.observers_with(lambda hooks: InlineAcknowledgedHooks(hooks, self._runner.await_))
        self._form = MessageValidator(check if self.policy.payload_type == "avro" else None)
        self._senders: dict[str, _TestSender] = {}
        self._inbox = None if inbox is None else inbox.open(self.broker, self.policy, self.clock)
        self.worker = Worker(self.policy, self._inbox or self.broker, self._runner, self.clock, rng, check, observers)
        consumer.handling.allow_deferral(self.worker, consumer.settings)
        self.worker.open("harness")

    @property
    def counts(self) -> Counts:
        """Counts of the worker, which keep changing."""
        return self.worker.counts

    def send(self, payload: Any, *, level: Level | str = Level.L1, **options: Unpack[SendOptions]) -> StoredMessage:
        """Stores a message on the topic of the level, checked and built as a `Producer` does, and returns it as it is
        stored: with an identity and a sequence number. Runs no handler; routes of the topology apply in `run`.
        `options`: as of `Producer.send`; delays are of the harness's clock. Raises UsageError for anything that the
        topology does not allow, ClusterError for more than a broker takes, as `Producer.send` does. See `inject` for
        messages of other senders.
        """
        self._use.check("send")
        sender = self._sender(level)
        if options.get("id") is None:
            options["id"] = sender.id_of(self.broker.count(sender.topic))
        check_option_names("send", options)
        message = sender.form.accept(payload, self.clock.wall, **options)
        outgoing = message.outgoing(sender.topic, sender.topic, sender.next_number, self.policy.signer)
        if (problem := sender.form.too_large(outgoing)) is not None:
            raise problem
        if self.broker.is_too_large(outgoing):
            raise not_stored(sender.topic, Rejected(TOO_BIG), len(outgoing.payload or b""))
        sender.sent += 1
        return self.broker.send(outgoing)

    def inject(
        self,
        payload: Any,
        *,
        level: Level | str = Level.L1,
        key: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        event_time: int = 0,
    ) -> StoredMessage:
        """Stores a message of a sender that is no `Producer`, and returns it: neither payload nor properties are
        validated by the topology, and the properties are all that it has. A payload other than bytes is encoded as
        JSON, on an Avro topic as Avro; None is a tombstone. Raises UsageError for values that no message can have.
        """
        self._use.check("inject")
        topic = self._topic(level, State.READY)
        data = payload if isinstance(payload, bytes | None) else self._form.encode(payload)
        key = message_arguments(key=key, event_time=event_time)
        return self.broker.send(Outgoing(topic, data, plain_properties(properties), key=key, event_time=event_time))

    def run(self) -> None:
        """Runs everything that can happen at the present time of the clock. Raises AssertionError after a million
        steps.
        """
        self._use.check("run")
        for _ in range(_MAX_STEPS):
            self.worker.tick()
            stored = self._inbox is not None and self._inbox.turn()
            if not (self.broker.step() | stored | self.step()):
                return
        raise AssertionError("it never comes to rest")

    def step(self) -> bool:
        """Hands the last result to the worker, and handles one waiting message (or batch). Returns False if it did
        neither.
        """
        self._use.check("step")
        return self._runner.step()

    def advance(self, span: str | float) -> None:
        """Moves the clock on by `span`, a text such as "30s" or seconds, and runs everything that becomes due, each at
        its time. Raises ValueError for a text that is no duration.
        """
        end = self.clock.now() + (Duration.parse(span).seconds if isinstance(span, str) else span)
        self.run()
        while self.clock.now() < end:
            self.leap(end)
            self.run()

    def leap(self, end: float = float("inf")) -> None:
        """Moves the clock to the next time at which anything may be due, by 1 ms at least, but at most to `end`
        (seconds on `clock`). The clock stays if there is no such time and no `end`. Does what depends on time alone
        before, such as time-outs. Runs no handler.
        """
        self._use.check("leap")
        steps = [end - self.clock.now(), max(self.worker.tick(), 0.001)]
        if (due := self.broker.next_due) is not None:
            steps.append(max((due - self.clock.wall()) / 1000, 0.001))
        if (span := min(steps)) < float("inf"):
            self.clock.advance(span)

    def waiting(self, level: Level | str, state: State | str) -> list[StoredMessage]:
        """Messages of a lane that this subscription has not acknowledged: due or not, deferred ones among them. Raises
        UsageError if the policy has no such lane.
        """
        return self.broker.backlog(self._topic(level, state), self.policy.subscription)

    @property
    def dead_letters(self) -> list[StoredMessage]:
        """Messages in the dead-letter topic, in the order in which they were stored; none where the subscription has no
        such topic.
        """
        return self.broker.messages(self.policy.dead_letter.topic) if self.policy.dead_letter else []

    def crash(self) -> None:
        """Ends as a crash of the process does: the worker sends nothing more, and the broker gives its unacknowledged
        messages to others. Lanes of other harnesses of this broker lose their connections, too. Use it no more.
        """
        self._use.end()
        self._runner.crash()
        self.broker.lose_connections()

    def close(self) -> None:
        """Ends the worker; the broker gives its unacknowledged messages to others. A second call does nothing. Calls
        that send, run handlers or move the clock raise UsageError then.
        """
        if self._use.end():
            self.worker.drain()
            self.worker.close()
            if self._inbox is not None:
                self._inbox.end()

    def _sender(self, level: Level | str) -> _TestSender:
        """Sender of a level. Raises UsageError if the level takes no messages."""
        found = self._senders.get(level)
        if found is None:
            active = self.policy.own_targets
            target = next((target for one, target in active.items() if one == level), None)
            if target is None:
                draining = any(lane.level == level for lane in self.policy.every_lane)
                raise level_refusal(self.policy.ground, level, active, draining=draining)
            form = validator_of(target, target.largest.get(target.topic, 0))
            run = new_run(self.clock.wall(), token_hex(4))
            found = self._senders[level] = _TestSender(target.topic, form, run)
        return found

    def _topic(self, level: Level | str, state: State | str) -> str:
        lanes = self.policy.every_lane
        for lane in lanes:
            if lane.level == level and lane.state == state:
                return lane.topic
        detail = f"{level}/{state} is none of its lanes: {', '.join(lane.name for lane in lanes)}"
        raise UsageError(error("K730", "not an argument of a message", detail))
