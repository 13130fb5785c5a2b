# pure: every branch is tested
"""Mapping of a table's rows to messages: topic, key, properties and payload, as the source declares them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodo_consumer.source.column_values import BYTEA, Read, read_bytes, reader_of
from kodo_consumer.source.pgoutput import UNCHANGED, Relation, RowChange, Values
from kodoctl.errors import UsageError, error

if TYPE_CHECKING:
    from kodo_consumer.core.values.send_target import SendTarget
    from kodoctl.topology.change_sources import TableMapping

NO_MESSAGE: Final = "change cannot become a message"
_NUMBERS: Final = frozenset({"number", "integer"})


class MappedMessage(NamedTuple):
    """Message of a change, not checked yet. `topic`: its ground topic; `payload`: a row, bytes, or None for a
    tombstone.
    """

    topic: str
    key: str
    properties: Mapping[str, str]
    payload: Any


class GoneError(Exception):
    """A large value that the log does not repeat cannot be read: its row was deleted meanwhile, or cannot be
    identified.
    """


Fetch = Callable[[Relation, Sequence[str], Values], Values]
"""Returns the values of columns (by name) of the row with the replica identity that the given values have. Raises
GoneError.
"""


def refused(table: str, detail: str) -> UsageError:
    """Returns the error that stops a source at a change."""
    return UsageError(error("K791", NO_MESSAGE, f"{table}: {detail}"))


class RowMapping:
    """Mapping of the rows of a table, as `relation` describes it, to messages. `target`: send target of the ground
    topic, None for an outbox; `fetch`: reads values that the log does not repeat. The constructor raises UsageError
    (K791) if a column that the file names is not there, or if neither the file nor a primary key whose columns are all
    there says what the message key of a table that is no outbox is.
    """

    def __init__(
        self,
        table: TableMapping,
        relation: Relation,
        primary_key: Sequence[str],
        target: SendTarget | None,
        fetch: Fetch,
    ) -> None:
        self._table, self._spec, self._relation, self._fetch = table, table.spec, relation, fetch
        self._places = {column.name: place for place, column in enumerate(relation.columns)}
        spec, outbox = self._spec, self._spec.outbox
        self._key = list(spec.key or (primary_key if outbox is None else ()))
        self._body = None if isinstance(spec.payload, str) else spec.payload.column
        named = [*(spec.columns or ()), *spec.properties.values(), *(spec.key or ())]
        if self._body is not None:
            named.append(self._body)
        if outbox is not None:
            named = [name for name in (outbox.topic, outbox.key, outbox.payload, outbox.properties) if name]
        if missing := sorted({name for name in named if name not in self._places}):
            has = ", ".join(self._places)
            raise refused(
                table.name,
                f"it has no column {', '.join(missing)} any more (it has {has}); add the column, or change the file and"
                " start again: nothing is lost, the slot keeps its position",
            )
        if outbox is None and not self._key:
            raise refused(table.name, "it has no primary key: name the columns of the message key in `key`")
        if renamed := [name for name in self._key if name not in self._places]:
            has = ", ".join(self._places)
            raise refused(
                table.name,
                f"its primary key has {', '.join(renamed)}, which the log of this change does not have (it has {has}):"
                " name the columns of the message key in `key`, as they are called here",
            )
        self._row: dict[str, tuple[int, Read]] = {}
        if outbox is None and self._body is None:
            self._row = dict(self._readers(spec.columns or list(self._places), target))
        self._needed = self._needed_places()

    def messages(self, change: RowChange) -> Iterator[MappedMessage]:
        """Yields the messages of a change: one; none for a delete if the source sends no tombstones, or for a change of
        an outbox that is no insert; two if an update changed the key and the source sends tombstones. Raises UsageError
        for a row that cannot become a message, and GoneError if a value that the log does not repeat is needed and
        cannot be read.
        """
        if self._spec.outbox is not None:
            if change.is_insert and change.new is not None:
                yield self._outbox_message(change.new)
            return
        if change.new is None:
            if self._spec.deletes == "tombstone" and change.old is not None:
                yield self._tombstone(change.old, only_key=change.only_key)
            return
        new = self._whole(change)
        if self._spec.deletes == "tombstone" and change.old is not None:
            self._check_identity(only_key=change.only_key)
            if self._is_moved(change.old, new):
                yield self._tombstone(change.old, only_key=change.only_key)
        yield MappedMessage(self.topic, self._key_text(new), self._properties(new), self._payload(new))

    def reads_table(self, change: RowChange) -> bool:
        """True if a message of the change needs a value that the log does not repeat, and that is read from the table.
        `messages` raises GoneError for it if the row does not exist any more.
        """
        return self._spec.outbox is None and change.new is not None and self._lacks(change, change.new)

    def count(self, change: RowChange) -> int:
        """Number of messages of an update, without reading the table: 2 if it changed the key and the source sends
        tombstones, else 1.
        """
        is_moved = change.old is not None and change.new is not None and self._is_moved(change.old, change.new)
        return 2 if is_moved else 1

    @property
    def topic(self) -> str:
        """Ground topic of the rows of a table that is not an outbox."""
        return str(self._spec.topic)

    def _readers(self, names: Sequence[str], target: SendTarget | None) -> Iterator[tuple[str, tuple[int, Read]]]:
        is_avro = target is not None and target.payload_type == "avro"
        declared = {} if target is None or is_avro or target.schema is None else target.schema.get("properties", {})
        for name in names:
            place = self._places[name]
            kinds = declared.get(name, {}).get("type", ()) if isinstance(declared.get(name, {}), Mapping) else ()
            is_number = bool(_NUMBERS.intersection([kinds] if isinstance(kinds, str) else kinds))
            kind = self._relation.columns[place].type
            yield name, (place, reader_of(kind, is_avro=is_avro, is_number=is_number))

    def _needed_places(self) -> list[int]:
        """Places of the columns that a message of a row needs."""
        names = {*self._key, *self._spec.properties.values(), *self._row, *([self._body] if self._body else [])}
        return sorted(self._places[name] for name in names)

    def _whole(self, change: RowChange) -> Values:
        """The new row, with values that the log did not repeat taken from the old one, or from the table."""
        new = change.new
        assert new is not None
        if change.old is not None and not change.only_key:
            return [old if value is UNCHANGED else value for old, value in zip(change.old, new, strict=True)]
        if not self._lacks(change, new):
            return new
        names = [self._relation.columns[place].name for place in self._needed if new[place] is UNCHANGED]
        fetched = dict(zip(names, self._fetch(self._relation, names, new), strict=True))
        columns = self._relation.columns
        return [fetched.get(column.name, value) for column, value in zip(columns, new, strict=True)]

    def _lacks(self, change: RowChange, new: Values) -> bool:
        is_logged = change.old is not None and not change.only_key
        return not is_logged and any(new[place] is UNCHANGED for place in self._needed)

    def _is_moved(self, old: Values, new: Values) -> bool:
        return self._spec.deletes == "tombstone" and self._key_text(old) != self._key_text(new)

    def _check_identity(self, *, only_key: bool) -> None:
        lacking = [name for name in self._key if only_key and not self._relation.columns[self._places[name]].is_key]
        if lacking:
            raise refused(
                self._table.name,
                f"the log of a delete or of a changed key lacks {', '.join(lacking)} of the message key: set REPLICA"
                " IDENTITY FULL for later changes, and `deletes: ignore` to get past this one",
            )

    def _tombstone(self, old: Values, *, only_key: bool) -> MappedMessage:
        self._check_identity(only_key=only_key)
        known = [self._relation.columns[place].is_key or not only_key for place in range(len(old))]
        return MappedMessage(
            self.topic,
            self._key_text(old),
            self._properties([value if is_known else None for value, is_known in zip(old, known, strict=True)]),
            None,
        )

    def _key_text(self, row: Values) -> str:
        texts = [_text(row[self._places[name]]) for name in self._key]
        return (texts[0] or "") if len(texts) == 1 else json.dumps(texts, ensure_ascii=False, separators=(",", ":"))

    def _properties(self, row: Values) -> dict[str, str]:
        found = {name: _text(row[self._places[column]]) for name, column in self._spec.properties.items()}
        return {name: text for name, text in found.items() if text is not None}

    def _payload(self, row: Values) -> Any:
        if self._body is not None:
            return self._bytes(row, self._body)
        return {
            name: None if (text := _text(row[place])) is None else read(text)
            for name, (place, read) in self._row.items()
        }

    def _bytes(self, row: Values, column: str) -> bytes | None:
        place = self._places[column]
        value = row[place]
        if not isinstance(value, bytes):
            return None
        return read_bytes(value.decode()) if self._relation.columns[place].type == BYTEA else value

    def _outbox_message(self, row: Values) -> MappedMessage:
        outbox = self._spec.outbox
        assert outbox is not None
        topic = _text(row[self._places[outbox.topic]])
        key = _text(row[self._places[outbox.key]]) if outbox.key else None
        text = _text(row[self._places[outbox.properties]]) if outbox.properties else None
        try:
            properties = json.loads(text or "{}")
        except (ValueError, RecursionError):
            properties = None
        if not isinstance(properties, dict):
            raise refused(self._table.name, f"column {outbox.properties} is no JSON object")
        return MappedMessage(topic or "", key or "", properties, self._bytes(row, outbox.payload))


def _text(value: Any) -> str | None:
    """Text of a value; None for NULL, and for a value that the log does not repeat. A database with the encoding
    SQL_ASCII stores any bytes: UsageError (K791) for bytes that are not UTF-8.
    """
    try:
        return value.decode() if isinstance(value, bytes) else None
    except UnicodeDecodeError as problem:
        detail = f"a value of the row is not UTF-8 ({problem.reason}): name `columns` without the one that has it"
        raise UsageError(error("K791", NO_MESSAGE, detail)) from None
