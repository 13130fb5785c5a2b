"""Connections to an outbox's database, and the error for a database that cannot be used."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from kodo_consumer.adapters.stores.database_url import shown, without_secrets
from kodo_consumer.outbox.table import DIALECTS
from kodoctl.errors import KodoctlError, error

UNUSABLE: Final = "database cannot be used"
_EXAMPLE: Final = "for PostgreSQL write postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"


class LenientConnection(sqlite3.Connection):
    """Reads text that is no UTF-8, which SQLite keeps, all the same: it is one row's fault, not the database's."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.text_factory = _text_of


_ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "pysqlite": {"factory": LenientConnection},
    "psycopg": {"prepare_threshold": None},
}
"""Arguments of drivers. Nothing is prepared on a server: a pooler that shares connections by transaction would give a
prepared statement to others, and not find it again.
"""


def _text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def engine_of(url: str) -> Engine:
    """Connections to the database behind an address. Raises KodoctlError, whose text has no secret of the address."""
    try:
        parsed = make_url(url)
    except (SQLAlchemyError, ValueError):
        raise KodoctlError(error("K721", UNUSABLE, f"no address of a database\n{_EXAMPLE}")) from None
    if parsed.get_backend_name() not in DIALECTS:
        detail = f"{parsed.drivername} is none of {', '.join(DIALECTS)}\n{_EXAMPLE}"
        raise KodoctlError(error("K721", UNUSABLE, detail))
    try:
        return create_engine(parsed, connect_args=_ARGUMENTS.get(parsed.get_driver_name(), {}))
    except (SQLAlchemyError, ImportError, ValueError, TypeError) as problem:
        detail = f"{shown(parsed)}: {without_secrets(str(problem), parsed)}\n{_EXAMPLE}"
        raise KodoctlError(error("K721", UNUSABLE, detail)) from None


def unusable(url: URL, problem: Exception) -> KodoctlError:
    """The database's own words, without the statement and its parameters, and without secrets of its address."""
    reason = without_secrets(" ".join(str(getattr(problem, "orig", None) or problem).split()), url)
    return KodoctlError(error("K721", UNUSABLE, f"{shown(url)}: {reason}"))
