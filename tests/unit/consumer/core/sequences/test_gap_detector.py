"""Numbers given and judged: intervals against sets, gaps against what was really lost, doubled and given up."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kodo_consumer.core.sequences.gap_detector import GRACE, Gaps, Hole, NumberCheck
from kodo_consumer.core.sequences.gap_monitor import GapMonitor
from kodo_consumer.core.sequences.intervals import Intervals
from kodo_consumer.core.sequences.sequencer import Router, Sequencer, key_hash
from kodo_consumer.core.values.counters import Counts
from kodo_consumer.core.values.envelope import Delivery

from kodoctl.protocol.sequence_numbers import MAX_RANGES, Number, ProducerWatermark, new_run
from tests.unit.consumer.engine_bench import policy

NOW = 1_795_000_000_000
RUN = new_run(NOW, "abcd")
BEFORE = NOW - 3_600_000
spans = st.tuples(st.integers(1, 60), st.integers(0, 12), st.booleans())


@given(st.lists(spans, max_size=40), st.integers(1, 70), st.integers(1, 70))
def test_intervals_are_sets(changes: list[tuple[int, int, bool]], low: int, high: int) -> None:
    found, model = Intervals(), set[int]()
    for first, size, adds in changes:
        numbers = set(range(first, first + size + 1))
        if adds:
            found.add(first, first + size)
            model |= numbers
        else:
            found.take(first, first + size)
            model -= numbers
        assert {number for start, end in found for number in range(start, end + 1)} == model
        assert all(later[0] > before[1] + 1 for before, later in zip(found, list(found)[1:], strict=False))
        assert len(found) == len(list(found))
    assert all((number in found) == (number in model) for number in range(80))
    missing = {number for start, end in found.holes(low, high) for number in range(start, end + 1)}
    assert missing == set(range(low, high + 1)) - model


@given(st.data())
def test_what_was_lost_is_missing_and_nothing_else(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 60))
    fates = data.draw(
        st.lists(st.sampled_from(["came", "lost", "void", "void but came", "twice"]), min_size=count, max_size=count)
    )
    numbering = Sequencer(RUN)
    numbers = [numbering.next(0) for _ in fates]
    given_up = [number for number, fate in zip(numbers, fates, strict=True) if fate.startswith("void")]
    for number in given_up:
        numbering.give_up(number)
    come = [number for number, fate in zip(numbers, fates, strict=True) if fate in ("came", "void but came", "twice")]
    come += [number for number, fate in zip(numbers, fates, strict=True) if fate == "twice"]
    texts = [*map(str, come), *map(str, numbering.marks(end=True))]
    gaps = Gaps(BEFORE)
    for text in data.draw(st.permutations(texts)):
        gaps.see(text)
    lost = {number.number for number, fate in zip(numbers, fates, strict=True) if fate == "lost"}
    assert {number for hole in _holes(gaps) for number in range(hole.first, hole.last + 1)} == lost
    assert _missing(gaps) == len(lost)
    assert gaps.doubled == fates.count("twice")


def test_a_hole_is_told_once_when_it_has_been_open_long_enough() -> None:
    gaps = Gaps(BEFORE)
    for number in (1, 2, 5, 6, 9):
        assert gaps.see(str(Number(RUN, 0, number))) is NumberCheck.NEW
    assert gaps.check(0.0) == []
    gaps.see(str(Number(RUN, 0, 4)))
    assert gaps.check(GRACE - 1) == []
    assert gaps.check(GRACE) == [Hole(RUN, 0, 3, 3), Hole(RUN, 0, 7, 8)]
    assert (gaps.lost, _missing(gaps)) == (3, 0)
    assert gaps.check(GRACE * 3) == []
    assert gaps.see(str(Number(RUN, 0, 7))) is NumberCheck.NEW, "late is not doubled"
    assert gaps.see(str(Number(RUN, 0, 5))) is NumberCheck.DOUBLED


def test_the_end_of_a_run_shows_by_its_mark() -> None:
    gaps = Gaps(BEFORE)
    gaps.see(str(Number(RUN, 0, 1)))
    assert gaps.see(str(ProducerWatermark(RUN, 0, 4, ((2, 2),), end=True))) is NumberCheck.MARK
    assert _holes(gaps) == [Hole(RUN, 0, 3, 4)]
    gaps.check(0.0)
    assert [hole.size for hole in gaps.check(GRACE)] == [2]
    assert gaps._counts == {}, "a run that is over is looked at no more"


def test_of_a_run_that_began_before_only_what_follows_is_due() -> None:
    gaps = Gaps(NOW)
    gaps.see(str(Number(RUN, 0, 100)))
    gaps.see(str(Number(RUN, 0, 99)))
    assert _missing(gaps) == 0
    gaps.see(str(ProducerWatermark(RUN, 1, 50)))
    gaps.see(str(Number(RUN, 1, 52)))
    assert _holes(gaps) == [Hole(RUN, 1, 51, 51)]
    gaps.restart(BEFORE)
    gaps.see(str(Number(RUN, 0, 3)))
    assert _missing(gaps) == 2


def test_what_is_no_number_is_nobodys() -> None:
    gaps = Gaps(BEFORE)
    assert gaps.see("nonsense") is NumberCheck.BROKEN
    assert _missing(gaps) == 0


def test_runs_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.core.sequences.gap_detector._MAX_RUNS", 3)
    gaps = Gaps(BEFORE)
    runs = [new_run(NOW + place * 120_000, "abcd") for place in range(10)]
    for run in runs:
        gaps.see(str(Number(run, 0, 2)))
    assert _missing(gaps) == 3
    gaps.see(str(Number(runs[0], 0, 500)))
    gaps.see(str(Number(runs[0], 0, 502)))
    assert [hole for hole in _holes(gaps) if hole.run == runs[0]] == [Hole(runs[0], 0, 501, 501)], "not 1 to 499 again"


def test_second_copies_of_a_run_that_is_over_are_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that lost its connection sends again what has no receipt, the last mark as well."""
    monkeypatch.setattr("kodo_consumer.core.sequences.gap_detector._MAX_RUNS", 3)
    gaps = Gaps(BEFORE)
    end = str(ProducerWatermark(RUN, 0, 3, end=True))
    texts = [*(str(Number(RUN, 0, number)) for number in (1, 2, 3)), end]
    for text in texts:
        gaps.see(text)
    assert gaps.check(0.0) == []
    assert gaps.see(end) is NumberCheck.MARK
    assert gaps.check(1.0) == []
    assert gaps.see(texts[2]) is NumberCheck.DOUBLED
    for partition in range(1, 5):  # as many as are remembered, and one more
        gaps.see(str(ProducerWatermark(RUN, partition, 0, end=True)))
        gaps.check(2.0)
    gaps.see(end)
    gaps.check(3.0)
    assert gaps.check(3.0 + GRACE) == []
    assert (gaps.lost, gaps.doubled, gaps._counts) == (0, 1, {})
    assert len(gaps._over) == 3
    gaps.restart(NOW)
    assert len(gaps._over) == 0


