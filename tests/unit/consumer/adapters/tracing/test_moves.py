"""Spans of moves that no handler was asked about: routes, limits, isolation, what is broken, what a target refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Retry
from kodo_consumer.adapters.tracing.setup import runs_of
from kodo_consumer.core.values.broker import Confirmed, Rejected
from kodo_consumer.core.values.envelope import Level, Outgoing
from kodo_consumer.core.values.policy import IsolationPolicy
from kodo_consumer.testing import Harness
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tests.unit.consumer.engine_bench import Bench, delivery, policy
from tests.unit.consumer.topologies import write
from tests.unit.consumer.traced_runs import PARENT, SPAN, TRACE
from tests.unit.consumer.tracing import Spans, context, events, facts, short

RETRYING = "persistent://p/n/orders-plain-RETRYING"
TOPICS = """
  orders:
    levels: double
    backup: true
    subscriptions:
      routed: {routes: [{when: {property: size, greater_than: 10}, to: B1}]}
      paced: {limits: [{kind: rate, limit: 1/m}], states: [retrying, pending]}
      counted: {limits: [{kind: quota, limit: 1/h}], states: [retrying, blocking]}
      plain: {in_place: [], retrying: {delays: [10s]}}
"""


def load(folder: Path, subscription: str, runs: list[str] | None = None) -> Harness:
    consumer = Consumer.load(write(folder, TOPICS), topic="orders", subscription=subscription, environ={})
    consumer.handler(lambda message: None if runs is None else runs.append(message.text()))
    return Harness(consumer)


@pytest.mark.parametrize(
    ("subscription", "properties", "target", "rule", "reason"),
    [
        ("routed", {"size": "11"}, "orders-B1", "routed", ""),
        ("paced", {}, "orders-paced-PENDING", "pending", "over its limit"),
        ("counted", {}, "orders-counted-BLOCKING", "blocking", "over its limit"),
    ],
)
def test_a_move_without_a_run_is_a_span_of_the_message_s_trace(
    tmp_path: Path, spans: Spans, subscription: str, properties: dict[str, str], target: str, rule: str, reason: str
) -> None:
    harness = load(tmp_path, subscription)
    if subscription != "routed":
        harness.send(b"first", id="first")
    harness.send(b"x", properties={"traceparent": PARENT, **properties}, id="o-1")
    harness.run()

    (span,) = [span for span in spans.all if span.name.startswith("move")]
    assert (short(span.name), span.kind) == ("move orders", SpanKind.CLIENT)
    assert context(span).trace_id == TRACE
    assert [context(link).span_id for link in span.links] == [SPAN]
    assert span.parent is not None
    assert span.parent.span_id == SPAN
    found = facts(span)
    assert found.pop("messaging.message.id")
    assert found == {
        "messaging.system": "pulsar", "messaging.operation.name": "move", "messaging.operation.type": "settle",
        "messaging.destination.name": "persistent://p/n/orders",
        "messaging.destination.subscription.name": subscription, "messaging.consumer.group.name": subscription,
        "kodo.level": "L1", "kodo.state": "ready", "kodo.hop": 0, "kodo.id": "o-1", "kodo.outcome": rule,
    }  # fmt: skip
    ((name, told),) = events(span)
    assert name == "kodo.moved"
    assert (told["kodo.rule"], short(told["kodo.target"]), told["kodo.reason"]) == (rule, target, reason)
    assert ("kodo.due_ms" in told) is (rule != "routed")
    assert span.status.status_code is StatusCode.UNSET


def test_a_message_without_a_trace_gets_the_one_of_its_first_move(tmp_path: Path, spans: Spans) -> None:
    harness = load(tmp_path, "routed", runs := [])
    harness.send(b"x", properties={"size": "11"})
    harness.run()
    assert runs == ["x"]
    assert spans.names == ["move orders", "process orders-B1"]
    assert spans.traces == 1
    move, run = spans.all
    assert run.parent is not None
    assert run.parent.span_id == context(move).span_id


def test_a_move_whose_context_cannot_be_written_is_a_span_all_the_same(
    tmp_path: Path, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError

    harness = load(tmp_path, "routed", runs := [])
    monkeypatch.setattr(TraceContextTextMapPropagator, "inject", fail)
    harness.send(b"x", properties={"size": "11"})
    harness.run()
    assert (runs, spans.names) == (["x"], ["move orders", "process orders-B1"])


def test_what_is_broken_or_refused_dies_in_a_span_that_failed(tmp_path: Path, spans: Spans) -> None:
    harness = load(tmp_path, "plain")
    harness.broker.send(Outgoing(RETRYING, b"x", {"kodo-hop": "junk"}))
    harness.run()
    (span,) = spans.all
    assert facts(span)["error.type"] == "Broken"
    assert (short(span.name), span.status.status_code) == ("move orders-plain-RETRYING", StatusCode.ERROR)
    assert events(span)[0][1]["kodo.reason"] == "broken control property kodo-hop"
    (letter,) = harness.dead_letters
    assert f"{context(span).span_id:016x}" in letter.properties["traceparent"]


def test_a_refused_move_is_a_span_beside_the_run_s(tmp_path: Path, spans: Spans) -> None:
    consumer = Consumer.load(write(tmp_path, TOPICS), topic="orders", subscription="plain", environ={})

    @consumer.handler
    def fail(message: Any) -> None:
        raise Retry

    harness = Harness(consumer)
    harness.broker.fail_sends(RETRYING, Rejected("too big"))
    harness.send(b"x")
    harness.run()
    assert spans.names == ["process orders", "move orders"]
    assert spans.traces == 1
    moved = spans.all[1]
    assert facts(moved)["error.type"] == "Refused"
    assert events(moved)[0][1]["kodo.reason"] == "refused by its target: too big"


def test_whoever_is_isolated_is_seen_to_be_so(spans: Spans) -> None:
    isolate = IsolationPolicy(0.25, 100, "B1")
    of = policy((Level.L1, Level.B1), fair_by="u", isolate=isolate, lookahead_messages=1_135, concurrency=16)
    bench = Bench(of, runs_of(of, "auto", tenant=True))
    bench.give(*(delivery(number, u="noisy") for number in range(of.max_held)))
    assert bench.engine.room(0) == 0
    bench.engine.tick()
    out = bench.published()
    for ticket, _ in out:
        bench.engine.receipt(ticket, Confirmed("x"))
    assert len(out) == len(spans.all) > 0
    assert {facts(span)["kodo.outcome"] for span in spans.all} == {"isolated"}
    assert {facts(span)["kodo.tenant"] for span in spans.all} == {"noisy"}


def test_what_waits_in_memory_makes_no_span(tmp_path: Path, spans: Spans) -> None:
    harness = load(tmp_path, "plain")
    due = harness.clock.wall() + 3_000
    harness.broker.send(Outgoing(RETRYING, b"x", {"kodo-due": str(due)}))
    harness.run()
    assert spans.all == []
    harness.advance("4s")
    assert spans.names == ["process orders-plain-RETRYING"]


def test_a_tracer_that_fails_keeps_no_message_from_its_way(
    tmp_path: Path, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = load(tmp_path, "routed", runs := [])
    monkeypatch.setattr("kodo_consumer.adapters.tracing.handler_spans.read_context", _breaks)
    harness.send(b"x", properties={"size": "11"})
    harness.run()
    assert runs == ["x"]
    assert spans.all == []


def _breaks(*_: Any) -> Any:
    raise RuntimeError("propagator")
