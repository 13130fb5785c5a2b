"""`Producer` beside a broker that is away: partitions of others go on, every send has an answer, and the process ends."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections import Counter
from contextlib import suppress

import pytest
from kodo_consumer.adapters.pulsar.pulsar_broker import PulsarBroker
from kodo_consumer.core.sequences.sequencer import key_hash
from kodo_consumer.core.values.broker import Confirmed, Receipt
from kodo_consumer.producer import Producer

from kodoctl.errors import ClusterError
from kodoctl.pulsar.connection.connection import Connection
from tests.brokers.cluster import Cluster
from tests.services.polling import eventually

pytestmark = pytest.mark.full


def _receipts_while_a_broker_is_dead(
    cluster: Cluster, namespace: str, seconds: float, *, flush: bool = False
) -> tuple[list[tuple[bool, float, Receipt]], int]:
    """(whether its partition's broker lives, seconds until the receipt, receipt) of what is sent after a broker's death; how much was."""
    topic = f"persistent://{namespace}/jobs"
    assert cluster.admin("PUT", f"{topic.replace('://', '/')}/partitions", 9).ok
    producer = Producer(topic, PulsarBroker(Connection(cluster.admin_urls[0], cluster.broker_url)))
    owners = [cluster.broker_of(f"{topic}-partition-{number}") for number in range(9)]
    victim = next(node for node in ("broker-3", "broker-2", "broker-1") if node in owners)
    found: list[tuple[bool, float, Receipt]] = []
    posted: Counter[bool] = Counter()

    def post(number: int, key: str) -> None:
        lives, at = owners[key_hash(key) % 9] != victim, time.monotonic()
        posted[lives] += 1
        producer.post(b"%d" % number, lambda receipt: found.append((lives, time.monotonic() - at, receipt)), key=key)

    cluster.kill(victim)
    end, sent = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        post(sent, f"k{sent}")
        sent += 1
        time.sleep(0.01)
    if flush:
        producer.flush()
    assert posted[True] > 100
    assert posted[False] > 0
    eventually(lambda: sum(lives for lives, _, _ in list(found)) == posted[True], within=60)
    answered = list(found)
    with suppress(ClusterError):  # what waits for the dead broker
        producer.close(timeout=1)
    return answered, sent


def test_a_dead_broker_holds_up_its_own_partitions_only(cluster: Cluster, namespace: str) -> None:
    found, _ = _receipts_while_a_broker_is_dead(cluster, namespace, 8)
    assert all(isinstance(receipt, Confirmed) for lives, _, receipt in found if lives)
    assert not any(isinstance(receipt, Confirmed) for lives, _, receipt in found if not lives), (
        "it has no other broker yet"
    )


def test_a_fail_over_is_no_failure_of_a_send(cluster: Cluster, namespace: str) -> None:
    found, sent = _receipts_while_a_broker_is_dead(cluster, namespace, 75, flush=True)
    assert len(found) == sent, "nobody was left without an answer"
    assert all(isinstance(receipt, Confirmed) for _, _, receipt in found)
    healthy = sorted(seconds for lives, seconds, _ in found if lives)
    assert healthy[len(healthy) * 99 // 100] < max(seconds for lives, seconds, _ in found if not lives) / 4


def test_a_process_whose_producer_hangs_ends_with_its_own_exit_code(cluster: Cluster, namespace: str) -> None:
    topic = f"persistent://{namespace}/hangs"
    assert cluster.admin("PUT", topic.replace("://", "/")).ok
    program = f"""
        import sys
        from kodo_consumer.producer import Producer
        from kodo_consumer.adapters.pulsar.pulsar_broker import PulsarBroker
        from kodoctl.errors import ClusterError
        from kodoctl.pulsar.connection.connection import Connection

        producer = Producer("{topic}", PulsarBroker(Connection("{cluster.admin_urls[0]}", "{cluster.broker_url}")))
        producer.send(b"well")
        print("sent", flush=True)
        sys.stdin.readline()
        for _ in range(50):
            producer.post(b"hangs")
        try:
            producer.close(timeout=1)
        except ClusterError as problem:
            print(problem)
            sys.exit(7)
        """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "sent\n"
        cluster.pause(cluster.broker_of(topic))
        out, err = process.communicate("\n", timeout=60)
    finally:
        process.kill()
    assert "K715" in out
    assert process.returncode == 7, err
