"""Ownership ledgers: only what surely is ours is recorded as created, and whatever an apply leaves stays recorded."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kodoctl.apply.ledger_writer import LedgerWriter
from kodoctl.plan.forget import forget_plan
from kodoctl.plan.inventory import Desired
from kodoctl.plan.plan import Plan
from kodoctl.protocol.properties import LEDGER_PREFIX
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind, decode, encode
from kodoctl.pulsar.values.live_objects import Live
from kodoctl.topology.names import NamespaceName
from tests.samples.inventories import HERE, applied, changed, planned, planned_part, topology, wanted, with_ledger
from tests.services.servers import Answer, Request, answer_json, serving
from tests.unit.plan.test_platform_plans import SHOP, declared, held, there

LEDGER = f"{LEDGER_PREFIX}trade"
FILE = topology("{J: {producers: [ann]}}", "namespace_policies: {ttl: 1d}\n")
K = "topic.persistent://acme/ns/K"


@contextlib.contextmanager
def _writing(plan: Plan, live: Live) -> Iterator[tuple[LedgerWriter, dict[str, Any]]]:
    """A writer of the ledgers of an apply, and the properties of the namespace as it leaves them."""
    found: dict[str, dict[str, Any]] = {str(HERE): {f"{LEDGER_PREFIX}{one.name}": encode(one) for one in live.entries}}

    def answer(request: Request) -> Answer:
        namespace = request.path.partition("/namespaces/")[2].removesuffix("/properties")
        properties = found.setdefault(namespace, {})
        if request.is_write:
            properties.update(json.loads(request.body))
            for name in [name for name, text in properties.items() if text is None]:
                del properties[name]
        return answer_json({"properties": properties})

    with serving(answer) as server:
        yield LedgerWriter(HttpAdmin(Connection(server.url)), plan, live), found[str(HERE)]


def _closed(plan: Plan, live: Live) -> tuple[Ledger | None, frozenset[tuple[NamespaceName, str]]]:
    """The ledger of `trade` after a complete apply, and the ledgers that are not there any more."""
    with _writing(plan, live) as (writer, properties):
        writer.confirm(plan.changes)
        writer.close(complete=True)
        return decode("trade", HERE, properties[LEDGER]) if LEDGER in properties else None, writer.removed


def _with_intent(side: Live) -> Live:
    return with_ledger(side, HERE, side.ledgers[HERE]["trade"].with_holdings({K: OwnershipKind.INTENT}))


def test_an_object_without_a_marker_of_which_only_an_intent_is_known_is_adopted() -> None:
    live = held(there(), OwnershipKind.INTENT)
    plan = planned(declared(), live)
    with _writing(plan, live) as (writer, properties):
        writer.confirm(plan.changes)
    assert decode("trade", HERE, properties[LEDGER]).owned[SHOP.address] is OwnershipKind.ADOPTED


def test_a_destroyed_topology_leaves_no_ledger() -> None:
    gone, live = Desired((), None, {}, destroyed=frozenset({"trade"})), applied(wanted(FILE))
    assert _closed(planned(gone, live), live) == (None, {(HERE, "trade")})


def test_what_a_destroy_excludes_stays_in_the_ledger() -> None:
    gone, live = Desired((), None, {}, destroyed=frozenset({"trade"})), applied(wanted(FILE))
    grant = "grant.persistent://acme/ns/J/ann"
    entry, removed = _closed(planned_part(gone, live, exclude=[grant]), live)
    assert entry is not None
    assert (entry.grants, entry.namespace_keys) == ({grant: frozenset({"produce"})}, {"ttl"})
    assert not removed
    alone = with_ledger(live, HERE, replace(live.ledgers[HERE]["trade"], owned={K: OwnershipKind.CREATED}))
    entry, removed = _closed(planned_part(gone, alone, exclude=[grant]), alone)
    assert entry is not None
    assert (entry.addresses, removed) == ({grant}, frozenset())


def test_a_topology_that_left_keeps_the_ledger_that_still_lists_something() -> None:
    function = "function.acme/ns/enrich"
    live = replace(applied(wanted(FILE)), unread_functions={f"function.{HERE}": "no answer"})
    for how in (OwnershipKind.CREATED, OwnershipKind.INTENT):
        before = with_ledger(live, HERE, live.ledgers[HERE]["trade"].with_holdings({function: how}))
        plan = planned(wanted(FILE.replace("namespace: ns", "namespace: new")), before)
        entry, removed = _closed(plan, before)
        assert entry is not None
        assert entry.owned == {function: how, "namespace.acme/ns": OwnershipKind.CREATED}
        assert (HERE, "trade") not in removed


def test_giving_one_object_up_keeps_the_intents_of_others() -> None:
    live = _with_intent(applied(wanted(FILE)))
    entry, _ = _closed(forget_plan(live, ["topic.persistent://acme/ns/J"], frozenset()), live)
    assert entry is not None
    assert entry.owned[K] is OwnershipKind.INTENT
    entry, _ = _closed(planned(wanted(FILE), live), live)
    assert entry is not None
    assert K not in entry.owned


def test_an_object_is_taken_over_also_from_a_topology_without_a_ledger() -> None:
    live = applied(wanted(FILE))
    marked = replace(live.objects["topic.persistent://acme/ns/J"], marker="gone")
    live = changed(live, marked)
    entry, removed = _closed(planned(wanted(FILE), live, take_over=True), live)
    assert entry is not None
    assert (entry.owned[marked.resource.address], removed) == (OwnershipKind.CREATED, frozenset())
