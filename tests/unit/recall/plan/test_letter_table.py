"""Plans whose letters are in a file beside them: chosen, written, read in segments, and refused where they were changed."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

from kodoctl.documents.json_form import seal_of
from kodoctl.errors import KodoctlError, UsageError
from kodoctl.recall.filter.condition import parse
from kodoctl.recall.ledger.recall_ledger import LetterStatus, RecallEvent
from kodoctl.recall.message.stored_message import Position
from kodoctl.recall.plan import letter_table, recall_plan_file, selection
from kodoctl.recall.plan.candidate_store import CandidateStore
from kodoctl.recall.plan.letter_table import LetterTableWriter, PlanRow, check_table, segments
from kodoctl.recall.plan.recall_plan import (
    SEGMENT,
    LetterRef,
    LetterTable,
    RecallAction,
    RecallPlan,
    UnsentCopy,
    recall_id,
)
from kodoctl.recall.plan.selection import LetterSelection, SelectionRequest
from kodoctl.render.recall import recall_plan_lines
from tests.unit.recall.letters import DEAD, NOW, family, letter
from tests.unit.recall.plan.test_plan_file import PLAN, SUMMARY

SCHEMA_FILE = Path(__file__).parents[4] / "schemas/recall-plan.v2.json"
GROUND = "    partitions: 3\n"


def choose(tmp_path: Path, letters: list[Any], table: Path | None, **changes: Any) -> tuple[Any, LetterTable | None]:
    asked: dict[str, Any] = {
        "action": RecallAction.SEND,
        "run": "r1",
        "to": None,
        "limit": 1_000,
        "again": False,
        "edit": None,
    }
    of = replace(family(tmp_path, ground=GROUND), source_partitions=3)
    request = SelectionRequest(family=of, condition=parse("true", NOW), **(asked | changes))
    found = LetterSelection(request)
    for one in letters:
        found.offer(one)
    return found.finish(table), found.written


def dead(number: int, entry: int, partition: int, **more: Any) -> Any:
    return letter(number, entry=entry, partition=partition, origin=f"5:{number}:{number % 3}:-1", **more)


def mixed() -> tuple[list[Any], dict[str, LetterStatus]]:
    """Letters of three partitions: copies behind and in another partition, one that died again, one sent before."""
    letters = [dead(100 * partition + entry, entry, partition) for partition in range(3) for entry in range(7)]
    again = recall_id(DEAD, Position(0, 1, 3), NOW - 1_000)
    letters += [dead(2, 20, 0), dead(2, 21, 1), dead(900, 22, 2, recall=again), dead(901, 23, 2)]
    sent = recall_id(DEAD, Position(2, 1, 23), NOW - 1_000)
    letters.sort(key=lambda one: one.position)
    return letters, {sent: LetterStatus("r0", RecallEvent.SENT)}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of six rows."""
    monkeypatch.setattr(letter_table, "SEGMENT", 6)
    monkeypatch.setattr(selection, "SEGMENT", 6)


@pytest.mark.usefixtures("small")
def test_a_plan_with_a_table_has_what_the_document_has_in_an_order_that_serves_all_partitions(tmp_path: Path) -> None:
    letters, known = mixed()
    (lanes, chosen, settle, summary), none = choose(tmp_path, letters, None, known=known)
    assert none is None
    (other_lanes, nothing, neither, same), table = choose(tmp_path, letters, tmp_path / "t", known=known)
    assert (nothing, neither, same) == ((), (), summary)
    assert set(other_lanes) == set(lanes)
    assert table is not None
    assert summary["left_out"] == {"already": 2, "recalled": 1, "repeat": 2}
    assert (table.rows, table.letters, table.settled) == (len(chosen) + 2 + 2, len(chosen), 2)
    plan = replace(PLAN, lanes=other_lanes, letters=(), settle=(), table=table)
    found = list(segments(plan))
    assert [len(one.letters) + len(one.unsent) for one in found] == [6, 6, 6, 6]
    assert {one.position.partition for one in found[0].letters} == {0, 1, 2}, "no lane waits for another's segment"
    stored = [one for segment in found for one in segment.letters]
    bare = [(one.position, one.published, one.recall_id, one.digest) for one in chosen]
    assert sorted((one.position, one.published, one.recall_id, one.digest) for one in stored) == bare
    for lane in range(len(other_lanes)):
        assert [one.number for one in stored if one.lane == lane] == list(range(1, table.by_lane[lane] + 1))
    for partition in range(3):
        of = [one.position for one in stored if one.position.partition == partition]
        assert of == sorted(of), "messages come once, in order"
    unsent = [one for segment in found for one in segment.unsent]
    first = next(one for one in chosen if one.repeats)
    copies = {one.letter: one.first for one in unsent if one.first is not None}
    assert set(copies) == set(first.repeats)
    assert {(one.position, one.recall_id, one.digest) for one in copies.values()} == {
        (first.position, first.recall_id, first.digest)
    }
    assert sorted(one.letter for one in unsent if one.first is None) == list(settle)


