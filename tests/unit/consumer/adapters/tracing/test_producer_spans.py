"""Spans of producers and of the outbox, when there are traces at all, and what is an error there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Draft, Veto
from kodo_consumer.adapters.tracing import setup
from kodo_consumer.core.checks.message_validation import MessageValidator
from kodo_consumer.core.values.broker import Rejected, Unconfirmed
from kodo_consumer.outbox import Outbox
from kodo_consumer.outbox.table import TABLE
from kodo_consumer.producer import Producer
from kodo_consumer.runtime.settings import Settings, read_settings
from kodo_consumer.testing import MemoryBroker
from opentelemetry import trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode
from sqlalchemy import create_engine, select

from kodoctl.errors import ClusterError, KodoctlError, UsageError
from tests.unit.consumer.pump import pumped
from tests.unit.consumer.topologies import write
from tests.unit.consumer.tracing import Spans, context, exported, facts

TOPIC = "persistent://p/n/orders"
MINE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with pumped(TOPIC) as broker:
        yield broker


def test_a_message_s_span_is_of_the_caller_and_goes_with_the_message(broker: MemoryBroker, spans: Spans) -> None:
    with Producer(TOPIC, broker) as producer, trace.get_tracer("app").start_as_current_span("checkout") as checkout:
        name = producer.send(b"x")
    (sent,) = [span for span in spans.all if span.kind is SpanKind.PRODUCER]
    (stored, *_) = broker.messages(TOPIC)
    found = context(sent)
    assert sent.name == f"send {TOPIC}"
    assert sent.parent == checkout.get_span_context()
    assert stored.properties["traceparent"] == f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"
    assert facts(sent).pop("messaging.message.id")
    assert facts(sent).items() >= {
        "messaging.system": "pulsar", "messaging.operation.name": "send", "messaging.operation.type": "send",
        "messaging.destination.name": TOPIC, "kodo.id": name,
    }.items()  # fmt: skip
    assert sent.status.status_code is StatusCode.UNSET


def test_a_context_that_the_application_gave_stays_and_is_linked(broker: MemoryBroker, spans: Spans) -> None:
    with Producer(TOPIC, broker) as producer:
        producer.send(b"x", properties={"traceparent": MINE})
        with trace.get_tracer("app").start_as_current_span("other"):
            producer.send(b"y", properties={"traceparent": MINE})
        producer.send(b"z", properties={"traceparent": "nonsense"})
    alone, _, within, broken = spans.all
    assert [stored.properties["traceparent"] for stored in broker.messages(TOPIC)[:3]] == [MINE, MINE, "nonsense"]
    assert [span.kind for span in (alone, within, broken)] == [SpanKind.CLIENT] * 3
    assert [[f"{context(link).span_id:x}" for link in span.links] for span in (alone, within)] == [[MINE[36:52]]] * 2
    assert f"{context(alone).trace_id:032x}" == MINE[3:35]
    assert f"{context(within).trace_id:032x}" != MINE[3:35]
    assert list(broken.links) == []


def test_a_message_that_is_not_sampled_carries_its_context_all_the_same(broker: MemoryBroker) -> None:
    with exported(ALWAYS_OFF) as spans, Producer(TOPIC, broker) as producer:
        producer.send(b"x")
    assert int(broker.messages(TOPIC)[0].properties["traceparent"][-2:], 16) % 2 == 0, "the flag: not sampled"
    assert spans.all == []


def test_the_span_begins_after_the_hooks_before_sending_and_has_ended_when_others_hear(
    broker: MemoryBroker, spans: Spans
) -> None:
    heard: list[tuple[str, int]] = []
    with Producer(TOPIC, broker) as producer:

        @producer.interceptor("send")
        def carry(draft: Draft) -> None:
            draft.options["properties"] = {"traceparent": MINE}
            if not draft.payload:
                raise Veto("empty")

        producer.interceptor("sent")(lambda sent: heard.append((sent.id, len(spans.all))))
        name = producer.send(b"x")
        with pytest.raises(UsageError, match="K734"):
            producer.send(b"")
    (sent,) = spans.all
    assert heard == [(name, 1)]
    assert [f"{context(link).span_id:x}" for link in sent.links] == [MINE[36:52]]


@pytest.mark.parametrize(("receipt", "kind"), [(Unconfirmed("gone"), "lost"), (Rejected("too big"), "never_taken")])
def test_a_send_without_receipt_is_an_error(
    broker: MemoryBroker, spans: Spans, receipt: Unconfirmed, kind: str
) -> None:
    with Producer(TOPIC, broker) as producer:
        broker.fail_sends(TOPIC, receipt)
        with pytest.raises(ClusterError):
            producer.send(b"x")
    assert facts(spans.all[0])["error.type"] == kind
    assert spans.all[0].status.description == receipt.reason


def test_what_was_given_up_or_never_went_out_ends_its_span_too(
    broker: MemoryBroker, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.sending.numbered_publisher._LAST_MARKS", 0.01)
    producer = Producer(TOPIC, broker)
    for module in ("producer", "sending.numbered_publisher"):
        monkeypatch.setattr(f"kodo_consumer.{module}.RECEIPT_TIMEOUT", 0.01)
    broker.hold_receipts = True
    with pytest.raises(ClusterError):
        producer.send(b"x")
    monkeypatch.setattr("kodo_consumer.sending.pending_messages.MOST", 0)
    with pytest.raises(ClusterError):
        producer.send(b"y")
    monkeypatch.setattr("kodo_consumer.sending.pending_messages.MOST", 9)
    producer.post(b"z")
    with pytest.raises(ClusterError):
        producer.close(0.01)
    assert [facts(span)["error.type"] for span in spans.all] == ["lost", "ClusterError", "lost"]


def test_senders_on_an_event_loop_are_in_their_own_span_also_when_they_wait_for_room(
    broker: MemoryBroker, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(producer: Producer) -> None:
        with trace.get_tracer("app").start_as_current_span("async"):
            first = asyncio.ensure_future(producer.send_async(b"x"))
            await asyncio.sleep(0)
            await asyncio.gather(first, producer.send_async(b"y"))

    monkeypatch.setattr("kodo_consumer.sending.pending_messages.MOST", 1)
    with Producer(TOPIC, broker) as producer:
        asyncio.run(send(producer))
    assert spans.traces == 1
    assert len(spans.all) == 3


def test_a_row_of_the_outbox_keeps_the_span_it_was_written_in(tmp_path: Path, spans: Spans) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/o.db")
    TABLE.metadata.create_all(engine)
    outbox = Outbox()
    with trace.get_tracer("app").start_as_current_span("request") as request, engine.begin() as connection:
        outbox.add(connection, topic="orders", payload=b"1")
        outbox.add(connection, topic="orders", payload=b"2", properties={"traceparent": MINE})
    with engine.begin() as connection:
        outbox.add(connection, topic="orders", payload=b"3")
        Outbox(traces="off").add(connection, topic="orders", payload=b"4")
        rows = [row.properties for row in connection.execute(select(TABLE).order_by(TABLE.c.body))]
    assert f"{request.get_span_context().span_id:016x}" in rows[0]
    assert MINE in rows[1]
    assert rows[2:] == ["{}", "{}"]


class _OneHeader(TextMapPropagator):
    """A propagator of one property, as that of B3 is; it raises if the property has no name."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def fields(self) -> set[str]:
        return {self._name}

    def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
        return context

    def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
        if not self._name:
            raise RuntimeError("no name")
        carrier[self._name] = "1"


