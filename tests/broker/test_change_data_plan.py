"""Publications and replication slots as objects of a topology: a real broker, and a real PostgreSQL."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from kodoctl.topology.change_sources import verification_slot
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer_id text NOT NULL, total numeric);
CREATE TABLE shop_outbox (id bigint PRIMARY KEY, topic text, key text, body bytea, properties jsonb);
"""
TOPICS = "orders: {fair_by: key, subscriptions: {billing: {states: [], dead_letter: false}}}"
ORDERS = "public.orders: {topic: orders}"
OUTBOX = "public.shop_outbox: {outbox: {topic: topic, key: key, payload: body, properties: properties}}"
NAME = "kodo_trade_shop_db"


class Shop:
    """A topology with one source, and the database of that source."""

    def __init__(self, workspace: Workspace, connection: psycopg.Connection[Any]) -> None:
        self.workspace, self.connection = workspace, connection

    def declare(self, *tables: str) -> None:
        """Writes the file with these tables; without any it has no source."""
        listed = "".join(f"      {table}\n" for table in tables)
        head = f"sources:\n  shop-db:\n    database: SHOP_URL\n    tables:\n{listed}" if tables else ""
        self.workspace.topology(TOPICS, head)

    def all(self, query: str) -> list[Any]:
        """The rows of a query."""
        return self.connection.execute(query).fetchall()

    @property
    def publication(self) -> tuple[set[str], tuple[bool, ...]]:
        """Tables of the publication, and whether it publishes inserts, updates, deletes, truncates and by the root."""
        tables = {name for (name,) in self.all(f"SELECT tablename FROM pg_publication_tables WHERE pubname = '{NAME}'")}
        rows = self.all(
            f"SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot FROM pg_publication WHERE pubname = '{NAME}'"
        )
        return tables, rows[0] if rows else ()

    @property
    def comment(self) -> str:
        """The comment on the publication; "" without one."""
        query = (
            f"SELECT coalesce(obj_description(oid, 'pg_publication'), '') FROM pg_publication WHERE pubname = '{NAME}'"
        )
        return str(self.all(query)[0][0])

    def make_slot(self) -> None:
        """The slot, as the first run makes it."""
        self.all(f"SELECT pg_create_logical_replication_slot('{NAME}', 'pgoutput')")

    @property
    def slots(self) -> int:
        """Number of slots with the name of the source."""
        return len(self.all(f"SELECT FROM pg_replication_slots WHERE slot_name = '{NAME}'"))

    def address(self, kind: str) -> str:
        """Address of the slot or the publication."""
        return f"{kind}.{self.workspace.namespace}/SHOP_URL/{NAME}"


