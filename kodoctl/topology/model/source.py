"""Sources of change data in the topology file: tables of a database whose committed rows become messages."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, StrictBool, StrictStr, Tag, WithJsonSchema

from kodoctl.topology.model.field_types import FileModel, NotEmpty, Text, optional_like, pattern_words, wrong_value

ROW: Final = "row"  # as `payload`: the columns of the row, as one document
_VARIABLE: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _variable(raw: Any) -> Any:
    """The value, if it can be the name of a variable. The error does not repeat it: an address may hold a password."""
    if isinstance(raw, str) and not _VARIABLE.fullmatch(raw):
        raise wrong_value(
            "should be the NAME of an environment variable, such as SHOP_DATABASE_URL, which holds the address;"
            " an address does not belong into the file, because it may hold a password"
        )
    return raw


Variable = Annotated[
    StrictStr,
    BeforeValidator(_variable),
    WithJsonSchema(
        {
            "type": "string",
            **pattern_words(
                f"^{_VARIABLE.pattern}$", "Should be the name of an environment variable, such as SHOP_DATABASE_URL."
            ),
        }
    ),
]


class PayloadColumn(FileModel):
    """The column whose bytes are the payload."""

    column: Text = Field(examples=["body"])
    """A column of type bytea, text, json or jsonb."""


class OutboxColumns(FileModel):
    """Columns of an outbox table, in which each row says where it goes."""

    topic: Text = Field(examples=["topic"])
    """Column with the ground topic, one of this file."""
    key: Text | None = optional_like("key")
    """Column with the message key; left out, or null in a row: no key."""
    payload: Text = Field(examples=["payload"])
    """Column with the payload: bytea, text, json or jsonb."""
    properties: Text | None = optional_like("properties")
    """Column with the message properties, a JSON object of texts."""


class SourceTable(FileModel):
    """A table of a source: its rows go to one topic, or each row of an outbox to the topic that it names."""

    topic: Text | None = optional_like("orders")
    """Ground topic of this file; routes choose the level, as for any sender."""
    key: NotEmpty[Text] | None = optional_like(["id"])
    """Columns of the message key; default: the primary key."""
    properties: dict[Text, Text] = Field(default_factory=dict, examples=[{"uid": "customer_id", "bucket": "region"}])
    """Message property, and the column it is read from."""
    payload: Annotated[
        Annotated[Literal["row"], Tag("word")] | Annotated[PayloadColumn, Tag("map")],
        Discriminator(lambda raw: "map" if isinstance(raw, dict | FileModel) else "word"),
    ] = Field(default="row", examples=["row", {"column": "body"}])
    """row: the columns as a JSON object, or as Avro by the topic's payload schema. A map: the bytes of one column."""
    columns: NotEmpty[Text] | None = optional_like(["id", "total"])
    """Columns in the payload, for `payload: row`; default: all."""
    deletes: Literal["tombstone", "ignore"] = "tombstone"
    """tombstone: a deleted row is a message with its key and without payload. ignore: it is no message."""
    outbox: OutboxColumns | None = optional_like({"topic": "topic", "key": "key", "payload": "body"})
    """This is an outbox: inserts become messages, updates and deletes do not. In place of every other key."""


class Source(FileModel):
    """A PostgreSQL database whose committed changes become messages, by logical decoding."""

    description: StrictStr = Field(default="", examples=["orders as the shop commits them"])
    """A text for people."""
    database: Variable = Field(examples=["SHOP_DATABASE_URL"])
    """Name of the environment variable with the database's URL. Never the URL itself."""
    snapshot: StrictBool = Field(default=True, examples=[False])
    """true: rows that are there already are sent first. false: only what is committed from the slot's creation on."""
    tables: dict[Text, SourceTable] = Field(examples=[{"public.orders": {"topic": "orders"}}], min_length=1)
    """Tables by name, SCHEMA.TABLE as the database has it."""
