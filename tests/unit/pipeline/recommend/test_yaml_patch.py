"""Edits of a topology file as text: what is meant, nothing else, and patches that git takes."""

from __future__ import annotations

import subprocess
import textwrap

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from kodo_pipeline.recommend.yaml_patch import (
    CannotPatchError,
    ManagedRoute,
    Text,
    foreign_tenants,
    managed_routes,
    move_tenants,
    rewrite_routes,
    unified_diff,
)

from kodoctl.topology.model.subscription import Route
from tests.samples.profiles import examples

PATH = ("topics", "orders", "subscriptions", "billing")
TOPIC = PATH[:2]
PLAIN = """\
# head
topics:
  orders:   # the ones that count
    partitions: 4
    fair_by: uid
    # who reads
    subscriptions:
      billing:
        audit: true   # needed
        concurrency: 8
"""
BLOCK = (
    PLAIN
    + """\
        routes:
          # large ones
          - when: {property: size, greater_than: 9}
            to: B1
          - {when: {property: uid, in: [a, b]}, to: B1}  # noisy
  payments: {subscriptions: {billing: {}}}
"""
)
FLOW = """\
topics:
  orders: {fair_by: uid, subscriptions: {billing: {audit: true, routes: [{when: {property: uid, in: [a]}, to: B1}]}}}
"""


def routes_of(text):
    return yaml.safe_load(text)["topics"]["orders"]["subscriptions"]["billing"].get("routes", [])


def edited(text, places, *, backup=False, ladder=("B1", "D1")):
    before = managed_routes([Route.model_validate(one) for one in routes_of(text)], "uid", ladder)
    return rewrite_routes(text, PATH, "uid", before, places, [(TOPIC, "backup", "true")] if backup else [])


def changed(before, after):
    """Lines that are not in both."""
    return [
        line
        for line in unified_diff("f", before, after).splitlines()
        if line[:1] in "+-" and not line.startswith(("+++", "---"))
    ]


def test_a_route_and_its_level_where_there_were_none():
    after = edited(PLAIN, {"acme": "B1"}, backup=True)
    assert changed(PLAIN, after) == [
        "+    backup: true",
        "+        routes:",
        "+          - {when: {property: uid, in: [acme]}, to: B1}",
    ]
    loaded = yaml.safe_load(after)["topics"]["orders"]
    assert (loaded["backup"], loaded["subscriptions"]["billing"]["audit"]) == (True, True)
    off = PLAIN.replace("    fair_by", "    backup: false\n    fair_by")
    assert changed(off, edited(off, {"acme": "B1"}, backup=True))[:2] == ["-    backup: false", "+    backup: true"]


def test_a_key_that_comes_before_all_others_is_written_first():
    text = "topics:\n  orders:\n    subscriptions: {billing: {audit: true}}\n"
    assert edited(text, {"a": "B1"}, backup=True) == (
        "topics:\n  orders:\n    backup: true\n"
        "    subscriptions: {billing: {audit: true, routes: [{when: {property: uid, in: [a]}, to: B1}]}}\n"
    )


def test_names_join_and_leave_the_route_of_their_level():
    joined = edited(BLOCK, {"c": "B1"})
    assert changed(BLOCK, joined) == [
        "-          - {when: {property: uid, in: [a, b]}, to: B1}  # noisy",
        "+          - {when: {property: uid, in: [a, b, c]}, to: B1}  # noisy",
    ]
    assert (
        changed(BLOCK, edited(BLOCK, {"a": None}))[1]
        == "+          - {when: {property: uid, in: [b]}, to: B1}  # noisy"
    )
    assert changed(BLOCK, edited(BLOCK, {"a": "D1"})) == [
        "-          - {when: {property: uid, in: [a, b]}, to: B1}  # noisy",
        "+          - {when: {property: uid, in: [b]}, to: B1}  # noisy",
        "+          - {when: {property: uid, in: [a]}, to: D1}",
    ]
    assert changed(BLOCK, edited(BLOCK, {"a": None, "b": "D1"}))[1:] == [
        "+          - {when: {property: uid, in: [b]}, to: D1}  # noisy"
    ]


