"""Identities of outbox rows: they sort by creation, which is the order in which rows of a key are sent."""

from __future__ import annotations

import itertools
import secrets
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, String, cast, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

_COUNTER: Final = itertools.count()  # of this process: its rows of one millisecond ascend


class row_id(FunctionElement[str]):  # noqa: N801  # reads as the SQL function it is
    """32 hex digits: `now` in ms since the epoch (12), a counter (8), randomness (12). One that no other row has.

    `now` is the database's clock, which all processes share. By the clocks of their machines a row could be sent before
    one of its key that another process had committed long before.
    """

    type = String(64)
    inherit_cache = True

    def __init__(self, now: ColumnElement[int]) -> None:
        count = next(_COUNTER) & 0xFFFF_FFFF
        super().__init__(cast(now, BigInteger), literal(f"{count:08x}{secrets.token_hex(6)}", String))


@compiles(row_id, "postgresql")
def _id_postgresql(element: Any, compiler: Any, **more: Any) -> str:
    now, rest = (compiler.process(one, **more) for one in element.clauses)
    return f"lpad(to_hex({now}), 12, '0') || CAST({rest} AS VARCHAR)"


@compiles(row_id, "sqlite")
def _id_sqlite(element: Any, compiler: Any, **more: Any) -> str:
    now, rest = (compiler.process(one, **more) for one in element.clauses)
    return f"printf('%012x', {now}) || {rest}"
