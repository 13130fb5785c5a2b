"""Rows of the outbox as a relay reads them, and the results that a relay writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kodo_consumer.core.values.wire_texts import kind_of, why_no_text

if TYPE_CHECKING:
    from kodo_consumer.outbox.row_filter import RowStatus

MAX_ID: Final = 64  # characters of a row's id
_UNTIMED: Final = 1 << 63  # ms
_TEXTS: Final = ("id", "topic", "key", "properties", "biz_code")


class Row(NamedTuple):
    """A claimed row: what is sent, and what is needed to say what became of it. `version` is the claim. `problem`: why
    nothing of it can be sent, because a column holds no value of its type; SQLite keeps any type in any column.
    """

    id: str
    version: int
    topic: str
    key: str
    body: bytes | None
    properties: str
    biz_code: str
    retry_count: int
    created_at: int = 0
    problem: str = ""

    def message_properties(self) -> dict[str, Any]:
        """The message's properties. Raises ValueError when another writer left something else there."""
        try:
            found = json.loads(self.properties or "{}")
        except RecursionError:
            raise ValueError("properties is JSON that is nested too deeply") from None
        except ValueError as problem:
            raise ValueError(f"properties is no JSON: {problem}") from None
        if not isinstance(found, dict):
            raise ValueError("properties is no JSON object")  # noqa: TRY004  # a value of the database, not of the program
        return found


def row_of(found: Any) -> Row:
    """A row as the database has it. Columns that are NULL hold what an empty one means; text in `body` is its UTF-8, as
    PostgreSQL makes it of the same statement.
    """
    values: dict[str, Any] = dict(found._mapping)  # noqa: SLF001  # SQLAlchemy's own name
    values |= {name: "" for name in ("key", "properties", "biz_code") if values[name] is None}
    problems = [f"{name} is {why}" for name in _TEXTS if (why := why_no_text(values[name]))]
    if not isinstance(values["retry_count"], int):
        problems.append(f"retry_count is {kind_of(values['retry_count'])}, not a whole number")
        values["retry_count"] = 0
    if not isinstance(values["created_at"], int | float):
        values["created_at"] = _UNTIMED  # as SQLite sorts texts
    body = values["body"]
    if isinstance(body, str) and not why_no_text(body):
        values["body"] = body.encode()
    elif isinstance(body, memoryview | bytearray):
        values["body"] = bytes(body)
    elif not isinstance(body, bytes | None):
        problems.append(f"body is {kind_of(body)}, not bytes")
    return Row(**values, problem="; ".join(problems))


@dataclass(frozen=True, slots=True)
class RowResult:
    """Result of a claimed row. `delay`: ms from now until its next push, by the database's clock; 0 where it was sent."""

    row: Row
    status: RowStatus
    delay: int
    tries: int
    error: str | None = None
