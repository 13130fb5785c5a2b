"""What was edited beside what drifted, in one object: every view tells the two apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kodoctl.plan.changes import FieldChange, PolicyChange, Update
from kodoctl.plan.plan_file import to_json
from kodoctl.render.plan_html import plan_html
from kodoctl.render.plan_markdown import plan_markdown
from kodoctl.render.plan_text import plan_lines
from kodoctl.topology.resources import TopicResource
from tests.unit.render.test_plan_views import ABOUT, TARGET, J, plan_of


def _text(document: Any, target: str) -> str:
    return "\n".join(line.text for line in plan_lines(document, target))


@pytest.mark.parametrize("view", [_text, plan_markdown, plan_html])
def test_a_field_that_drifted_is_marked_beside_one_that_was_edited(view: Callable[..., str]) -> None:
    fields = (FieldChange("partitions", 1, 4), PolicyChange("max_producers", 2, 3))
    document = to_json(plan_of(Update(TopicResource(J, 1, {}), TopicResource(J, 4, {}), fields, ABOUT)))
    document["against"] = {"ref": "main", "commit": "0123456789abcdef"}
    document["changes"][0] |= {"origin": "both", "drifted": ["policies.max_producers"]}
    drifted, edited = "2 → 3  (drift)", "1 → 4"
    shown = view(document, TARGET)
    assert drifted in shown
    assert f"{edited}  (drift)" not in shown
    assert shown.count("(drift)") == 1
