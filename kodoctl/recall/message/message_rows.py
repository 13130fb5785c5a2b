"""Messages as rows for other programs: JSON lines, or a Parquet file (extra `recall`). Rows are
written as they come.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kodoctl.documents.json_form import row_of
from kodoctl.documents.recall_document import MessageRow
from kodoctl.errors import UsageError, error
from kodoctl.host.extras import install_command
from kodoctl.recall.message.payload_view import PayloadForm, escape_surrogates, payload_view

if TYPE_CHECKING:
    from kodoctl.recall.message.stored_message import DeadLetter

JSON_LINES: Final = "jsonl"
PARQUET: Final = "parquet"
_GROUP: Final = 1_000  # rows that are written at once
_NUMBERS: Final = ("published", "event_time", "attempts", "size")
Encoder = Callable[[Iterable[MessageRow]], Iterator[bytes]]
"""Yields parts of a file as rows come."""


def message_row(letter: DeadLetter, form: PayloadForm) -> MessageRow:
    """Converts a message to a row. Its payload is a text as stored if `form` allows that (`keeps_text`), else as
    `payload_view` shows it: "" if nothing may be shown, only the first 100 bytes as hexadecimal digits of a payload
    that is neither text nor a document; None for a tombstone. Keys and properties are not redacted.
    """
    view = payload_view(letter, form)
    text = letter.text if form.keeps_text and letter.text is not None else view.text
    return row_of(
        MessageRow,
        letter,
        position=str(letter.position),
        id=letter.identity,
        published=letter.publish_time,
        properties=dict(sorted(letter.properties.items())),
        size=None if letter.payload is None else letter.size,
        payload_kind=view.kind,
        payload=None if letter.payload is None else text,
        payload_note=view.note,
    )


def encoder_of(suffix: str) -> Encoder:
    """Encoder for a file suffix without its dot, JSON_LINES (`jsonl`) or PARQUET (`parquet`, in groups of 1,000 rows).
    Raises UsageError (K585) for another suffix, and for PARQUET without pyarrow.
    """
    if suffix == JSON_LINES:
        return _json_lines
    if suffix != PARQUET:
        detail = (
            f"a name that ends with .{JSON_LINES} (JSON lines) or .{PARQUET} says how they are written, not {suffix!r}"
        )
        raise UsageError(error("K585", "messages cannot be written", detail))
    try:
        from pyarrow import parquet  # noqa: F401
    except ImportError:
        detail = f"pyarrow is missing: {install_command('recall')}, or choose .{JSON_LINES}"
        raise UsageError(error("K585", "messages cannot be written", detail)) from None
    return _parquet


def _json_lines(rows: Iterable[MessageRow]) -> Iterator[bytes]:
    for row in rows:
        yield json.dumps(row).encode() + b"\n"


def _parquet(rows: Iterable[MessageRow]) -> Iterator[bytes]:
    import pyarrow as pa
    from pyarrow import parquet

    text, number = pa.string(), pa.int64()
    types = {
        name: pa.map_(text, text) if name == "properties" else number if name in _NUMBERS else text
        for name in MessageRow.__annotations__
    }
    sink, remaining = _Sink(), iter(rows)
    with parquet.ParquetWriter(sink, pa.schema(list(types.items())), compression="zstd") as writer:
        while group := [*islice(remaining, _GROUP)]:
            columns = {name: pa.array(_column(group, name), kind) for name, kind in types.items()}
            writer.write_table(pa.table(columns))
            yield sink.take()
    yield sink.take()


def _column(group: list[MessageRow], name: str) -> list[Any]:
    """Values of a column: maps as pairs, and texts without lone surrogates, which Parquet refuses."""
    values: list[Any] = [dict(row)[name] for row in group]
    if name == "properties":
        return [[(escape_surrogates(key), escape_surrogates(value)) for key, value in one.items()] for one in values]
    return [escape_surrogates(one) if isinstance(one, str) else one for one in values]


class _Sink(io.RawIOBase):
    """File that keeps written bytes until `take`, so that they can be handed on while the file grows."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def take(self) -> bytes:
        """Returns the bytes that were written since the last call."""
        taken, self._parts = b"".join(self._parts), []
        return taken
