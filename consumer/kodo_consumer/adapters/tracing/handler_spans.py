"""Spans of handler runs, from the handler's start to its end, with the decision about the message as an event; and
spans of reroutes without a handler run.

The context that a message carries is the parent and is linked; the span of a batch has links only. A message without a
context gets that of its first run, so that all its later runs belong to one trace.

These spans are no middleware: they cover the hooks "decide", know the outcome of each message of a batch and the
decision, which comes after all hooks, and need no thread for each process of a pool.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, assert_never

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, get_current_span, set_span_in_context

from kodo_consumer.adapters.tracing.producer_spans import SYSTEM
from kodo_consumer.adapters.tracing.propagation import HARMLESS, context_properties, read_context
from kodo_consumer.core.state_machine import Acknowledge, Decision, Delay, Reroute, Rule, TransferOut
from kodo_consumer.core.values.envelope import Delivery, Headers, message_identity
from kodo_consumer.core.values.exception_groups import spokesman
from kodo_consumer.core.values.exceptions import HandlerSignal
from kodo_consumer.core.values.outcomes import (
    DONE,
    TOOK_TOO_LONG,
    CorruptHeaders,
    DeadLettered,
    DependencyUnavailable,
    Failed,
    Outcome,
    RejectedByTarget,
    failure_reason,
)
from kodo_consumer.message import Message, parts_of

if TYPE_CHECKING:
    from kodo_consumer.core.state.in_flight import InFlight
    from kodo_consumer.core.values.policy import Policy

_PROCESS: Final = {"messaging.operation.name": "process", "messaging.operation.type": "process"}
_MOVE: Final = {"messaging.operation.name": "move", "messaging.operation.type": "settle"}
_DEFERRED: Final = "deferred"  # `kodo.outcome` of a run whose message ends later


class HandlerCall:
    """One call of a handler, and its span.

    Args:
        span: span of the call.
        context: trace context of the span, in which the handler runs.
        left: number of messages of the call whose end is not noted yet; the span ends when it is 0.
        is_batch: the call has a batch of messages.
        is_first: the message of the call carries no valid trace context; False for a batch.

    `ended`: when the handler returned or raised, in ns since the epoch; None: not yet.
    """

    __slots__ = ("context", "ended", "is_batch", "is_first", "left", "span")

    def __init__(
        self, span: Span, context: Context, left: int, *, is_batch: bool = False, is_first: bool = False
    ) -> None:
        self.span, self.context, self.left, self.is_batch, self.is_first = span, context, left, is_batch, is_first
        self.ended: int | None = None  # ns since the epoch: when the handler came back, if it did


class HandlerSpans:
    """Makes the spans of one worker: for each call of the handler, with a message or a batch, and for each reroute
    while no span of the message is open, such as before its run or after a deferral. `tenant`: spans name the tenant of
    their message (its value of `fair_by`), except spans of batches. Thread-safe.
    """

    def __init__(self, tracer: Tracer, policy: Policy, *, tenant: bool) -> None:
        self._tracer, self._tenant = tracer, tenant
        self._texts = policy.error_text is None  # else what exceptions say goes nowhere without being redacted
        self._of_all: dict[str, Any] = {
            **SYSTEM,
            **_PROCESS,
            "messaging.consumer.group.name": policy.subscription,
            "messaging.destination.subscription.name": policy.subscription,
        }
        self._of_lane: list[dict[str, Any]] = [
            {
                **self._of_all,
                "messaging.destination.name": lane.topic,
                "kodo.level": lane.level.value,
                "kodo.state": lane.state.value,
            }
            for lane in policy.lanes
        ]
        self._lock = threading.Lock()
        self._open: dict[object, HandlerCall] = {}  # by what the worker holds

    # ---- around handlers

    def around(self, function: Callable[[Any], Any], *, is_async: bool, batches: bool) -> Callable[[Any], Any]:
        """Returns the handler wrapped so that each call runs within a span, or without one if tracing fails. The
        wrapper drops the handler's result and raises its exceptions. `is_async`: the handler, and so the wrapper, is
        async. `batches`: its argument is a batch, which has the outcomes of its messages afterwards; else a message.
        """
        begin = self._begin_batch if batches else self.begin

        def run(unit: Any) -> None:
            with self._within(begin, unit):
                function(unit)

        async def run_later(unit: Any) -> None:
            with self._within(begin, unit):
                await function(unit)

        return run_later if is_async else run

    @contextmanager
    def _within(self, begin: Callable[[Any], HandlerCall], unit: Any) -> Iterator[None]:
        """Context manager around one call of a handler: it begins the span, makes it current, and notes how the call
        ended. Tracing failures are logged only.
        """
        call: HandlerCall | None = None
        with HARMLESS:
            call = begin(unit)
        if call is None:
            yield
            return
        token = attach(call.context)
        try:
            yield
        except BaseException as problem:
            self._on_error(call, problem)
            raise
        else:
            self._on_return(call, unit)
        finally:
            detach(token)

    # ---- the start

    def begin(self, message: Message) -> HandlerCall:
        """Starts the span of a message that is about to be handled, and returns its HandlerCall; one of the other
        methods ends the span. May raise exceptions of the tracer or the propagator; `around` and `began` suppress them.
        """
        delivery, lane, headers = parts_of(message)
        carried = read_context(delivery.properties)
        parent = get_current_span(carried).get_span_context()
        links = [Link(parent)] if parent.is_valid else []
        name = f"process {lane.topic}"
        span = self._tracer.start_span(name, carried, SpanKind.CONSUMER, self._of_lane[lane.index], links)
        if span.is_recording():
            span.set_attributes(self._facts(delivery, headers, message.tenant))
            span.set_attribute("kodo.attempt", message.attempt)
        run = HandlerCall(span, set_span_in_context(span, carried), 1, is_first=not links)
        self._open[_key(message)] = run
        return run

    def began(self, message: Message) -> dict[str, str]:
        """Starts the span of a message that goes to a process of the pool, and returns the properties that carry the
        span's context there; empty if tracing fails, or the propagator writes none.
        """
        with HARMLESS:
            return context_properties(self.begin(message).context)
        return {}

    def carrier(self) -> dict[str, str]:
        """Properties that carry the caller's current context; empty if the propagator writes none, or tracing fails."""
        with HARMLESS:
            return context_properties()
        return {}

    def _begin_batch(self, batch: Any) -> HandlerCall:
        messages: Sequence[Message] = batch.messages
        lanes = {parts_of(message)[1].index for message in messages}
        attributes: dict[str, Any] = self._of_all
        name = "process"
        if len(lanes) == 1:
            attributes = self._of_lane[lanes.pop()]
            name = f"process {attributes['messaging.destination.name']}"
        attributes = attributes | {"messaging.batch.message_count": len(messages)}
        links = [link for message in messages if (link := self._link(message)) is not None]
        span = self._tracer.start_span(name, Context(), SpanKind.CONSUMER, attributes, links)
        run = HandlerCall(span, set_span_in_context(span, Context()), len(messages), is_batch=True)
        self._open |= dict.fromkeys(map(_key, messages), run)
        return run

    def _link(self, message: Message) -> Link | None:
        delivery = parts_of(message)[0]
        created = get_current_span(read_context(delivery.properties)).get_span_context()
        return Link(created, {"messaging.message.id": delivery.position}) if created.is_valid else None

    def _facts(self, delivery: Delivery, headers: Headers, tenant: str) -> dict[str, Any]:
        position = delivery.position
        facts: dict[str, Any] = {
            "messaging.message.id": position,
            "kodo.id": message_identity(delivery, headers),
            "kodo.hop": headers.hop,
        }
        if (partition := position.split(":")[2:3]) and partition[0] != "-1":
            facts["messaging.destination.partition.id"] = partition[0]
        if headers.reason is not None:
            facts["kodo.reason"] = headers.reason
        if self._tenant:
            facts["kodo.tenant"] = tenant
        return facts

    # ---- the end

    def _on_error(self, run: HandlerCall, problem: BaseException) -> None:
        run.ended = time.time_ns()
        if not isinstance(spokesman(problem), HandlerSignal) and run.span.is_recording():
            with HARMLESS:
                if self._texts:
                    run.span.record_exception(problem)
                else:
                    run.span.add_event("exception", {"exception.type": type(problem).__qualname__})

    def _on_return(self, run: HandlerCall, unit: Any) -> None:
        """Ends the spans of messages that are done or deferred; those of others end with the decision about them, soon
        after.
        """
        run.ended = time.time_ns()
        if not run.is_batch:
            self._end_run(_key(unit), run, Rule.DONE.value if unit.deferral is None else _DEFERRED)
            return
        for message, outcome in unit.message_outcomes(DONE):
            if outcome is DONE:
                self._end_run(_key(message), run)

    def on_outcome(self, message: Message, outcome: Outcome) -> None:
        """Notes the time at which a run in a process of the pool ended, and ends its span if the outcome is DONE; else
        the decision ends it (`on_decision`). Does nothing if no span of the message is open.
        """
        run = self._open.get(_key(message))
        if run is not None:
            run.ended = time.time_ns()
            if outcome is DONE:
                self._end_run(_key(message), run)

    def vain(self, message: Message, why: str) -> None:
        """Ends the span of a run that had no result, with the error type `why`. No decision about the message follows
        from this run: it is handled again, by another process or, if the worker ends, by another worker. Does nothing
        if no span of the message is open.
        """
        run = self._open.pop(_key(message), None)
        if run is not None:
            self._fail(run.span, why)
            self._one_less(run)

    def on_decision(self, in_flight: InFlight, outcome: Outcome, decision: Decision) -> None:
        """Ends the open span of a message with the decision about it; that of a batch ends with its last message. If no
        span is open, a reroute gets a span of its own, and other decisions get none. A message without a valid context
        carries that of its span from then on, unless the span is of a batch. Tracing failures are logged only. See
        kodo_consumer.core.state.observer.DecisionObserver.
        """
        run = self._open.pop(in_flight, None)
        if run is None:
            if isinstance(decision, Reroute):
                with HARMLESS:
                    self._trace_move(in_flight, outcome, decision)
            return
        if run.is_first:
            with HARMLESS:
                _carry(in_flight, run.context)
        if run.span.is_recording():
            with HARMLESS:
                self._tell(run, in_flight, outcome, decision)
        self._one_less(run)

    def _trace_move(self, in_flight: InFlight, outcome: Outcome, decision: Reroute) -> None:
        """Makes the span of a reroute without a handler run; it ends at once."""
        carried = read_context(in_flight.delivery.properties)
        parent = get_current_span(carried).get_span_context()
        lane = in_flight.lane.lane
        name, attributes = f"move {lane.topic}", self._of_lane[lane.index] | _MOVE
        links = [Link(parent)] if parent.is_valid else []
        span = self._tracer.start_span(name, carried, SpanKind.CLIENT, attributes, links)
        if span.is_recording():
            why, facts = _decision_facts(decision)
            span.set_attributes(
                self._facts(in_flight.delivery, in_flight.headers, in_flight.tenant) | {"kodo.outcome": why.value}
            )
            span.add_event(_EVENTS[Reroute], {"kodo.rule": why.value, **facts})
            if isinstance(outcome, CorruptHeaders | RejectedByTarget):
                self._fail(span, "Broken" if isinstance(outcome, CorruptHeaders) else "Refused")
        if not links:
            with HARMLESS:
                _carry(in_flight, set_span_in_context(span, carried))
        span.end()

    def _tell(self, run: HandlerCall, in_flight: InFlight, outcome: Outcome, decision: Decision) -> None:
        why, facts = _decision_facts(decision)
        if run.is_batch:
            facts["messaging.message.id"] = in_flight.delivery.position
        else:
            run.span.set_attribute("kodo.outcome", why.value)
        run.span.add_event(_EVENTS[type(decision)], {"kodo.rule": why.value, **facts}, run.ended)
        if (kind := _error_type(outcome)) is not None:
            self._fail(run.span, kind)

    def close(self) -> None:
        """Ends all open spans, such as those of handlers that still run, with the error type `released`."""
        for key, run in list(self._open.items()):
            if self._open.pop(key, None) is not None:
                self._fail(run.span, "released")
                self._one_less(run)

    def _end_run(self, key: object, run: HandlerCall, outcome: str = Rule.DONE.value) -> None:
        with self._lock:
            if self._open.get(key) is not run:  # given up meanwhile: told of already
                return
            del self._open[key]
        if not run.is_batch and run.span.is_recording():
            run.span.set_attribute("kodo.outcome", outcome)
        self._one_less(run)

    def _fail(self, span: Span, kind: str) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(StatusCode.ERROR, kind)

    def _one_less(self, run: HandlerCall) -> None:
        with self._lock:
            run.left -= 1
            if run.left:
                return
        with HARMLESS:
            run.span.end(run.ended)