def test_the_last_name_takes_its_route_and_the_last_route_its_list_away():
    gone = edited(BLOCK, {"a": None, "b": None})
    assert changed(BLOCK, gone) == ["-          - {when: {property: uid, in: [a, b]}, to: B1}  # noisy"]
    alone = PLAIN + "        routes:\n          - {when: {property: uid, in: [a]}, to: B1}\n"
    assert edited(alone, {"a": None}) == PLAIN
    assert "routes" not in edited(FLOW, {"a": None})
    assert routes_of(edited(FLOW, {"a": "D1"})) == [{"when": {"property": "uid", "in": ["a"]}, "to": "D1"}]
    assert len(routes_of(edited(FLOW, {"b": "D1"}))) == 2
    first = FLOW.replace("[{when", "[{when: {property: uid, in: [x]}, to: D1}, {when")
    assert [one["to"] for one in routes_of(edited(first, {"x": None}))] == ["B1"]
    assert [one["to"] for one in routes_of(edited(first, {"a": None}))] == ["D1"]
    assert routes_of(edited(first, {"a": None, "x": None})) == []
    empty = FLOW.replace("[{when: {property: uid, in: [a]}, to: B1}]", "[]")
    assert len(routes_of(edited(empty, {"a": "B1"}))) == 1
    assert yaml.safe_load(edited(FLOW, {"a": None}, backup=True))["topics"]["orders"]["backup"] is True
    two = edited(PLAIN, {"a": "B1", "b": "D1"})
    assert [one["to"] for one in routes_of(two)] == ["B1", "D1"]


def test_line_ends_are_kept_and_a_file_may_end_without_one():
    windows = PLAIN.replace("\n", "\r\n")
    assert edited(windows, {"a": "B1"}).count("\r\n") == edited(PLAIN, {"a": "B1"}).count("\n")
    assert edited(PLAIN.rstrip("\n"), {"a": "B1"}) == edited(PLAIN, {"a": "B1"}).rstrip("\n")
    scalar = PLAIN + "        description: |\n          long\n          text\n"
    assert (
        yaml.safe_load(edited(scalar, {"a": "B1"}))["topics"]["orders"]["subscriptions"]["billing"]["description"]
        == "long\ntext\n"
    )
    tail = PLAIN.replace("    subscriptions", "    description: |\n      long\n    subscriptions")
    assert yaml.safe_load(edited(tail, {"a": "B1"}, backup=True))["topics"]["orders"]["description"] == "long\n"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("topics:\n  orders:\n    subscriptions:\n      billing:\n", {"a": "B1"}),
        ("x: &r\n  - {when: {property: uid, in: [a]}, to: B1}\ntopics: {orders: {subscriptions: {billing: {routes: *r}}}}\n", {"b": "B1"}),
        ("topics:\n  orders:\n    subscriptions:\n      billing:\n        routes:\n        - {when: {property: uid, in: [a]}, to: B1}\n", {"a": None}),
    ],
    ids=["no keys", "an alias", "nothing but routes"],
)  # fmt: skip
def test_what_cannot_be_edited_is_said(text, places):
    routes = [Route.model_validate({"when": {"property": "uid", "in": ["a"]}, "to": "B1"})] if "when" in text else []
    with pytest.raises(CannotPatchError):
        rewrite_routes(text, PATH, "uid", managed_routes(routes, "uid", ("B1",)), places)


