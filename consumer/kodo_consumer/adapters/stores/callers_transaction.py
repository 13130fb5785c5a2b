"""Checks of the caller's transaction, in which the outbox and kodo_consumer.dedup write.

Their rows have to vanish when the caller rolls back. With a driver that commits each statement they would stay: a
message would count as done without its effects, and a message would be sent about an event that never happened.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.orm import Session, scoped_session

from kodoctl.errors import UsageError, error

_AUTOCOMMIT: Final = "its connection commits each statement by itself (AUTOCOMMIT), so a rollback would undo nothing"
_SAVEPOINT: Final = (
    "within begin_nested(), SQLite's driver may commit at the end of the savepoint, so a rollback would undo nothing:"
    " let the engine begin transactions, as SQLAlchemy's page of SQLite says"
)


def check_session(session: object) -> None:
    """Raises UsageError (K730) unless `session` is a Session, a scoped_session or a Connection of SQLAlchemy. Async
    sessions and connections are refused, too, as are engines and connections of the driver.
    """
    if not isinstance(session, Session | scoped_session | Connection):
        detail = f"session is of type {type(session).__name__}, not a session or a connection of SQLAlchemy"
        raise UsageError(error("K730", "not an argument of a message", detail))


def why_not_undone(session: Any, table: Any) -> str:
    """Reason why a rollback by the caller would not undo a change of this table, as text; "": none is known. `session`:
    one that `check_session` accepts, or the sync half of an async one; without a connection it gets one. Raises
    SQLAlchemyError.

    The driver's state decides, because SQLAlchemy reports a transaction in any case: a driver that commits each
    statement by itself undoes nothing. That is known of drivers whose connection, or SQLAlchemy's adapter of it, has a
    true attribute `autocommit`, as with psycopg and asyncpg, or a method `get_autocommit`, as with MySQL's, and of
    SQLite's. Python's driver of SQLite begins a transaction only with the first change, or never if so configured; a
    savepoint before that is the whole transaction, and its end commits.
    """
    connection = session
    if not isinstance(session, Connection):
        connection = session.connection(bind_arguments={"clause": table})
    driver = connection.connection.driver_connection
    if _commits_each(connection.connection.dbapi_connection) or _commits_each(driver):
        return _AUTOCOMMIT
    if connection.dialect.name != "sqlite" or getattr(driver, "autocommit", None) is False:
        return ""
    if driver.isolation_level is None:
        return "" if driver.in_transaction else _AUTOCOMMIT
    return _SAVEPOINT if connection.in_nested_transaction() else ""


def _commits_each(driver: Any) -> bool:
    """True if a connection of a driver, or its adapter, says that it commits each statement by itself."""
    if (ask := getattr(driver, "get_autocommit", None)) is not None:  # there `autocommit` is the method that sets it
        return bool(ask())
    return getattr(driver, "autocommit", False) is True
