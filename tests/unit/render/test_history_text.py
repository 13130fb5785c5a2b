"""The history of a namespace, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kodoctl.plan.changes import ChangeContext, Create
from kodoctl.plan.serialization import change_to_json
from kodoctl.render.history_text import apply_lines
from kodoctl.topology.resources import GrantResource
from tests.samples.inventories import HERE, NOW

if TYPE_CHECKING:
    from kodoctl.plan.history_document import ApplyRow, BrokenChange


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
