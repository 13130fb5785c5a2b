"""Help for tests of the control plane: kodoctl as a user runs it, and the cluster as somebody without kodoctl sees it."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock
from urllib.parse import quote

import kodo_consumer.cli.main as consumer_main
import pulsar
import pytest

from kodoctl.cli.common import console
from kodoctl.cli.main import main
from tests.services.servers import Proxy

if TYPE_CHECKING:
    from tests.brokers.broker import Broker

Json = dict[str, Any]
EARLIEST = {"ledgerId": -1, "entryId": -1}


@dataclass(frozen=True)
class Run:
    """What a command printed and answered."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Both streams."""
        return f"{self.out}\n{self.err}"

    @property
    def summary(self) -> str:
        """The line that counts."""
        return next(line for line in self.out.splitlines() if line.startswith(("Plan:", "No changes")))

    def json(self) -> Any:
        """Standard output as one document."""
        return json.loads(self.out)

    def lines_json(self) -> list[Json]:
        """Standard output as a stream of documents."""
        return [json.loads(line) for line in self.out.splitlines()]


@contextlib.contextmanager
def this_process_goes_on() -> Iterator[None]:
    """Commands within end by SystemExit, also where a call into the client library was left behind, by a test before as well: a
    script ends its process then at once, and a worker of pytest-xdist without a word.
    """

    def end(code: int, *, at_once: bool = False) -> NoReturn:
        sys.exit(code)

    with mock.patch.object(console, "end_process", end), mock.patch.object(consumer_main, "end_process", end):
        yield


def run_main(*arguments: str, defect: bool = False) -> Run:
    """The command line in this process: the same code path as the script, without half a second of start-up.

    A `defect` of kodoctl (K599) fails the test that did not ask for one.
    """
    found = _run(main, "kodoctl", arguments)
    assert defect or "[K599]" not in found.err, found.err
    return found


def run_consumer(*arguments: str) -> Run:
    """`kodo-consumer` in this process, in the same way."""
    found = _run(consumer_main.main, "kodo-consumer", arguments)
    assert "[K599]" not in found.err, found.err
    return found


def _run(program: Callable[[], None], name: str, arguments: tuple[str, ...]) -> Run:
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    before, threshold = sys.argv, gc.get_threshold()
    sys.argv = [name, *arguments]
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            this_process_goes_on(),
        ):
            program()
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = before
        gc.set_threshold(*threshold)  # a script ends; here what is never collected would keep Java's memory
    return Run(int(code or 0), out.getvalue(), err.getvalue())


