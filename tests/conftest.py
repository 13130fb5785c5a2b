"""The real broker that a test run shares, and a fresh namespace for each test that asks for one."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kodoctl.dev import jars, versions
from kodoctl.dev.instance import EngineName
from kodoctl.dev.progress import quiet
from kodoctl.dev.resolve import UpFlags
from kodoctl.errors import KodoctlError
from kodoctl.pulsar.connection.client_options import create_client
from kodoctl.pulsar.connection.connection import Connection
from tests.brokers import shared_broker
from tests.brokers.broker import CACHE, CLUSTER, CLUSTER_NAME, RUN, VERSION, Broker
from tests.costs.recording import pytest_fixture_setup, pytest_runtest_makereport, pytest_runtest_protocol
from tests.costs.scheduling import pytest_collection_modifyitems, pytest_xdist_make_scheduler
from tests.native.border import follow_environment
from tests.samples import profiles
from tests.services.databases import database_url, logical_server, logical_url, own_postgres, postgres, postgres_url
from tests.services.ports import cluster_ports, unusual_ports

__all__ = [
    "broker",
    "database_url",
    "logical_server",
    "logical_url",
    "namespace",
    "own_postgres",
    "postgres",
    "postgres_url",
    "pytest_collection_modifyitems",
    "pytest_fixture_setup",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_xdist_make_scheduler",
    "tenant",
]

_numbers = itertools.count(1)
_entrances: list[tuple[Broker, Iterator[tuple[str, str]]]] = []
"""The broker of this process, once a test asked for it, and the addresses of one test after the other."""
_MANY = 200
"""Descriptors of this process: a session of Spark and a few clients have fewer."""
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell's background job: commands under test would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.set_threshold(
    10_000
)  # in place of 700: a twentieth less processor time of unit tests, a seventh less to collect them
profiles.load()
follow_environment()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The process the user started owns the run; workers of pytest-xdist find it in the environment."""
    given = getattr(config, "workerinput", None)
    if not _given() and given is None:
        os.environ[RUN] = str(shared_broker.open_run(CACHE / "test-runs", os.environ))
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # being asked to end must end the broker too


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """A closed client of Pulsar has nine descriptors until it is freed, and its owners are cycles that may not be looked for
    within thousands of tests. From 1,024 on, Spark's driver waits for ever: py4j listens with select().
    """
    if _descriptors() > _MANY:
        gc.collect()
        if _descriptors() > _MANY:  # some tests set aside what others left, to collect their own garbage sooner
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        assert _descriptors() <= _MANY, "a test before this one left too much open"
    for broker, addresses in _entrances:
        broker.admin_url, broker.broker_url = next(addresses)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetches the broker's jars before any test's own time limit begins. The tests and the modules that they use stay until the end:
    no collection of garbage looks at them again, which took half a second each.
    """
    gc.collect()
    gc.freeze()
    needed = any("broker" in getattr(item, "fixturenames", ()) for item in session.items)
    if needed and not _given() and not session.config.option.collectonly:
        with contextlib.suppress(KodoctlError):  # the fixture meets it again, and says so
            jars.ensure(CACHE, versions.exact(VERSION), os.environ, quiet)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the run's broker, also when the run was interrupted."""
    if not hasattr(config, "workerinput") and (run := os.environ.pop(RUN, None)):
        shared_broker.close_run(Path(run), os.environ)


def _descriptors() -> int:
    return sum(1 for _ in os.scandir("/dev/fd"))


def _given() -> bool:
    return "KODOCTL_TEST_ADMIN_URL" in os.environ


@pytest.fixture(scope="session")
def broker() -> Broker:
    """The broker of KODOCTL_TEST_ADMIN_URL and KODOCTL_TEST_BROKER_URL, else one started for this run and shared by it.

    KODOCTL_TEST_PULSAR chooses its version: 4.2 (the default) or 4.0. KODOCTL_TEST_CLUSTER=1: a cluster of three brokers.
    """
    if _given():
        return Broker(os.environ["KODOCTL_TEST_ADMIN_URL"], os.environ["KODOCTL_TEST_BROKER_URL"])
    run = Path(os.environ[RUN])
    asked = UpFlags(f"run-{run.name}", VERSION, engine=EngineName.JAVA, preferred=unusual_ports())
    if CLUSTER:
        ports = cluster_ports()
        asked = UpFlags(CLUSTER_NAME, VERSION, engine=EngineName.JAVA, brokers=3, bookies=3, preferred=ports)
    try:
        addresses = shared_broker.join(run, CACHE, os.environ, asked)
    except KodoctlError as problem:
        pytest.fail(f"no broker for the tests\n{problem}", pytrace=False)
    entrances = itertools.cycle(zip(addresses.admin_urls, addresses.broker_urls, strict=True))
    found = Broker(*next(entrances), cluster=addresses.cluster)
    _entrances.append((found, entrances))
    _claim_log_of_the_client_library(found)
    return found


def _claim_log_of_the_client_library(broker: Broker) -> None:
    """The library keeps the log of a process's first client for all later ones, and workers read lost messages there: a
    test that makes a bare client with a log of its own must not be the first.
    """
    create_client(Connection(broker.admin_url, broker.broker_url)).close()


@pytest.fixture
def tenant(broker: Broker) -> str:
    """A fresh Pulsar tenant."""
    name = f"t{next(_numbers)}-{secrets.token_hex(3)}"
    broker.tenant(name)
    return name


@pytest.fixture
def namespace(broker: Broker, tenant: str) -> str:
    """A fresh `tenant/namespace`."""
    name = f"{tenant}/ns"
    assert broker.admin("PUT", f"namespaces/{name}").ok
    return name
