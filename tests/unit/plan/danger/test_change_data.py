"""Sources of change data against what was read of their databases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.errors import Diagnostic, Severity
from kodoctl.plan.changes import Adopt, ChangeContext, Create, Update
from kodoctl.plan.danger.change_data import change_data_findings
from kodoctl.plan.field_diff import publication_fields
from kodoctl.plan.inventory import Desired, desired_inventory
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind
from kodoctl.pulsar.values.live_objects import (
    ALL_TABLES,
    ClusterIdentity,
    DatabaseFacts,
    Live,
    LiveObject,
    PublicationFacts,
    SlotFacts,
    TableFacts,
)
from kodoctl.topology.names import NamespaceName
from kodoctl.topology.resources import PublicationResource, SlotResource
from tests.unit.topology.topology_files import expanded

HERE = NamespaceName("kodo", "trade")
SLOT = SlotResource(HERE, "URL", "kodo_trade_db")
PUBLICATION = PublicationResource(
    HERE, "URL", "kodo_trade_db", frozenset({"s.a"}), frozenset({"insert", "update", "delete", "truncate"})
)
A = TableFacts("r", frozenset({"id", "uid", "body"}), ("id",), frozenset({"id"}))
USED = SlotFacts()
READY = DatabaseFacts(role="shop", name="shop", tables={"s.a": A})
TOPIC = "{message_properties: {uid: required}, fair_by: uid, subscriptions: {s: {states: []}}}"


def wanted(table: str = "{topic: J, deletes: ignore, properties: {uid: uid}}", name: str = "s.a") -> Desired:
    body = f"topics: {{J: {TOPIC}}}\nsources: {{db: {{database: URL, tables: {{{name}: {table}}}}}}}"
    return desired_inventory([expanded(body)], None)


def live(facts: DatabaseFacts = READY, slot: SlotFacts | None = USED) -> Live:
    objects = {SLOT.address: LiveObject(SLOT, facts=slot)} if slot else {}
    return Live(ClusterIdentity("c"), objects, databases={"URL": facts})


def found(desired: Desired, there: Live, *changes: Create | Update) -> list[Diagnostic]:
    return list(change_data_findings(desired, there, changes))


def details(facts: DatabaseFacts, slot: SlotFacts | None = USED, *changes: Create | Update) -> list[str]:
    return [f"{one.severity.value}: {one.detail}" for one in found(wanted(), live(facts, slot), *changes)]


def table(facts: TableFacts | None, mapping: str = "{topic: J, properties: {uid: uid}}") -> list[str]:
    there = live(replace(READY, tables={"s.a": facts} if facts else {}))
    return [f"{one.severity.value}: {one.detail.removeprefix('source db: ')}" for one in found(wanted(mapping), there)]


CREATE = Create(PUBLICATION, ChangeContext("trade"))
FULL = replace(A, identity=A.columns)


def test_a_database_that_is_ready_has_no_findings() -> None:
    assert not details(READY)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (replace(READY, wal_level="replica"), "error: source db: wal_level is replica"),
        (replace(READY, standby=True), "error: source db: the database is a standby"),
    ],
)
def test_a_server_that_cannot_be_decoded_is_an_error(facts: DatabaseFacts, says: str) -> None:
    (detail,) = details(facts)
    assert detail.startswith(says)


def test_without_a_slot_the_first_run_needs_room_and_rights() -> None:
    (told,) = found(wanted(), live(slot=None))
    assert (told.severity, told.code) == (Severity.NOTE, "K436")
    assert told.detail == (
        "source db: the first `kodo-consumer source run` makes kodo_trade_db and sends the rows that are there"
    )
    room, rights, _ = details(replace(READY, free_slots=0, may_replicate=False), None)
    assert "it has 0 free, and the first run takes 2. Raise max_replication_slots" in room
    assert not any("no room" in one for one in details(replace(READY, free_slots=2), None))
    assert any("no room" in one for one in details(replace(READY, free_slots=1), None))
    assert rights.startswith("warning: source db: role shop may not create the slot")
    (taken,) = details(replace(READY, taken={"kodo_trade_db": "other"}), None)
    assert taken.startswith("error: source db: the database other of the same server has a slot kodo_trade_db")


@pytest.mark.parametrize(
    ("slot", "says"),
    [(SlotFacts("wal2json"), "decodes with wal2json"), (SlotFacts(lost=True), "is lost: the server removed WAL")],
)
def test_a_slot_that_cannot_be_read_is_an_error(slot: SlotFacts, says: str) -> None:
    (detail,) = details(READY, slot)
    assert says in detail
    assert "pg_drop_replication_slot('kodo_trade_db')" in detail


def test_a_publication_is_not_made_after_its_slot_or_without_rights() -> None:
    late, rights, owner = (
        details(READY, SlotFacts(), CREATE)[0],
        details(replace(READY, may_create=False), None, CREATE)[0],
        details(replace(READY, tables={"s.a": replace(A, owned=False)}), None, CREATE)[1],
    )
    assert "is older than its publication would be" in late
    assert "GRANT CREATE ON DATABASE shop TO shop" in rights
    assert "role shop does not own s.a" in owner


def test_rows_of_a_table_that_joins_later_are_not_sent() -> None:
    before = replace(PUBLICATION, tables=frozenset({"s.b"}))
    joined = Update(before, PUBLICATION, publication_fields(PUBLICATION, before), ChangeContext("trade"))
    (detail,) = details(READY, SlotFacts(), joined)
    assert detail == "warning: source db: rows that are in s.a already are not sent, only changes from now on"
    fewer = replace(PUBLICATION, tables=frozenset({"s.a", "s.b"}), via_root=False)
    left = Update(fewer, PUBLICATION, publication_fields(PUBLICATION, fewer), ChangeContext("trade"))
    assert [field.name for field in left.fields] == ["tables", "via_root"]
    assert not details(READY, SlotFacts(), left)
    assert not details(replace(READY, tables={"s.a": replace(A, owned=False)}), SlotFacts(), left)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (None, "error: there is no table s.a, or shop may not see its schema"),
        (replace(FULL, kind="v"), "error: s.a is a view, and only tables are published"),
        (replace(FULL, kind="t"), "error: s.a is no table"),
        (replace(FULL, logged=False), "error: s.a is unlogged or temporary"),
        (replace(FULL, readable=False), "warning: role shop may not read s.a"),
        (replace(FULL, columns=frozenset({"id", "uuid"})), "error: s.a has no column 'uid'; did you mean 'uuid'?"),
        (replace(FULL, columns=frozenset({"x"})), "error: s.a has no column 'uid'; it has x"),
        (replace(A, identity=None), "error: s.a has no replica identity"),
        (replace(FULL, key=()), "error: s.a has no primary key: name the columns of the message key"),
        (A, "error: a row deleted from s.a is logged without uid, which its message needs"),
        (replace(FULL, uneven="s.a_1"), "error: partition s.a_1 has another replica identity than s.a"),
    ],
)
def test_a_table_that_cannot_be_sent(facts: TableFacts | None, says: str) -> None:
    (detail,) = table(facts)
    assert detail.startswith(says)


@pytest.mark.parametrize(
    "mapping",
    [
        "{topic: J, properties: {uid: id}}",
        "{topic: J, deletes: ignore, properties: {uid: uid}, key: [uid], columns: [id]}",
        "{topic: J, deletes: ignore, properties: {uid: uid}, payload: {column: body}}",
        "{outbox: {topic: uid, payload: body}}",
    ],
)
def test_a_table_that_fits_its_mapping_has_no_findings(mapping: str) -> None:
    assert not table(A, mapping)


def test_an_outbox_needs_no_replica_identity() -> None:
    assert not table(replace(A, identity=None, key=()), "{outbox: {topic: uid, payload: body}}")


def test_a_database_that_could_not_be_read_is_left_alone() -> None:
    unread = live(DatabaseFacts("the variable URL is not set"), slot=None)
    (told,) = found(wanted(), unread)
    assert (told.severity, told.code) == (Severity.WARNING, "K435")
    assert "both are left alone" in told.detail
    assert not found(Desired((), None, {}), unread), "it is nobody's of these files"
    entry = Ledger("trade", HERE, owned={PUBLICATION.address: OwnershipKind.CREATED})
    ours = replace(unread, ledgers={HERE: {"trade": entry}})
    (gone,) = found(desired_inventory([expanded("topics: {J: {}}")], None), ours)
    assert (gone.severity, gone.where) == (Severity.WARNING, None)
    (destroyed,) = found(replace(Desired((), None, {}), destroyed=frozenset({"trade"})), ours)
    assert destroyed.severity is Severity.ERROR


def test_a_publication_that_no_apply_can_change_or_mark() -> None:
    update = Update(PUBLICATION, PUBLICATION, (), ChangeContext("trade"))
    adopt = Adopt(PUBLICATION, ChangeContext("trade"))

    def told(found: LiveObject, *changes: Adopt | Update) -> list[str]:
        there = live()
        objects = {**there.objects, PUBLICATION.address: found}
        ended = change_data_findings(wanted(), replace(there, objects=objects), changes)
        return [f"{one.severity.value}: {one.detail}" for one in ended]

    everything = LiveObject(replace(PUBLICATION, tables=frozenset({ALL_TABLES})), facts=PublicationFacts())
    (refused,) = told(everything, update, adopt)
    assert refused.startswith("error: source db: the publication kodo_trade_db is FOR ALL TABLES")
    of_others = LiveObject(PUBLICATION, facts=PublicationFacts(owned=False))
    (refused,) = told(of_others, update)
    assert refused.startswith("error: source db: role shop does not own the publication")
    (unmarked,) = told(of_others, adopt)
    assert unmarked.startswith("warning: source db: role shop does not own the publication")
    assert not told(replace(of_others, marker="trade"), adopt)
    assert not told(of_others)
