"""Spans as tests see them: a tracer provider of OpenTelemetry's SDK with its exporter in memory, set for one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import opentelemetry.trace
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext


class Spans:
    """What was exported so far."""

    def __init__(self, sampler: Any = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler) if sampler else TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def all(self) -> list[ReadableSpan]:
        """In the order they began."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    @property
    def names(self) -> list[str]:
        """Their names, topics without what all have in common."""
        return [short(span.name) for span in self.all]

    @property
    def traces(self) -> int:
        """How many traces they make."""
        return len({context(span).trace_id for span in self.all})


@contextmanager
def exported(sampler: Any = None) -> Iterator[Spans]:
    """A provider as an application would set it, until the end of the block."""
    spans = Spans(sampler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opentelemetry.trace, "_TRACER_PROVIDER", spans.provider)
        yield spans
    spans.provider.shutdown()


def context(span: ReadableSpan | Link) -> SpanContext:
    """Which span it is, or is linked."""
    found = span.context
    assert found is not None
    return found


def facts(span: ReadableSpan) -> dict[str, Any]:
    """Its attributes."""
    return dict(span.attributes or {})


def events(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    """Its events."""
    return [(event.name, dict(event.attributes or {})) for event in span.events]


def short(text: str) -> str:
    """Without the tenant and namespace of the tests."""
    return text.replace("persistent://p/n/", "")
