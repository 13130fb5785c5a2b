"""A part of a plan in every view: what it is, what came along, what was held back, what was not compared."""

from __future__ import annotations

import pytest

from kodoctl.plan.plan import Plan
from kodoctl.plan.plan_file import to_json
from kodoctl.render.plan_annotations import plan_github
from kodoctl.render.plan_html import plan_html
from kodoctl.render.plan_markdown import plan_markdown
from kodoctl.render.plan_text import plan_lines
from kodoctl.text.formatting import MAX_LISTED
from tests.samples.inventories import applied, empty, planned, planned_part, topology, wanted

TARGET = "http://127.0.0.1:8080"
S = "subscriptions: {s: {states: [], dead_letter: false}}"
FILE = wanted(topology(f"{{J: {{{S}}}, K: {{{S}}}}}"))
J, K = (f"topic.persistent://acme/ns/{local}" for local in "JK")
J_S = "subscription.persistent://acme/ns/J/s"


def _text(plan: Plan) -> str:
    return "\n".join(line.text for line in plan_lines(to_json(plan), TARGET))


def _every(plan: Plan) -> dict[str, str]:
    document = to_json(plan)
    plain = plan_markdown(document, TARGET).replace("\\", "")
    return {
        "text": _text(plan),
        "markdown": plain,
        "html": plan_html(document, TARGET),
        "github": plan_github(document, TARGET),
    }


@pytest.mark.parametrize("view", ["text", "markdown", "html", "github"])
def test_every_view_says_that_it_is_a_part_and_what_was_not_compared(view: str) -> None:
    shown = _every(planned_part(FILE, empty(), J_S, "*/K", exclude=[K]))[view]
    assert f"Only a part of the plan: --target {J_S} --target */K --exclude {K}" in shown
    assert "Left out, not compared: 1 subscription, 1 topic; nor what only consumers read of their topologies." in shown
    assert "3 to create" in shown
    assert "0 unchanged, 2 left out." in shown
    whole = _every(planned(FILE, empty()))[view]
    assert "part of the plan" not in whole
    assert "compared" not in whole
    assert "left out" not in whole


@pytest.mark.parametrize("view", ["text", "markdown", "html"])
def test_what_came_along_and_what_was_held_back_is_named_with_the_reason(view: str) -> None:
    along = _every(planned_part(FILE, empty(), J_S))[view]
    assert "Taken along, because what is named needs them:" in along
    assert f"namespace.acme/ns, for {J}" in along
    held = _every(planned_part(FILE, empty(), exclude=[K]))[view]
    assert "Held back, because of what is left out:" in held
    assert f"subscription.persistent://acme/ns/K/s, needs {K}" in held


def test_nothing_to_change_in_a_part_is_not_nothing_to_change() -> None:
    there = applied(FILE)
    assert _text(planned_part(FILE, there, J)).endswith(
        "No changes in this part. 1 object is as the files say. 4 objects left out."
    )
    all_of_it = _text(planned_part(FILE, there, "*"))
    assert "Nothing is left out: these flags name all there is." in all_of_it
    assert all_of_it.endswith("No changes. 5 objects are as the files say.")


def test_long_lists_are_cut_and_counted() -> None:
    many = wanted(topology("{%s}" % ", ".join(f"T{n}: {{{S}}}" for n in range(30))))  # noqa: UP031
    text = _text(planned_part(many, empty(), "subscription.*"))
    assert f"… and {31 - MAX_LISTED} more (--format json lists all)" in text
