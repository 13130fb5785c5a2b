"""Groups of waiting messages: counted by what was asked for, in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kodoctl.recall.plan import waiting_groups
from kodoctl.recall.plan.waiting_groups import Dimension, WaitingGroups, due_label
from tests.unit.recall.letters import NOW, letter
from tests.unit.recall.plan.test_waiting_lanes import lanes


def groups(tmp_path: Path, *by: Dimension) -> WaitingGroups:
    found = lanes(tmp_path, "L1/retrying", "L2/blocking")
    made = WaitingGroups(found, by or list(Dimension), NOW)
    blocking, retrying = found
    for number in range(6):
        made.add(retrying, letter(reason=["x", "y"][number % 2], tenant=f"t{number % 3}", **due(NOW + 1_000 * number)))
    made.add(blocking, letter(publish_time=NOW - 5_000))
    return made


def due(moment: int) -> dict[str, Any]:
    return {"kodo-due": moment}


def test_lanes_have_a_row_each_with_what_is_due(tmp_path: Path) -> None:
    blocking, retrying = groups(tmp_path).lane_rows()
    assert (retrying.messages, retrying.overdue, retrying.oldest) == (6, 1, NOW - 1_000)
    assert (retrying.next_due, retrying.last_due) == (NOW, NOW + 5_000)
    assert (blocking.messages, blocking.overdue, blocking.oldest, blocking.next_due) == (
        1,
        1,
        NOW - 5_000,
        0,
    )
    assert retrying.full_topic.endswith("orders-billing-RETRYING")


def test_groups_have_the_facts_that_were_asked_for_the_largest_first(tmp_path: Path) -> None:
    rows = groups(tmp_path, Dimension.CAUSE).group_rows()
    assert [(row.cause, row.messages, row.lane, row.tenant, row.due) for row in rows] == [
        ("x", 3, None, None, None), ("y", 3, None, None, None), ("(none)", 1, None, None, None),
    ]  # fmt: skip
    every = groups(tmp_path).group_rows()
    assert len(every) == 7
    assert {(row.lane, row.due) for row in every} == {
        ("L1/retrying", "now"), ("L1/retrying", "in 1 min"), ("L2/blocking", "now"),
    }  # fmt: skip


def test_beyond_a_number_of_groups_tenants_and_causes_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_groups, "MOST_GROUPS", 2)
    rows = groups(tmp_path, Dimension.TENANT).group_rows()
    assert [(row.tenant, row.messages) for row in rows] == [("(others)", 3), ("t0", 2), ("t1", 2)]


def test_due_times_have_labels() -> None:
    expected = {-5: "now", 0: "now", 1: "in 1 min", 60_001: "in 1 h", 3_600_001: "in 1 d", 86_400_001: "later"}
    assert {left: due_label(left) for left in expected} == expected
