"""Laws of the comparison, for any topology."""

from __future__ import annotations

from hypothesis import given

from kodoctl.plan.changes import Create
from tests.samples.inventories import applied, difference, empty, planned, topology, topology_texts, wanted


@given(topology_texts())
def test_what_is_live_as_declared_has_no_difference(text: str) -> None:
    side = wanted(text)
    found = difference(side, applied(side))
    assert not found.changes
    assert not found.conflicts
    assert not found.unmanaged
    assert found.unchanged == len(side.objects)


@given(topology_texts())
def test_an_empty_cluster_gets_every_declared_object_once(text: str) -> None:
    side = wanted(text)
    found = difference(side, empty())
    assert {change.address for change in found.changes} == set(side.objects)
    assert all(isinstance(change, Create) for change in found.changes)


@given(topology_texts(), topology_texts("other"))
def test_two_files_in_one_namespace_do_not_see_each_others_objects(one: str, other: str) -> None:
    mine, theirs = wanted(one), wanted(other)
    if mine.objects.keys() & theirs.objects.keys() - {"namespace.acme/ns"}:
        return
    both = applied(theirs)
    plan = planned(mine, both)
    assert not [c for c in plan.changes if c.address in theirs.objects and c.address != "namespace.acme/ns"]
    assert not plan.unmanaged


def test_a_declared_tenant_that_is_there_counts_as_unchanged() -> None:
    side = wanted(topology(head="create_tenant: {clusters: [standalone]}\n"))
    assert "tenant.acme" in side.objects
    assert difference(side, applied(side)).unchanged == len(side.objects)
