"""Drift as people read it: what the next apply does to an object that somebody deleted."""

from __future__ import annotations

from typing import Any

import pytest

from kodoctl.render.drift_text import drift_lines


def _document(*changes: dict[str, Any]) -> dict[str, Any]:
    groups = ("either", "not_applied", "beyond_repair", "conflicts", "unmanaged", "stale_topologies")
    empty: dict[str, Any] = {group: [] for group in groups}
    flags = {"drifted": True, "refused": False, "counts_unmanaged": False, "returning": {}}
    return {**empty, "by_hand": [*changes], **flags}


def _created(**resource: Any) -> dict[str, Any]:
    return {
        "action": "create",
        "address": "x",
        "where": None,
        "reason": "",
        "dangers": [],
        "origin": None,
        "after": resource,
    }


@pytest.mark.parametrize(
    ("resource", "consequence"),
    [
        (
            {"kind": "subscription", "start": "earliest", "missing_on": []},
            "deleted by hand; created again from earliest",
        ),
        (
            {"kind": "subscription", "start": "latest", "missing_on": []},
            "deleted by hand; created again: what was sent until then never comes to it",
        ),
        ({"kind": "topic", "partitions": 3, "policies": {}}, "deleted by hand with its messages; created again empty"),
        ({"kind": "grant", "actions": ["consume"]}, "deleted by hand; created again"),
    ],
)
def test_what_was_deleted_by_hand_says_what_its_return_means(resource: dict[str, Any], consequence: str) -> None:
    lines = [line.text for line in drift_lines(_document(_created(**resource)), "here")]  # type: ignore[arg-type]
    assert f"      {consequence}" in lines


def test_an_arrow_has_a_legend() -> None:
    field = {"name": "ttl", "kind": "policy", "before": "99s", "after": None}
    change = {**_created(), "action": "update", "fields": [field], "unload": False, "drifted": ["ttl"], "before": {}}
    lines = [line.text for line in drift_lines(_document(change), "here")]  # type: ignore[arg-type]
    assert "  (what is there now → what the next apply writes)" in lines


@pytest.mark.parametrize(
    ("stored", "consequence"),
    [
        (12_000, "created again from earliest: about 12,000 stored messages come again (a batch counts as one)"),
        (1, "created again from earliest: about 1 stored message comes again (a batch counts as one)"),
        (0, "created again from earliest: nothing is stored that could come again"),
        (None, "every stored message comes to it again (how many there are cannot be read)"),
    ],
)
def test_a_subscription_that_comes_back_says_how_much_comes_again(stored: int | None, consequence: str) -> None:
    change = _created(kind="subscription", start="earliest", missing_on=[])
    document = {**_document(change), "returning": {"x": stored}}
    assert consequence in "\n".join(line.text for line in drift_lines(document, "here"))  # type: ignore[arg-type]


def test_partitions_that_lack_a_subscription_say_how_much_comes_again() -> None:
    field = {"name": "missing_on", "kind": "field", "before": [1], "after": []}
    change = {**_created(), "action": "update", "fields": [field], "unload": False, "drifted": [], "before": {}}
    document = {**_document(change), "returning": {"x": 7}}
    lines = [line.text for line in drift_lines(document, "here")]  # type: ignore[arg-type]
    assert (
        "      created there again from earliest: about 7 stored messages come again (a batch counts as one)" in lines
    )
