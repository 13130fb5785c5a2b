"""What the measurements share: the broker they run against, and raw clients of it.

The broker is the one named by KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL, else by the current context.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

import pulsar
import requests

from kodoctl.errors import KodoctlError
from kodoctl.pulsar.connection import Flags, connect

try:
    CLUSTER = connect(Flags(), os.environ, Path.cwd())
except KodoctlError as problem:
    sys.exit(str(problem))
EARLIEST = {"ledgerId": -1, "entryId": -1}


def admin(method: str, path: str, body: Any = None) -> requests.Response:
    url = f"{CLUSTER.admin_url}/admin/v2/{path}"
    return requests.request(method, url, json=body, timeout=30, headers={"Content-Type": "application/json"})


def create_tenant(tenant: str) -> None:
    admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"], "adminRoles": []})
    admin("PUT", f"namespaces/{tenant}/ns")


def create_topic(tenant: str, topic: str, *subscriptions: str) -> None:
    """Of one partition, with subscriptions that read from its begin."""
    admin("PUT", f"persistent/{tenant}/ns/{topic}/partitions", 1)
    for subscription in subscriptions:
        admin("PUT", f"persistent/{tenant}/ns/{topic}/subscription/{subscription}", EARLIEST)


def client() -> pulsar.Client:
    return pulsar.Client(CLUSTER.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def cpu() -> float:
    """Processor seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rss_mib() -> int:
    """Resident memory now, in MiB."""
    with Path("/proc/self/statm").open() as found:
        return int(found.read().split()[1]) * resource.getpagesize() // (1 << 20)