@pytest.mark.parametrize("name", ["", "b3"], ids=["raises", "undeclared"])
def test_a_propagator_that_fails_costs_no_message_and_no_span(
    broker: MemoryBroker,
    tmp_path: Path,
    spans: Spans,
    name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kodo_consumer.adapters.tracing.propagation.HARMLESS.last_log", float("-inf"))
    monkeypatch.setattr("opentelemetry.propagate._HTTP_TEXT_FORMAT", _OneHeader(name))
    with Producer(TOPIC, broker, form=MessageValidator(None, {"uid": "optional"})) as producer:
        producer.send(b"x", properties={"uid": "u"})
    assert broker.messages(TOPIC)[0].properties.keys() & {"uid", name} == {"uid"}
    assert [(span.kind, span.status.status_code) for span in spans.all] == [(SpanKind.PRODUCER, StatusCode.UNSET)]

    outbox = Outbox.load(write(tmp_path, "  orders: {message_properties: {uid: optional}}\n"))
    _, row = outbox.statement("sqlite", topic="orders", payload={}, properties={"uid": "u"})
    assert row["properties"] == '{"uid": "u"}'
    assert caplog.text.count("a span could not be made or ended") == 1


def test_a_row_keeps_the_context_that_the_application_gave_by_another_propagator(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opentelemetry.propagate._HTTP_TEXT_FORMAT", _OneHeader("b3"))
    given: list[dict[str, str]] = [{"b3": "mine"}, {}]
    rows = [Outbox().statement("sqlite", topic="orders", payload={}, properties=properties)[1] for properties in given]
    assert [row["properties"] for row in rows] == ['{"b3": "mine"}', '{"b3": "1"}']


def test_a_trace_may_go_with_any_message_whatever_properties_are_declared() -> None:
    assert MessageValidator(None, {"uid": "required"}).check_properties({"uid": "u", "traceparent": MINE}) == {
        "uid": "u",
        "traceparent": MINE,
    }
    with pytest.raises(UsageError, match="not declared: trace"):
        MessageValidator(None, {"uid": "required"}).check_properties({"uid": "u", "trace": MINE})


# ---- whether there are traces


def test_without_a_provider_nothing_is_traced(broker: MemoryBroker, tmp_path: Path) -> None:
    consumer = Consumer.load(
        write(tmp_path, "  J: {subscriptions: {s: {}}}\n"), topic="J", subscription="s", environ={}
    )
    consumer.handler(lambda message: None)
    assert consumer.handler_function().__module__ == "kodo_consumer.runtime.handler_results", (
        "nothing else is around the handler"
    )
    with Producer(TOPIC, broker) as producer:
        producer.send(b"x")
    assert "traceparent" not in broker.messages(TOPIC)[0].properties


def test_traces_that_are_off_are_off_whatever_the_application_does(broker: MemoryBroker, spans: Spans) -> None:
    with Producer(TOPIC, broker, traces="off") as producer:
        producer.send(b"x")
    assert spans.all == []


def test_importing_the_consumer_does_not_import_opentelemetry() -> None:
    program = "import sys, kodo_consumer.consumer, kodo_consumer.producer; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_traces_that_must_be_and_cannot_are_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"K762.*no tracer provider is set"):
        setup.tracer_of("on")
    monkeypatch.setattr(setup, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"K762.*pip install '.\[otel\]'"):
        setup.tracer_of("on")


def test_a_consumer_that_must_trace_and_cannot_says_so_before_it_connects(tmp_path: Path) -> None:
    path = write(tmp_path, "  J: {subscriptions: {s: {}}}\n")
    consumer = Consumer.load(path, topic="J", subscription="s", environ={"KODO_CONSUMER_TRACES": "on"})
    consumer.handler(lambda message: None)
    with pytest.raises(UsageError, match="K762"):
        consumer.start()  # no cluster is named anywhere


def test_a_provider_that_does_nothing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", NoOpTracerProvider())
    assert setup.tracer_of("auto") is None
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider())
    assert setup.tracer_of("auto") is not None
    assert setup.tracer_of("on") is not None


def test_settings_say_so(tmp_path: Path) -> None:
    (tmp_path / "kodo-consumer.toml").write_text('traces = "on"\ntraces_tenant = true\n', encoding="utf-8")
    found = read_settings({}, tmp_path)
    assert (found.traces, found.traces_tenant) == ("on", True)
    assert read_settings({"KODO_CONSUMER_TRACES": "off", "KODO_CONSUMER_TRACES_TENANT": "False"}, tmp_path) == Settings(
        traces="off"
    )
    with pytest.raises(KodoctlError, match=r"traces: write auto, on, off[\s\S]*traces_tenant: write true or false"):
        read_settings({"KODO_CONSUMER_TRACES": "yes", "KODO_CONSUMER_TRACES_TENANT": "1"}, tmp_path)
