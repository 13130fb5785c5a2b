"""Publications, slots and tables of sources, read from a real PostgreSQL; and texts without passwords."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from kodoctl.database.change_objects import read_sources
from kodoctl.database.postgres import DatabaseError, connection_of
from kodoctl.pulsar.values.live_objects import ClusterIdentity, DatabaseFacts, Live, LiveObject, SlotFacts
from kodoctl.topology.names import NamespaceName
from kodoctl.topology.resources import PublicationResource, SlotResource

HERE = NamespaceName("kodo", "trade")
NAME = "kodo_trade_db"
SLOT = SlotResource(HERE, "URL", NAME)


def declared(*tables: str, operations: tuple[str, ...] = ("insert",)) -> PublicationResource:
    return PublicationResource(HERE, "URL", NAME, frozenset(tables), frozenset(operations))


@pytest.fixture
def database(logical_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(logical_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE a (id int, part int, body text, PRIMARY KEY (part, id))")
        yield connection


def read(url: str | None, *tables: str) -> Live:
    variables = {} if url is None else {"URL": url}
    addresses = ["topic.persistent://kodo/trade/J", declared().address, SLOT.address]
    return read_sources(Live(ClusterIdentity("c"), {}), addresses, variables, {"URL": frozenset(tables)})


def test_nothing_is_there_yet(database: psycopg.Connection[Any], logical_url: str) -> None:
    live = read(logical_url, "public.a", "public.none")
    assert not live.objects
    assert not live.is_unknown(SLOT.address)
    facts = live.databases["URL"]
    assert (facts.problem, facts.wal_level, facts.standby) == ("", "logical", False)
    assert facts.free_slots > 0
    assert facts.may_replicate
    assert facts.may_create
    assert facts.name == database.info.dbname
    assert facts.tables.keys() == {"public.a"}
    table = facts.tables["public.a"]
    assert (table.kind, table.key) == ("r", ("part", "id"))
    assert table.identity == {"part", "id"}
    assert table.columns == {"id", "part", "body"}
    assert table.owned
    assert table.readable
    assert table.logged


@pytest.mark.parametrize(
    ("statement", "identity"),
    [
        ("ALTER TABLE a REPLICA IDENTITY FULL", {"id", "part", "body"}),
        ("ALTER TABLE a REPLICA IDENTITY NOTHING", None),
        ("ALTER TABLE a DROP CONSTRAINT a_pkey", None),
        ("ALTER TABLE a DROP CONSTRAINT a_pkey; ALTER TABLE a ADD PRIMARY KEY (part, id) DEFERRABLE", None),
        (
            "ALTER TABLE a ALTER body SET NOT NULL; CREATE UNIQUE INDEX i ON a (body); ALTER TABLE a REPLICA IDENTITY USING INDEX i",
            {"body"},
        ),
    ],
)
def test_the_replica_identity_is_what_a_deleted_row_is_logged_with(
    database: psycopg.Connection[Any], logical_url: str, statement: str, identity: set[str] | None
) -> None:
    database.execute(statement)
    assert read(logical_url, "public.a").databases["URL"].tables["public.a"].identity == identity


def test_a_partition_may_have_another_replica_identity_than_its_table(
    database: psycopg.Connection[Any], logical_url: str
) -> None:
    database.execute("CREATE TABLE days (id int, day int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)")
    for first in (1, 2):
        database.execute(f"CREATE TABLE days_{first} PARTITION OF days FOR VALUES FROM ({first}) TO ({first + 1})")
    assert read(logical_url, "public.days").databases["URL"].tables["public.days"].uneven is None
    database.execute("ALTER TABLE days REPLICA IDENTITY FULL; ALTER TABLE days_1 REPLICA IDENTITY FULL")
    assert read(logical_url, "public.days").databases["URL"].tables["public.days"].uneven == "days_2"


@pytest.mark.parametrize(
    ("clause", "tables", "operations"),
    [
        ("FOR TABLE a WITH (publish = 'insert', publish_via_partition_root)", {"public.a"}, {"insert"}),
        ("FOR TABLE a (part, id) WITH (publish = 'insert')", {"public.a (in part)"}, {"insert"}),
        (
            "FOR TABLE a WHERE (id > 5) WITH (publish = 'insert, truncate')",
            {"public.a (in part)"},
            {"insert", "truncate"},
        ),
        ("FOR TABLES IN SCHEMA public WITH (publish = 'update, delete')", {"public.*"}, {"update", "delete"}),
        ("FOR ALL TABLES WITH (publish = 'insert')", {"all tables"}, {"insert"}),
        ("WITH (publish = 'insert')", set(), {"insert"}),
    ],
)
def test_a_publication_is_read_as_it_is(
    database: psycopg.Connection[Any], logical_url: str, clause: str, tables: set[str], operations: set[str]
) -> None:
    database.execute(f"CREATE PUBLICATION {NAME} {clause}")
    found = read(logical_url).objects[declared().address].resource
    assert isinstance(found, PublicationResource)
    assert (found.tables, found.operations) == (tables, operations)
    assert found.via_root is ("root" in clause)


def test_a_slot_shows_what_it_keeps(database: psycopg.Connection[Any], logical_url: str) -> None:
    database.execute(f"SELECT pg_create_logical_replication_slot('{NAME}', 'pgoutput')")
    database.execute("INSERT INTO a SELECT 1, n, repeat('x', 1000) FROM generate_series(1, 100) n")
    found = read(logical_url).objects[SLOT.address]
    assert found == LiveObject(SLOT, facts=found.facts)
    assert isinstance(found.facts, SlotFacts)
    assert (found.facts.plugin, found.facts.active_pid, found.facts.lost) == ("pgoutput", None, False)
    assert found.facts.unconfirmed_bytes > 100_000
    assert found.facts.retained_bytes >= found.facts.unconfirmed_bytes


def test_a_slot_of_another_database_is_no_slot_of_this_one(
    database: psycopg.Connection[Any], logical_url: str, logical_server: Any
) -> None:
    database.execute(f"SELECT pg_create_logical_replication_slot('{NAME}', 'pgoutput')")
    other = logical_server.create()
    live = read(other)
    assert not live.objects
    assert live.databases["URL"].taken == {NAME: database.info.dbname}
    logical_server.drop(other)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (None, "the variable URL is not set"),
        ("  ", "the variable URL is not set"),
        ("postgresql://u:geheim@x@h/d", "the value of URL has more than one @: write %40 for an @ in the password"),
        (
            "postgresql://h:7geheim/x@d/e",
            "the value of URL has a / or : too many: write %2F for a / in the password, %3A for a :",
        ),
        (
            "postgresql://u:geheim/x@h/e",
            "the value of URL has a / or : too many: write %2F for a / in the password, %3A for a :",
        ),
        ("mysql://u:geheim@h/d", "the value of URL is no address"),
        ("postgresql://u:geheim\udcff@h/d", "the value of URL is no address"),  # a byte that is not UTF-8
        (f"postgresql://u:geheim@{'h' * 70}/d", "the value of URL names a host that no host can have"),
        ("postgresql://u:geheim@127.0.0.1:1/d", "connection"),
        ("postgresql+psycopg://u:geheim@127.0.0.1:1/d", "connection"),
    ],
)
def test_a_database_that_cannot_be_reached_is_unknown(url: str | None, says: str) -> None:
    live = read(url)
    assert says in live.databases["URL"].problem
    assert "geheim" not in live.databases["URL"].problem
    assert live.is_unknown(SLOT.address)
    assert live.is_unknown(declared().address)
    assert not live.is_unknown("topic.persistent://kodo/trade/J")


def test_a_database_that_nobody_read_is_unknown() -> None:
    assert Live(ClusterIdentity("c"), {}).is_unknown(SLOT.address)
    assert not Live(ClusterIdentity("c"), {}, databases={"URL": DatabaseFacts()}).is_unknown(SLOT.address)


def test_a_refused_statement_is_one_line(logical_url: str) -> None:
    with pytest.raises(DatabaseError) as caught, connection_of("URL", {"URL": logical_url}) as connection:
        connection.execute("SELECT nothing")
    assert str(caught.value) == 'column "nothing" does not exist'


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "pip install '.[postgres]'" in read("postgresql://h/d").databases["URL"].problem
