"""Spans of sent messages, from the call to the receipt. The message carries the span's context."""

from __future__ import annotations

from typing import Any, Final, assert_never

from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)

from kodo_consumer.adapters.tracing.propagation import HARMLESS, context_properties, present, read_context
from kodo_consumer.core.values.broker import Confirmed, Receipt, Rejected, Unconfirmed
from kodo_consumer.core.values.envelope import position
from kodoctl.topology.names import PLAIN, partition_number

SYSTEM: Final = {"messaging.system": "pulsar"}
_SEND: Final = {"messaging.operation.name": "send", "messaging.operation.type": "send"}


class Sends:
    """Spans of one topic's producer."""

    def __init__(self, tracer: Tracer, topic: str) -> None:
        self._tracer, self._name = tracer, f"send {topic}"
        self._attributes: dict[str, Any] = {**SYSTEM, **_SEND, "messaging.destination.name": topic}

    def begin(self, properties: dict[str, str], identity: str) -> Span:
        """Starts the span of a message, which the caller ends by `on_receipt` or `on_refusal`, and adds its context to
        `properties`. If the application put a context there, that one stays and is linked. If tracing fails, returns a
        span without effect.
        """
        with HARMLESS:
            return self._start_span(properties, identity)
        return INVALID_SPAN

    def _start_span(self, properties: dict[str, str], identity: str) -> Span:
        if not present(properties):
            span = self._tracer.start_span(self._name, None, SpanKind.PRODUCER, self._attributes)
            properties |= context_properties(set_span_in_context(span))
        else:
            carried = read_context(properties)
            created = get_current_span(carried).get_span_context()
            parent = None if get_current_span().get_span_context().is_valid else carried
            links = [Link(created)] if created.is_valid else []
            span = self._tracer.start_span(self._name, parent, SpanKind.CLIENT, self._attributes, links)
        if span.is_recording():
            span.set_attribute("kodo.id", identity)
        return span

    def on_receipt(self, span: Span, receipt: Receipt, topic: str) -> None:
        """Ends a span with the receipt. `topic`: the partition, because the receipts of a partition's producer do not
        name it.
        """
        match receipt:
            case Confirmed(token):
                if span.is_recording():
                    ledger, entry, *_, index = position(token).split(":")
                    partition = partition_number(topic)
                    span.set_attribute("messaging.message.id", f"{ledger}:{entry}:{partition}:{index}")
                    if partition != PLAIN:
                        span.set_attribute("messaging.destination.partition.id", str(partition))
                with HARMLESS:
                    span.end()
            case Unconfirmed(reason):
                self._end_with_error(span, "lost", reason)
            case Rejected(reason):
                self._end_with_error(span, "never_taken", reason)
            case _:
                assert_never(receipt)

    def on_refusal(self, span: Span, problem: BaseException) -> None:
        """Ends the span of a message that was never sent, with the exception."""
        self._end_with_error(span, type(problem).__name__, str(problem))

    def _end_with_error(self, span: Span, kind: str, reason: str) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(StatusCode.ERROR, reason)
        with HARMLESS:
            span.end()
