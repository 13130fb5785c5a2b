"""Outbox table: its columns, its indexes, and a check of a live database for them.

Times are ms since the epoch. A row is `to_send`, then `sending` while a relay has claimed it, then `sent` or `failed`.
Every change of a row gives it another `version`; who has read a row changes it only if the version is still the same.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    case,
    inspect,
    literal_column,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable, DDLElement

from kodo_consumer.adapters.stores.database_url import address_without_secrets
from kodo_consumer.outbox.row_filter import RowStatus
from kodoctl.errors import Diagnostic, error

NAME: Final = "kodo_outbox"
HELD: Final = (
    253_402_300_799_000  # `next_push_at` of a row that nobody sends until it is pushed: the end of the year 9999
)
MAX_COUNT: Final = (1 << 31) - 1  # of `version` and `retry_count`
PULSAR: Final = "pulsar"
DIALECTS: Final = {"postgresql": postgresql.dialect, "sqlite": sqlite.dialect}


SENT: Final[ColumnElement[bool]] = literal_column(f"status = '{RowStatus.SENT}'")
"""Condition of the rows that were sent. It is literal SQL, as in `unsent`, because the database then uses the partial
indexes.
"""


def unsent(status: str = "status") -> ColumnElement[bool]:
    """SQL condition for the rows that are not sent yet: those that are to be sent, held ones included, and those that a
    relay has claimed. Failed rows do not fulfil the condition. `status`: name of the status column in the statement.
    """
    return literal_column(f"{status} IN ('{RowStatus.TO_SEND}', '{RowStatus.SENDING}')")


def outbox_table(metadata: MetaData) -> Table:
    """Adds the outbox table to an application's own `metadata`, so that the application's migrations include it, and
    returns the table. Raises SQLAlchemyError if `metadata` has it already. Outboxes and relays name the table without a
    schema, also if `metadata` has a schema.
    """
    table = Table(
        NAME,
        metadata,
        Column("id", String(64), primary_key=True, comment="kodo-id of the message"),
        Column("app", String(120), nullable=False, server_default="", comment="who wrote it"),
        Column(
            "biz_code", String(120), nullable=False, server_default="", comment="kind of business: chooses the backoff"
        ),
        Column("protocol", String(20), nullable=False, server_default=PULSAR, comment="what carries it"),
        Column("env", String(120), nullable=False, server_default="", comment="environment it is for; empty: any"),
        Column("topic", String(255), nullable=False, comment="topic of the topology, with -LEVEL behind it if not L1"),
        Column("key", Text, nullable=False, server_default="", comment="message key"),
        Column("body", LargeBinary, comment="payload; NULL: a tombstone"),
        Column("properties", Text, nullable=False, server_default="{}", comment="message properties, a JSON object"),
        Column(
            "next_push_at", BigInteger, nullable=False, comment="not before; sending: when the claim ends; sent: when"
        ),
        Column("retry_count", Integer, nullable=False, server_default="0", comment="sends without a receipt"),
        Column(
            "status",
            String(10),
            nullable=False,
            server_default=RowStatus.TO_SEND,
            comment="to_send, sending, sent, failed",
        ),
        Column("version", Integer, nullable=False, server_default="0", comment="grows with every change"),
        Column("last_error", Text, comment="why the last send failed"),
        Column("created_at", BigInteger, nullable=False, comment="when it was written; the order of a key's rows"),
    )
    waiting = unsent()
    due = (table.c.next_push_at, table.c.id)
    Index(f"{NAME}_due", *due, postgresql_where=waiting, sqlite_where=waiting)
    by_key = (table.c.topic, table.c.key, table.c.id)
    Index(f"{NAME}_by_key", *by_key, postgresql_where=waiting, sqlite_where=waiting)
    Index(f"{NAME}_sent", table.c.next_push_at, postgresql_where=SENT, sqlite_where=SENT)
    return table


TABLE: Final = outbox_table(MetaData())
NEXT_VERSION: Final = case((TABLE.c.version < MAX_COUNT, TABLE.c.version + 1), else_=0)
"""Version of a row after a change: one more, or 0 after the greatest number; it only has to differ from the last one.
"""


def schema_sql(dialect: str, table: Table = TABLE) -> str:
    """Returns the SQL statements that create a table and its indexes, for a database administrator; they fail if the
    table exists. `dialect`: a key of `DIALECTS`; another one raises KeyError.
    """
    spoken = DIALECTS[dialect]()
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    statements: list[DDLElement] = [CreateTable(table), *(CreateIndex(index) for index in indexes)]
    lines = "\n\n".join(f"{str(one.compile(dialect=spoken)).strip()};" for one in statements).splitlines()
    return "\n".join(line.replace("\t", "    ").rstrip() for line in lines)


def lacking(engine: Engine) -> list[Diagnostic]:
    """Returns one error, in a list, that says how to add the outbox table or its missing columns if the database lacks
    any of them; else an empty list. Indexes, and types of columns, are not checked. Raises SQLAlchemyError;
    ValueError, TypeError or OverflowError of the driver for options in the address that it does not take.
    """
    live = inspect(engine)
    if not live.has_table(NAME):
        detail = f"{address_without_secrets(engine.url)} has no {NAME}\nrun what `kodo-consumer outbox schema` prints"
        return [error("K722", "outbox table not found", detail)]
    detail = lacking_columns(engine, TABLE)
    return [error("K723", "outbox table lacks columns", detail)] if detail else []


def lacking_columns(engine: Engine, table: Table) -> str:
    """Returns a text that names the columns that the live table lacks, with a statement for each that adds it; "" if it
    lacks none. A NOT NULL column without a default can be added to an empty table only. Raises as `lacking` does, and
    SQLAlchemyError if there is no such table.
    """
    there = {column["name"] for column in inspect(engine).get_columns(table.name)}
    missing = [column for column in table.columns if column.name not in there]
    if not missing:
        return ""
    added = [f"ALTER TABLE {table.name} ADD COLUMN {CreateColumn(column).compile(engine)};" for column in missing]
    return "\n".join([f"{table.name} lacks {', '.join(column.name for column in missing)}: run", *added])
