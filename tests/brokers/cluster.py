"""A real cluster of brokers and bookies whose nodes a test may kill, pause, stop and start."""

from __future__ import annotations

import itertools
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from kodoctl.dev import drills, readiness, service, tokens
from kodoctl.dev.cluster_nodes import NodeKind, NodeState
from kodoctl.dev.drills import NodeAction
from kodoctl.dev.instance import Auth, EngineName, Homes, Instance
from kodoctl.dev.resolve import UpFlags
from kodoctl.dev.up import up
from kodoctl.errors import KodoctlError
from tests.brokers.broker import CACHE, RUN, VERSION, Broker
from tests.services.polling import eventually
from tests.services.ports import cluster_ports

BROKERS = 3
BOOKIES = 3
_numbers = itertools.count(1)


def owner_url(admin_url: str, topic: str) -> str:
    """Address of the broker that owns a topic (a partition's full name), by a lookup at `admin_url`, which loads it. Asks until a
    broker owns it: while its bundle is being unloaded, lookups are refused.
    """

    def look_up() -> str | None:
        answer = requests.get(f"{admin_url}/lookup/v2/topic/{topic.replace('://', '/')}", timeout=30)
        return answer.json().get("httpUrl") if answer.ok else None

    return eventually(look_up) or ""


@dataclass(frozen=True)
class Cluster:
    """A running cluster. Nodes are named as `kodoctl dev` names them: `zookeeper`, `bookie-1`, `broker-1`."""

    homes: Homes
    instance: Instance

    @property
    def name(self) -> str:
        """As the brokers call the cluster."""
        return self.instance.name

    @property
    def admin_urls(self) -> list[str]:
        """Address of each broker's admin API; the first is that of broker-1."""
        return list(self.instance.admin_urls)

    @property
    def broker_url(self) -> str:
        """Addresses of all brokers for clients."""
        return self.instance.broker_url

    def kill(self, node: str) -> None:
        """Ends a node as a crash does."""
        self._do(node, NodeAction.KILL)

    def pause(self, node: str) -> None:
        """Stops a node's process: its connections stay open."""
        self._do(node, NodeAction.PAUSE)

    def resume(self, node: str) -> None:
        """Lets a paused node go on."""
        self._do(node, NodeAction.RESUME)

    def stop(self, node: str) -> None:
        """Ends a node in order."""
        self._do(node, NodeAction.STOP)

    def start(self, node: str) -> None:
        """Starts a node that does not run; returns when it is ready."""
        self._do(node, NodeAction.START)

    def wait_ready(self, node: str = "", limit: float = readiness.DEADLINE) -> None:
        """Returns when every broker serves clients, or the one that is named."""
        engine = service.engine_of(self.instance, self.homes, os.environ)
        targets = service.targets(self.homes, engine, self.instance)
        if node:
            targets = (targets[int(node.rpartition("-")[2]) - 1],)
        problem = readiness.wait(
            lambda seconds: readiness.not_ready(targets, seconds), alive=lambda: True, limit=limit, tell=lambda _: None
        )
        assert problem is None, problem

    def heal(self) -> None:
        """Starts what does not run, lets go on what is paused, and waits until every broker serves clients."""
        engine = service.engine_of(self.instance, self.homes, os.environ)
        engine.revive(self.instance, lambda _: None)
        self.wait_ready()

    def broker_of(self, topic: str) -> str:
        """Node that owns a topic (a partition's full name), as `owner_url` says."""
        return f"broker-{self.admin_urls.index(owner_url(self.any_admin_url(), topic)) + 1}"

    def spread(self, namespace: str) -> None:
        """Gives each broker its share of a namespace's bundles: one that has just been started gets none by itself."""
        path, brokers = f"namespaces/{namespace}", [urlsplit(url).netloc for url in self.admin_urls]
        edges = self.admin("GET", f"{path}/bundles").json()["boundaries"]
        for (low, high), broker in zip(itertools.pairwise(edges), itertools.cycle(brokers), strict=False):
            self.admin("PUT", f"{path}/{low}_{high}/unload", destinationBroker=broker)

    def living(self) -> list[str]:
        """Brokers that run, by name."""
        engine, instance, _ = drills.find(self.homes, os.environ, self.name, "broker-1")
        return [
            node.name
            for node, state in engine.states(instance)
            if node.kind is NodeKind.BROKER and state is NodeState.RUNNING
        ]

    def any_admin_url(self) -> str:
        """Admin address of a broker that runs."""
        living = self.living()
        assert living, "no broker runs"
        return self.admin_urls[int(living[0].rpartition("-")[2]) - 1]

    def admin(self, method: str, path: str, body: object = None, **params: str) -> requests.Response:
        """A plain call of the admin API through a broker that runs, with the super-user's token where one is needed."""
        url, headers = f"{self.any_admin_url()}/admin/v2/{path}", {"Content-Type": "application/json"}
        if self.instance.auth is Auth.TOKEN:
            headers["Authorization"] = f"Bearer {self.token('admin')}"
        return requests.request(method, url, json=body, params=params or None, timeout=60, headers=headers)

    def token(self, role: str) -> str:
        """A token of that role."""
        return tokens.token(self.homes.folder(self.name), self.instance, role).reveal()

    def through(self, number: int) -> Broker:
        """One of its brokers (1 to 3), as tests of a single broker know one."""
        assert self.instance.cluster is not None
        _, binary = self.instance.cluster.brokers[number - 1]
        return Broker(self.admin_urls[number - 1], f"pulsar://127.0.0.1:{binary}", cluster=self.name)

    def _do(self, node: str, action: NodeAction) -> None:
        drills.carry_out(self.homes, os.environ, self.name, node, action)


def start(name: str, auth: Auth | None = None, *, brokers: int = BROKERS, bookies: int = BOOKIES) -> Cluster:
    """A cluster of this run. It ends with the run, also where that is killed."""
    homes = Homes(Path(os.environ[RUN]) / "instances", CACHE)
    asked = UpFlags(name, VERSION, auth, EngineName.JAVA, brokers=brokers, bookies=bookies, preferred=cluster_ports())
    try:
        started = up(homes, os.environ, asked)
    except KodoctlError as problem:
        pytest.fail(f"no cluster for the tests\n{problem}", pytrace=False)
    return Cluster(homes, started.instance)


def fresh_namespace(cluster: Cluster) -> str:
    """Makes a tenant and a namespace of 16 bundles."""
    tenant = f"t{next(_numbers)}-{secrets.token_hex(3)}"
    assert cluster.admin("PUT", f"tenants/{tenant}", {"allowedClusters": [cluster.name], "adminRoles": []}).ok
    assert cluster.admin("PUT", f"namespaces/{tenant}/ns", {"bundles": {"numBundles": 16}}).ok
    cluster.spread(f"{tenant}/ns")
    return f"{tenant}/ns"
