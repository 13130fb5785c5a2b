"""A real cluster of three brokers and three bookies, whose nodes a test may kill, pause, stop and start.

All tests of this folder run in one worker, one after the other: what one does to a node would disturb any other. Each finds
every node running, for what the test before it left paused or dead is started again first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kodoctl.dev import service
from kodoctl.dev.instance import Auth
from tests.brokers.cluster import Cluster, fresh_namespace, start
from tests.brokers.workspace import Workspace, isolated


@pytest.fixture(scope="session")
def shared_cluster() -> Cluster:
    """The cluster of this run, as the last test left it."""
    return start("three")


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with all its nodes running."""
    shared_cluster.heal()
    yield shared_cluster
    shared_cluster.heal()


@pytest.fixture(scope="session")
def shared_token_cluster() -> Iterator[Cluster]:
    """A cluster with token authentication and authorization, for the tests that need one."""
    started = start("closed", Auth.TOKEN)
    yield started
    service.reset(started.homes, os.environ, started.name)


@pytest.fixture
def token_cluster(shared_token_cluster: Cluster) -> Cluster:
    """A cluster with authorization, all its nodes running."""
    shared_token_cluster.heal()
    return shared_token_cluster


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """A fresh `tenant/namespace` on the cluster, its bundles spread over the brokers."""
    return fresh_namespace(cluster)


@pytest.fixture
def workspace(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Workspace]:
    """A folder of one's own in which kodoctl runs, with a fresh Pulsar tenant, entering the cluster through broker-1."""
    with isolated(tmp_path):
        found = Workspace(cluster.through(1), tmp_path, namespace.partition("/")[0])
        yield found
        found.end_processes()
