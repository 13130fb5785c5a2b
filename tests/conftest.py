"""The real broker that a test run shares, and a fresh namespace for each test that asks for one."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import requests

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Broker:
    """Addresses of a running broker without authentication."""

    admin_url: str
    broker_url: str

    def admin(self, method: str, path: str, body: object = None, **params: str) -> requests.Response:
        """A plain call of the admin API, as somebody without kodoctl would make it."""
        url = f"{self.admin_url}/admin/v2/{path}"
        return requests.request(method, url, json=body, params=params or None, timeout=30, headers={"Content-Type": "application/json"})


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The broker of KODOCTL_TEST_ADMIN_URL and KODOCTL_TEST_BROKER_URL, else one that `kodoctl dev` starts for this run."""
    if "KODOCTL_TEST_ADMIN_URL" in os.environ:
        yield Broker(os.environ["KODOCTL_TEST_ADMIN_URL"], os.environ["KODOCTL_TEST_BROKER_URL"])
        return
    pytest.fail("no broker: set KODOCTL_TEST_ADMIN_URL and KODOCTL_TEST_BROKER_URL")


@pytest.fixture
def tenant(broker: Broker) -> str:
    """A fresh Pulsar tenant."""
    name = f"t{next(_numbers)}-{secrets.token_hex(3)}"
    assert broker.admin("PUT", f"tenants/{name}", {"allowedClusters": ["standalone"], "adminRoles": []}).ok
    return name


@pytest.fixture
def namespace(broker: Broker, tenant: str) -> str:
    """A fresh `tenant/namespace`."""
    name = f"{tenant}/ns"
    assert broker.admin("PUT", f"namespaces/{name}").ok
    return name
