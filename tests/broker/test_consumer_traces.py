"""One message's life on the real broker, from its producer over a failure to done, is one trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from kodo_consumer import Consumer, Message, Producer
from opentelemetry.trace import SpanKind, StatusCode

from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics
from tests.services.polling import eventually
from tests.unit.consumer.tracing import context, events, exported, facts

pytestmark = [pytest.mark.broker, pytest.mark.timed]
TOPOLOGY = """
version: 1
name: traced
tenant: {tenant}
namespace: {namespace}
topics:
  J: {{partitions: 2, subscriptions: {{s: {{in_place: [], retrying: {{delays: [1s], attempts: 3}}}}}}}}
"""


def test_from_the_producer_over_a_failure_to_done_is_one_trace(broker: Broker, namespace: str, tmp_path: Path) -> None:
    tenant, _, name = namespace.partition("/")
    file = tmp_path / "t.yaml"
    file.write_text(TOPOLOGY.format(tenant=tenant, namespace=name), encoding="utf-8")
    create_topics(broker, str(file))
    place = broker.client_options

    with exported() as spans:
        consumer = Consumer.load(file, topic="J", subscription="s", **place)

        @consumer.handler
        async def handle(message: Message) -> None:
            if message.attempt == 1:
                raise ValueError(message.text())

        consumer.start()
        try:
            with Producer.load(file, topic="J", **place) as producer:
                sent = {producer.send(text.encode()) for text in "abc"}
                eventually(lambda: len(spans.all) == 9)
        finally:
            consumer.stop()

    assert spans.traces == 3
    lives = {facts(span)["kodo.id"]: context(span).trace_id for span in spans.all}
    assert lives.keys() == sent
    for trace in lives.values():
        send, failed, done = [span for span in spans.all if context(span).trace_id == trace]
        ready, retrying = f"persistent://{namespace}/J", f"persistent://{namespace}/J-s-RETRYING"
        assert [span.name for span in (send, failed, done)] == [
            f"send {ready}",
            f"process {ready}",
            f"process {retrying}",
        ]
        assert [span.kind for span in (send, failed, done)] == [SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CONSUMER]
        assert {span.parent.span_id for span in (failed, done) if span.parent} == {context(send).span_id}
        assert facts(send)["messaging.message.id"] == facts(failed)["messaging.message.id"], "as the broker named it"
        assert facts(failed)["messaging.destination.partition.id"] in ("0", "1")
        assert failed.status.status_code is StatusCode.ERROR
        assert events(failed)[-1][1]["kodo.target"] == retrying
        assert [facts(span)["kodo.outcome"] for span in (failed, done)] == ["retrying", "done"]
        assert (failed.end_time or 0) < (done.start_time or 0)
