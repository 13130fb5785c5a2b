"""Partitioning of a recall plan into sub-plans for parallel senders. A target partition is never split: it must have
one producer. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kodoctl.recall.message.stored_message import Position
    from kodoctl.recall.plan.recall_plan import RecallPlan


def partition_plan(
    plan: RecallPlan, lanes: Collection[int], most: int, without: Container[Position] = frozenset()
) -> list[RecallPlan]:
    """Splits a plan into at most `most` plans (below 1 counts as 1), with numbers of letters as equal as whole lanes
    allow. Each has all letters of some of the `lanes` (indices into the plan's lanes, which stay the same), except
    those at the positions `without`. No plan is empty, so there may be fewer, or none.

    The plans have neither copies nor `settle`: the process that holds the subscription acknowledges all messages.
    `plan` must have its letters in memory (no table).
    """
    wanted = set(lanes)
    letters = [one for one in plan.letters if one.lane in wanted and one.position not in without]
    load = Counter(one.lane for one in letters)
    dealt: list[set[int]] = [set() for _ in range(min(max(1, most), len(load)))]
    full = [0] * len(dealt)
    for lane, number in load.most_common():  # the longest first, each to who has least
        least = min(range(len(dealt)), key=lambda crew: (full[crew], crew))
        dealt[least].add(lane)
        full[least] += number
    return [
        replace(
            plan,
            letters=tuple(replace(one, repeats=()) if one.repeats else one for one in letters if one.lane in mine),
            settle=(),
        )
        for mine in dealt
    ]