@pytest.mark.usefixtures("small")
def test_numbers_of_a_lane_rise_in_the_order_in_which_a_sender_carries_segments_out(tmp_path: Path) -> None:
    """Brokers drop a lower number as a repeated one, and a dropped letter would be acknowledged as sent. The first
    partition has more letters than its share of a segment, while the others have fewer.
    """
    letters = [letter(n, entry=n, partition=0, origin=f"5:{n}:0:-1") for n in range(9)]
    letters += [letter(20 + n, entry=n, partition=1 + n, origin=f"5:{n}:0:-1") for n in range(2)]
    (lanes, _, _, _), table = choose(tmp_path, letters, tmp_path / "t")
    assert len(lanes) == 1, "all of them share a lane"
    sent: list[int] = []
    for segment in segments(replace(PLAN, lanes=lanes, letters=(), settle=(), table=table)):
        sent += [one.number for one in sorted(segment.letters, key=lambda one: one.position)]
    assert sent == list(range(1, 12))


def test_rows_come_partition_by_partition_also_after_others_were_removed() -> None:
    with CandidateStore() as store:
        refs = [LetterRef(Position(0, 1, entry), NOW) for entry in range(6)] + [LetterRef(Position(1, 1, 0), NOW)]
        numbers = [store.add(one, "00" * 16, "11" * 16, 0, 0, None) for one in refs]
        store.remove(numbers[:4])
        assert [one.position for one in store.stored()] == [one.position for one in refs[4:]]


@pytest.mark.usefixtures("small")
def test_few_letters_are_in_the_document_wherever_a_table_may_be(tmp_path: Path) -> None:
    (_, chosen, _, _), table = choose(tmp_path, [dead(one, one, 0) for one in range(6)], tmp_path / "t")
    assert (len(chosen), table, (tmp_path / "t").exists()) == (6, None, False)
    copy = UnsentCopy(PLAN.letters[0].repeats[0], PLAN.letters[0])
    (only,) = segments(PLAN)
    assert (only.letters, only.unsent) == (PLAN.letters, (UnsentCopy(PLAN.settle[0]), copy))


@pytest.mark.usefixtures("small")
def test_a_discard_has_a_table_too_and_the_limit_counts_in_it(tmp_path: Path) -> None:
    letters = [dead(one % 4, one, 0) for one in range(20)]
    (lanes, _, _, summary), table = choose(tmp_path, letters, tmp_path / "t", action=RecallAction.DISCARD, limit=15)
    assert (lanes, summary["chosen"], summary["left_out"]) == ((), 15, {"beyond": 5})
    assert table is not None
    assert (table.letters, table.by_lane) == (15, (15,)), "copies are discarded, too"


def with_table(tmp_path: Path) -> tuple[RecallPlan, Path]:
    """A plan whose three letters are in a file, and its own file."""
    file = tmp_path / "p.json"
    with LetterTableWriter(tmp_path / "p.json.letters") as writer:
        for number in range(3):
            one = replace(PLAN.letters[0], position=Position(0, 1, number), number=number + 1, repeats=())
            writer.add(PlanRow(LetterRef(one.position, one.published), one))
        table = writer.close()
    made = replace(PLAN, letters=(), settle=(), table=table, summary=cast("Any", SUMMARY | {"chosen": 3}))
    file.write_text(recall_plan_file.dumps(made), encoding="utf-8")
    return made, file


def test_a_plan_file_names_its_table_and_fits_the_published_schema(tmp_path: Path) -> None:
    made, file = with_table(tmp_path)
    text = file.read_text(encoding="utf-8")
    read = recall_plan_file.loads(text, str(file))
    assert read == made
    assert (read.size, read.empty) == (3, False)
    jsonschema.validate(json.loads(text), json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))
    assert read.table is not None
    check_table(read.table)
    shown = "\n".join(str(line.text) for line in recall_plan_lines(recall_plan_file.to_json(read), "there"))
    assert "to     persistent://kodo/trade/orders-billing-RETRYING (3)" in shown
    assert "3 letters to send;" in shown


@pytest.mark.parametrize("harm", ["cut", "changed", "another", "gone"])
def test_a_table_that_is_not_as_it_was_written_is_refused(tmp_path: Path, harm: str) -> None:
    made, _ = with_table(tmp_path)
    assert made.table is not None
    path = made.table.path
    whole = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        changed = whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]
        path.write_bytes({"cut": whole[:-1], "changed": changed, "another": b"x"}[harm])
    with pytest.raises(KodoctlError) as caught:
        check_table(made.table)
    [found] = caught.value.diagnostics
    assert found.code == ("K016" if harm == "gone" else "K559")
    assert ("belongs beside the plan" if harm == "gone" else "plan again") in found.detail


