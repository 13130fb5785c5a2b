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
    """A row that a relay has claimed. `version`: the version of the row since the claim; `key`: "": none; `body`: None:
    a tombstone; `retry_count`: sends without a receipt since the row was written or pushed; `created_at`: ms since the
    epoch; `problem`: why the row can never be sent, such as a column with a value of another type, which SQLite allows;
    other fields may then have such a value; "": none.
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
        """Returns the properties of the message, whose values are not checked; an empty column has none. Raises
        ValueError if the column is not a JSON object.
        """
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
    """Returns a row of the database as a `Row`. NULL in `key`, `properties` or `biz_code` becomes "", a text in `body`
    its UTF-8 bytes. Columns of a wrong type are listed in `problem`, except `version`, which is not checked, and
    `created_at`, which becomes a time far in the future.
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
    """New state of a claimed row. `delay`: ms from the time of writing until the next push, by the database's clock (0
    if `status` is sent or failed); `tries`: sends without a receipt; `error`: reason of the last failure; None: the row
    keeps an earlier reason if it is to be sent, else it keeps none.
    """

    row: Row
    status: RowStatus
    delay: int
    tries: int
    error: str | None = None
