"""The history of a namespace, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kodoctl.plan.changes import ChangeContext, Create
from kodoctl.plan.serialization import change_to_json
from kodoctl.render.history_text import apply_lines, history_lines
from kodoctl.topology.resources import GrantResource
from tests.samples.inventories import HERE, NOW

if TYPE_CHECKING:
    from kodoctl.plan.history_document import ApplyRow, BrokenChange, HistoryDocument


def _shown(*broken: BrokenChange) -> list[str]:
    done = change_to_json(Create(GrantResource(HERE, "ann", frozenset({"produce"})), ChangeContext("trade")))
    apply: ApplyRow = {
        "id": "a1", "verb": "apply", "who": "ann", "began": NOW, "ended": NOW, "commit": None, "plan": "p",
        "state": "incomplete" if broken else "complete", "changes": 1 + len(broken), "done": [done], "broken": [*broken],
    }  # fmt: skip
    return [line.text for line in apply_lines(apply)]


def test_changes_that_failed_stand_apart_under_a_head_of_their_own() -> None:
    head = "Not done, or nobody knows (look at the object, or plan again):"
    failed = change_to_json(Create(GrantResource(HERE, "bob", frozenset({"consume"})), ChangeContext("trade")))
    lines = _shown({"change": failed, "detail": "the broker answered 500"})
    assert head in lines
    [ann, bob] = [
        next(at for at, line in enumerate(lines) if name in line and "+" in line) for name in ("/ann", "/bob")
    ]
    assert ann < lines.index(head) < bob
    assert lines[-1] == "      the broker answered 500"
    assert head not in _shown()


def test_everything_that_was_done_is_one_list_in_the_order_of_time() -> None:
    apply: ApplyRow = {
        "id": "a1", "verb": "apply", "who": "ann", "began": NOW + 120_000, "ended": None, "commit": "c0ffee" * 6, "plan": "p",
        "state": "cut off", "changes": 2, "done": [],  "broken": [],
    }  # fmt: skip
    run: Any = {"run": "r1", "began": NOW + 60_000, "who": "bob", "source": "orders-billing-DLQ", "open": 1}
    run |= {"sent": 2, "discarded": 0, "refused": 0, "unclear": 0}
    order: Any = {
        "topic": "orders", "subscription": "billing", "at": NOW, "who": "", "back": False,
        "order": "lane L1/ready paused", "until": NOW + 3_600_000, "why": "bank",
    }  # fmt: skip
    replay: Any = {
        "run": "p1", "began": NOW + 180_000, "who": "eve", "topic": "orders", "subscription": "billing", "messages": 1,
        "because": "fixed", "state": "undone",
    }  # fmt: skip
    taken_back: Any = {**order, "at": NOW + 240_000, "who": "ann", "back": True}
    document: HistoryDocument = {
        "namespace": "kodo/trade", "applies": [apply], "recalls": [run], "replays": [replay],
        "orders": [order, taken_back],
        "unknown": ["live orders of orders / billing before the last 20: they are not kept"],
    }  # fmt: skip
    assert [line.text for line in history_lines(document)] == [
        "order     2027-01-15 08:00 UTC  orders / billing: lane L1/ready paused until 2027-01-15 09:00 UTC",
        "          by an unknown person: bank",
        "r1  2027-01-15 08:01 UTC  messages of orders-billing-DLQ: 2 sent, 1 begun and not ended",
        "          by bob",
        "a1  2027-01-15 08:02 UTC  apply: cut off, 0 of 2 changes done",
        "          by ann, commit c0ffeec0ffee",
        "p1  2027-01-15 08:03 UTC  replay of orders / billing: 1 message, undone",
        "          by eve: fixed",
        "order     2027-01-15 08:04 UTC  orders / billing: taken back: lane L1/ready paused",
        "          by ann",
        "Not known: live orders of orders / billing before the last 20: they are not kept",
    ]
    empty: HistoryDocument = {"namespace": "kodo/trade", "applies": []}
    assert [line.text for line in history_lines(empty)] == ["Nothing was done in kodo/trade yet."]
