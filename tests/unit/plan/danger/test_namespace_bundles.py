"""Bundles of a namespace: fewer than declared are told, and nothing else about them (K444)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.samples.inventories import HERE, empty, planned, topology, wanted


@pytest.mark.parametrize(
    ("head", "live", "expected"),
    [
        ("namespace_policies: {bundles: 8}\n", 4, ["acme/ns has 4 bundles, the file says 8: an apply does not change the number"]),
        ("namespace_policies: {bundles: 8}\n", 9, []),
        ("namespace_policies: {bundles: 8}\n", 8, []),
        ("namespace_policies: {bundles: 8}\n", None, []),
        ("namespace_policies: {}\n", 4, []),
        ("", 4, []),
    ],
)  # fmt: skip
def test_fewer_bundles_than_declared_are_told(head: str, live: int | None, expected: list[str]) -> None:
    there = replace(empty(), bundles={HERE: live} if live else {})
    plan = planned(wanted(topology("{J: {subscriptions: {s: {}}}}", head)), there)
    assert [one.detail for one in plan.findings if one.code == "K444"] == expected
