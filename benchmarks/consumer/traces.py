"""Cost of traces per message: handler runs and sends, without traces and with them, by CPU time of one thread; and of a
producer's interceptors.

No broker: the spans of a handler that does nothing, and of a producer before it publishes; posts have receipts at once. Exported spans go nowhere, but
through the batch processor that applications use.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import opentelemetry.trace
from kodo_consumer.adapters.tracing.setup import runs_of, sends_of
from kodo_consumer.core.checks.message_validation import CheckedMessage, MessageValidator, NewMessage
from kodo_consumer.core.values.broker import Confirmed
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.message import parts_of
from kodo_consumer.producer import Producer
from kodo_consumer.runtime.handler_spec import HandlerSpec
from kodo_consumer.runtime.middleware import Hooks
from kodo_consumer.testing import message
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

TRACEPARENT = "00-{:032x}-b7ad6b7169203331-{}"


class Nowhere(SpanExporter):
    """Takes spans."""

    def export(self, spans: Any) -> SpanExportResult:  # noqa: ARG002
        return SpanExportResult.SUCCESS


def provided(ratio: float | None) -> None:
    """A provider that samples so many; None: none at all."""
    provider = None
    if ratio is not None:
        provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)))
        provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    opentelemetry.trace._TRACER_PROVIDER = provider  # noqa: SLF001


def handler_cost(count: int, ratio: float | None, *, later: bool, flags: str | None) -> float:
    """µs a run; `flags` of the producer's context, None: messages carry none."""
    provided(ratio)
    one = message(b"x")
    policy = Policy(ground="t", subscription="s", lanes=(parts_of(one)[1],), targets={}, dead_letter=None, waits={})
    handling = HandlerSpec(_later if later else _plain)
    called = handling.executor_function(Hooks(), runs_of(policy, "auto", tenant=False))
    carried = [{} if flags is None else {"traceparent": TRACEPARENT.format(7 + i, flags)} for i in range(count)]
    messages = [message(b"x", properties=properties) for properties in carried]
    return asyncio.run(_timed_later(called, messages)) if later else _timed(called, messages)


def send_cost(count: int, ratio: float | None) -> float:
    """µs a send."""
    provided(ratio)
    begin, form = sends_of("auto"), MessageValidator()
    messages = [NewMessage("id", b"x", {}) for _ in range(count)]
    began = time.thread_time()
    for one in messages:
        on_sent = None if begin is None else begin(CheckedMessage(one, "persistent://p/n/t", form))
        if on_sent is not None:
            on_sent(Confirmed("(1,2,-1,-1)"))
    return (time.thread_time() - began) / count * 1e6


class Instantly:
    """Broker and publisher of one topic without partitions: each message has its receipt at once."""

    def partitions(self, topic: str) -> list[str]:
        return [topic]

    def publisher(self, _: list[str], on_receipts: Callable[[list[Any]], None]) -> Instantly:
        self.on_receipts = on_receipts
        return self

    def publish(self, messages: list[tuple[int, Any]]) -> None:
        self.on_receipts([(ticket, Confirmed("(1,2,-1,-1)")) for ticket, _ in messages])

    def close(self) -> None: ...


def post_cost(count: int, *, hooks: bool, ratio: float | None = None) -> float:
    """µs a post; `hooks`: with an interceptor of each kind that does nothing; `ratio`: as of `provided`."""
    provided(ratio)
    with Producer("persistent://p/n/t", cast("Any", Instantly())) as producer:
        if hooks:
            producer.interceptor("send")(_plain)
            producer.interceptor("publish")(_plain)
            producer.interceptor("sent")(_plain)
            producer.interceptor("failed")(lambda _, problem: None)  # noqa: ARG005  # called with both
        began = time.thread_time()
        for _ in range(count):
            producer.post(b"x", _plain)
        return (time.thread_time() - began) / count * 1e6


def _plain(_: Any) -> None:
    pass


async def _later(_: Any) -> None:
    pass


def _timed(called: Callable[[Any], Any], messages: list[Any]) -> float:
    began = time.thread_time()
    for one in messages:
        called(one)
    return (time.thread_time() - began) / len(messages) * 1e6


async def _timed_later(called: Callable[[Any], Any], messages: list[Any]) -> float:
    began = time.thread_time()
    for one in messages:
        await called(one)
    return (time.thread_time() - began) / len(messages) * 1e6


ARMS: dict[str, Callable[[int], float]] = {
    "handler, no traces": lambda count: handler_cost(count, None, later=False, flags="01"),
    "handler, none sampled": lambda count: handler_cost(count, 0.0, later=False, flags="00"),
    "handler, one in a hundred": lambda count: handler_cost(count, 0.01, later=False, flags=None),
    "handler, all": lambda count: handler_cost(count, 1.0, later=False, flags="01"),
    "async handler, no traces": lambda count: handler_cost(count, None, later=True, flags="01"),
    "async handler, all": lambda count: handler_cost(count, 1.0, later=True, flags="01"),
    "send, no traces": lambda count: send_cost(count, None),
    "send, none sampled": lambda count: send_cost(count, 0.0),
    "send, all": lambda count: send_cost(count, 1.0),
    "post, no interceptor": lambda count: post_cost(count, hooks=False),
    "post, an interceptor each": lambda count: post_cost(count, hooks=True),
    "post, spans, none sampled": lambda count: post_cost(count, hooks=False, ratio=0.0),
    "post, spans, all sampled": lambda count: post_cost(count, hooks=False, ratio=1.0),
}


def main() -> None:
    """Prints medians, and adds every run to traces.jsonl."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in ARMS}
    with (Path(__file__).parent / "traces.jsonl").open("a", encoding="utf-8") as results:
        for _ in range(options.repeats):
            for name, arm in ARMS.items():
                found[name].append(arm(options.messages))
                line = {"arm": name, "us": round(found[name][-1], 2), "load": os.getloadavg()[0],
                        "python": platform.python_version(), "cores": os.cpu_count()}  # fmt: skip
                results.write(json.dumps(line) + "\n")
    for name, costs in found.items():
        print(f"{name:28} {statistics.median(costs):6.1f} µs  ({min(costs):.1f}-{max(costs):.1f})")


if __name__ == "__main__":
    main()
