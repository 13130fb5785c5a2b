"""Tables of the stores, as SQLAlchemy and migration tools see them, for SQLite and PostgreSQL. All times are ms since
the epoch by the database's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Dialect,
    Engine,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.expression import FunctionElement

from kodoctl.errors import KodoctlError, error

metadata: Final = MetaData()
"""Metadata of all tables of the stores, for `create_all` and for migration tools."""


def _identities(name: str) -> Table:
    """New table of message identities, each with a time."""
    return Table(
        name,
        metadata,
        Column("subscription", String(500), primary_key=True),
        Column("identity", String(200), primary_key=True),
        Column("at", BigInteger, nullable=False),  # ms since the epoch
        Index(f"{name}_at", "subscription", "at"),
    )


DONE: Final = _identities("kodo_done")
"""A row for each message whose effects are committed: `message.once` writes it in the handler's own transaction. No
worker deletes any.
"""

HANDLED: Final = _identities("kodo_handled")
"""A row for each message whose handler returned, written by workers, who also delete old ones (Store.prune)."""

STARTED: Final = Table(
    "kodo_started",
    metadata,
    Column("subscription", String(500), primary_key=True),
    Column("identity", String(200), primary_key=True),
    Column("run", String(200), nullable=False),
    Column("alone", Boolean, nullable=False),
    Column("crashes", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),
)
"""Crash marks: a row for each message whose handler was started and has not ended."""

RUNS: Final = Table(
    "kodo_runs",
    metadata,
    Column("run", String(200), primary_key=True),
    Column("subscription", String(500), nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
)
"""A row for each worker that has not left, with its count of signs of life (`beat`)."""

TOKENS: Final = Table(
    "kodo_tokens",
    metadata,
    Column("token", String(200), primary_key=True),
    Column("at", BigInteger, nullable=False),
)
"""A row for each one-time token that was issued and not used yet."""


LEASES: Final = Table(
    "kodo_lent",
    metadata,
    Column("subscription", String(500), primary_key=True),
    Column("gate", String(200), primary_key=True),
    Column("account", Text, nullable=False),
    Column("until", BigInteger, nullable=False),  # after which it is as good as new
)
"""A row for each limit, and value of its property, of which workers have leases."""


def create_missing(bind: Engine | Connection, tables: MetaData = metadata) -> None:
    """Creates the missing ones of `tables` with their indexes; columns of an existing table are neither compared nor
    changed. With an engine, several processes may call it at once; with a connection, the caller commits. Raises
    SQLAlchemyError, with a connection also if another process creates one of the tables at the same time.

    If no table is missing, it creates nothing, because a role may lack the right. If `create_all` fails, as it does
    when another process creates a table at the same time, and `bind` is an engine, the tables and indexes are created
    one by one unless they exist.
    """
    try:
        tables.create_all(bind)
    except DBAPIError:
        if isinstance(bind, Connection):
            raise
        with bind.begin() as connection:
            for table in tables.sorted_tables:
                connection.execute(CreateTable(table, if_not_exists=True))
                for index in table.indexes:
                    connection.execute(CreateIndex(index, if_not_exists=True))


class now_ms(FunctionElement[int]):  # noqa: N801  # reads as the SQL function it is
    """SQL function: the database's clock, in ms since the epoch. For SQLite and PostgreSQL only."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_ms, "postgresql")
def _now_postgresql(element: Any, compiler: Any, **_: Any) -> str:  # noqa: ARG001
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"


@compiles(now_ms, "sqlite")
def _now_sqlite(element: Any, compiler: Any, **_: Any) -> str:  # noqa: ARG001
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


_INSERTS: Final[Mapping[str, Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def insert_once(dialect: Dialect, table: Table) -> Any:
    """New INSERT statement for a table, which does nothing for a key that exists. Raises KodoctlError (K743) unless the
    database is SQLite or PostgreSQL.
    """
    make = _INSERTS.get(dialect.name)
    if make is None:
        raise KodoctlError(error("K743", "not a database for stores", f"{dialect.name}: SQLite and PostgreSQL are"))
    return make(table).on_conflict_do_nothing()


def upsert(dialect: Dialect, table: Table) -> Any:
    """New INSERT statement for a table, which the caller completes by `on_conflict_do_update`. Raises KeyError unless
    the database is SQLite or PostgreSQL.
    """
    return _INSERTS[dialect.name](table)
