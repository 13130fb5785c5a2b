"""Spans of handlers in processes: made by the worker, and the context goes over the pipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from kodo_consumer import Consumer, Message
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing import MemoryBroker
from opentelemetry.trace import get_current_span

from tests.services.polling import eventually
from tests.unit.consumer import traced_handlers
from tests.unit.consumer.pump import Pump
from tests.unit.consumer.topologies import write
from tests.unit.consumer.tracing import Spans, context, events, exported, facts

TOPICS = "  J: {subscriptions: {s: {in_place: [], retrying: {delays: [10s]}}}}\n"


@contextmanager
def working(folder: Path, *hooks: Callable[..., object]) -> Iterator[tuple[MemoryBroker, Worker, Spans]]:
    """A worker with one process, on a broker in memory."""
    with exported() as spans:
        consumer = Consumer.load(write(folder, TOPICS), topic="J", subscription="s", environ={})
        consumer.handler(process=1)(traced_handlers.handle)
        for hook in hooks:
            consumer.middleware(hook)
        policy = consumer.handling.policy_for_worker(consumer.policy, consumer._hooks)
        clock = SystemClock()
        broker = MemoryBroker(clock)
        broker.create_for(policy)
        pump = Pump(broker)
        runner = consumer.handling.runner(policy, None, consumer._hooks, consumer._traces)
        worker = Worker(policy, broker, runner, clock, Random(1), observers=consumer.observers)
        worker.open("me")
        try:
            yield broker, worker, spans
        finally:
            worker.drain()
            worker.close()
            pump.stop()


def test_a_handler_in_a_process_runs_in_the_span_that_the_worker_made(tmp_path: Path) -> None:
    crash = f"once:{tmp_path / 'crashed'}"
    with working(tmp_path) as (broker, worker, spans):
        for text in ("where", "where", "fail", crash, "fine"):
            broker.send(Outgoing("persistent://p/n/J", text.encode(), {}))
        eventually(lambda: len(spans.all) == 6 and worker.counts.done == 2)

    where = [span for span in spans.all if facts(span).get("kodo.outcome") == "discarded"]
    assert len(where) == 2
    for span in where:
        assert events(span)[0][1]["kodo.reason"] == f"{context(span).span_id:016x}", "the context was there"
    ends = Counter(facts(span).get("error.type") or facts(span)["kodo.outcome"] for span in spans.all)
    assert ends == {"discarded": 2, "ValueError": 1, "process ended": 1, "done": 2}
    times = [(span.start_time or 0, span.end_time or 0) for span in spans.all]
    assert all(ended <= began for (_, ended), (began, _) in pairwise(times)), "one begins when the other has ended"


def test_hooks_around_it_are_in_the_same_span_which_goes_on_through_a_crash(tmp_path: Path) -> None:
    crash, around = f"once:{tmp_path / 'crashed'}", []

    def look(message: Message, handle: Any) -> None:
        around.append(get_current_span().get_span_context().span_id)
        handle(message)

    with working(tmp_path, look) as (broker, worker, spans):
        for text in ("where", "fail", crash):
            broker.send(Outgoing("persistent://p/n/J", text.encode(), {}))
        eventually(lambda: len(spans.all) == 3 and worker.counts.done == 1)

    assert sorted(context(span).span_id for span in spans.all) == sorted(around)
    (where,) = [span for span in spans.all if facts(span).get("kodo.outcome") == "discarded"]
    assert events(where)[0][1]["kodo.reason"] == f"{context(where).span_id:016x}", "the context was there"
    ends = Counter(facts(span).get("error.type") or facts(span)["kodo.outcome"] for span in spans.all)
    assert ends == {"discarded": 1, "ValueError": 1, "done": 1}, "no other than without hooks"
