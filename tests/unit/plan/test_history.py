"""What a journal's entries tell of applies."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.errors import UsageError
from kodoctl.plan import history_document, serialization
from kodoctl.plan.changes import ChangeContext, Create, Delete
from kodoctl.plan.history import (
    Applied,
    History,
    earlier_apply,
    find_apply,
    pack,
    parse,
    read_history,
    step_json,
    to_json,
    unpack,
)
from kodoctl.pulsar.values import packed_text
from kodoctl.topology.names import TopicName
from kodoctl.topology.resource_json import resource_to_json
from kodoctl.topology.resources import TopicResource
from tests.samples.inventories import HERE

J, K = (TopicResource(TopicName(HERE, name), 1, {}) for name in "JK")
MADE, GONE = Create(J, ChangeContext("trade")), Delete(K, ChangeContext("trade"))


def _applies(entries: Any) -> tuple[Applied, ...]:
    found = read_history(entries)
    assert found.foreign == ()
    return found.applies


def _begin(name: str = "aa11", at: object = 5, **more: Any) -> dict[str, Any]:
    head = {"v": 1, "kind": "begin", "apply": name, "at": at, "verb": "apply", "who": "anna", "commit": None}
    return {**head, "plan": "d", "changes": 2, "ledgers": {}, "packed": None, **more}


def _before(change: Any, name: str = "aa11", part: str = "all") -> dict[str, Any]:
    return {
        "kind": "before",
        "apply": name,
        "at": 6,
        **step_json(change, part),
        "change": serialization.change_to_json(change),
    }


def _after(change: Any, status: str = "done", detail: str = "", part: str = "all") -> dict[str, Any]:
    return {"kind": "after", "apply": "aa11", "at": 7, **step_json(change, part), "status": status, "detail": detail}


def _end(name: str = "aa11", *, complete: bool = True) -> dict[str, Any]:
    return {"kind": "end", "apply": name, "at": 9, "complete": complete}


def test_a_whole_apply_is_told_with_its_changes() -> None:
    entries = [{"kind": "lease"}, _begin(), _before(MADE), _after(MADE), _before(GONE), _after(GONE), _end()]
    [one] = _applies(entries)
    assert (one.state, one.done, one.broken, one.ended) == ("complete", (MADE, GONE), (), 9)
    assert [change["address"] for change in to_json(one)["done"]] == [MADE.address, GONE.address]
    assert to_json(one).keys() == history_document.ApplyRow.__annotations__.keys()


def test_what_failed_and_what_nobody_wrote_the_end_of_is_told_apart() -> None:
    [one] = _applies([_begin(), _before(MADE), _after(MADE, "failed", "412 busy"), _before(GONE)])
    assert (one.state, one.done) == ("cut off", ())
    assert one.broken == ((MADE, "failed: 412 busy"), (GONE, "unknown: its end was never written down"))
    assert to_json(one)["broken"][1]["detail"].startswith("unknown")


def test_a_change_written_in_two_parts_is_done_when_both_are() -> None:
    early, late = _before(MADE, part="early"), _before(MADE, part="late")
    [half] = _applies(
        [_begin(), early, _after(MADE, part="early"), late, _after(MADE, "failed", part="late"), _end(complete=False)]
    )
    assert (half.state, half.done, half.broken) == ("incomplete", (), ((MADE, "failed"),))
    [whole] = _applies([_begin(), early, _after(MADE, part="early"), late, _after(MADE, part="late"), _end()])
    assert whole.done == (MADE,)


def test_several_applies_are_told_once_and_in_the_journals_order_whatever_their_clocks_said() -> None:
    found = _applies(
        [
            _begin("bb", at=9),
            _begin("aa11", at=3),
            _begin("aa11", at=4),
            _end("zz"),
            {"kind": "later", "apply": "bb"},
        ]
    )
    assert [one.id for one in found] == ["bb", "aa11"]
    assert find_apply(History(found), "last", "kodo/trade").id == "aa11"


def test_an_apply_of_a_newer_kodoctl_is_told_and_no_earlier_one_is_the_last_then() -> None:
    """`undo last` took the one before it back."""
    newer = [_begin("cc33", v=2, more="of it"), {**_before(MADE), "apply": "cc33"}, _end("cc33")]
    found = read_history([_begin("aa11"), _begin("bb22"), *newer, _end("aa11"), _begin("bb22")])
    assert [one.id for one in found.applies] == ["aa11", "bb22"]
    assert found.latest is None
    (told,) = found.foreign
    assert told == f"entry 3 is left out: {found.newer}"
    assert found.newer.startswith("apply cc33 is of a newer kodoctl: it has format 2, this kodoctl (")
    assert find_apply(found, "bb", "kodo/trade").id == "bb22"
    with pytest.raises(UsageError, match="K424") as caught:
        find_apply(found, "last", "kodo/trade")
    assert "the latest in kodo/trade, apply cc33 is of a newer kodoctl" in caught.value.diagnostics[0].detail
    over = read_history([_begin("aa11"), *newer, _begin("dd44")])
    assert over.latest is not None
    assert (over.latest.id, over.newer, len(over.foreign)) == ("dd44", "", 1)
    assert find_apply(over, "last", "kodo/trade").id == "dd44"


def test_the_latest_apply_of_an_empty_journal_is_none() -> None:
    assert read_history([{"kind": "lease", "v": 7}]) == History(())
    assert History(()).latest is None


def _known() -> History:
    return History(_applies([_begin("aa11", at=1), _begin("aa22", at=2), _begin("bb33", at=3)]))


@pytest.mark.parametrize(("asked", "found"), [("aa22", "aa22"), ("b", "bb33"), ("last", "bb33")])
def test_an_apply_is_chosen_by_the_begin_of_its_id(asked: str, found: str) -> None:
    assert find_apply(_known(), asked, "kodo/trade").id == found


def test_a_whole_id_is_chosen_even_if_another_one_begins_with_it() -> None:
    found = read_history([_begin("aa11", at=1), _begin("aa11-2", at=2)])
    assert find_apply(found, "aa11", "kodo/trade").id == "aa11"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("aa", "several applies begin with 'aa'; the latest: aa11, aa22, bb33"),
        ("zz", "no apply begins with 'zz'; the latest: aa11, aa22, bb33"),
    ],
)
def test_an_id_that_is_no_ones_or_several_is_refused(asked: str, said: str) -> None:
    with pytest.raises(UsageError, match="apply not found") as caught:
        find_apply(_known(), asked, "kodo/trade")
    assert said == caught.value.diagnostics[0].detail
    with pytest.raises(UsageError, match="apply not found") as nothing:
        find_apply(History(()), "last", "kodo/trade")
    assert "nothing has been applied in kodo/trade yet" in nothing.value.diagnostics[0].detail


def test_a_plan_travels_packed_unless_no_entry_could_hold_it() -> None:
    packed = pack("a plan" * 1000)
    assert packed is not None
    assert len(packed) < 200
    assert unpack(packed) == "a plan" * 1000
    assert pack(random.Random(1).randbytes(2 << 20).hex()) is None


def test_an_apply_of_a_plan_is_known_by_what_the_plan_saw_and_meant_and_the_latest_counts() -> None:
    plan = {"cluster": {"name": "c"}, "digest": "d", "fingerprints": {"topic.J": "1"}, "ledger_fingerprints": {}}
    judged = {**plan, "changes": [{"dangers": ["seen later"]}]}
    other = {**plan, "fingerprints": {"topic.J": "2"}}
    entries = [
        _begin("aa", packed=pack(json.dumps(plan))),
        _begin("bb", packed=pack(json.dumps(judged))),
        _begin("cc", packed=pack(json.dumps(other))),
        _begin("dd", packed=None),
        _begin("ee", packed="no base64 of anything"),
        _begin("ff", packed=base64.b64encode(b"nothing that was packed").decode()),
    ]
    found = earlier_apply(_applies(entries), plan)
    assert found is not None
    assert found.id == "bb"
    assert earlier_apply(_applies(entries), {**plan, "digest": "e"}) is None
    assert earlier_apply((), plan) is None


@pytest.mark.parametrize(
    ("data", "found"), [(b'{"kind": "end"}', {"kind": "end"}), (b"no JSON", {}), (b"[1]", {}), (b"\xff", {})]
)
def test_what_is_no_entry_is_nothing(data: bytes, found: dict[str, str]) -> None:
    assert parse(data) == found


ODD: list[dict[str, Any]] = [
    {"owner": {}},
    {"after": {**resource_to_json(J), "partitions": "x"}},
    {"after": {"kind": "grant", "target": "acme/ns", "role": "anna", "actions": [1, "produce"]}},
]
HOSTILE = [
    {"kind": "begin", "v": 1},
    _begin("bb22", v=0),
    _begin("bb22", v="2"),
    {"kind": "begin", "v": 1, "apply": ["x"]},
    {"kind": "begin", "v": 1, "apply": "x" * 70},
    _begin("bb22", at=10**18),
    _begin("bb22", at="now"),
    _begin("bb22", ledgers={"nowhere": None}),
    _begin("bb22", ledgers=[1]),
    _begin("bb22", who={"a": 1}),
    _begin("bb22", packed="x" * (3 << 20)),
    {"kind": "before", "apply": "aa11"},
    {**_before(MADE), "change": {}},
    {**_before(MADE), "change": {**serialization.change_to_json(MADE), "after": {"kind": "topic", "name": "?"}}},
    {**_before(MADE), "change": {**serialization.change_to_json(MADE), "action": "explode"}},
    {**_before(MADE), "address": 5},
    *({**_before(MADE), "change": {**serialization.change_to_json(MADE), **odd}} for odd in ODD),
    {**_after(MADE), "status": None},
    {"kind": "end", "apply": "aa11", "at": -1, "complete": True},
    {"kind": "end", "apply": "aa11", "at": 9, "complete": "yes"},
]  # fmt: skip


@pytest.mark.parametrize("entry", HOSTILE, ids=lambda entry: json.dumps(entry)[:40])
def test_an_entry_that_is_none_of_ours_is_left_out_and_told(entry: dict[str, Any]) -> None:
    """The topic keeps it for ever: it must not end history, undo and resume for as long."""
    found = read_history([_begin(), _before(MADE), entry, _after(MADE), _end()])
    [one] = found.applies
    assert (one.state, one.done) == ("complete", (MADE,))
    [told] = found.foreign
    assert told.startswith("entry 3 is none of kodoctl's, and is left out: ")


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(sorted({*_begin(), *_before(MADE), *_after(MADE)})), inner, max_size=9),
    max_leaves=12,
), st.sampled_from(["begin", "before", "after", "end", "unlock"]))  # fmt: skip
def test_whatever_a_journal_holds_its_true_entries_are_read(entry: Any, kind: str) -> None:
    more = {**(entry if isinstance(entry, dict) else {"apply": entry}), "kind": kind}
    for one in (more, {"v": 1, "apply": "aa11", **more}, parse(json.dumps(entry).encode())):
        found = read_history([_begin("cc33"), one, _end("cc33")])
        assert "cc33" in {apply.id for apply in found.applies}


@pytest.mark.parametrize("data", [b"[" * 100_000, b"1", b"\xff", b"", b'{"apply": ' + b"9" * 5_000 + b"}"])
def test_what_is_no_document_is_no_entry(data: bytes) -> None:
    assert parse(data) == {}


def test_what_is_packed_is_bounded_when_it_is_unpacked() -> None:
    bomb = packed_text.pack(b" " * (packed_text.MAX_UNPACKED + 1), 9)
    assert len(bomb) < 200_000
    for packed in (bomb, "###", packed_text.pack(b"x", 9)[:-6], "eJw="):
        with pytest.raises(ValueError, match=r"."):
            unpack(packed)