@dataclass
class Workspace:
    """A folder with topology files, and the broker they are planned against."""

    broker: Broker
    folder: Path
    tenant: str
    options: list[str] = field(default_factory=list)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        """Where the files of this workspace live unless they say otherwise."""
        return f"{self.tenant}/ns"

    def write(self, text: str, name: str = "trade.yaml", **values: str) -> Path:
        """A topology file below `topologies/`; `$tenant` stands for the workspace's Pulsar tenant."""
        path = self.folder / "topologies" / name
        path.parent.mkdir(exist_ok=True)
        body = textwrap.dedent(text)
        for key, value in {"tenant": self.tenant, **values}.items():
            body = body.replace(f"${key}", value)
        path.write_text(body, encoding="utf-8")
        return path

    def topology(self, topics: str, head: str = "", name: str = "trade", namespace: str = "ns") -> Path:
        """A file with the usual head and these `topics:`."""
        start = f"version: 1\nname: {name}\ntenant: {self.tenant}\nnamespace: {namespace}\n"
        body = textwrap.indent(textwrap.dedent(topics).strip("\n"), "  ")
        return self.write(f"{start}{textwrap.dedent(head)}topics:\n{body}\n", f"{name}.yaml")

    def connection(self) -> list[str]:
        """Flags that name the broker."""
        return self.options or ["--admin-url", self.broker.admin_url, "--broker-url", self.broker.broker_url]

    def run(self, *arguments: str, code: int | None = 0) -> Run:
        """One command; fails with everything it said when it answers another code (None: any)."""
        found = run_main(*arguments, *self.connection())
        assert code is None or found.code == code, f"exit {found.code}, not {code}\n{found.text}"
        return found

    def plan(self, *arguments: str, code: int = 0) -> Run:
        """`kodoctl plan`"""
        return self.run("plan", *arguments, code=code)

    def plan_json(self, *arguments: str, code: int = 0) -> Json:
        """The plan's machine form."""
        document: Json = self.run("plan", *arguments, "--format", "json", code=code).json()
        return document

    def apply(self, *arguments: str, code: int = 0) -> Run:
        """`kodoctl apply --auto-approve`"""
        return self.run("apply", "--auto-approve", *arguments, code=code)

    def assert_settled(self, *arguments: str) -> None:
        """The second plan is empty."""
        assert self.plan(*arguments).summary.startswith("No changes"), self.plan(*arguments).out

    def process(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """The same command as a process of its own."""
        command = [sys.executable, "-m", "kodoctl", *arguments, *self.connection()]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )
        self.processes.append(process)
        return process

    def end_processes(self) -> None:
        """Those of a test that failed: a later one would be blamed for what they leave."""
        for process in self.processes:
            with process:
                process.kill()

    # --- the cluster, without kodoctl

    def admin(self, method: str, path: str, body: object = None, **query: str) -> Any:
        """A call that must succeed; its decoded answer."""
        reply = self.broker.admin(method, path, body, **query)
        assert reply.ok, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json() if reply.text else None

    def topics(self, namespace: str = "ns") -> dict[str, int]:
        """Partitioned topics of a namespace and their partitions."""
        names = self.admin("GET", f"persistent/{self.tenant}/{namespace}/partitioned")
        locals_ = [name.split("/", 4)[4] for name in names]
        return {
            local: self.admin("GET", f"persistent/{self.tenant}/{namespace}/{quote(local, safe='')}/partitions")[
                "partitions"
            ]
            for local in sorted(locals_)
        }

    def path(self, local: str, namespace: str = "ns") -> str:
        """The path of a topic below the admin API."""
        return f"persistent/{self.tenant}/{namespace}/{quote(local, safe='')}"

    def full(self, local: str, namespace: str = "ns") -> str:
        """A topic's full name."""
        return f"persistent://{self.tenant}/{namespace}/{local}"

    def subscriptions(self, local: str, namespace: str = "ns") -> list[set[str]]:
        """Subscriptions of each partition."""
        stats = self.admin("GET", f"{self.path(local, namespace)}/partitioned-stats", perPartition="true")
        parts = sorted(stats["partitions"].items(), key=lambda item: int(item[0].rpartition("-")[2]))
        return [set(part["subscriptions"]) for _, part in parts]

    def marker(self, local: str, namespace: str = "ns") -> str | None:
        """Who owns a topic, as its property says."""
        stats = self.admin("GET", f"{self.path(local, namespace)}/partitioned-stats", perPartition="true")
        value: str | None = (stats["metadata"].get("properties") or {}).get("kodoctl")
        return value

    def policy(self, local: str, policy: str, namespace: str = "ns") -> Any:
        """A topic policy as a plain GET answers it; None when it is unset."""
        reply = self.broker.admin("GET", f"{self.path(local, namespace)}/{policy}")
        assert reply.ok, reply.text
        return reply.json() if reply.text else None

    def dump(self, namespace: str = "ns") -> Json:
        """The namespace's own description."""
        found: Json = self.admin("GET", f"namespaces/{self.tenant}/{namespace}")
        return found

    def make_topic(self, local: str, partitions: int = 1, *subscriptions: str, namespace: str = "ns") -> None:
        """A partitioned topic by hand."""
        self.admin("PUT", f"{self.path(local, namespace)}/partitions", partitions)
        for name in subscriptions:
            self.make_subscription(local, name, namespace)

    def make_subscription(self, local: str, name: str, namespace: str = "ns") -> None:
        """A subscription by hand, from the earliest message."""
        self.admin("PUT", f"{self.path(local, namespace)}/subscription/{quote(name, safe='')}", EARLIEST)

    @contextlib.contextmanager
    def client(self) -> Iterator[pulsar.Client]:
        """A client of the binary port that says nothing."""
        client = pulsar.Client(self.broker.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        try:
            yield client
        finally:
            client.close()

    def publish(self, topic: str, number: int) -> None:
        """Messages of 100 bytes, one entry each."""
        with self.client() as client:
            producer = client.create_producer(self.full(topic) if "://" not in topic else topic, batching_enabled=False)
            for _ in range(number):
                producer.send(b"x" * 100)
            producer.close()


_VOLATILE = (
    (re.compile(r"http://[\w.:]+"), "ADMIN"),
    (re.compile(r", [0-9a-f]{8}(?=[),])"), ", UUID"),
    (re.compile(r"\b\d+\.\d s\b"), "TIME"),
)


def normalised(text: str, tenant: str) -> str:
    """Output without what differs from run to run: addresses, the tenant's name, UUIDs, times."""
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text)
    return text.replace(tenant, "acme")


@contextlib.contextmanager
def isolated(folder: Path) -> Iterator[None]:
    """Runs kodoctl in a folder, without any configuration of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("KODOCTL_") and "_TEST_" not in name]:
            patch.delenv(name)
        patch.setenv("KODOCTL_CONFIG", str(folder / "kodoctl-user.toml"))
        patch.setenv("KODOCTL_FUNCTION_WORKER", "none")  # of the shared broker; without it a destroy keeps namespaces
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield


@pytest.fixture
def workspace(broker: Broker, tenant: str, tmp_path: Path) -> Iterator[Workspace]:
    """A folder of one's own in which kodoctl runs, with a fresh Pulsar tenant and no configuration of the user's."""
    with isolated(tmp_path):
        found = Workspace(broker, tmp_path, tenant)
        yield found
        found.end_processes()


@pytest.fixture
def proxy(workspace: Workspace) -> Iterator[Proxy]:
    """What kodoctl takes for the broker in this workspace: it counts, and breaks what it is told to."""
    found = Proxy(workspace.broker.admin_url)
    workspace.options = ["--admin-url", found.url, "--broker-url", workspace.broker.broker_url]
    yield found
    found.close()
