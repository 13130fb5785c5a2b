"""The index of a tenant names the namespaces of each topology, so that an apply finds what it left in them."""

from __future__ import annotations

from typing import Any

import pytest

from kodoctl.apply import run
from tests.samples.inventories import empty, planned, topology, wanted


def test_each_topology_is_noted_with_its_own_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[tuple[str, set[tuple[str, str]], set[Any]]] = []

    def note(_: Any, tenant: str, *, more: set[Any], less: set[Any]) -> None:
        noted.append((tenant, {(name, str(one)) for name, one in more}, less))

    monkeypatch.setattr(run, "write_index", note)
    plan = planned(wanted(topology(), topology(name="other", namespace="more")), empty())
    unused: Any = None
    run._index(unused, plan, before=True)
    assert noted == [("acme", {("trade", "acme/ns"), ("other", "acme/more")}, set())]
