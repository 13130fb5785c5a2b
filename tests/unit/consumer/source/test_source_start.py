"""What a source asks its database, and how it begins while the database keeps it waiting."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from kodo_consumer.adapters.metrics.source_metrics import SourceView
from kodo_consumer.source.database import Replication, SlotInUseError, SourceDatabase, SourceOwner
from kodo_consumer.source.pgoutput import Relation, RelationColumn
from kodo_consumer.source.row_mapping import GoneError
from kodo_consumer.source.runner import Source
from kodo_consumer.source.sender import Numbering, UnconfirmedMessage

from kodoctl.database.postgres import DatabaseError, connection_of
from kodoctl.errors import UsageError
from tests.services.polling import eventually

SPEC: Any = SimpleNamespace(
    slot="kodo_shop_db", publication="kodo_shop_db", spec=SimpleNamespace(database="URL", snapshot=False), tables=()
)
TOPOLOGY: Any = SimpleNamespace(spec=SimpleNamespace(name="shop", tenant="kodo", namespace="ns"))
ORDERS: Any = SimpleNamespace(name="public.orders", parts=("public", "orders"))


def _database(url: str) -> SourceDatabase:
    return SourceDatabase(SPEC, SourceOwner("shop", "kodo/ns", lambda: None, lambda: None), {"URL": url})


def _relation(connection: Any, *columns: str) -> Relation:
    """The table `orders` as the log has it, with `id` as its replica identity."""
    number = connection.execute("SELECT 'orders'::regclass::oid::bigint").fetchone()[0]
    return Relation(number, "public.orders", "d", tuple(RelationColumn(name, 25, name == "id") for name in columns))


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.source.database._LOOK", 0.02)


def test_a_source_is_healthy_and_not_ready_while_the_server_waits_for_open_transactions(logical_url: str) -> None:
    source = Source(TOPOLOGY, SPEC, cast("Any", None), {})
    with (
        psycopg.connect(logical_url) as other,
        connection_of("URL", {"URL": logical_url}, replication="database") as connection,
        ThreadPoolExecutor(1) as pool,
    ):
        other.execute("CREATE TABLE open (id int)")
        source.turned_at -= 1_000.0
        making = pool.submit(source._make_slot, Replication(connection, SPEC), None, cast("Any", None))
        try:
            eventually(lambda: not SourceView(source).unhealthy())
            assert SourceView(source).not_ready() == ["the server makes the slot when all open transactions have ended"]
            assert not making.done()
        finally:
            other.rollback()
        assert making.result(20) > 0
        source._works()
        assert SourceView(source).not_ready() == []


def test_a_caller_is_told_again_and_again_that_the_server_waits(logical_url: str) -> None:
    calls: list[None] = []
    with (
        psycopg.connect(logical_url) as other,
        connection_of("URL", {"URL": logical_url}, replication="database") as connection,
    ):
        other.execute("CREATE TABLE open (id int)")

        def wait() -> None:
            calls.append(None)
            if len(calls) == 3:
                other.rollback()

        replication = Replication(connection, SPEC)
        lsn, snapshot = replication.create_snapshot(wait)
        assert lsn > 0
        assert snapshot
        assert len(calls) >= 3
        with pytest.raises(DatabaseError, match="does not exist"):
            replication.execute("SELECT * FROM none_of_it")
        assert replication.execute("SELECT 1, NULL") == [("1", None)]


def test_a_second_process_waits_while_the_first_one_makes_the_slot(logical_url: str) -> None:
    database = _database(logical_url)
    with (
        psycopg.connect(logical_url) as other,
        connection_of("URL", {"URL": logical_url}, replication="database") as connection,
        database.connect() as queries,
        ThreadPoolExecutor(1) as pool,
    ):
        other.execute("CREATE TABLE open (id int)")
        making = pool.submit(Replication(connection, SPEC).create_slot, lambda: None)
        try:
            eventually(lambda: queries.execute("SELECT 1 FROM pg_replication_slots WHERE active").fetchone())
            with pytest.raises(SlotInUseError, match="another `source run` is making it"):
                database.slot_position(queries)
        finally:
            other.rollback()
        made = making.result(20)
        assert database.slot_position(queries) == made


def test_a_value_that_the_log_does_not_repeat_is_that_of_the_table_whatever_its_name_is_now(logical_url: str) -> None:
    database = _database(logical_url)
    with database.connect() as queries:
        queries.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
        queries.execute("INSERT INTO orders VALUES (1, 'large')")
        relation = _relation(queries, "id", "note")
        queries.execute("ALTER TABLE orders RENAME TO orders_of_2026")
        queries.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
        queries.execute("INSERT INTO orders VALUES (1, 'of another table')")
        assert database.fetch(queries, relation, ["note"], [b"1", None]) == [b"large"]
        with pytest.raises(GoneError):
            database.fetch(queries, relation, ["note"], [b"2", None])
        queries.execute("ALTER TABLE orders_of_2026 RENAME COLUMN note TO remark")
        with pytest.raises(UsageError, match=r'K791.*column "note" does not exist'):
            database.fetch(queries, relation, ["note"], [b"1", None])
        queries.execute("DROP TABLE orders_of_2026")
        with pytest.raises(GoneError):
            database.fetch(queries, relation, ["note"], [b"1", None])


def test_a_primary_key_leaves_out_only_generated_columns_that_the_log_does_not_have(logical_url: str) -> None:
    database = _database(logical_url)
    with database.connect() as queries:
        queries.execute(
            "CREATE TABLE orders (region text, id int, day int GENERATED ALWAYS AS (id / 10) STORED,"
            " PRIMARY KEY (region, day, id))"
        )
        relation = _relation(queries, "region", "id")
        assert database.primary_key(queries, ORDERS, relation) == ["region", "id"]
        whole = _relation(queries, "region", "id", "day")
        assert database.primary_key(queries, ORDERS, whole) == ["region", "day", "id"]
        queries.execute("ALTER TABLE orders RENAME COLUMN id TO order_id")
        assert database.primary_key(queries, ORDERS, relation) == ["region", "order_id"]


def test_the_last_marks_make_numbers_void_whose_messages_have_no_receipt() -> None:
    """The next run sends these messages with other numbers: without void ones, readers would report a loss."""
    source, sequencer, marks = Source(TOPOLOGY, SPEC, cast("Any", None), {}), Numbering().of("t"), []

    class Sender:
        def send_marks(self, *, end: bool) -> int:
            marks.extend(sequencer.marks(end=end))
            source._life.out.clear()
            return len(marks)

    numbers = [sequencer.next(0) for _ in range(3)]
    source._life.out.update(UnconfirmedMessage(sequencer, "t", number=one) for one in numbers[1:])
    source._drain(cast("Any", Sender()), 0.0)
    assert [(mark.high, mark.void, mark.end) for mark in marks] == [(3, ((2, 3),), True)]
