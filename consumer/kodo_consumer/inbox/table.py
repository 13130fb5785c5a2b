"""Inbox table: its columns and indexes. Times are ms since the epoch by the database's clock.

A row waits until a worker claims it, and is done when `done_at` is set; nothing else ends it. `outcome` then says how.
A row to do with the outcome `discarded` ends unhandled: the next worker that claims it writes its audit record. Done
rows are kept for a while, because their names tell repeats.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text

NAME: Final = "kodo_inbox"


def inbox_table(metadata: MetaData) -> Table:
    """Adds the inbox table to an application's own `metadata`, so that the application's migrations include it, and
    returns the table. Raises SQLAlchemyError if `metadata` has it already. Inboxes name the table without a schema,
    also if `metadata` has a schema.
    """
    number = BigInteger().with_variant(Integer, "sqlite")
    table = Table(
        NAME,
        metadata,
        Column("id", number, primary_key=True, autoincrement=True, comment="order of receipt"),
        Column(
            "subscription", String(400), nullable=False, comment="its full name: tenant/namespace/topic:subscription"
        ),
        Column("topic", Text, nullable=False, comment="topic of the lane from which the message was received"),
        Column("name", String(64), nullable=False, comment="what a repeat has as well, hashed"),
        Column(
            "position", String(100), nullable=False, comment="where it was received: ledger:entry:partition:batch index"
        ),
        Column("head", Text, nullable=False, comment="all of the message but position and payload, a JSON object"),
        Column("body", LargeBinary, comment="payload; NULL: a tombstone"),
        Column("received_at", BigInteger, nullable=False),
        Column("claimed_by", String(64), nullable=False, server_default="", comment="claim of a worker"),
        Column("claimed_until", BigInteger, nullable=False, server_default="0", comment="then others may claim it"),
        Column("done_at", BigInteger, comment="when the worker acknowledged it; NULL: to do"),
        Column("order_key", String(64), comment="key whose order is kept, hashed; NULL: none"),
        Column("tenant", String(200), nullable=False, server_default="", comment="tenant of the message"),
        Column("outcome", String(12), nullable=False, server_default="", comment="how it ended; empty: to do"),
        Column("reason", Text, comment="why it ended so"),
        Column("retries", Integer, nullable=False, server_default="0", comment="times a person had it handled again"),
    )
    c = table.c
    to_do, done = c.done_at.is_(None), c.done_at.is_not(None)
    Index(f"{NAME}_name", c.subscription, c.name, unique=True)
    Index(f"{NAME}_to_do", c.subscription, c.topic, c.id, postgresql_where=to_do, sqlite_where=to_do)
    Index(f"{NAME}_by_key", c.subscription, c.topic, c.order_key, c.id, postgresql_where=to_do, sqlite_where=to_do)
    Index(f"{NAME}_claims", c.claimed_by, postgresql_where=to_do, sqlite_where=to_do)
    Index(f"{NAME}_done", c.subscription, c.done_at, postgresql_where=done, sqlite_where=done)
    return table


TABLE: Final = inbox_table(MetaData())