@pytest.mark.parametrize(("harm", "code"), [("gone", "K016"), ("cut", "K559"), ("another", "K559")])
def test_a_table_that_was_harmed_after_the_check_is_told_while_it_is_read(tmp_path: Path, harm: str, code: str) -> None:
    made, _ = with_table(tmp_path)
    assert made.table is not None
    path = made.table.path
    if harm == "gone":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(KodoctlError, match=code):
        list(segments(made))


def test_a_head_that_was_edited_is_refused(tmp_path: Path) -> None:
    _, file = with_table(tmp_path)
    text = file.read_text(encoding="utf-8")
    for edited in (text.replace('"rows": 3', '"rows": 2'), text.replace("p.json.letters", "../p.json.letters")):
        with pytest.raises(KodoctlError, match="K559"):
            recall_plan_file.loads(edited, str(file))
    form = json.loads(text)
    form["letters"]["file"] = "../p.json.letters"
    form["seal"] = seal_of(form)
    with pytest.raises(KodoctlError, match="K558"):
        recall_plan_file.loads(json.dumps(form), str(file))


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(KodoctlError, match="K535"):
        LetterTableWriter(tmp_path / "nowhere" / "t")


@pytest.mark.parametrize("rows", [1, SEGMENT])
def test_a_disk_that_takes_no_more_is_told(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a plan, and with its last rows."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with LetterTableWriter(tmp_path / "t") as writer:
        monkeypatch.setattr(writer._file, "write_table", full)
        for number in range(rows - 1):
            writer.add(PlanRow(LetterRef(Position(0, 1, number), NOW)))
        with pytest.raises(KodoctlError, match=r"K535(?s:.*)No space left"):
            [writer.add(PlanRow(LetterRef(Position(0, 1, rows), NOW))), writer.close()]


def test_a_table_that_cannot_be_read_back_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path) -> str:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(letter_table, "_sha256", broken)
    with LetterTableWriter(tmp_path / "t") as writer, pytest.raises(KodoctlError, match="Input/output error"):
        writer.close()


def test_a_folder_for_temporary_files_that_takes_no_more_letters_is_told() -> None:
    refs = [LetterRef(Position(0, 1, entry), NOW) for entry in range(1_000)]
    with CandidateStore() as store:
        store._base.execute("PRAGMA max_page_count = 8")
        with pytest.raises(UsageError, match=r"K535(?s:.*)disk is full(?s:.*)TMPDIR"):
            [store.add(one, f"{one.position.entry:032x}", "11" * 16, 0, 0, None) for one in refs]


STEPS: dict[str, Callable[[CandidateStore], Any]] = {
    "find": lambda store: store.first_of(b"name"),
    "add": lambda store: store.add_settled(LetterRef(Position(0, 1, 2), NOW)),
    "note": lambda store: store.add_seen("22" * 16),
    "settle": lambda store: store.settle_seen(),
    "remove": lambda store: store.remove([1]),
    "read": lambda store: list(store.stored()),
}


@pytest.mark.parametrize("step", STEPS)
def test_letters_of_a_plan_that_cannot_be_kept_or_read_back_are_told(step: str) -> None:
    with CandidateStore() as store:
        store.add(LetterRef(Position(0, 1, 1), NOW), "00" * 16, "11" * 16, 0, 0, b"name")
        store._base.set_progress_handler(lambda: 1, 1)  # interrupts every statement
        with pytest.raises(UsageError, match=r"K535(?s:.*)interrupted"):
            STEPS[step](store)


def test_letters_that_can_no_more_be_read_amid_the_reading_are_told() -> None:
    with CandidateStore() as store:
        for entry in range(1_000):
            store.add(LetterRef(Position(0, 1, entry), NOW), f"{entry:032x}", "11" * 16, 0, 0, None)
        rows = store.stored()
        next(rows)
        store._base.set_progress_handler(lambda: 1, 1)
        with pytest.raises(UsageError, match=r"K535(?s:.*)interrupted"):
            list(rows)


def test_a_mark_that_is_no_recall_id_settles_nothing(tmp_path: Path) -> None:
    """Whoever can produce writes such properties."""
    with CandidateStore() as store:
        store.add(LetterRef(Position(0, 1, 1), NOW), "00" * 16, "11" * 16, 0, 0, None)
        store.add_seen("no recall id")
        assert (store.settle_seen(), store.chosen) == ([], 1)
        store.add_seen("00" * 16)
        assert (len(store.settle_seen()), store.chosen) == (1, 0)