@pytest.fixture
def shop(workspace: Workspace, logical_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("SHOP_URL", logical_url)
    with psycopg.connect(logical_url, autocommit=True) as connection:
        connection.execute(TABLES)
        yield Shop(workspace, connection)


def test_a_source_is_planned_applied_changed_and_destroyed(shop: Shop) -> None:
    workspace = shop.workspace
    shop.declare(ORDERS)
    first = workspace.plan()
    assert f"publication.{workspace.namespace}/SHOP_URL/{NAME}" in first.out
    assert "insert, update, delete, truncate of public.orders" in first.out
    assert "K436" in first.out, "the slot comes with the first run"
    workspace.apply()
    assert shop.publication == ({"orders"}, (True, True, True, True, True))
    workspace.assert_settled()
    shop.make_slot()
    workspace.assert_settled()
    assert "K436" not in workspace.plan().out

    shop.declare(ORDERS, OUTBOX)
    assert "rows that are in public.shop_outbox already are not sent" in workspace.apply().out
    assert shop.publication[0] == {"orders", "shop_outbox"}
    workspace.assert_settled()

    refused = workspace.run("destroy", "--auto-approve", "topologies", code=4)
    assert "K401" in refused.out
    assert "of WAL) are not sent any more" in refused.out
    assert shop.slots == 1
    workspace.run("destroy", "--auto-approve", "topologies", "--allow-destroy", shop.address("slot"))
    assert shop.slots == 0
    assert shop.publication == (set(), ())


def test_a_database_that_cannot_be_read_is_unknown(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = shop.workspace
    shop.declare(ORDERS)
    workspace.apply()
    shop.make_slot()
    monkeypatch.delenv("SHOP_URL")
    seen = workspace.plan()
    assert "K435" in seen.out
    assert "the variable SHOP_URL is not set" in seen.out
    assert seen.summary.startswith("No changes where it could be read")
    workspace.plan("--detailed-exitcode", code=1)
    drifted = workspace.run("drift", code=4)
    assert "No drift" not in drifted.out
    assert drifted.out.rstrip().endswith("Not everything could be compared.")
    shop.declare()
    gone = workspace.plan()
    assert "K435" in gone.out
    assert shop.address("publication") not in gone.out
    assert shop.slots == 1
    assert "K435" in workspace.run("destroy", "--auto-approve", "topologies", code=4).out
    monkeypatch.setenv("SHOP_URL", "postgresql://shop:geheim@127.0.0.1:1/none")
    unreached = workspace.plan()
    assert "K435" in unreached.out
    assert "geheim" not in unreached.text


def test_a_source_that_is_taken_out_loses_slot_and_publication(shop: Shop) -> None:
    shop.declare(ORDERS)
    shop.workspace.apply()
    shop.make_slot()
    shop.declare()
    shop.all(f"SELECT pg_copy_logical_replication_slot('{NAME}', '{verification_slot(NAME)}')")
    document = shop.workspace.plan_json(code=4)
    assert [(change["action"], change["address"]) for change in document["changes"]][:2] == [
        ("delete", shop.address("slot")),
        ("delete", shop.address("publication")),
    ]
    assert document["changes"][0]["evidence"]["active_pid"] is None
    shop.workspace.apply("--allow-destroy", shop.address("slot"))
    assert (shop.slots, shop.publication) == (0, (set(), ()))
    assert not shop.all("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"), (
        "nor does the slot of `source verify` keep the log"
    )
    shop.workspace.assert_settled()


def test_what_changed_in_the_database_since_the_plan_is_not_overwritten(shop: Shop) -> None:
    shop.declare(ORDERS)
    shop.workspace.plan("--out", "plan.json")
    shop.connection.execute(f"CREATE PUBLICATION {NAME} FOR TABLE shop_outbox")
    refused = shop.workspace.run("apply", "--auto-approve", "plan.json", code=None)
    assert refused.code != 0
    assert "K533" in refused.err
    assert shop.publication[0] == {"shop_outbox"}
    assert "K417" in shop.workspace.plan(code=4).out, "nobody's publication is not changed without --adopt"
    shop.workspace.apply("--adopt", shop.address("publication"))
    assert shop.publication == ({"orders"}, (True, True, True, True, True))


def test_a_slot_with_a_reader_is_not_dropped(shop: Shop, logical_url: str) -> None:
    shop.declare(ORDERS)
    shop.workspace.apply()
    shop.make_slot()
    separator = "&" if "?" in logical_url else "?"
    reader = psycopg.pq.PGconn.connect(f"{logical_url}{separator}replication=database".encode())
    try:
        options = f"(proto_version '1', publication_names '{NAME}')"
        reader.exec_(f"START_REPLICATION SLOT {NAME} LOGICAL 0/0 {options}".encode())
        shop.declare()
        eventually(lambda: "sends to its reader: stop that" in shop.workspace.plan(code=4).out)
        refused = shop.workspace.apply("--allow-destroy", shop.address("slot"), code=4)
        assert "sends to its reader" in refused.out
        assert "--allow-destroy slot" not in refused.out, "no flag allows it"
    finally:
        reader.finish()
    assert (shop.slots, shop.publication[0]) == (1, {"orders"})


def test_what_is_unknown_is_given_up_by_forget_alone(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.declare(ORDERS)
    shop.workspace.apply()
    monkeypatch.delenv("SHOP_URL")
    place = ["--namespace", shop.workspace.namespace, "--auto-approve"]
    kept = shop.workspace.run("undo", "last", shop.workspace.namespace, "--auto-approve", code=4)
    assert "a source is not undone" in " ".join(kept.text.split())
    assert shop.workspace.topics(), "nothing else is undone"
    shop.workspace.run("forget", shop.address("publication"), *place)
    assert shop.publication[0] == {"orders"}
    monkeypatch.setenv("SHOP_URL", "set again, and not asked")
    destroyed = shop.workspace.run("destroy", "--name", "trade", *place)
    assert "K435" not in destroyed.text


def test_the_least_rights_of_the_page_are_enough(shop: Shop, logical_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = shop.connection.info.dbname
    owner, role = f"owner_{database}", f"apply_{database}"
    for statement in (
        f"CREATE ROLE {owner}",
        f"CREATE ROLE {role} LOGIN PASSWORD 'x'",
        f"GRANT CREATE ON DATABASE {database} TO {role}",
        f"GRANT {owner} TO {role}",
        f"ALTER ROLE {role} REPLICATION",
        f"ALTER TABLE orders OWNER TO {owner}",
    ):
        shop.connection.execute(statement)
    try:
        monkeypatch.setenv("SHOP_URL", re.sub("//[^@]*@", f"//{role}:x@", logical_url))
        shop.declare(ORDERS)
        planned = shop.workspace.plan()
        assert "K434" not in planned.out
        shop.workspace.apply()
        shop.make_slot()
        shop.workspace.run("destroy", "--auto-approve", "topologies", "--allow-destroy", shop.address("slot"))
        assert (shop.slots, shop.publication[0]) == (0, set())
    finally:
        shop.connection.execute("ALTER TABLE orders OWNER TO CURRENT_USER")
        for one in (role, owner):
            shop.connection.execute(f"DROP OWNED BY {one}; DROP ROLE {one}")


def test_drift_shows_what_was_changed_by_hand(shop: Shop) -> None:
    shop.declare(ORDERS)
    shop.workspace.apply()
    shop.connection.execute(f"ALTER PUBLICATION {NAME} SET (publish = 'insert')")
    found = shop.workspace.run("drift", code=3)
    assert shop.address("publication") in found.out
    shop.workspace.apply()
    shop.workspace.run("drift")


def test_a_variable_that_names_another_database_is_refused(shop: Shop, logical_server: Any, monkeypatch: Any) -> None:
    """Nothing counts as gone because somebody looked elsewhere."""
    workspace, there = shop.workspace, os.environ["SHOP_URL"]
    shop.declare(ORDERS)
    workspace.apply()
    shop.make_slot()
    workspace.plan("--out", "plan.json")
    other = logical_server.create().replace("+psycopg", "")
    with psycopg.connect(other, autocommit=True) as connection:
        connection.execute(TABLES)
    monkeypatch.setenv("SHOP_URL", other)
    refused = workspace.plan(code=4)
    assert "K440" in refused.out
    assert f"kodoctl forget {shop.address('publication')}" in " ".join(refused.out.split())
    assert workspace.run("drift", code=4).out.rstrip().endswith("Not everything could be compared.")
    shop.declare()
    assert "K440" in workspace.apply(code=4).out, "its source is taken out: it is not forgotten either"
    assert "K440" in workspace.run("destroy", "--auto-approve", "topologies", code=4).out
    monkeypatch.setenv("SHOP_URL", there)
    deleted = {one["address"] for one in workspace.plan_json(code=4)["changes"] if one["action"] == "delete"}
    assert deleted == {shop.address("slot"), shop.address("publication")}, "they are still ours"
    shop.declare(ORDERS)
    workspace.assert_settled()

    monkeypatch.setenv("SHOP_URL", other)
    place = ["--namespace", workspace.namespace, "--auto-approve"]
    workspace.run("forget", shop.address("publication"), *place)
    shop.all(f"SELECT pg_drop_replication_slot('{NAME}')")
    workspace.apply()
    workspace.assert_settled()
    assert shop.publication[0] == {"orders"}, "what was given up stays"
    with psycopg.connect(other) as connection:
        assert connection.execute("SELECT FROM pg_publication").fetchall()
    logical_server.drop(other)


def test_a_plan_is_not_carried_out_in_another_database(shop: Shop, logical_server: Any, monkeypatch: Any) -> None:
    shop.declare(ORDERS)
    shop.workspace.plan("--out", "plan.json")
    other = logical_server.create().replace("+psycopg", "")
    with psycopg.connect(other, autocommit=True) as connection:
        connection.execute(TABLES)
    monkeypatch.setenv("SHOP_URL", other)
    refused = shop.workspace.run("apply", "--auto-approve", "plan.json", code=4)
    assert "K440" in refused.text
    with psycopg.connect(other) as connection:
        assert not connection.execute("SELECT FROM pg_publication").fetchall()
    logical_server.drop(other)


def test_one_name_of_two_topologies_is_refused(shop: Shop) -> None:
    """`trade` with `shop-db` and `trade-shop` with `db` have one slot name."""
    workspace = shop.workspace
    shop.declare(ORDERS)
    workspace.apply()
    shop.make_slot()
    first = workspace.folder / "topologies" / "trade.yaml"
    first.rename(workspace.folder / "trade.yaml")
    head = f"sources:\n  db:\n    database: SHOP_URL\n    tables:\n      {OUTBOX}\n"
    workspace.topology(TOPICS, head, "trade-shop", namespace="other")
    refused = workspace.apply("--take-over", code=4)
    assert "K438" in refused.out
    assert f"belongs to the topology trade in {workspace.namespace}" in " ".join(refused.out.split())
    assert shop.publication[0] == {"orders"}

    shop.connection.execute(f"COMMENT ON PUBLICATION {NAME} IS NULL")
    other = shop.address("publication").replace("/ns/", "/other/")
    workspace.apply("--adopt", other)
    assert "trade-shop" in shop.comment
    (workspace.folder / "topologies" / "trade-shop.yaml").rename(workspace.folder / "trade-shop.yaml")
    (workspace.folder / "trade.yaml").rename(first)
    assert "K438" in workspace.plan(code=4).out, "the first one sees that it lost it"
    shop.declare()
    workspace.apply()
    assert (shop.slots, shop.publication[0]) == (1, {"shop_outbox"}), "and drops neither publication nor slot"


def test_one_file_on_two_clusters_is_refused(shop: Shop) -> None:
    """The second cluster of the test is the first one with another name of its Pulsar tenant."""
    shop.declare(ORDERS)
    shop.workspace.apply()
    marker = json.loads(shop.comment.removeprefix("kodoctl "))
    assert (marker["topology"], marker["namespace"]) == ("trade", shop.workspace.namespace)
    marker |= {"tenant_uuid": "of another", "cluster": "west"}
    shop.connection.execute(f"COMMENT ON PUBLICATION {NAME} IS 'kodoctl {json.dumps(marker)}'")
    refused = shop.workspace.plan(code=4)
    assert "K438" in refused.out
    assert "on cluster west" in " ".join(refused.out.split())
    shop.make_slot()
    shop.declare()
    shop.workspace.apply()
    assert (shop.slots, shop.publication[0]) == (1, {"orders"})


def test_what_changed_hands_since_the_plan_is_not_dropped(shop: Shop) -> None:
    shop.declare(ORDERS)
    shop.workspace.apply()
    shop.make_slot()
    shop.declare()
    shop.workspace.plan("--out", "plan.json", "--allow-destroy", shop.address("slot"))
    shop.connection.execute(f"COMMENT ON PUBLICATION {NAME} IS 'kodoctl of a later version'")
    refused = shop.workspace.run("apply", "--auto-approve", "plan.json", code=None)
    assert refused.code != 0
    assert (shop.slots, shop.publication[0]) == (1, {"orders"})


def test_a_comment_of_people_stays_below_the_marker(shop: Shop) -> None:
    shop.declare(ORDERS)
    shop.workspace.run("plan")
    shop.connection.execute(
        f"CREATE PUBLICATION {NAME} FOR TABLE orders WITH (publish_via_partition_root);"
        f" COMMENT ON PUBLICATION {NAME} IS 'ask Ann'"
    )
    shop.workspace.apply()
    assert shop.comment.startswith("kodoctl {")
    assert shop.comment.endswith("\nask Ann")
    shop.make_slot()
    shop.all(f"SELECT pg_copy_logical_replication_slot('{NAME}', '{verification_slot(NAME)}')")
    shop.declare()
    shop.workspace.apply("--allow-destroy", shop.address("slot"))
    assert shop.comment == "ask Ann", "it was adopted, so it stays"
    assert not shop.all("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"), (
        "no slot keeps the log for a proof that nobody can go on with"
    )


def test_a_publication_of_all_tables_is_refused_before_anything_is_written(shop: Shop) -> None:
    shop.declare(ORDERS)
    shop.connection.execute(f"CREATE PUBLICATION {NAME} FOR ALL TABLES")
    refused = shop.workspace.plan("--adopt", shop.address("publication"), code=4)
    assert "K434" in refused.out
    assert "FOR ALL TABLES" in refused.out
    shop.connection.execute(f"DROP PUBLICATION {NAME}; CREATE PUBLICATION {NAME} FOR TABLES IN SCHEMA public")
    shop.workspace.apply("--adopt", shop.address("publication"))
    assert shop.publication[0] == {"orders"}
    shop.workspace.assert_settled()
