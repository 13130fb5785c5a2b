"""What the measurements share: the broker they run against, raw clients of it, consumers of a topology written for it,
and the variants of an arm.

The broker is the one named by KODOCTL_ADMIN_URL and KODOCTL_BROKER_URL, else by the current context. A variant is the same
arm in another environment, in a process of its own: `sync-python` is `sync` with KODO_CONSUMER_NATIVE=false, and with
`--beside CHECKOUT` there is `sync-before`, which is the arm `sync` of that checkout, run by its own program.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulsar
import requests

from kodoctl.errors import KodoctlError
from kodoctl.pulsar.connection import Flags, connect

if TYPE_CHECKING:  # imported where it is used: some measure what Python takes without it
    from kodo_consumer import Consumer

try:
    CLUSTER = connect(Flags(), os.environ, Path.cwd())
except KodoctlError as problem:
    sys.exit(str(problem))
SETTINGS = {name: value for name, value in os.environ.items() if name.startswith("KODO_")}
PLACE: dict[str, Any] = {"admin_url": CLUSTER.admin_url, "broker_url": CLUSTER.broker_url, "environ": SETTINGS}
BEFORE = "before"  # the variant of another checkout
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
    """Of one partition, with subscriptions that read from its begin."""
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


@dataclass(frozen=True)
class Variants:
    """Environments by the name of a variant, and the other checkout, where there is one."""

    environments: dict[str, dict[str, str]] = field(
        default_factory=lambda: {"python": {"KODO_CONSUMER_NATIVE": "false"}}
    )
    beside: Path | None = None

    @property
    def names(self) -> list[str]:
        return [*self.environments, *[BEFORE] * (self.beside is not None)]

    def split(self, arm: str) -> tuple[str, str]:
        """The arm itself and the name of its variant, empty for none."""
        name, _, variant = arm.rpartition("-")
        return (name, variant) if name and variant in (*self.environments, BEFORE) else (arm, "")

    def one(self, program: str, arm: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """Command and environment of one run of an arm: `PROGRAM.py --one ARM ...`, of this checkout or the other one."""
        name, variant = self.split(arm)
        if variant != BEFORE:
            here = [sys.executable, str(Path(__file__).with_name(program)), "--one", name, *arguments]
            return here, os.environ | self.environments.get(variant, {})
        assert self.beside is not None, "an arm of another checkout needs --beside"
        command = [sys.executable, str(self.beside / "benchmarks/consumer" / program), "--one", name, *arguments]
        return command, os.environ | {"PYTHONPATH": f"{self.beside / 'consumer'}{os.pathsep}{self.beside}"}

    def run(self, program: str, arm: str, *arguments: str, timeout: float = 900) -> dict[str, Any]:
        """The record of one run: what it prints in its last line."""
        command, environ = self.one(program, arm, *arguments)
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode:
            sys.exit(f"{arm} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found


def variant(text: str) -> tuple[str, dict[str, str]]:
    """`NAME=VARIABLE=VALUE[,VARIABLE=VALUE]`. Raises ValueError."""
    name, _, rest = text.partition("=")
    pairs = [one.partition("=") for one in rest.split(",")]
    if not name.isalnum() or not all(variable and mark for variable, mark, _ in pairs):
        raise ValueError(text)
    return name, {variable: value for variable, _, value in pairs}


def add_variants(parser: argparse.ArgumentParser) -> None:
    """Options of programs whose arms have variants."""
    parser.add_argument(
        "--beside", type=Path, metavar="CHECKOUT", help="another checkout: its arms are named ARM-before"
    )
    parser.add_argument(
        "--variant", type=variant, action="append", default=[], metavar="NAME=VARIABLE=VALUE",
        help="ARM-NAME is ARM with these environment variables; may be repeated",
    )  # fmt: skip


def variants_of(arguments: argparse.Namespace, arms: Sequence[str], known: Sequence[str]) -> Variants:
    """The variants asked for. Ends the process where an arm is none of these or needs another checkout."""
    found = Variants(Variants().environments | dict(arguments.variant), arguments.beside and arguments.beside.resolve())
    for arm in arms:
        name, variant = found.split(arm)
        if name not in known:
            sys.exit(f"no arm is named {arm}; there is {', '.join(known)}, each also with -{', -'.join(found.names)}")
        if variant == BEFORE and found.beside is None:
            sys.exit(f"{arm} is of another checkout: name it by --beside")
    return found


def edition() -> dict[str, bool]:
    """How the consumer of this process runs: with the native border, and with a compiled core."""
    from kodo_consumer.adapters.pulsar.native_border import choose_border
    from kodo_consumer.core import engine

    native = SETTINGS.get("KODO_CONSUMER_NATIVE", "true") == "true"
    return {"native": choose_border(native=native).border is not None, "compiled": not engine.__file__.endswith(".py")}