def test_routes_of_ours_and_somebody_elses():
    routes = [
        Route.model_validate({"when": when, "to": to})
        for when, to in [
            ({"property": "uid", "in": ["a", 7]}, "B1"),
            ({"property": "uid", "in": ["vip"]}, "L2"),
            ({"property": "uid", "equals": "batch"}, "B1"),
            ({"property": "uid", "exists": True}, "B1"),
            ({"property": "size", "in": ["a"]}, "B1"),
        ]
    ]
    assert managed_routes(routes, "uid", ("B1",)) == [ManagedRoute(0, ("a", "7"), "B1")]
    assert foreign_tenants(routes, "uid", ("B1",)) == {"vip", "batch"}
    kept, appended = move_tenants([ManagedRoute(0, ("a",), "B1"), ManagedRoute(3, ("b",), "D1")], {"b": "B1"})
    assert (kept, appended) == ([ManagedRoute(0, ("a", "b"), "B1"), ManagedRoute(3, (), "D1")], [])


@examples(50)
@example("\x85")
@example("a\n--- a/f\r\n+++ b/f")
@example(" é\u2028")
@given(st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=30))
def test_any_name_is_the_same_when_it_is_read(name):
    after = edited(PLAIN, {name: "B1"})
    assert routes_of(after)[0]["when"]["in"] == [name]
    assert len(after.splitlines()) == len(PLAIN.splitlines()) + 2


@pytest.mark.parametrize("text", [PLAIN, BLOCK, PLAIN.rstrip("\n"), PLAIN.replace("\n", "\r\n")])
def test_git_takes_the_patch_with_words_before_it(text, tmp_path):
    file = tmp_path / "deep er" / "trade.yaml"
    file.parent.mkdir()
    file.write_bytes(text.encode())
    after = edited(text, {"acme": "B1"}, backup=True)
    words = textwrap.dedent("""\
        orders / billing: isolate acme, L1 -> B1
          --- 90% of all messages
        """)
    for command in (["init", "-q"], ["apply"]):
        given_ = (words + unified_diff("deep er/trade.yaml", text, after)).encode() if command == ["apply"] else b""
        subprocess.run(["git", *command], cwd=tmp_path, input=given_, check=True)
    assert file.read_bytes().decode() == after


@pytest.mark.parametrize(("text", "before"), [("a: []\n", []), ("a: [x]\n", ["x"]), ("a:\n  - x\n", ["x"])])
def test_entries_that_are_added_to_one_list_keep_their_order(text: str, before: list[str]) -> None:
    edited = Text(text)
    for entry in ("y", "z"):
        edited.append(("a",), entry)
    assert yaml.safe_load(edited.result()) == {"a": [*before, "y", "z"]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: &r\n  - x\nb: 1\n", "a: &r\n  - x\n  - y\nb: 1\n"),
        ("a: [x,]\n", "a: [x, y]\n"),
        ("a: [\n  x,  # so\n]\n", "a: [\n  x,  # so\ny]\n"),
        ("a: [\n  x  # so, it is\n]\n", "a: [\n  x  # so, it is\n, y]\n"),
        ("b: 'one\u2028two'\na:\n  - x\nc: 1\n", "b: 'one\u2028two'\na:\n  - x\n  - y\nc: 1\n"),
    ],
    ids=["an anchor", "a last comma", "a last comma and a comment", "a comma in a comment", "a line end of YAML alone"],
)
def test_an_entry_is_added_however_its_list_is_written(before: str, after: str) -> None:
    edited = Text(before)
    edited.append(("a",), "y")
    assert edited.result() == after
    assert yaml.safe_load(after)["a"] == ["x", "y"]


def test_a_key_is_added_to_a_map_with_an_anchor_and_to_one_with_a_last_comma() -> None:
    edited = Text("a: &r\n  x: 1\nb: {x: 1,}\n")
    for path in (("a",), ("b",), ("b",)):
        edited.set_key(path, f"y{len(edited.edits)}", ["2"])
    assert yaml.safe_load(edited.result()) == {"a": {"x": 1, "y0": 2}, "b": {"x": 1, "y1": 2, "y2": 2}}


def test_an_alias_takes_no_entry_and_a_text_that_is_no_yaml_no_edit() -> None:
    with pytest.raises(CannotPatchError, match="`a` is an alias"):
        Text("b: &r [x]\na: *r\n").append(("a",), "y")
    with pytest.raises(CannotPatchError, match="it is no YAML"):
        Text("a: [x,, y]\n")
