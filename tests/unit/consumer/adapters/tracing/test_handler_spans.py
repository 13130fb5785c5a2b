"""Spans of handler runs: what they say, whose children they are, and that the context is there inside the handler."""

from __future__ import annotations

import asyncio
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Blocking, Dead, Discard, Message, MoveTo, Retry, Transfer, Unavailable
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.policy import ErrorTextPolicy
from kodo_consumer.producer import Producer
from kodo_consumer.testing import Harness, MemoryBroker
from opentelemetry import trace
from opentelemetry.sdk.trace import sampling
from opentelemetry.trace import SpanKind, StatusCode

from tests.services.polling import eventually
from tests.unit.consumer.pump import Pump
from tests.unit.consumer.traced_runs import PARENT, SPAN, TRACE, both, failing, load
from tests.unit.consumer.tracing import Spans, context, events, exported, facts, short


def test_a_run_says_what_was_handled_and_where_and_continues_the_message_s_trace(tmp_path: Path, spans: Spans) -> None:
    consumer = load(tmp_path)
    consumer.handler(lambda message: None)
    harness = Harness(consumer)
    harness.send(b"x", properties={"traceparent": PARENT, "uid": "u1"}, id="o-1")
    harness.run()

    (span,) = spans.all
    assert short(span.name) == "process orders"
    assert span.kind is SpanKind.CONSUMER
    assert context(span).trace_id == TRACE
    assert span.parent is not None
    assert span.parent.span_id == SPAN
    assert [context(link).span_id for link in span.links] == [SPAN]
    found = facts(span)
    assert re.fullmatch(r"\d+:\d+:-?\d+:-?\d+", found.pop("messaging.message.id"))
    assert found == {
        "messaging.system": "pulsar", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "persistent://p/n/orders",
        "messaging.destination.subscription.name": "billing", "messaging.consumer.group.name": "billing",
        "kodo.level": "L1", "kodo.state": "ready", "kodo.attempt": 1, "kodo.hop": 0, "kodo.id": "o-1",
        "kodo.outcome": "done",
    }  # fmt: skip
    assert span.status.status_code is StatusCode.UNSET


def test_tenants_are_named_only_where_that_is_asked_for(tmp_path: Path, spans: Spans) -> None:
    consumer = load(tmp_path, traces_tenant=True)
    consumer.handler(lambda message: None)
    harness = Harness(consumer)
    harness.send(b"x", properties={"uid": "u1"})
    harness.run()
    assert facts(spans.all[0])["kodo.tenant"] == "u1"


def test_where_error_texts_travel_a_span_has_the_class_of_an_exception_alone(tmp_path: Path, spans: Spans) -> None:
    consumer = load(tmp_path)
    consumer.policy = replace(consumer.policy, error_text=ErrorTextPolicy(500, 500))
    failing(consumer, ValueError("secret"))
    harness = Harness(consumer)
    harness.send(b"x")
    harness.run()
    assert events(spans.all[0])[0] == ("exception", {"exception.type": "ValueError"})
    assert "secret" not in str([span.to_json() for span in spans.all])


def test_a_message_s_whole_life_is_one_trace_also_when_its_producer_made_none(tmp_path: Path, spans: Spans) -> None:
    consumer = load(tmp_path)
    failing(consumer, ValueError("no"), times=3)
    harness = Harness(consumer)
    harness.send(b"x")
    harness.advance("60s")

    assert spans.names == ["process orders", *["process orders-billing-RETRYING"] * 3]
    assert spans.traces == 1
    assert [facts(span)["kodo.attempt"] for span in spans.all] == [1, 2, 3, 4]
    assert [facts(span)["kodo.outcome"] for span in spans.all] == ["retrying", "retrying", "retrying", "done"]
    first = spans.all[0]
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "ValueError")
    (raised, moved) = events(first)
    assert raised[0] == "exception"
    assert raised[1]["exception.type"] == "ValueError"
    assert moved[0] == "kodo.moved"
    assert moved[1]["kodo.rule"] == "retrying"
    assert short(moved[1]["kodo.target"]) == "orders-billing-RETRYING"
    assert moved[1]["kodo.due_ms"] > 0
    assert facts(spans.all[1])["kodo.reason"] == "ValueError"


