"""The numbers of producers as texts: what is written is read again, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.protocol.sequence_numbers import (
    NOBODY,
    BrokenNumberError,
    Number,
    ProducerWatermark,
    new_run,
    read_number,
    run_start,
)
from kodoctl.topology.names import why_not_pulsar_name

RUN = new_run(1_795_000_000_000, "0a12ffee")
numbers = st.integers(1, 10**12)


def ranges(sizes: list[int]) -> tuple[tuple[int, int], ...]:
    """Ascending ranges, apart from each other."""
    found, at = [], 0
    for size in sizes:
        found.append((at + 1 + size, at + 1 + 2 * size))
        at = found[-1][1]
    return tuple(found)


@given(st.integers(0, 500), numbers)
def test_a_number_is_read_as_it_was_written(partition: int, number: int) -> None:
    written = Number(RUN, partition, number)
    assert read_number(str(written)) == written


@given(st.integers(0, 500), numbers, st.lists(st.integers(0, 50), max_size=20), st.booleans())
def test_a_mark_is_read_as_it_was_written(partition: int, high: int, sizes: list[int], end: bool) -> None:
    written = ProducerWatermark(RUN, partition, high, ranges(sizes), end)
    assert read_number(str(written)) == written


def test_the_format_is_what_the_documentation_says() -> None:
    assert str(Number("7f3a9c2e41b00a12", 3, 1841)) == "7f3a9c2e41b00a12:3:1841"
    mark = ProducerWatermark("7f3a9c2e41b00a12", 3, 1841, ((17, 17), (40, 52)), end=True)
    assert str(mark) == "7f3a9c2e41b00a12:3:high=1841:void=17,40-52:end"


def test_a_run_knows_when_it_began() -> None:
    assert run_start(RUN) == 1_795_000_000_000
    assert new_run(1, "aaaa") < new_run(2, "0000")


def test_no_subscription_can_have_the_name_that_marks_are_meant_for() -> None:
    assert why_not_pulsar_name(NOBODY)


@pytest.mark.parametrize(
    "text",
    [
        "", "x", RUN, f"{RUN}:1", f"{RUN}:1:", f"{RUN}:-1:1", f"{RUN}:1:x", f"{RUN}:1:²", "xyz:1:1", f"{RUN}:1:1:1",
        f"{RUN}:1:high=", f"{RUN}:1:high=1:more=1", f"{RUN}:1:high=1:void=", f"{RUN}:1:high=1:void=3-2",
        f"{RUN}:1:high=1:void=2,1", f"{RUN}:1:high=1:void=0", f"{RUN}:1:end", f"{RUN}:1:high=1:end:end",
        f"{RUN}:1:high=1:high=2", f"{RUN}:1:{'9' * 16}", f"{RUN}:1:{'9' * 5000}",
    ],
)  # fmt: skip
def test_anything_else_is_broken(text: str) -> None:
    with pytest.raises(BrokenNumberError):
        read_number(text)


@given(st.text(max_size=60))
def test_no_text_does_more_than_be_broken(text: str) -> None:
    try:
        found = read_number(f"{RUN}:{text}")
    except BrokenNumberError:
        return
    assert found.run == RUN
