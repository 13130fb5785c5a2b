"""Spans of sent messages, from the call to the receipt. The message carries the span's context."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, get_current_span, set_span_in_context

from kodo_consumer.adapters.tracing.propagation import HARMLESS, context_properties, present, read_context
from kodo_consumer.core.values.broker import Confirmed, Rejected, Unconfirmed
from kodo_consumer.core.values.envelope import position
from kodoctl.topology.names import PLAIN

if TYPE_CHECKING:
    from kodo_consumer.core.checks.message_validation import CheckedMessage
    from kodo_consumer.core.values.broker import OnSent, Receipt

SYSTEM: Final = {"messaging.system": "pulsar"}
_OF_ALL: Final[dict[str, Any]] = {**SYSTEM, "messaging.operation.name": "send", "messaging.operation.type": "send"}


def begin_span(tracer: Tracer, message: CheckedMessage) -> OnSent | None:
    """Interceptor around "publish", once its `tracer` is bound: starts the span of a message, and adds the span's
    context to the message's properties. If these have a property of the propagator already, such as `baggage` alone,
    nothing is added; a valid context in them is linked, and is the parent if there is no current span. Returns the
    function that ends the span, which takes the receipt or the exception; None if the span is not sampled (its context
    is added all the same), or if tracing fails. If the context cannot be added, the message goes without it.
    """
    with HARMLESS:
        span = _start_span(tracer, message)
        if span.is_recording():
            span.set_attribute("kodo.id", message.id)
            return partial(_end, span)
    return None


def _start_span(tracer: Tracer, message: CheckedMessage) -> Span:
    name, attributes = f"send {message.topic}", {**_OF_ALL, "messaging.destination.name": message.topic}
    if not present(properties := message.properties):
        span = tracer.start_span(name, None, SpanKind.PRODUCER, attributes)
        with HARMLESS:
            message.add_properties(context_properties(set_span_in_context(span)))
        return span
    carried = read_context(properties)
    created = get_current_span(carried).get_span_context()
    parent = None if get_current_span().get_span_context().is_valid else carried
    links = [Link(created)] if created.is_valid else []
    return tracer.start_span(name, parent, SpanKind.CLIENT, attributes, links)


def _end(span: Span, result: Receipt | BaseException) -> None:
    """Ends a span with the receipt, or with the exception of a message that was not published."""
    with HARMLESS:
        try:
            match result:
                case Confirmed(token):
                    stored = position(token)
                    span.set_attribute("messaging.message.id", stored)
                    if (partition := stored.split(":")[2]) != str(PLAIN):
                        span.set_attribute("messaging.destination.partition.id", partition)
                case Unconfirmed(reason):
                    _fail(span, "lost", reason)
                case Rejected(reason):
                    _fail(span, "never_taken", reason)
                case _:
                    _fail(span, type(result).__name__, str(result))
        finally:
            span.end()


def _fail(span: Span, kind: str, reason: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, reason)