def test_waits_in_memory_are_told_and_stay_in_the_trace(tmp_path: Path, spans: Spans) -> None:
    consumer = load(tmp_path, "patient")
    failing(consumer, ValueError("no"))
    harness = Harness(consumer)
    harness.send(b"x")
    harness.advance("5s")
    assert spans.names == ["process orders"] * 2
    assert spans.traces == 1
    assert events(spans.all[0])[-1] == ("kodo.waits", {"kodo.rule": "in_place", "kodo.delay_ms": 1000})


@pytest.mark.parametrize(
    ("verdict", "rule", "error", "facts_"),
    [
        (Retry("30s", "later"), "retrying", "Retry", {"kodo.reason": "later"}),
        (Blocking("credit"), "blocking", "Blocking", {"kodo.reason": "credit"}),
        (Dead("negative amount"), "dead", "Dead", {"kodo.reason": "negative amount"}),
        (Discard("old"), "discarded", None, {"kodo.reason": "old"}),
        (MoveTo("L2"), "moved", None, {"kodo.target": "persistent://p/n/orders-L2"}),
        (Transfer("shipments"), "transferred", None, {"kodo.target": "persistent://p/n/shipments"}),
        (Unavailable("bank"), "unavailable", "Unavailable", {"kodo.delay_ms": 1000}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_a_handler_asks_for_is_an_outcome_not_an_exception(
    tmp_path: Path, spans: Spans, verdict: Exception, rule: str, error: str | None, facts_: dict[str, Any]
) -> None:
    consumer = load(tmp_path)
    failing(consumer, verdict)
    harness = Harness(consumer)
    harness.send(b"x")
    harness.run()
    span = spans.all[0]
    assert facts(span)["kodo.outcome"] == rule
    assert facts(span).get("error.type") == error
    assert span.status.status_code is (StatusCode.ERROR if error else StatusCode.UNSET)
    ((_, told),) = events(span)
    assert told["kodo.rule"] == rule
    assert facts_.items() <= told.items()


def test_what_is_transferred_continues_the_trace(tmp_path: Path, spans: Spans) -> None:
    consumer = load(tmp_path)
    failing(consumer, Transfer("shipments"))
    harness = Harness(consumer)
    harness.send(b"x")
    harness.run()
    (sent,) = harness.broker.messages("persistent://p/n/shipments")
    assert f"{context(spans.all[0]).span_id:016x}" in sent.properties["traceparent"]


@both
def test_the_span_is_the_handler_s_own_context(tmp_path: Path, spans: Spans, later: bool) -> None:
    consumer = load(tmp_path)
    tracer = trace.get_tracer("app")

    def handle(message: Message) -> None:
        with tracer.start_as_current_span("charge"):
            pass

    async def handle_later(message: Message) -> None:
        await asyncio.sleep(0)
        handle(message)

    consumer.handler(handle_later if later else handle)
    harness = Harness(consumer)
    harness.send(b"x")
    harness.send(b"y")
    harness.run()
    runs = {context(span).span_id: context(span).trace_id for span in spans.all if span.kind is SpanKind.CONSUMER}
    inner = [span for span in spans.all if span.name == "charge"]
    assert {span.parent.span_id: context(span).trace_id for span in inner if span.parent} == runs
    assert spans.traces == 2
    assert not trace.get_current_span().get_span_context().is_valid


@both
def test_middleware_runs_within_the_span(tmp_path: Path, spans: Spans, later: bool) -> None:
    consumer = load(tmp_path)
    seen = []

    def look() -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    async def around_later(message: Message, handle: Any) -> None:
        look()
        await handle(message)

    def around(message: Message, handle: Any) -> None:
        look()
        handle(message)

    async def handle_later(message: Message) -> None:
        look()

    consumer.handler(handle_later if later else lambda message: look())
    consumer.middleware(around_later if later else around)
    harness = Harness(consumer)
    harness.send(b"x")
    harness.run()
    assert seen == [context(spans.all[0]).span_id] * 2


@both
def test_a_batch_is_one_span_linked_to_every_message(tmp_path: Path, spans: Spans, later: bool) -> None:
    consumer = load(tmp_path)

    def handle(messages: list[Message]) -> list[Any]:
        return [ValueError() if message.data == b"bad" else None for message in messages]

    async def handle_later(messages: list[Message]) -> list[Any]:
        return handle(messages)

    consumer.batch_handler(max=3)(handle_later if later else handle)
    harness = Harness(consumer)
    harness.send(b"1", properties={"traceparent": PARENT})
    harness.send(b"bad", properties={"traceparent": PARENT.replace("b7ad", "b7ae")})
    harness.send(b"3")
    harness.run()
    span = spans.all[0]
    assert span.parent is None
    assert facts(span)["messaging.batch.message_count"] == 3
    assert [context(link).span_id for link in span.links] == [SPAN, SPAN + (1 << 48)]
    ((name, told),) = events(span)
    assert (name, told["kodo.rule"]) == ("kodo.moved", "retrying")
    assert told["messaging.message.id"]
    assert facts(span)["error.type"] == "ValueError"


def test_a_batch_whose_handler_raises_is_one_span_that_failed(tmp_path: Path, spans: Spans) -> None:
    consumer = load(tmp_path)

    @consumer.batch_handler(max=2)
    def handle(messages: list[Message]) -> None:
        raise ValueError

    harness = Harness(consumer)
    harness.send(b"1")
    harness.send(b"2")
    harness.run()
    (span,) = spans.all
    assert [name for name, _ in events(span)] == ["exception", "kodo.moved", "kodo.moved"]


def test_a_batch_of_several_lanes_names_none(tmp_path: Path, spans: Spans) -> None:
    consumer = load(tmp_path)
    consumer.batch_handler(max=2)(lambda messages: None)
    harness = Harness(consumer)
    harness.send(b"1")
    harness.send(b"2", level="L2")
    harness.run()
    assert spans.names == ["process"]


def test_what_is_not_sampled_costs_no_attributes_and_still_travels(tmp_path: Path) -> None:
    with exported(sampling.ParentBased(sampling.ALWAYS_OFF)) as spans:
        consumer = load(tmp_path)
        failing(consumer, ValueError("no"))
        harness = Harness(consumer)
        harness.send(b"x")
        harness.run()
        (moved,) = harness.waiting("L1", "retrying")
        assert not int(moved.properties["traceparent"].split("-")[3], 16) & 1  # the flag: not sampled, by anybody after
        assert spans.all == []


def test_threads_of_real_runners_each_have_their_own_context(tmp_path: Path, spans: Spans) -> None:
    """The producer's span, a failure, and the run that succeeds: one trace, on real threads."""
    from random import Random

    from kodo_consumer.runtime.thread_executor import ThreadExecutor
    from kodo_consumer.runtime.worker import Worker

    consumer = load(tmp_path, "patient")
    gate = threading.Barrier(2, timeout=10)

    def handle(message: Message) -> None:
        with trace.get_tracer("app").start_as_current_span(f"inside {message.text()}"):
            gate.wait()

    consumer.handler(handle)
    clock = SystemClock()
    broker = MemoryBroker(clock)
    broker.create_for(consumer.policy)
    pump = Pump(broker)
    runner = ThreadExecutor(consumer.handler_function(), 4)
    worker = Worker(consumer.policy, broker, runner, clock, Random(1), observers=consumer.observers)
    worker.open("me")
    try:
        with Producer("persistent://p/n/orders", broker) as producer:
            for name in "ab":
                producer.send(name.encode())
        eventually(lambda: worker.counts.done == 2)
    finally:
        worker.drain()
        worker.close()
        pump.stop()
    assert spans.traces == 2
    for name in "ab":
        (inside,) = [span for span in spans.all if span.name == f"inside {name}"]
        family = [span for span in spans.all if context(span).trace_id == context(inside).trace_id]
        assert sorted(short(span.name) for span in family) == [f"inside {name}", "process orders", "send orders"]
