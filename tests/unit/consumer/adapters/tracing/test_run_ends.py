"""Spans of handler runs that end otherwise: given up, released, or failing themselves; no message notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Message
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.producer import Producer
from kodo_consumer.testing import Harness, MemoryBroker
from opentelemetry.sdk.trace import SpanProcessor

from tests.unit.consumer.pump import Pump
from tests.unit.consumer.traced_runs import both, load
from tests.unit.consumer.tracing import Spans, facts


def test_a_handler_that_takes_too_long_ends_its_span_when_it_is_given_up(tmp_path: Path, spans: Spans) -> None:
    consumer = load(tmp_path, "strict")
    consumer.handler(lambda message: None)
    harness = Harness(consumer)
    harness.send(b"x")
    harness.worker.tick()
    harness.broker.step()
    message = harness.worker.next(None, None)
    assert message is not None
    traces = consumer._traces
    assert traces is not None
    run = traces.begin(message)

    harness.clock.advance(2)
    harness.worker.tick()
    (span,) = spans.all
    assert facts(span)["error.type"] == "timeout"
    assert facts(span)["kodo.outcome"] == "retrying"
    traces._on_return(run, message)  # it comes back after all
    assert len(spans.all) == 1


def test_what_still_runs_at_the_end_is_told_as_let_go(tmp_path: Path, spans: Spans) -> None:
    consumer = load(tmp_path)
    consumer.handler(lambda message: None)
    harness = Harness(consumer)
    harness.send(b"x")
    harness.worker.tick()
    harness.broker.step()
    message = harness.worker.next(None, None)
    traces = consumer._traces
    assert traces is not None
    assert message is not None
    traces.begin(message)
    harness.close()
    assert facts(spans.all[0])["error.type"] == "released"


class _Broken(SpanProcessor):
    """An application's own processor that fails at the start of spans, or at their end."""

    def __init__(self, at: str) -> None:
        self.at = at

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self.at == "start":
            raise RuntimeError("no disk")

    def on_end(self, span: Any) -> None:
        if self.at == "end":
            raise RuntimeError("no disk")


@both
@pytest.mark.parametrize("at", ["start", "end"])
def test_spans_that_fail_cost_no_message_anything(
    tmp_path: Path,
    spans: Spans,
    later: bool,
    at: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.tracing.propagation.HARMLESS.last_log", float("-inf"))
    spans.provider.add_span_processor(_Broken(at))
    consumer = load(tmp_path)

    def handle(message: Message) -> None:
        if message.data == b"bad":
            raise ValueError

    async def handle_later(message: Message) -> None:
        handle(message)

    consumer.handler(handle_later if later else handle)
    harness = Harness(consumer)
    harness.send(b"x")
    harness.send(b"bad")
    harness.run()
    assert (harness.counts.done, harness.counts.finished["retrying"]) == (1, 1)
    assert harness.worker.problem is None
    assert caplog.text.count("a span could not be made or ended") == 1

    traces = consumer._traces
    assert traces is not None
    traces.began(_message(harness))
    traces.close()
    clock = SystemClock()
    broker = MemoryBroker(clock)
    broker.create("persistent://p/n/orders")
    pump = Pump(broker)
    with Producer("persistent://p/n/orders", broker) as producer:
        producer.send(b"x")
    pump.stop()


def _message(harness: Harness) -> Message:
    harness.send(b"one more")
    harness.worker.tick()
    harness.broker.step()
    message = harness.worker.next(None, None)
    assert message is not None
    return message
