"""History of a namespace: a ledger that cannot be looked at is unknown, and ends nothing."""

from __future__ import annotations

import pytest

from kodoctl.cli.apply.namespace_history import _recalls
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.topology.names import NamespaceName


@pytest.mark.parametrize(("ledger", "told"), [("x" * 300, "File name too long"), ("gone", "there is no ledger gone")])
def test_a_ledger_that_cannot_be_looked_at_is_named(ledger: str, told: str) -> None:
    rows, (unknown,) = _recalls(HttpAdmin(Connection("http://127.0.0.1:9")), NamespaceName("kodo", "trade"), ledger)
    assert rows is None
    assert unknown.startswith("recalls, releases and discards: ")
    assert told in unknown
