"""Ranges, offsets and coverage of the source: whatever is stored, every entry is planned once, and what is missing shows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kodo_pipeline.source import offsets
from kodo_pipeline.source.coverage import COMPLETE, HOLE, OVERRUN, Coverage
from kodo_pipeline.source.offsets import BEGIN, StreamOffset, holes, mark, missing, next_offset, wanted_batches
from kodo_pipeline.source.splits import (
    SMALLEST,
    START,
    LedgerRange,
    Place,
    Split,
    StoredPartition,
    parse_position,
    share,
    split_ranges,
    splits_each,
    splits_of,
    stored_partition,
    trim_ranges,
    within,
)

SIZES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5_000)), max_size=8)
Stats = dict[str, Any]


@st.composite
def topics(draw: st.DrawFn) -> tuple[Stats, list[Place]]:
    """Statistics of a partition as the broker words them, and every entry it holds."""
    ledgers, at = [], draw(st.integers(0, 50))
    for entries, each in draw(SIZES):
        at += draw(st.integers(1, 9))
        ledgers.append((at, entries, entries * each))
    held = [(ledger, entry) for ledger, entries, _ in ledgers for entry in range(entries)]
    opened = draw(st.booleans()) or not ledgers
    if opened:  # the last ledger is open: told as empty in the list
        current = ledgers[-1] if ledgers else (at + 1, 0, 0)
        listed = [*ledgers[:-1], (current[0], 0, 0)]
    else:
        current = (at + 1, 0, 0)
        listed = [*ledgers, current]
    last = held[-1] if held else (current[0], -1)
    rows = [{"ledgerId": ledger, "entries": entries, "size": size} for ledger, entries, size in listed]
    return {
        "ledgers": rows,
        "currentLedgerEntries": current[1],
        "currentLedgerSize": current[2],
        "lastConfirmedEntry": f"{last[0]}:{last[1]}",
    }, held


def _entries(pieces: list[LedgerRange] | tuple[LedgerRange, ...]) -> list[Place]:
    return [(one.ledger, entry) for one in pieces for entry in range(one.first, one.last + 1)]


@given(topics(), st.integers(1, 12))
def test_splits_hold_every_entry_once_in_order_and_weigh_about_the_same(
    topic: tuple[Stats, list[Place]], most: int
) -> None:
    stats, held = topic
    there = stored_partition(stats)
    splits = splits_of("persistent://a/b/c", 3, there.pieces, most)
    assert [one for split in splits for one in _entries(split.pieces)] == held
    assert len(splits) <= most
    assert all(split.entries for split in splits)
    assert sum(split.entries for split in splits) == len(held)
    assert len({split.id for split in splits}) == len(splits)
    for split in splits:
        assert split.first == _entries(split.pieces)[0]
        assert split.last == _entries(split.pieces)[-1]
    heaviest = max((one.size // one.entries for one in there.pieces), default=0)
    goal = -(-sum(one.size for one in there.pieces) // most)
    assert all(split.size <= goal + heaviest + len(split.pieces) for split in splits[:-1])


@given(topics(), st.data())
def test_a_range_holds_what_lies_in_it(topic: tuple[Stats, list[Place]], data: st.DataObject) -> None:
    stats, held = topic
    there = stored_partition(stats)
    somewhere = st.sampled_from([START, *held, there.tip])
    after, upto = data.draw(somewhere), data.draw(st.none() | somewhere)
    found = _entries(trim_ranges(there.pieces, after, upto))
    assert found == [one for one in held if one > after and (upto is None or one <= upto)]


@given(topics(), st.integers(0, 100_000))
def test_the_first_bytes_are_entries_without_a_hole_and_at_least_one(
    topic: tuple[Stats, list[Place]], size: int
) -> None:
    stats, held = topic
    taken = within(stored_partition(stats).pieces, size)
    assert _entries(taken) == held[: sum(one.entries for one in taken)]
    assert bool(taken) == bool(held)
    if sum(one.entries for one in taken) > 1:
        assert sum(one.size for one in taken) <= size + len(taken)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 1_000)), st.integers(0, 5_000))
def test_a_limit_is_shared_out_whole(waiting: dict[str, int], limit: int) -> None:
    found = share(waiting, limit)
    assert found.keys() == waiting.keys()
    assert all(found[name] <= waiting[name] for name in waiting)
    assert sum(found.values()) == min(limit, sum(waiting.values()))
    hungry = [found[name] for name in waiting if found[name] < waiting[name]]
    assert not hungry or max(hungry) - min(hungry) <= 1, "who is left with less than it needs is left with the same"


@given(st.lists(topics(), min_size=1, max_size=4), st.integers(1, 60_000) | st.none())
def test_a_stream_comes_to_the_end_once_over_everything(
    several: list[tuple[Stats, list[Place]]], limit: int | None
) -> None:
    now = {f"p{number}": stored_partition(stats) for number, (stats, _) in enumerate(several)}
    at: offsets.Offset = {}
    read: dict[str, list[Place]] = {part: [] for part in now}
    for _ in range(2_000):
        until = {**at, **next_offset(wanted_batches(now, at), limit)}
        assert not holes(now, at)
        for part, there in now.items():
            begin, end = mark(at, part), mark(until, part)
            pieces = trim_ranges(there.pieces, begin.place, end.place)
            assert missing(pieces, begin, end) == 0
            assert end.place >= begin.place
            read[part] += _entries(pieces)
        if until == at:
            break
        at = until
    assert read == {f"p{number}": held for number, (_, held) in enumerate(several)}
    assert all(mark(at, part).place >= there.last for part, there in now.items() if there.pieces)


def test_the_open_ledger_s_figures_stand_beside_the_list() -> None:
    rows = [{"ledgerId": 7, "entries": 3, "size": 30}, {"ledgerId": 9, "entries": 0, "size": 0}]
    stats = {"ledgers": rows, "currentLedgerEntries": 5, "currentLedgerSize": 50, "lastConfirmedEntry": "9:3"}
    assert stored_partition(stats).pieces == (LedgerRange(7, 0, 2, 30), LedgerRange(9, 0, 3, 40)), (
        "what was added while we asked waits"
    )
    assert stored_partition(stats).tip == (9, 3)


def test_nothing_stored_is_nothing_planned() -> None:
    fresh = {"ledgers": [{"ledgerId": 4, "entries": 0, "size": 0}], "lastConfirmedEntry": "4:-1"}
    assert stored_partition(fresh).pieces == ()
    assert stored_partition({}) == StoredPartition((), (), START, START)
    assert split_ranges([], 3) == []


def test_where_reading_stopped_may_be_gone() -> None:
    trimmed = {"ledgers": [{"ledgerId": 735, "entries": 0, "size": 0}], "lastConfirmedEntry": "734:499"}
    there = stored_partition(trimmed)
    assert there.pieces == ()
    assert there.tip == (735, -1), "who has read everything goes on at the open ledger"
    assert not holes({"p": there}, {"p": "734:499:9000"}), "everything was read before it went"
    assert not holes({"p": there}, {}), "who begins takes what is there"
    assert holes({"p": there}, {"p": "734:100:8601"}) == {
        "p": "ledger 734, where reading stopped, is gone: what came behind may be gone unread"
    }


def test_nothing_is_gone_behind_a_ledger_that_is_there_but_empty_ledgers() -> None:
    """Unloads replaced the open ledger, in which reading stopped, several times."""
    ledgers = [
        {"ledgerId": number, "entries": entries, "size": entries} for number, entries in ((7_500, 9), (7_901, 3))
    ]
    there = stored_partition({"ledgers": ledgers, "lastConfirmedEntry": "7901:2"})
    assert not holes({"p": there}, {"p": "7820:-1:9"})
    assert holes({"p": there}, {"p": "7400:-1:9"}), "an older one may have had entries"


def test_entries_that_are_gone_since_the_end_was_fixed_are_counted() -> None:
    left = trim_ranges((LedgerRange(8, 0, 9, 100),), (7, 4), (8, 9))
    assert missing(left, StreamOffset(7, 4, 5), StreamOffset(8, 9, 20)) == 5


def test_marks_are_text() -> None:
    assert str(mark({"p": "5:6:7"}, "p")) == "5:6:7"
    assert mark({}, "p") is BEGIN
    assert BEGIN.place == START == parse_position("-1:-1")


def test_splits_fill_the_cores_and_are_worth_their_start() -> None:
    assert splits_each(8, 4, 100 * SMALLEST) == 2
    assert splits_each(8, 3, 100 * SMALLEST) == 3
    assert splits_each(8, 1, 2 * SMALLEST) == 2
    assert splits_each(8, 0, 0) == 1


def test_a_topic_without_partitions_is_its_own_part() -> None:
    assert Split("persistent://a/b/c", -1, (LedgerRange(1, 0, 0, 1),)).id == "persistent://a/b/c@1:0..1:0"


def _covered(split: Split, seen: list[Place], state: str = COMPLETE) -> Coverage:
    coverage = Coverage(split, state=state)
    for one in seen:
        coverage.entry(*one)
    return coverage


@given(topics(), st.data())
def test_coverage_is_full_exactly_when_nothing_is_missing(
    topic: tuple[Stats, list[Place]], data: st.DataObject
) -> None:
    stats, held = topic
    if not held:
        return
    (split,) = splits_of("persistent://a/b/c", 0, stored_partition(stats).pieces, 1)
    lost = data.draw(st.sets(st.sampled_from(held)))
    coverage = _covered(split, [one for one in held if one not in lost])
    assert coverage.full == (not lost)
    assert bool(coverage.problem) == bool(lost)
    inner = [one for one in lost if any(later not in lost and later > one for later in held)]
    runs = sum(
        not (earlier in lost and later in lost) for earlier, later in pairwise([*sorted(inner), None]) if earlier
    )
    assert bool(coverage.gaps) == bool(inner)
    assert len(coverage.gaps) <= max(runs, len(inner))
    record = coverage.record()
    assert (record["entries_planned"], record["entries_seen"]) == (len(held), len(held) - len(lost))


def test_coverage_says_why() -> None:
    split = Split("persistent://a/b/c", 2, (LedgerRange(5, 3, 9, 70), LedgerRange(7, 0, 4, 50)))
    assert _covered(split, [], "timeout").problem.endswith("0 of 12 entries, nothing more came")
    assert _covered(split, [(5, 3)], OVERRUN).problem.endswith("1 of 12 entries, the broker went on behind the end")
    jumped = _covered(split, [(5, 3), (7, 4)])
    assert jumped.gaps == ["5:4>7:4"]
    assert jumped.problem.endswith("2 of 12 entries, entries are missing")
    jumped.ledgers_after = (7, 9)
    assert jumped.problem.endswith("; ledgers 5 are gone")
    assert jumped.record()["ledgers_after"] == [7]
    assert jumped.record()["split_id"] == "persistent://a/b/c-partition-2@5:3..7:4"
    jumped.ledgers_after = (5, 7)
    assert jumped.problem.endswith("entries are missing")


def test_entries_without_a_message_of_their_own_are_no_hole() -> None:
    split = Split("persistent://a/b/c", 2, (LedgerRange(5, 0, 4, 70),))
    coverage = _covered(split, [(5, 0), (5, 3), (5, 4)])
    coverage.empty = 1
    assert not coverage.full
    coverage.empty = 2
    assert coverage.full
    assert (coverage.record()["entries_seen"], coverage.record()["gaps"]) == (5, ["5:1>5:3"])
    twice = _covered(split, [(5, 0), (5, 3), (5, 0), (5, 4)])
    twice.empty = 2
    assert not twice.full


def test_a_hole_has_a_record_of_its_own() -> None:
    coverage = Coverage(Split("persistent://a/b/c", 2, (), "5 entries behind 3:4 are gone"), state=HOLE)
    assert not coverage.full
    assert coverage.problem == "persistent://a/b/c-partition-2: 5 entries behind 3:4 are gone"
    record = coverage.record()
    assert record["split_id"] == "persistent://a/b/c-partition-2@hole"
    assert (record["gaps"], record["first_seen"], record["entries_planned"]) == (
        ["5 entries behind 3:4 are gone"],
        None,
        0,
    )
    assert coverage.file == coverage.file


def test_gaps_are_listed_up_to_a_limit() -> None:
    split = Split("persistent://a/b/c", 0, (LedgerRange(5, 0, 999, 1_000),))
    assert len(_covered(split, [(5, entry) for entry in range(1, 999, 2)]).gaps) == 100