def _holes(gaps: Gaps) -> list[Hole]:
    """Of this moment; their messages may still be on their way."""
    return [Hole(*key, *hole) for key, count in gaps._counts.items() for hole in count.holes()]


def _missing(gaps: Gaps) -> int:
    return sum(hole.size for hole in _holes(gaps))


def _ranges(gaps: Gaps) -> int:
    """What is remembered of all runs."""
    return sum(len(count.came) + len(count.known) for count in gaps._counts.values())


@pytest.mark.simulated
def test_a_producer_that_uses_every_second_number_fills_no_memory_and_every_hole_is_lost() -> None:
    gaps, lost = Gaps(BEFORE), list[Hole]()
    for number in range(2, 40_001, 2):
        assert gaps.see(str(Number(RUN, 0, number))) is NumberCheck.NEW
        if number % 2_000 == 0:
            lost += gaps.check(float(number / 2_000))
            assert _ranges(gaps) <= 2_100
    assert gaps.see(str(Number(RUN, 0, 40_000))) is NumberCheck.DOUBLED
    lost += gaps.check(GRACE * 3)
    assert gaps.lost == sum(hole.size for hole in lost) == 20_000
    assert (lost[0], lost[-1], _missing(gaps)) == (Hole(RUN, 0, 1, 1), Hole(RUN, 0, 39_999, 39_999), 0)


def test_many_runs_with_holes_fill_no_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.core.sequences.gap_detector._MAX_HOLES", 100)
    gaps = Gaps(BEFORE)
    for number in range(2, 200, 2):
        for partition in range(50):
            gaps.see(str(Number(RUN, partition, number)))
    gaps.check(0.0)
    assert _ranges(gaps) <= 50 * (2 + 3)


def test_numbers_that_are_not_due_fill_no_memory() -> None:
    gaps = Gaps(NOW)
    gaps.see(str(Number(RUN, 0, 5_000)))
    for number in range(4_998, 0, -2):  # of before the reader came
        gaps.see(str(Number(RUN, 0, number)))
    gaps.see(str(ProducerWatermark(RUN, 0, 5_000, tuple((number, number) for number in range(1, 9_000, 2)))))
    gaps.check(0.0)
    assert (_ranges(gaps), _missing(gaps)) == (1_001, 0)


def test_marks_say_what_readers_do_not_know_yet() -> None:
    numbering = Sequencer(RUN)
    first = numbering.next(0)
    numbering.next(0)
    numbering.next(2)
    numbering.give_up(first)
    marks = numbering.marks()
    assert marks == [ProducerWatermark(RUN, 0, 2, ((1, 1),)), ProducerWatermark(RUN, 2, 1)]
    assert numbering.marks() == marks, "a mark that was not stored is told again"
    for mark in marks:
        numbering.marked_sent(mark)
    assert numbering.marks() == []
    numbering.next(0)
    assert numbering.marks() == [ProducerWatermark(RUN, 0, 3)]
    assert numbering.marks(end=True) == [
        ProducerWatermark(RUN, 0, 3, (), end=True),
        ProducerWatermark(RUN, 2, 1, (), end=True),
    ]


