"""K407: what was edited since a revision, what drifted, and what is both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import Severity
from kodoctl.plan.changes import Change, Origin
from kodoctl.plan.diff import Allowances, diff
from kodoctl.plan.git_baseline import Baseline
from kodoctl.plan.plan import Plan, make_plan
from kodoctl.pulsar.values.live_objects import Live, LiveObject
from kodoctl.topology.model.policies import from_json
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import (
    GrantResource,
    NamespaceResource,
    SchemaResource,
    SubscriptionResource,
    TopicResource,
)
from tests.samples.inventories import HERE, NOW, applied, changed, topology, wanted

J = TopicName(HERE, "J")
EDIT, DRIFT, BOTH = Origin.EDIT, Origin.DRIFT, Origin.BOTH


def _plan(then: str, now: str, live: Live | None = None, head: tuple[str, str] = ("", "")) -> Plan:
    """The plan of `now` against a cluster where `then` was applied, or what it became since."""
    before, after = wanted(topology(then, head[0])), wanted(topology(now, head[1]))
    there = applied(before) if live is None else live
    against = Baseline("origin/main", "f" * 40, before)
    return make_plan(after, there, diff(after, there), evidence={}, allowances=Allowances(), now=NOW, against=against)


def _origins(plan: Plan) -> dict[str, tuple[Origin | None, tuple[str, ...]]]:
    return {
        f"{type(change).__name__.lower()} {change.address.replace('persistent://acme/ns/', '')}": _of(change)
        for change in plan.changes
    }


def _of(change: Change) -> tuple[Origin | None, tuple[str, ...]]:
    return change.about.origin, change.about.drifted


def _by_hand(then: str, **policies: Any) -> Live:
    """`then` was applied, and somebody set these policies on J."""
    there = applied(wanted(topology(then)))
    found = there.objects[f"topic.{J}"]
    assert isinstance(found.resource, TopicResource)
    values = {name: from_json(name, value) for name, value in policies.items()}
    kept = {name: value for name, value in {**found.resource.policies, **values}.items() if value is not None}
    return changed(there, replace(found, resource=replace(found.resource, policies=kept)))


def _ttl(value: str, more: str = "") -> str:
    return f"{{J: {{policies: {{ttl: {value}{more}}}}}}}"


@pytest.mark.parametrize(
    ("then", "now", "live", "origin", "drifted"),
    [
        (_ttl("1d"), _ttl("2d"), None, EDIT, ()),
        (_ttl("1d"), _ttl("1d"), {"ttl": "5d"}, DRIFT, ("policies.ttl",)),
        (_ttl("1d"), _ttl("2d"), {"ttl": "5d"}, BOTH, ("policies.ttl",)),
        (_ttl("1d"), _ttl("2d"), {"max_producers": 3}, BOTH, ("policies.max_producers",)),
        ("{J: {ignore: [ttl]}}", "{J: {}}", {"ttl": "5d"}, EDIT, ()),
        ("{J: {partitions: 1}}", "{J: {partitions: 3}}", None, EDIT, ()),
        ("{J: {}}", "{J: {policies: {schema_validation: true}}}", {"schema_validation": False}, EDIT, ()),
    ],
)
def test_a_field_is_edited_or_drifted_or_both(
    then: str, now: str, live: dict[str, Any] | None, origin: Origin, drifted: tuple[str, ...]
) -> None:
    plan = _plan(then, now, _by_hand(then, **live) if live else None)
    assert _origins(plan) == {"update topic.J": (origin, drifted)}
    told = [finding for finding in plan.findings if finding.code == "K407"]
    assert bool(told) is (origin is not EDIT)
    assert all("since origin/main: topic.persistent://acme/ns/J; somebody changed" in one.detail for one in told)
    assert all(one.severity is Severity.WARNING for one in told)


def test_what_comes_and_goes_with_the_edit_is_the_edits() -> None:
    plan = _plan("{J: {}, K: {}}", "{J: {}, L: {}}")
    assert _origins(plan) == {"create topic.L": (EDIT, ()), "delete topic.K": (EDIT, ())}


def test_what_is_gone_by_hand_comes_back_as_drift_and_if_edited_as_both() -> None:
    gone = changed(applied(wanted(topology("{J: {}}"))), without=[f"topic.{J}"])
    assert _origins(_plan("{J: {}}", "{J: {}}", gone)) == {"create topic.J": (DRIFT, ())}
    assert _origins(_plan("{J: {}}", "{J: {partitions: 2}}", gone)) == {"create topic.J": (BOTH, ())}


def test_what_neither_revision_declares_goes_as_drift() -> None:
    """The edit that took it out was never applied."""
    plan = _plan("{J: {}}", "{J: {}}", applied(wanted(topology("{J: {}, K: {}}"))))
    assert _origins(plan) == {"delete topic.K": (DRIFT, ())}


def test_an_object_that_was_nobodys_is_adopted_by_the_edit_that_declares_it() -> None:
    bare = applied(wanted(topology("{}")))
    there = changed(bare, LiveObject(TopicResource(J, 1, {}), None))
    assert _origins(_plan("{}", "{J: {}}", there))["adopt topic.J"] == (EDIT, ())
    assert _origins(_plan("{J: {}}", "{J: {}}", there))["adopt topic.J"] == (DRIFT, ())


def test_an_object_declared_anew_that_differs_is_edited_in_all_its_fields() -> None:
    bare = applied(wanted(topology("{}")))
    there = changed(bare, LiveObject(TopicResource(J, 1, {"ttl": from_json("ttl", "9d")}), None))
    assert _origins(_plan("{}", _ttl("1d"), there))["update topic.J"] == (EDIT, ())


def test_grants_are_compared_with_what_the_file_gave() -> None:
    give, more = "{J: {producers: [ann]}}", "{J: {producers: [ann], subscriptions: {s: {workers: [ann], states: []}}}}"
    [origin] = [o for key, o in _origins(_plan(give, more)).items() if key == "update grant.J/ann"]
    assert origin == (EDIT, ())
    taken = changed(applied(wanted(topology(give))), LiveObject(GrantResource(J, "ann", frozenset({"consume"}))))
    assert _origins(_plan(give, give, taken))["update grant.J/ann"] == (DRIFT, ("actions",))
    assert _origins(_plan(give, more, taken))["update grant.J/ann"] == (BOTH, ("actions",))


def test_policies_of_a_namespace_and_schemas_are_told_apart_too() -> None:
    heads = ("namespace_policies: {ttl: 1d}\n", "namespace_policies: {ttl: 2d}\n")
    assert _origins(_plan("{J: {}}", "{J: {}}", head=heads)) == {"update namespace.acme/ns": (EDIT, ())}
    there = changed(
        applied(wanted(topology("{J: {}}", heads[0]))),
        LiveObject(NamespaceResource(HERE, {"ttl": from_json("ttl", "3d")})),
    )
    assert _origins(_plan("{J: {}}", "{J: {}}", there, (heads[0], heads[0]))) == {
        "update namespace.acme/ns": (DRIFT, ("policies.ttl",))
    }


def test_a_policy_of_a_namespace_that_pulsar_always_shows_is_edited_where_no_file_named_it() -> None:
    heads = ("", "namespace_policies: {allow_auto_update_schema: false}\n")
    shown = {"allow_auto_update_schema": True}
    there = applied(wanted(topology("{J: {}}")))
    there = replace(changed(there, LiveObject(NamespaceResource(HERE, shown))), namespace_policies={HERE: shown})
    assert _origins(_plan("{J: {}}", "{J: {}}", there, heads))["update namespace.acme/ns"] == (EDIT, ())


def test_a_schema_that_was_not_edited_drifted() -> None:
    from kodoctl.plan.inventory import DesiredObject

    side = wanted(topology("{J: {}}"))
    schema = SchemaResource(J, "AVRO", "new")
    declared = replace(side, objects={**side.objects, schema.address: DesiredObject(schema, "trade")})
    there = changed(applied(side), LiveObject(SchemaResource(J, "AVRO", "other")))
    plan = make_plan(
        declared,
        there,
        diff(declared, there),
        evidence={},
        allowances=Allowances(),
        now=NOW,
        against=Baseline("r", "c", declared),
    )
    assert _origins(plan) == {"update schema.J": (DRIFT, ("definition",))}


def test_many_drifted_objects_are_counted() -> None:
    body = "{{{}}}".format(", ".join(f"t{n}: {{}}" for n in range(5)))
    gone = changed(applied(wanted(topology(body))), without=[f"topic.{TopicName(HERE, f't{n}')}" for n in range(5)])
    [told] = [finding for finding in _plan(body, body, gone).findings if finding.code == "K407"]
    assert "5 objects would change beyond what was edited since origin/main" in told.detail
    assert "ns/t2 and 2 more;" in told.detail


def test_without_a_revision_nothing_is_said() -> None:
    side = wanted(topology("{J: {}}"))
    there = applied(wanted(topology("{K: {}}")))
    plan = make_plan(side, there, diff(side, there), evidence={}, allowances=Allowances(), now=NOW)
    assert {change.about.origin for change in plan.changes} == {None}
    assert plan.against is None


def test_what_is_healed_is_no_edit() -> None:
    body = "{J: {partitions: 2, subscriptions: {s: {states: [], dead_letter: false}}}}"
    there = applied(wanted(topology(body)))
    found = there.objects[f"subscription.{J}/s"]
    assert isinstance(found.resource, SubscriptionResource)
    half = changed(there, replace(found, resource=replace(found.resource, missing_on=(1,))))
    assert _origins(_plan(body, body, half)) == {"update subscription.J/s": (DRIFT, ("missing_on",))}
