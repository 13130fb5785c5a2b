"""Helpers of the consumer's measurements: the broker, raw clients of it, and consumers of a topology made for them.

The broker is the one named by KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL, else by the current context.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulsar
import requests

from kodoctl.errors import KodoctlError
from kodoctl.pulsar.connection.connection import Flags, connect

if TYPE_CHECKING:  # imported where it is used: some measure what Python takes without it
    from kodo_consumer import Consumer

try:
    CLUSTER = connect(Flags(), os.environ, Path.cwd())
except KodoctlError as problem:
    sys.exit(str(problem))
SETTINGS = {name: value for name, value in os.environ.items() if name.startswith("KODO_")}
PLACE: dict[str, Any] = {"admin_url": CLUSTER.admin_url, "broker_url": CLUSTER.broker_url, "environ": SETTINGS}
EARLIEST = {"ledgerId": -1, "entryId": -1}
HEAD = """
version: 1
name: bench
tenant: {tenant}
namespace: ns
topics:
"""


def admin(method: str, path: str, body: Any = None) -> requests.Response:
    url = f"{CLUSTER.admin_url}/admin/v2/{path}"
    return requests.request(method, url, json=body, timeout=30, headers={"Content-Type": "application/json"})


def create_tenant(tenant: str) -> None:
    admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"], "adminRoles": []})
    admin("PUT", f"namespaces/{tenant}/ns")


def create_topic(tenant: str, topic: str, *subscriptions: str) -> None:
    """Creates a topic with one partition, and `subscriptions` that start at its first message."""
    admin("PUT", f"persistent/{tenant}/ns/{topic}/partitions", 1)
    for subscription in subscriptions:
        admin("PUT", f"persistent/{tenant}/ns/{topic}/subscription/{subscription}", EARLIEST)


def client() -> pulsar.Client:
    return pulsar.Client(CLUSTER.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def batched(with_broker: pulsar.Client, tenant: str, topic: str = "flow") -> pulsar.Producer:
    """A producer that fills a topic fast."""
    return with_broker.create_producer(
        f"persistent://{tenant}/ns/{topic}", batching_enabled=True, batching_max_messages=1000,
        batching_max_publish_delay_ms=5, block_if_queue_full=True, max_pending_messages=20_000,
    )  # fmt: skip


def topology(tenant: str, topics: str) -> str:
    """The file's text; `topics`: what stands below `topics:`, indented."""
    return HEAD.format(tenant=tenant) + topics.lstrip("\n")


def loaded(text: str, topic: str = "flow", subscription: str = "s") -> Consumer:
    """The consumer of a topology, on this broker."""
    from kodo_consumer import Consumer

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "t.yaml"
        file.write_text(text, encoding="utf-8")
        return Consumer.load(file, topic=topic, subscription=subscription, **PLACE)


def cpu() -> float:
    """Processor seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rss_mib() -> int:
    """Resident memory now, in MiB."""
    with Path("/proc/self/statm").open() as found:
        return int(found.read().split()[1]) * resource.getpagesize() // (1 << 20)


def edition() -> dict[str, bool]:
    """How the consumer of this process runs: with the native border, and with a compiled core."""
    from kodo_consumer.adapters.pulsar.native_border import DELIVERIES
    from kodo_consumer.core.engine import engine

    native = SETTINGS.get("KODO_CONSUMER_NATIVE", "true") == "true"
    return {
        "native": DELIVERIES.choose(native=native).border is not None,
        "compiled": not engine.__file__.endswith(".py"),
    }
