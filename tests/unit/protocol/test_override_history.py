"""History of live orders: what was given and taken back, by whom, as text and as a property."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kodoctl.protocol.override_history import (
    MAX_CHANGES,
    OverrideChange,
    changes,
    parse_history,
    printed_history,
)
from kodoctl.protocol.overrides import InvalidOverridesError, Override, OverrideKind

NOW = 1_800_000_000_000
MOVE = Override(OverrideKind.MOVE, NOW, NOW + 3_600_000, "ann@desk", "their sale", tenant="u1", to="L2")
PAUSE = Override(OverrideKind.PAUSE, NOW, NOW + 3_600_000, "bob@desk", tenant="u1")


def test_what_is_new_was_given_and_what_is_gone_was_taken_back_unless_another_took_its_place() -> None:
    longer = replace(MOVE, until=NOW + 7_200_000, who="eve@desk")
    assert changes((), (MOVE,), "x", NOW) == (OverrideChange(NOW, "ann@desk", MOVE),)
    assert changes((MOVE, PAUSE), (longer,), "eve@desk", NOW) == (
        OverrideChange(NOW, "eve@desk", PAUSE, back=True),
        OverrideChange(NOW, "eve@desk", longer),
    )
    assert changes((MOVE,), (MOVE,), "x", NOW) == ()


def test_what_people_read() -> None:
    when = "2027-01-15 08:00 UTC"
    assert [str(change) for change in (*changes((), (MOVE, PAUSE), "x", NOW), *changes((MOVE,), (), "x@y", NOW))] == [
        f"{when}: tenant u1 moved to L2 until 2027-01-15 09:00 UTC, by ann@desk: their sale",
        f"{when}: tenant u1 paused until 2027-01-15 09:00 UTC, by bob@desk",
        f"{when}: taken back, by x@y: tenant u1 moved to L2",
    ]
    assert str(OverrideChange(NOW, "", PAUSE, back=True)) == f"{when}: taken back: tenant u1 paused"


def test_the_last_changes_come_back_as_they_were() -> None:
    known = tuple(OverrideChange(NOW + number, "ann@desk", MOVE, back=bool(number % 2)) for number in range(30))
    assert parse_history(printed_history(known[:2], ())) == known[:2]
    assert parse_history(printed_history(known[:25], known[25:])) == known[-MAX_CHANGES:]


@pytest.mark.parametrize(
    "damage",
    [
        {"changes": []},
        {"changes": [["soon", "ann", False]]},
        {"changes": [[NOW, "x" * 201, False]]},
        {"changes": [[-1, "ann", False]]},
        {"changes": 7},
        {"orders": [7]},
        {"format": 2},
    ],
)
def test_what_is_no_history_is_refused(damage: dict[str, object]) -> None:
    document = json.loads(printed_history((), changes((), (MOVE,), "x", NOW))) | damage
    with pytest.raises(InvalidOverridesError):
        parse_history(json.dumps(document))
    with pytest.raises(InvalidOverridesError):
        parse_history("{")
