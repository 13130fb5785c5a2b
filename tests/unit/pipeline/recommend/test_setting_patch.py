"""Settings in the text of a topology file, however they are written there, and what they are to mean."""

from __future__ import annotations

import pytest
import yaml
from kodo_pipeline.recommend.setting_patch import rewrite_setting, with_setting
from kodo_pipeline.recommend.slot_use import SettingChange
from kodo_pipeline.recommend.yaml_patch import CannotPatchError, ManagedRoute, Text, managed_routes, rewrite_routes

from kodoctl.topology.model.subscription import Route
from kodoctl.topology.model.topology import Subscription

PATH = ("topics", "orders", "subscriptions", "billing")
MAXIMUM = ("concurrency", "states", "retrying", "max")


def change(path, after=9, by=""):
    return SettingChange("orders", "billing", "bulkhead", path, None, after, "retrying", (0,), 1, 1, 1, None, None, by)


def file(lines):
    return "topics:\n  orders:\n    subscriptions:\n      billing:\n" + "".join(f"        {line}\n" for line in lines)


def rewritten(lines, one):
    text = rewrite_setting(file(lines), PATH, one, 32)
    (found,) = [yaml.safe_load(text)["topics"]["orders"]["subscriptions"]["billing"]]
    raw = yaml.safe_load(file(lines))["topics"]["orders"]["subscriptions"]["billing"]
    before = Subscription.model_validate(raw)
    data = before.model_dump(by_alias=True, mode="json")
    with_setting(before, data, one)
    assert Subscription.model_validate(found).model_dump(by_alias=True, mode="json") == data
    return [line for line in text.splitlines() if line not in file(lines).splitlines()]


@pytest.mark.parametrize(
    ("lines", "path", "after"),
    [
        (["audit: true  # why"], MAXIMUM, ["        concurrency: {total: 32, states: {retrying: {max: 9}}}"]),
        (["concurrency: 32  # why"], MAXIMUM, ["        concurrency: {total: 32, states: {retrying: {max: 9}}}  # why"]),
        (["concurrency: {total: 32}"], MAXIMUM, ["        concurrency: {total: 32, states: {retrying: {max: 9}}}"]),
        (
            ["concurrency: {total: 32, states: {pending: {max: 2}}}"],
            MAXIMUM,
            ["        concurrency: {total: 32, states: {pending: {max: 2}, retrying: {max: 9}}}"],
        ),
        (
            ["concurrency:", "  states:", "    retrying: {min: 2}  # why"],
            MAXIMUM,
            ["            retrying: {min: 2, max: 9}  # why"],
        ),
        (["concurrency: {total: 32, states: {}}"], MAXIMUM, ["        concurrency: {total: 32, states: {retrying: {max: 9}}}"]),
        (
            ["concurrency: {total: 32, states: {retrying: {max: 12}}}"],
            MAXIMUM,
            ["        concurrency: {total: 32, states: {retrying: {max: 9}}}"],
        ),
        (["concurrency: 4"], ("concurrency", "levels", "B1", "min"), ["        concurrency: {total: 32, levels: {B1: {min: 9}}}"]),
        (["concurrency: 4"], ("concurrency", "total"), ["        concurrency: 9"]),
        (["audit: true"], ("concurrency", "total"), ["        concurrency: 9"]),
        (["concurrency: {total: 4}"], ("concurrency", "total"), ["        concurrency: {total: 9}"]),
        (
            ["concurrency: {states: {retrying: {max: 2}}}"],
            ("concurrency", "total"),
            ["        concurrency: {states: {retrying: {max: 2}}, total: 9}"],
        ),
    ],
)  # fmt: skip
def test_slots_and_bulkheads_are_written_where_they_belong(lines, path, after):
    if "concurrency: 4" in lines and path[1] != "total":
        lines = ["concurrency: 32"]
    assert rewritten(lines, change(path)) == after


def test_limits_are_added_or_changed_and_comments_stay():
    new = change(("limits",), by="uid")
    line = "- {kind: concurrency, by: uid, limit: 9, scope: worker}"
    assert rewritten(["audit: true"], new) == ["        limits:", f"          {line}"]
    there = ["limits:", "  # slow bank", "  - {kind: rate, limit: 5/s}"]
    assert rewritten(there, new) == [f"          {line}"]
    old = ["limits: [{kind: concurrency, by: uid, limit: 12, scope: worker}]  # low"]
    assert rewritten(old, change(("limits", 0, "limit"))) == [
        "        limits: [{kind: concurrency, by: uid, limit: 9, scope: worker}]  # low"
    ]
    with pytest.raises(CannotPatchError, match="limit 0 is an alias"):
        rewrite_setting(file(["limits: *x"]), PATH, change(("limits", 0, "limit")), 32)


def test_routes_of_keys_are_conditions():
    routes = [
        {"when": "key IN ('a', 'b')", "to": "B1"}, {"when": "tenant = 'c'", "to": "B1"}, {"when": "key LIKE 'd%'", "to": "B1"},
        {"when": "tenant IN ('e')", "to": "L2"},
    ]  # fmt: skip
    found = managed_routes([Route.model_validate(one) for one in routes], "key", ("B1",))
    assert found == [ManagedRoute(0, ("a", "b"), "B1")]
    lines = ["routes:", "  - {when: \"key IN ('a', 'b')\", to: B1}  # why"]
    after = rewrite_routes(file(lines), PATH, "key", found, {"o'x": "B1", "f\\": "L2", "a": None})
    written = yaml.safe_load(after)["topics"]["orders"]["subscriptions"]["billing"]["routes"]
    assert written == [{"when": r"key IN ('b', 'o\'x')", "to": "B1"}, {"when": r"key IN ('f\\')", "to": "L2"}]
    assert "# why" in after
    again = managed_routes([Route.model_validate(one) for one in written], "key", ("B1", "L2"))
    assert [one.tenants for one in again] == [("b", "o'x"), ("f\\",)]


def test_a_key_over_several_lines_is_not_edited():
    edited = Text("topics:\n  orders:\n    levels:\n      - L1\n      - L2\n")
    with pytest.raises(CannotPatchError, match="`levels` is written over several lines"):
        edited.put(("topics", "orders"), "levels", "[L1, L2, S1]")