def test_many_void_numbers_take_several_marks_and_the_last_one_ends_the_run() -> None:
    numbering = Sequencer(RUN)
    for number in [numbering.next(0) for _ in range(4 * MAX_RANGES)][::2]:
        numbering.give_up(number)
    marks = numbering.marks(end=True)
    assert [(len(mark.void), mark.end) for mark in marks] == [(500, False), (500, True)]


def test_a_key_stays_with_its_partition_and_others_take_turns() -> None:
    router = Router(4)
    assert len({router.choose("k1", now) for now in range(100)}) == 1
    assert {router.choose("", now / 50) for now in range(100)} == {0, 1, 2, 3}
    router = Router(3)
    found = [router.choose("", 1.0) for _ in range(300)]
    assert {found.count(partition) for partition in range(3)} == {100}, "a burst is spread, too"
    assert Router(1).choose("k", 0) == 0


def test_keys_are_placed_as_javas_hash_code_does() -> None:
    assert key_hash("hello") == 99162322
    assert key_hash("🙂") == 0xD83D * 31 + 0xDE42
    assert key_hash("The quick brown fox") == 0x7FFFFFFF & sum(
        ord(char) * 31**place for place, char in enumerate(reversed("The quick brown fox"))
    )


def delivery(number: int, **properties: str) -> Delivery:
    text = str(Number(RUN, 0, number))
    return Delivery(number, f"(1,{number},-1,-1)", b"x", {"kodo-seq": text, **properties}, "", "", 0, 0)


def test_only_a_reader_that_is_alone_judges() -> None:
    counts = Counts()
    assert GapMonitor.of(policy(), BEFORE, counts) is None
    for kind, workers, alone in (("exclusive", 1, True), ("failover", 1, True), ("failover", 2, False)):
        found = GapMonitor.of(policy(subscription_type=kind, expected_workers=workers), BEFORE, counts)
        assert (found is not None) == alone


def test_only_first_hops_count() -> None:
    counts = Counts()
    sole = GapMonitor(BEFORE, counts)
    ready, retrying = (lane for lane in policy().lanes if lane.name in ("L1/ready", "L1/retrying"))
    sole.on_message(delivery(1), ready)
    sole.on_message(delivery(1, **{"kodo-hop": "1"}), ready)
    sole.on_message(delivery(1, **{"kodo-recall": "r"}), ready)
    sole.on_message(delivery(2), retrying)
    sole.on_message(delivery(3), ready)
    sole.on_message(Delivery(9, "(1,9,-1,-1)", b"x", {}, "", "", 0, 0), ready)
    assert sole.check(0.0) == []
    assert sole.check(GRACE) == [f"1 message of producer run {RUN}, partition 0, never came: numbers 2 to 2"]
    assert (counts.missing, counts.duplicated) == (1, 0)
    sole.on_disconnect(BEFORE)
    assert _missing(sole.gaps) == 0


def test_of_many_holes_the_first_are_told_one_by_one() -> None:
    sole = GapMonitor(BEFORE, Counts())
    (ready, *_) = (lane for lane in policy().lanes if lane.name == "L1/ready")
    for number in range(2, 61, 2):
        sole.on_message(delivery(number), ready)
    sole.check(0.0)
    told = sole.check(GRACE)
    assert len(told) == 11
    assert told[9].endswith("never came: numbers 19 to 19")
    assert told[10] == "20 other messages never came, in 20 places"


def test_a_sequence_of_losses_is_counted_over_many_runs() -> None:
    rng = Random(7)
    gaps, lost = Gaps(BEFORE), 0
    for run in range(20):
        numbering = Sequencer(new_run(NOW + run, "abcd"))
        for _ in range(200):
            text = str(numbering.next(rng.randrange(3)))
            if rng.random() < 0.05:
                lost += 1
            else:
                gaps.see(text)
        for mark in numbering.marks(end=True):
            gaps.see(str(mark))
    gaps.check(0.0)
    assert sum(hole.size for hole in gaps.check(GRACE)) == lost == gaps.lost
    assert gaps._counts == {}


@given(st.data())
def test_a_mark_that_is_repeated_names_no_message(data: st.DataObject) -> None:
    """Also before the first number: the mark of a source that has sent nothing yet."""
    numbering = Sequencer(RUN)
    texts = [str(numbering.mark_again(0)), str(numbering.next(0)), str(numbering.mark_again(0))]
    for mark in numbering.marks():
        numbering.marked_sent(mark)
        texts.append(str(mark))
    texts += [str(numbering.mark_again(0)), *map(str, numbering.marks(end=True))]
    assert texts[0] == texts[2] == f"{RUN}:0:high=0"
    gaps = Gaps(BEFORE)
    for text in data.draw(st.permutations(texts)):
        gaps.see(text)
    assert not list(_holes(gaps))
