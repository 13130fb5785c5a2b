"""The index of a tenant names the namespaces of each topology, so that an apply finds what it left in them."""

from __future__ import annotations

from typing import Any

import pytest

from kodoctl.apply import run
from kodoctl.topology.names import NamespaceName
from tests.samples.inventories import HERE, applied, empty, planned, topology, wanted


def test_each_topology_is_noted_with_its_own_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[tuple[str, set[tuple[str, str]], set[Any]]] = []

    def note(_: Any, tenant: str, *, more: set[Any], less: set[Any]) -> None:
        noted.append((tenant, {(name, str(one)) for name, one in more}, less))

    monkeypatch.setattr(run, "write_index", note)
    plan = planned(wanted(topology(), topology(name="other", namespace="more")), empty())
    unused: Any = None
    run._index(unused, plan)
    assert noted == [("acme", {("trade", "acme/ns"), ("other", "acme/more")}, set())]


def test_a_namespace_leaves_the_index_with_the_ledger_of_its_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[tuple[set[Any], set[Any]]] = []
    monkeypatch.setattr(run, "write_index", lambda *_, more, less: noted.append((more, less)))
    plan = planned(wanted(topology(namespace="new")), applied(wanted(topology())))
    unused: Any = None
    run._index(unused, plan, frozenset({(HERE, "trade")}))
    run._index(unused, plan)  # a ledger that still lists something is there
    living = {("trade", NamespaceName("acme", "new"))}
    assert noted == [(living, {("trade", HERE)}), (living, set())]
