"""How late a declared wait is, on a real broker: messages that fail once and come back from RETRYING after 3 s.

    python benchmarks/consumer/lateness.py [--messages 600] [--delays 3s 10s] [--out FILE]

Late is the start of the second handler run against the due time that the message carries (waits of more than 5 s are given a
random + 0 to 3 s, which is part of the due time; shorter ones are what the file declares). Early is a bug. Beside it the
same wait by the raw client: `deliver_after`, and the moment it is received. Every run is a line of lateness.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import threading
import time
from datetime import timedelta
from pathlib import Path

import pulsar
from cluster import client, create_tenant, create_topic, loaded, topology
from kodo_consumer import Message, Retry
from kodo_consumer.message import parts_of

HERE = Path(__file__).parent
TOPICS = """
  flow:
    subscriptions:
      s: {{states: [retrying], dead_letter: false, in_place: [], concurrency: 16, retrying: {{delays: [{delay}]}}}}
"""


def ours(tenant: str, messages: int, delay: str) -> list[float]:
    consumer = loaded(topology(tenant, TOPICS.format(delay=delay)))
    late: list[float] = []
    over = threading.Event()

    def handle(message: Message) -> None:
        _, _, headers = parts_of(message)
        if headers.due is None:
            raise Retry
        late.append(time.time() * 1000 - headers.due)
        if len(late) == messages:
            over.set()

    consumer.handler(handle)
    consumer.start()
    produce(tenant, messages)
    over.wait(120)
    consumer.stop()
    return late


def raw(tenant: str, messages: int, delay: str) -> list[float]:
    with_broker = client()
    consumer = with_broker.subscribe(f"persistent://{tenant}/ns/flow", "s", pulsar.ConsumerType.Shared)
    produce(tenant, messages, timedelta(seconds=int(delay.removesuffix("s"))))
    late = []
    for _ in range(messages):
        message = consumer.receive(120_000)
        late.append(time.time() * 1000 - float(message.data()))
        consumer.acknowledge(message)
    with_broker.close()
    return late


def produce(tenant: str, messages: int, after: timedelta | None = None) -> None:
    """300 a second; the payload is when the message is due."""
    with_broker = client()
    producer = with_broker.create_producer(f"persistent://{tenant}/ns/flow")
    for _ in range(messages):
        due = time.time() * 1000 + (after.total_seconds() * 1000 if after else 0)
        producer.send_async(f"{due}".encode(), lambda *_: None, deliver_at=int(due) if after else None)
        time.sleep(1 / 300)
    producer.flush()
    with_broker.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=600)
    parser.add_argument("--delays", nargs="+", default=["3s", "10s"])
    parser.add_argument("--out", default=str(HERE / "lateness.jsonl"))
    arguments = parser.parse_args()
    for delay in arguments.delays:
        for name, arm in (("raw", raw), ("ours", ours)):
            tenant = f"late{time.time_ns() // 1_000_000}"
            create_tenant(tenant)
            create_topic(tenant, "flow", "s")
            create_topic(tenant, "flow-s-RETRYING", "s")
            found = sorted(arm(tenant, arguments.messages, delay))
            record = {
                "arm": name, "delay": delay, "messages": len(found), "early": sum(one < 0 for one in found),
                "min_ms": round(found[0], 1), "p50_ms": round(found[len(found) // 2], 1),
                "p99_ms": round(found[int(len(found) * 0.99)], 1), "max_ms": round(found[-1], 1),
                "load": os.getloadavg()[0], "python": platform.python_version(),
            }  # fmt: skip
            with Path(arguments.out).open("a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")
            print(f"{name:5} {delay:>4}  late by {record['min_ms']}, p50 {record['p50_ms']}, p99 {record['p99_ms']},"
                  f" max {record['max_ms']} ms; {record['early']} early of {record['messages']}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
