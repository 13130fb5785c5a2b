"""Slots of a source do not outlive its publication, whatever people dropped by hand before: a slot keeps WAL for ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from kodoctl.apply.source_writer import SourceWriter
from kodoctl.database.change_objects import read_sources
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError
from kodoctl.pulsar.values.live_objects import ClusterIdentity, Live
from kodoctl.topology.change_sources import verification_slot
from kodoctl.topology.names import NamespaceName
from kodoctl.topology.resources import PublicationResource, SlotResource

HERE = NamespaceName("kodo", "trade")
NAME = "kodo_trade_db"
SLOT = SlotResource(HERE, "URL", NAME)
PUBLICATION = PublicationResource(HERE, "URL", NAME, frozenset({"public.a"}), frozenset({"insert"}))
MADE = "CREATE PUBLICATION kodo_trade_db FOR TABLE a WITH (publish = 'insert', publish_via_partition_root)"
OTHERS = "COMMENT ON PUBLICATION kodo_trade_db IS 'kodoctl of a later version'"


@pytest.fixture
def database(logical_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(logical_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
        yield connection


@pytest.fixture
def writer(logical_url: str, database: psycopg.Connection[Any]) -> SourceWriter:
    """A writer whose plan saw the database as it is now."""
    assert database
    variables = {"URL": logical_url}
    live = read_sources(Live(ClusterIdentity("c"), {}), [PUBLICATION.address, SLOT.address], variables, {})
    return SourceWriter(variables, live)


def _make_slots(database: psycopg.Connection[Any], *names: str) -> None:
    for name in names:
        database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])


def _slots(database: psycopg.Connection[Any]) -> set[str]:
    query = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    return {name for (name,) in database.execute(query)}


@pytest.mark.parametrize("is_made", [True, False])
def test_a_publication_takes_the_slot_of_its_verification_along_also_if_it_is_gone_itself(
    database: psycopg.Connection[Any], writer: SourceWriter, *, is_made: bool
) -> None:
    if is_made:
        database.execute(MADE)
    _make_slots(database, verification_slot(NAME), "another")
    writer.delete_publication(PUBLICATION, "trade")
    assert _slots(database) == {"another"}
    assert not database.execute("SELECT FROM pg_publication").fetchall()


@pytest.mark.parametrize("is_made", [True, False])
def test_a_slot_that_is_left_is_told_also_if_its_publication_is_gone(
    database: psycopg.Connection[Any], writer: SourceWriter, *, is_made: bool
) -> None:
    if is_made:
        database.execute(MADE)
    _make_slots(database, NAME, verification_slot(NAME))
    with pytest.raises(WriteFailedError, match="the slot kodo_trade_db exists: it cannot be read without"):
        writer.delete_publication(PUBLICATION, "trade")
    assert _slots(database) == {NAME, verification_slot(NAME)}
    assert len(database.execute("SELECT FROM pg_publication").fetchall()) == is_made


@pytest.mark.parametrize("is_made", [True, False])
def test_a_slot_takes_the_slot_of_its_verification_along_also_if_it_is_gone_itself(
    database: psycopg.Connection[Any], writer: SourceWriter, *, is_made: bool
) -> None:
    _make_slots(database, *([NAME] if is_made else []), verification_slot(NAME), "another")
    writer.delete_slot(SLOT, "trade", allowed=is_made)
    assert _slots(database) == {"another"}


def test_the_verification_of_a_publication_that_is_anothers_now_goes_on(
    database: psycopg.Connection[Any], writer: SourceWriter
) -> None:
    database.execute(f"{MADE}; {OTHERS}")
    _make_slots(database, verification_slot(NAME))
    with pytest.raises(WriteFailedError, match="plan again"):
        writer.delete_slot(SLOT, "trade", allowed=True)
    assert _slots(database) == {verification_slot(NAME)}
