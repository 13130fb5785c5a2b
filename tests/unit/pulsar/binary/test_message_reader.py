"""Entries without a message: an error of the client library while they are looked at is an error of the cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pulsar
import pytest

from kodoctl.errors import ClusterError
from kodoctl.pulsar.admin.admin import Reply
from kodoctl.pulsar.binary.message_reader import Unread
from kodoctl.pulsar.binary.undeliverable_entries import EntryRun

PART = "persistent://acme/ns/orders-partition-0"
STATS = {"lastConfirmedEntry": "5:9", "ledgers": [{"ledgerId": 5, "entries": 0}]}


def test_a_proof_that_the_client_library_cannot_give_is_an_error_of_the_cluster() -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise pulsar.Timeout(pulsar.Result.Timeout)

    admin: Any = SimpleNamespace(call=lambda method, path: Reply(method, path, 200, STATS))
    client: Any = SimpleNamespace(reader=refused)
    with pytest.raises(ClusterError, match=f"K561.*{PART}: .*Timeout"):
        Unread(admin, client, sure=True).add(PART, [EntryRun(5, 3, 4)])
