"""A running broker as tests know one, and which one a run is to have."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TypedDict

import platformdirs
import requests

from kodoctl.dev.instance import STANDALONE

CACHE = platformdirs.user_cache_path("kodoctl")
RUN = "KODOCTL_TEST_RUN"
VERSION = os.environ.get("KODOCTL_TEST_PULSAR", "4.2")
PULSAR = tuple(map(int, VERSION.split(".")[:2]))
"""The line of Pulsar under test."""
CLUSTER = os.environ.get("KODOCTL_TEST_CLUSTER") == "1"
"""Whether the broker is one of a cluster of three."""
CLUSTER_NAME = "three-node"
"""As long as `standalone`, so that lines fold where they were recorded."""


class ClientOptions(TypedDict):
    """Where a consumer or a producer of this process finds its broker; nothing of the environment is read."""

    admin_url: str
    broker_url: str
    environ: dict[str, str]


@dataclass
class Broker:
    """Addresses of a running broker without authentication. Of a cluster: of the broker that this test enters through; the next
    test takes the next one.
    """

    admin_url: str
    broker_url: str
    cluster: str = field(default=STANDALONE, kw_only=True)

    @property
    def client_options(self) -> ClientOptions:
        """To be spread into `load` of consumers and producers."""
        return {"admin_url": self.admin_url, "broker_url": self.broker_url, "environ": {}}

    def tenant(self, name: str, *admins: str) -> None:
        """Makes a Pulsar tenant."""
        assert self.admin("PUT", f"tenants/{name}", {"allowedClusters": [self.cluster], "adminRoles": [*admins]}).ok

    def admin(self, method: str, path: str, body: object = None, **params: str) -> requests.Response:
        """A plain call of the admin API, as somebody without kodoctl would make it."""
        url = f"{self.admin_url}/admin/v2/{path}"
        return requests.request(
            method, url, json=body, params=params or None, timeout=30, headers={"Content-Type": "application/json"}
        )
