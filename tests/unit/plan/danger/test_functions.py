"""What the deletion of a function would lose, and functions that nobody could read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kodoctl.errors import Severity
from kodoctl.plan.changes import Delete
from kodoctl.plan.danger.data_loss import DangerRules
from kodoctl.plan.danger.evidence import evidence_wanted
from kodoctl.plan.danger.functions import deletion_stake, package_use
from kodoctl.plan.diff import diff, with_namespaces
from kodoctl.pulsar.values.evidence import Evidence
from kodoctl.pulsar.values.live_objects import NO_WORKER, NO_WORKER_HERE, FunctionFacts, LiveObject
from kodoctl.topology.resources import PackageResource
from tests.samples.inventories import HERE, NOW, applied, changed, empty, planned, topology, wanted
from tests.unit.plan.test_function_plans import ENRICH, FUNCTION, PLAIN, TOPICS, declared, there

STOPPED = FunctionFacts(1, 0)


@pytest.mark.parametrize(
    ("facts", "found", "texts"),
    [
        (STOPPED, Evidence(), []),
        (FunctionFacts(2, 2), Evidence(), ["2 instances running"]),
        (FunctionFacts(), Evidence(), ["whether instances run is not known"]),
        (STOPPED, Evidence(unread="it is gone"), ["its subscription acme/ns/enrich goes with it, unread messages unknown: it is gone"]),
        (STOPPED, Evidence(2, 7, bytes=2048, oldest=NOW - 60_000), ["its subscription acme/ns/enrich goes with it: 7 unread messages (2KiB, the oldest 1 min old)"]),
        (STOPPED, Evidence(2, 7, at_least=True), ["its subscription acme/ns/enrich goes with it: at least 7 unread messages (0B)"]),
        (STOPPED, Evidence(2, 0, marks=2), ["its subscription acme/ns/enrich goes with it: no unread message, 2 marks of producers (0B)"]),
        (STOPPED, Evidence(2), ["its subscription acme/ns/enrich goes with it: 2 unread entries (0B)"]),
        (replace(STOPPED, cleans_up=False), Evidence(2, 7, unread="x"), []),
    ],
)  # fmt: skip
def test_the_stake_of_a_deletion(facts: FunctionFacts, found: Evidence, texts: list[str]) -> None:
    assert deletion_stake(ENRICH, facts, found, NOW) == texts


def test_a_deletion_with_a_stake_needs_its_address() -> None:
    live = there(declared())
    changes = planned(wanted(PLAIN), live).changes
    assert list(evidence_wanted(changes, live)) == [ENRICH.address]
    (change,) = changes
    assert [(one.code, one.severity) for one in change.about.dangers] == [("K401", Severity.ERROR)]
    assert change.about.evidence["running"] == 1
    (change,) = planned(wanted(PLAIN), live, destroy=[ENRICH.address]).changes
    assert change.about.dangers[0].severity is Severity.WARNING
    idle = changed(live, LiveObject(ENRICH, "trade", STOPPED))
    (change,) = planned(wanted(PLAIN), idle).changes
    assert not change.about.dangers
    judged = DangerRules(frozenset(), idle, {ENRICH.address: Evidence(1)}, frozenset(), NOW).judge([change])
    assert "1 unread entry" in judged[0].about.dangers[0].detail
    assert judged[0].about.evidence["entries"] == 1
    unread = {ENRICH.address: Evidence(unread="an input is gone")}
    (change,) = DangerRules(frozenset(), idle, unread, frozenset(), NOW).judge([change])
    assert "entries" not in change.about.evidence, "an unknown backlog is no empty one"


@pytest.mark.parametrize(
    ("why", "says"),
    [(NO_WORKER_HERE, "functionsWorkerEnabled=true"), (NO_WORKER, "has no function worker"), ("403", "403")],
)
def test_functions_that_nobody_read_are_left_alone(why: str, says: str) -> None:
    fresh = replace(empty(), unread_functions={f"function.{HERE}": why})
    plan = planned(declared(), fresh)
    (finding,) = (one for one in plan.findings if one.code == "K451")
    assert finding.severity is Severity.WARNING
    assert says in finding.detail
    assert ENRICH.address not in {change.address for change in plan.changes}
    gone = changed(replace(there(declared()), unread_functions={f"function.{HERE}": why}), without=[ENRICH.address])
    plan = planned(wanted(PLAIN), gone)
    assert "K451" in {one.code for one in plan.findings}
    assert plan.empty, "it may be there"


@pytest.mark.parametrize(
    ("facts", "severity"),
    [(STOPPED, Severity.NOTE), (replace(STOPPED, error="no class"), Severity.WARNING), (FunctionFacts(1, 1), None), (FunctionFacts(), None)],
)  # fmt: skip
def test_a_function_that_does_not_run_is_reported(facts: FunctionFacts, severity: Severity | None) -> None:
    plan = planned(declared(), changed(there(declared()), LiveObject(ENRICH, "trade", facts)))
    assert plan.empty
    assert [(one.code, one.severity) for one in plan.findings] == ([("K452", severity)] if severity else [])
    assert all(facts.error in one.detail for one in plan.findings)


def test_one_that_nobody_could_read_is_left_alone_and_the_others_are_not() -> None:
    side = replace(there(declared()), unread_functions={ENRICH.address: "no answer"})
    more = "sinks: {keep: {package: 'builtin://keep', inputs: [orders]}}\n"
    file = wanted(topology(TOPICS, f"functions: {{enrich: {{{FUNCTION}, parallelism: 2}}}}\n{more}"))
    plan = planned(file, changed(side, without=[ENRICH.address]))
    assert [change.address for change in plan.changes] == ["sink.acme/ns/keep"]
    (finding,) = (one for one in plan.findings if one.code == "K451")
    assert finding.detail == f"{ENRICH.address}: no answer; how it is, is unknown, and it is left alone"


def test_a_missing_package_is_an_error_for_the_files_that_name_it() -> None:
    live = replace(empty(), missing_packages={ENRICH.address: "the cluster has no x", "sink.acme/ns/other": "none"})
    (finding,) = (one for one in planned(declared(), live).findings if one.code == "K453")
    assert (finding.severity, finding.detail) == (Severity.ERROR, f"{ENRICH.address}: the cluster has no x")


def test_functions_of_nobody_matter_to_nobody() -> None:
    live = replace(applied(wanted(PLAIN)), unread_functions={f"function.{HERE}": NO_WORKER})
    assert not planned(wanted(PLAIN), live).findings


def test_a_destroy_needs_to_see_them() -> None:
    live = replace(there(declared()), unread_functions={f"function.{HERE}": NO_WORKER})
    nothing = replace(wanted(topology("{}", name="other")), expansions=(), objects={}, destroyed=frozenset({"trade"}))
    (finding,) = (one for one in planned(nothing, live).findings if one.code == "K451")
    assert finding.severity is Severity.ERROR
    assert "go on running" in finding.detail


@pytest.mark.parametrize("why", [NO_WORKER_HERE, "403"])
def test_a_destroy_keeps_a_namespace_that_functions_of_others_may_be_in(why: str) -> None:
    side = replace(applied(wanted(PLAIN)), unread_functions={f"sink.{HERE}": why})
    nothing = replace(wanted(PLAIN), expansions=(), objects={}, destroyed=frozenset({"trade"}))
    kept = with_namespaces(diff(nothing, side), nothing.names, side)
    assert f"namespace.{HERE}" not in {one.address for one in kept.changes if isinstance(one, Delete)}
    (finding,) = kept.conflicts
    assert (finding.code, finding.severity) == ("K451", Severity.WARNING)
    assert f"namespace.{HERE} stays" in finding.detail
    assert f"--allow-destroy namespace.{HERE}" in finding.detail
    assert ("function_worker" in finding.detail) == (why == NO_WORKER_HERE)
    said = replace(side, unread_functions={f"sink.{HERE}": NO_WORKER})
    allowed = frozenset({f"namespace.{HERE}"})
    for known, leave in ((replace(side, unread_functions={}), frozenset[str]()), (said, frozenset()), (side, allowed)):
        found = with_namespaces(diff(nothing, known), nothing.names, known, leave)
        assert f"namespace.{HERE}" in {one.address for one in found.changes if isinstance(one, Delete)}
        assert not found.conflicts


def test_a_package_goes_only_where_no_function_is_known_to_use_it() -> None:
    package = PackageResource("function", HERE, "enrich", "1")
    side = changed(there(declared()), LiveObject(replace(ENRICH, package=package.url), "trade", STOPPED))
    assert package_use(package, side, ())[0] == [ENRICH.address]
    used, stake = package_use(package, side, {ENRICH.address})
    assert (used, "other namespaces may use it" in stake) == ([], True)
    hidden = changed(side, LiveObject(replace(ENRICH, package=""), None, STOPPED))
    assert f"and so may {ENRICH.address}" in package_use(package, hidden, ())[1]
    unread = replace(hidden, unread_functions={f"sink.{HERE}": "no answer"})
    assert "is not known: no answer" in package_use(package, unread, ())[1]


def test_a_topology_of_another_name_needs_to_see_them() -> None:
    live = replace(there(declared()), unread_functions={f"function.{HERE}": NO_WORKER})
    (finding,) = (
        one
        for one in planned(wanted(topology("{}", "formerly: trade\n", name="shop")), live).findings
        if one.code == "K451"
    )
    assert finding.severity is Severity.ERROR
    assert "their markers name trade" in finding.detail
