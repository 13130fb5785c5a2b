"""A program that ends without closing its producer: what it has posted is stored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pulsar
import pytest

from kodoctl.protocol.sequence_numbers import Number, ProducerWatermark, read_number
from tests.brokers.broker import Broker
from tests.brokers.topics import create_topics

pytestmark = pytest.mark.broker
TOPOLOGY = """
version: 1
name: ends
tenant: {tenant}
namespace: ns
topics:
  jobs:
    partitions: 2
    subscriptions:
      alone: {{states: [], dead_letter: false, on_failure: block}}
"""
PROGRAM = """
import sys
from kodo_consumer import Producer

def main():
    producer = Producer.load(sys.argv[1], topic="jobs", admin_url=sys.argv[2], broker_url=sys.argv[3])
    for number in range(2_000):
        producer.post(b"%d" % number)

main()
raise SystemExit(3)
"""


def test_what_was_posted_is_stored_and_the_end_says_how_many_there_were(
    broker: Broker, tenant: str, tmp_path: Path
) -> None:
    """Of 2,000 messages 1,999 were stored, and the exit code was 0."""
    assert broker.admin("PUT", f"namespaces/{tenant}/ns").ok
    path = tmp_path / "t.yaml"
    path.write_text(TOPOLOGY.format(tenant=tenant), encoding="utf-8")
    create_topics(broker, str(path))
    client = pulsar.Client(broker.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    try:
        topic, earliest = f"persistent://{tenant}/ns/jobs", pulsar.InitialPosition.Earliest
        reader = client.subscribe(topic, "look", initial_position=earliest)
        command = [sys.executable, "-c", PROGRAM, str(path), broker.admin_url, broker.broker_url]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (3, "", "")
        seen, ends = 0, dict[int, int]()
        while len(ends) < 2:
            match read_number(reader.receive(20_000).properties()["kodo-seq"]):
                case Number():
                    seen += 1
                case ProducerWatermark(partition=partition, high=high, end=True):
                    ends[partition] = high
    finally:
        client.close()
    assert (seen, sum(ends.values())) == (2_000, 2_000)
