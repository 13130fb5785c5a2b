"""Messages as files for other programs: every row whole, as it comes, and nothing that was to be redacted."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator

import pytest
from pyarrow import parquet

from kodoctl.documents.recall_document import MessageRow
from kodoctl.errors import UsageError
from kodoctl.recall.message.message_rows import encoder_of, message_row
from kodoctl.recall.message.payload_view import NO_FORM
from kodoctl.recall.message.stored_message import DeadLetter, Position


def rows(count: int) -> Iterator[MessageRow]:
    for number in range(count):
        properties = {"kodo-id": f"order-{number}", "uid": "\ud800", "kodo-reason": "ValueError"}
        letter = DeadLetter(
            "persistent://k/t/o", Position(0, 7, number), b"{}" if number else None, properties, tenant="u"
        )
        yield message_row(letter, NO_FORM)


def test_json_lines_are_written_one_by_one() -> None:
    lines = [json.loads(one) for one in encoder_of("jsonl")(rows(2))]
    assert [one["id"] for one in lines] == ["order-0", "order-1"]
    assert [one["payload"] for one in lines] == [None, "{}"]
    assert lines[1] | {"properties": {}} == {
        "topic": "persistent://k/t/o", "position": "7:1:0:-1", "id": "order-1", "published": 0, "event_time": 0,
        "key": "", "tenant": "u", "cause": "ValueError", "reason": "ValueError", "error": None, "attempts": 0,
        "properties": {}, "size": 2, "payload_kind": "json", "payload": "{}", "payload_note": "", "broken": "",
    }  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 2_500])
def test_parquet_has_the_same_rows_and_grows_while_they_are_read(count: int) -> None:
    read: list[int] = []

    def counted() -> Iterator[MessageRow]:
        for row in rows(count):
            read.append(1)
            yield row

    parts = encoder_of("parquet")(counted())
    file = next(parts)
    assert len(read) <= 1_000
    table = parquet.read_table(io.BytesIO(file + b"".join(parts)))
    assert table.num_rows == count
    if count:
        assert table.to_pylist()[-1]["id"] == f"order-{count - 1}"
        assert dict(table.to_pylist()[0]["properties"])["uid"] == "\\ud800"
        assert table.to_pylist()[0]["size"] is None


def test_another_suffix_or_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="'csv'"):
        encoder_of("csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install '\.\[recall\]'"):
        encoder_of("parquet")