_EVENTS: Final = {Acknowledge: "kodo.ended", Delay: "kodo.waits", Reroute: "kodo.moved", TransferOut: "kodo.moved"}


def _carry(in_flight: InFlight, context: Context) -> None:
    """Writes the context into the message's properties: from now on the message carries this context."""
    in_flight.delivery = in_flight.delivery._replace(
        properties={**in_flight.delivery.properties, **context_properties(context)}
    )


def _decision_facts(decision: Decision) -> tuple[Rule, dict[str, Any]]:
    """Rule of a decision, and the attributes of its event."""
    match decision:
        case Acknowledge(why, reason):
            return why, {"kodo.reason": reason} if reason else {}
        case Delay(delay, why, _):
            return why, {"kodo.delay_ms": delay}
        case Reroute(target, headers, why):
            facts: dict[str, Any] = {"kodo.target": target.topic, "kodo.reason": headers.reason or ""}
            if headers.due is not None:
                facts["kodo.due_ms"] = headers.due
            return why, facts
        case TransferOut(topic, _):
            return Rule.TRANSFERRED, {"kodo.target": topic}
        case _:
            assert_never(decision)


def _error_type(outcome: Outcome) -> str | None:
    """Error type of an outcome, of low cardinality; None for one that is no failure."""
    match outcome:
        case Failed(reason):
            return "timeout" if outcome is TOOK_TOO_LONG else reason
        case DeadLettered():
            return "Dead"
        case DependencyUnavailable():
            return "Unavailable"
        case _:
            return failure_reason(outcome)


def _key(message: Message) -> object:
    return message if message._in_flight is None else message._in_flight  # noqa: SLF001  # as the worker knows it
