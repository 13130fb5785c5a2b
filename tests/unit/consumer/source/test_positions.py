"""Numbers of positions: they rise in the order of sending, and no two positions have the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.source.positions import Position, lsn_text, read_lsn, read_position, snapshot_slot
from kodo_consumer.source.progress import Progress

LSN = st.integers(1, (1 << 64) - 1)
PLACE = st.one_of(st.integers(0, 3), st.integers(0, 1 << 24), st.integers((1 << 22) - 2, (1 << 22) + 2))


@given(st.lists(st.tuples(LSN, PLACE), min_size=2, unique=True), st.booleans())
def test_numbers_of_a_group_rise_with_positions(places: list[tuple[int, int]], is_snapshot: bool) -> None:
    last: dict[str, int] = {}
    for lsn, place in sorted(places):
        position = Position(lsn, place, is_snapshot)
        assert last.get(position.group, 0) < position.number < 1 << 63
        last[position.group] = position.number


@given(LSN)
def test_the_next_commit_has_higher_numbers_whatever_the_size_of_this_one(lsn: int) -> None:
    here, after = Position(lsn, (1 << 22) - 1), Position(lsn + 48, 0)
    assert here.group != after.group or here.number < after.number
    assert Position(lsn, 1 << 22).group not in (here.group, after.group)


@given(LSN)
def test_positions_are_written_as_postgresql_does(lsn: int) -> None:
    assert read_lsn(lsn_text(lsn)) == read_lsn(lsn_text(lsn).lower()) == lsn


@pytest.mark.parametrize("text", ["", "0", "0/1/2", "0x1/0x2", "-1/0", " 1/2", "1_0/2", "123456789/0", "0/16B3748\n"])
def test_a_text_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no position"):
        read_lsn(text)


def test_names() -> None:
    assert str(Position(0x16B3748, 2)) == "0/16B3748#2"
    assert str(Position(0x16B3748, 2, is_snapshot=True)) == "0/16B3748#snapshot-2"
    for position in (Position(0x16B3748, 2), Position(1 << 40, 0, is_snapshot=True)):
        assert read_position(str(position)) == position
    assert read_position("0/16B3748#-1") is None
    assert len(snapshot_slot("x" * 63)) <= 63


def test_only_what_is_stored_is_confirmed() -> None:
    progress = Progress()
    first, second = progress.begin(1), progress.begin(2)
    first.out = second.out = 1
    second.end, second.out = 20, 0
    assert progress.advance(15) == 0
    first.end = 10
    assert progress.advance(15) == 0
    first.out = 0
    assert progress.advance(15) == 20
    assert progress.advance(30) == 30
    progress.begin(3)
    assert progress.advance(40) == 30
