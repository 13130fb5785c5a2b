"""Publications and slots of sources in a plan: compared, deleted together, unknown where nobody could look."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import Severity
from kodoctl.plan import plan_file, serialization
from kodoctl.plan.changes import Create, Delete, Forget, Origin, Update
from kodoctl.plan.diff import Allowances, diff
from kodoctl.plan.drift import split
from kodoctl.plan.forget import forget_plan
from kodoctl.plan.git_baseline import Baseline
from kodoctl.plan.history import Applied
from kodoctl.plan.inventory import Desired
from kodoctl.plan.plan import make_plan
from kodoctl.plan.schedule import schedule
from kodoctl.plan.staleness import looked_at, of_others, staleness, unknown_objects
from kodoctl.plan.undo import backwards
from kodoctl.pulsar.values.ledger import OwnershipKind
from kodoctl.pulsar.values.live_objects import (
    DatabaseFacts,
    Live,
    LiveObject,
    PublicationFacts,
    SlotFacts,
    TableFacts,
)
from kodoctl.render.plan_text import plan_lines
from kodoctl.topology.names import InvalidNameError
from kodoctl.topology.resources import PublicationResource, SlotResource, database_of, namespace_of_address
from tests.samples.inventories import (
    HERE,
    NOW,
    applied,
    changed,
    difference,
    empty,
    planned,
    planned_part,
    said,
    topology,
    wanted,
)
from tests.samples.inventories import with_ledger as with_entry

TABLES = {name: TableFacts("r", frozenset({"id"}), ("id",), frozenset({"id"})) for name in ("s.a", "s.b")}
READ = {"URL": DatabaseFacts(tables=TABLES)}
SLOT = SlotResource(HERE, "URL", "kodo_trade_db")
PLAIN = topology("{J: {}}")


def source(*tables: str) -> str:
    listed = ", ".join(f"{table}: {{topic: J}}" for table in tables)
    return topology("{J: {}}", f"sources: {{db: {{database: URL, tables: {{{listed}}}}}}}\n")


def there(side: Desired, slot: SlotFacts | None = None) -> Live:
    """The live side after an apply, in which the first run made the slot if it has facts."""
    found = replace(applied(side), databases=READ)
    return changed(found, LiveObject(SLOT, facts=slot)) if slot else changed(found, without=[SLOT.address])


ONE = wanted(source("s.a"))
OPERATIONS = frozenset({"insert", "update", "delete", "truncate"})
PUBLICATION = PublicationResource(HERE, "URL", "kodo_trade_db", frozenset({"s.a"}), OPERATIONS)


def test_a_slot_is_never_made_by_a_plan() -> None:
    fresh = replace(empty(), databases=READ)
    plan = planned(ONE, fresh)
    assert ("create", "publication.acme/ns/URL/kodo_trade_db") in said(plan.changes)
    assert SLOT.address not in {change.address for change in plan.changes}
    for slot in (None, SlotFacts()):
        assert planned(ONE, there(ONE, slot)).empty


def test_a_table_that_joins_is_an_update() -> None:
    (change,) = planned(wanted(source("s.a", "s.b")), there(ONE)).changes
    assert isinstance(change, Update)
    assert serialization.change_from_json(dict(serialization.change_to_json(change))) == change
    (field,) = change.fields
    assert (field.name, field.before, field.after) == ("tables", {"s.a"}, {"s.a", "s.b"})


def test_slot_and_publication_go_together_the_slot_first() -> None:
    live = there(ONE, SlotFacts(confirmed="0/1", unconfirmed_bytes=2048))
    plan = planned(wanted(PLAIN), live)
    deleted = {change.address: change for change in plan.changes if isinstance(change, Delete)}
    assert deleted.keys() == {SLOT.address, PUBLICATION.address}
    (danger,) = deleted[SLOT.address].about.dangers
    assert (danger.code, danger.severity) == ("K401", Severity.ERROR)
    assert "changes since 0/1 (2KiB of WAL) are not sent any more" in danger.detail
    assert deleted[SLOT.address].about.evidence["unconfirmed_bytes"] == 2048
    levels = [[step.change.address for step in level] for level in schedule(plan.changes).deleting]
    assert levels == [[SLOT.address], [PUBLICATION.address]]
    (allowed,) = planned(wanted(PLAIN), live, destroy=[SLOT.address]).changes[0].about.dangers
    assert allowed.severity is Severity.WARNING


def test_a_slot_with_a_reader_is_deleted_by_no_flag() -> None:
    plan = planned(wanted(PLAIN), there(ONE, SlotFacts(active_pid=7)), destroy=[SLOT.address])
    (danger,) = next(change for change in plan.changes if change.address == SLOT.address).about.dangers
    assert (danger.severity, danger.remedy) == (Severity.ERROR, None)
    assert "process 7 of the server sends to its reader" in danger.detail


def test_a_slot_that_is_excluded_holds_its_publication_back_and_a_publication_takes_its_slot_along() -> None:
    live = there(ONE, SlotFacts())
    plan = planned_part(wanted(PLAIN), live, exclude=["slot.*"])
    assert not {PUBLICATION.address, SLOT.address} & {change.address for change in plan.changes}
    assert plan.portion is not None
    assert plan.portion.held_back == ((PUBLICATION.address, SLOT.address),)
    along = planned_part(wanted(PLAIN), live, PUBLICATION.address)
    assert {change.address for change in along.changes} == {PUBLICATION.address, SLOT.address}


def test_a_slot_alone_is_deleted_without_an_order() -> None:
    lost = changed(there(ONE, SlotFacts()), without=[PUBLICATION.address])
    plan = planned(wanted(PLAIN), lost)
    assert {("forget", PUBLICATION.address), ("delete", SLOT.address)} <= said(plan.changes)
    assert [len(level) for level in schedule(plan.changes).deleting] == [1]


@pytest.mark.parametrize("slot", [None, SlotFacts()])
def test_what_is_given_up_by_name_keeps_its_slot(slot: SlotFacts | None) -> None:
    given_up = difference(wanted(PLAIN), there(ONE, slot), forget=[PUBLICATION.address]).changes
    assert ("forget", PUBLICATION.address) in said(given_up)
    assert not [change for change in given_up if change.address == SLOT.address]


def test_a_publication_of_an_administrator_stays_and_its_slot_goes() -> None:
    live = there(ONE, SlotFacts())
    entry = live.ledgers[HERE]["trade"]
    adopted = with_entry(live, HERE, replace(entry, owned={**entry.owned, PUBLICATION.address: OwnershipKind.ADOPTED}))
    assert {("forget", PUBLICATION.address), ("delete", SLOT.address)} <= said(planned(wanted(PLAIN), adopted).changes)


@pytest.mark.parametrize("databases", [{}, {"URL": DatabaseFacts("no answer")}])
def test_a_database_that_nobody_read_has_no_changes(databases: dict[str, DatabaseFacts]) -> None:
    unread = replace(changed(there(ONE), without=[PUBLICATION.address]), databases=databases)
    for side in (ONE, wanted(PLAIN)):
        assert PUBLICATION.address not in {change.address for change in planned(side, unread).changes}


def test_an_apply_needs_the_databases_of_its_plan() -> None:
    plan = planned(ONE, replace(empty(), databases=READ))
    (finding,) = unknown_objects(plan, replace(empty(), databases={"URL": DatabaseFacts("no answer")}))
    assert (finding.code, finding.severity) == ("K435", Severity.ERROR)
    assert f"{PUBLICATION.address}: no answer" in finding.detail
    (unread,) = unknown_objects(plan, empty())
    assert "it was not read" in unread.detail
    assert not list(unknown_objects(plan, replace(empty(), databases=READ)))
    lost = planned(wanted(PLAIN), changed(there(ONE), without=[PUBLICATION.address]))
    assert any(isinstance(change, Forget) for change in lost.changes)
    assert PUBLICATION.address not in looked_at(lost.changes)
    assert not list(unknown_objects(lost, empty()))


def test_a_publication_that_changed_since_the_plan_is_stale_and_that_of_another_is_not_touched() -> None:
    live = there(ONE)
    plan = planned(wanted(source("s.a", "s.b")), live)
    (stale,) = staleness(plan, changed(live, LiveObject(replace(PUBLICATION, operations=frozenset({"insert"})))))
    assert "tables s.a, operations insert, via_root true" in " ".join(
        stale.detail.replace("[", "").replace("]", "").split()
    )
    entry = live.ledgers[HERE]["trade"]
    taken = replace(live, ledgers={HERE: {"other": replace(entry, name="other")}})
    (others,) = of_others(plan, taken)
    assert "belongs to other" in others.detail


def _undone(changes: tuple[Any, ...], live: Live) -> tuple[set[tuple[str, str]], list[str]]:
    one = Applied("aa11", "apply", "anna", 1, None, "d", {}, ended=2, complete=True, total=9, done=changes)
    found, findings = backwards(one, live)
    return said(found), [finding.detail for finding in findings]


def test_an_undo_makes_the_publication_again_and_no_slot() -> None:
    live = there(ONE, SlotFacts())
    deletes = tuple(change for change in planned(wanted(PLAIN), live).changes if isinstance(change, Delete))
    gone = changed(live, without=[SLOT.address, PUBLICATION.address])
    changes, told = _undone(deletes, gone)
    assert changes == {("create", PUBLICATION.address)}
    assert told == [f"{SLOT.address}: the next run of the source makes it anew; what was not sent is gone"]
    changes, told = _undone(deletes, replace(gone, databases={}))
    assert not changes
    assert all("its database could not be read" in one for one in told)


@pytest.mark.parametrize("databases", [READ, {}])
def test_an_undo_takes_no_source_away(databases: dict[str, DatabaseFacts]) -> None:
    """Its slot stayed without a reader, or the topics went and the slot did not."""
    fresh = replace(empty(), databases=READ)
    made = tuple(change for change in planned(ONE, fresh).changes if isinstance(change, Create))
    changes, told = _undone(made, replace(there(ONE, SlotFacts()), databases=databases))
    assert PUBLICATION.address not in {address for _, address in changes}
    assert any(one.startswith(f"{PUBLICATION.address}: a source is not undone") for one in told)


def test_another_name_of_the_variable_drops_nothing() -> None:
    """It may name the same database: the old publication was dropped after the same one was adopted."""
    renamed = wanted(source("s.a").replace("database: URL", "database: OTHER"))
    live = replace(there(ONE, SlotFacts()), databases={**READ, "OTHER": DatabaseFacts(tables=TABLES)})
    plan = planned(renamed, live)
    assert ("forget", PUBLICATION.address) in {
        (type(change).__name__.lower(), change.address) for change in plan.changes
    }
    assert not [change for change in plan.changes if isinstance(change, Delete)]


def test_a_table_is_an_edit_of_the_file_and_operations_are_drift() -> None:
    now = wanted(source("s.a", "s.b"))
    live = changed(there(ONE), LiveObject(replace(PUBLICATION, operations=frozenset({"insert"}))))
    against = Baseline("origin/main", "f" * 40, ONE)
    plan = make_plan(now, live, diff(now, live), evidence={}, allowances=Allowances(), now=NOW, against=against)
    (change,) = (one for one in plan.changes if one.address == PUBLICATION.address)
    assert (change.about.origin, change.about.drifted) == (Origin.BOTH, ("operations",))


def test_addresses_have_a_namespace_and_a_variable() -> None:
    assert namespace_of_address(SLOT.address) == HERE
    assert database_of(PUBLICATION.address) == ("URL", "kodo_trade_db")
    assert database_of("topic.persistent://acme/ns/J") is None
    assert database_of("slot.acme/ns/URL") is None
    for address in ("slot.acme", "tenant.acme"):
        with pytest.raises(InvalidNameError):
            namespace_of_address(address)


def test_planning_and_applying_load_no_driver_of_databases() -> None:
    program = (
        "import sys, kodoctl.apply.run, kodoctl.plan.live.planner; print({'psycopg', 'sqlalchemy'} & {*sys.modules})"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"


def test_a_drift_does_not_pass_over_a_database_that_was_not_read() -> None:
    unread = replace(there(ONE), databases={"URL": DatabaseFacts("no answer")})
    plan = planned(ONE, unread)
    assert not plan.refused
    found = split(plan, unread, count_unmanaged=False)
    assert (found.drifted, found.refused) == (False, True)
    assert not split(planned(ONE, there(ONE)), there(ONE), count_unmanaged=False).refused
    last = [line.text for line in plan_lines(plan_file.to_json(plan), "there")][-1]
    assert last.startswith("No changes where it could be read. ")


def test_a_publication_of_another_cluster_is_refused_with_every_flag() -> None:
    taken = LiveObject(PUBLICATION, "shop in a/b on cluster c", PublicationFacts(foreign=True))
    live = changed(there(ONE, SlotFacts()), taken)
    for entries in (live.ledgers, {}):
        plan = planned(ONE, replace(live, ledgers=entries), take_over=True)
        assert "K438" in {one.code for one in plan.findings}
        assert PUBLICATION.address not in {change.address for change in plan.changes}
    gone = planned(wanted(PLAIN), live, destroy=[SLOT.address])
    (given_up,) = (change for change in gone.changes if change.address == PUBLICATION.address)
    assert isinstance(given_up, Forget)
    assert given_up.before is None
    assert SLOT.address not in {change.address for change in gone.changes}, "the slot is that topology's, too"
    assert not list(staleness(gone, changed(live, without=[PUBLICATION.address])))


def test_the_ledger_keeps_the_database() -> None:
    facts = DatabaseFacts(identity="7/1", tables=TABLES)
    live = replace(there(ONE), databases={"URL": facts})
    (owner,) = planned(ONE, live).owners
    assert owner.databases == {"URL": "7/1"}
    entry = replace(live.ledgers[HERE]["trade"], databases=owner.databases)
    live = replace(live, ledgers={HERE: {"trade": entry}})
    (unread,) = planned(ONE, replace(live, databases={})).owners
    assert unread.databases == {"URL": "7/1"}
    (without,) = planned(wanted(PLAIN), replace(live, databases={"URL": facts})).owners
    assert without.databases == {"URL": "7/1"}, "until the publication is deleted"
    plan = planned(wanted(source("s.a", "s.b")), live)
    for other in (replace(facts, identity="7/2"), DatabaseFacts("it is another one", is_other=True)):
        (refused,) = unknown_objects(plan, replace(live, databases={"URL": other}))
        assert refused.code == "K440"
    (finding,) = (one for one in planned(ONE, replace(live, databases={"URL": other})).findings if one.code == "K440")
    assert finding.severity is Severity.ERROR
    away = replace(live, databases={}, objects={})
    forgetting = [forget_plan(known, [PUBLICATION.address], frozenset()) for known in (live, away)]
    assert [[one.databases for one in plan.owners] for plan in forgetting] == [[{}], [{}]]
    (change,) = forgetting[1].changes
    assert change.about.reason.endswith("it stays as it is, and so does a marker of trade on it")
