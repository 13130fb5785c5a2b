"""The rest of an apply that was cut off: what is done is left out, what somebody else did refuses all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kodoctl.errors import Severity
from kodoctl.plan.changes import Adopt, Change, ChangeContext, Create, Delete, FieldChange, Forget, Update
from kodoctl.plan.plan import Plan, fingerprint
from kodoctl.plan.resume import rest_of
from kodoctl.pulsar.values.ledger import OwnershipKind
from kodoctl.pulsar.values.live_objects import Live, LiveObject
from kodoctl.topology.model.policies import from_json
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import (
    Address,
    FunctionResource,
    GrantResource,
    NamespaceResource,
    SchemaResource,
    SubscriptionResource,
    TopicResource,
)
from tests.samples.inventories import HERE, applied, changed, empty, live, planned, said, topology, wanted, with_ledger

J = TopicName(HERE, "J")
TOPIC = TopicResource(J, 2, {"ttl": from_json("ttl", "1d")})
BODY = (
    "{J: {partitions: 2, policies: {ttl: 1d}, producers: [ann], subscriptions: {s: {states: [], dead_letter: false}}}}"
)
ABOUT = ChangeContext("trade")


def _ttl(text: str) -> Any:
    return from_json("ttl", text)


def _rest(plan: Plan, there: Live) -> set[tuple[str, str]]:
    rest = rest_of(plan, there)
    assert not rest.refused, rest.findings
    return said(rest.changes)


def _one(change: Change, before: Live) -> Plan:
    """A plan of one change, made against `before`."""
    plan = planned(wanted(topology("{J: {}}")), empty())
    prints = {change.address: fingerprint(change.address, before)}
    return replace(plan, changes=(change,), fingerprints=prints, findings=())


def _with(there: Live, owned: Mapping[Address, OwnershipKind]) -> Live:
    """The live side with a ledger of trade that holds only these."""
    ledger = applied(wanted(topology("{J: {}}"))).ledgers[HERE]["trade"]
    return with_ledger(there, HERE, replace(ledger, owned=owned))


def _foreign(plan: Plan, there: Live, why: str) -> None:
    rest = rest_of(plan, there)
    assert [(finding.code, finding.severity) for finding in rest.findings] == [("K533", Severity.ERROR)]
    assert why in rest.findings[0].detail


def test_nothing_done_is_all_to_do_and_all_done_is_nothing() -> None:
    side = wanted(topology(BODY))
    plan = planned(side, empty())
    assert _rest(plan, empty()) == said(plan.changes)
    done = applied(side)
    rest = rest_of(plan, done)
    assert said(rest.changes) <= {("adopt", "grant.J/ann")}
    assert rest.identity == done.identity
    assert rest.ledger_fingerprints != plan.ledger_fingerprints


def test_what_the_plan_saw_and_would_create_all_the_same_is_refused_where_it_is_gone() -> None:
    """A journal's plan that somebody wrote: its fingerprints say of an object to be created that it was there."""
    plan = planned(wanted(topology(BODY)), empty())
    odd = replace(plan, fingerprints=dict.fromkeys(plan.fingerprints, "there"))
    assert rest_of(odd, empty()).refused
    assert all("is gone" in finding.detail for finding in rest_of(odd, empty()).findings if finding.code == "K533")


def test_half_made_objects_are_finished_and_written_down() -> None:
    plan = planned(wanted(topology(BODY)), empty())
    there = changed(
        _with(empty(), {TOPIC.address: OwnershipKind.INTENT}),
        LiveObject(replace(TOPIC, policies={}, missing=(1,)), "trade"),
        LiveObject(SubscriptionResource(J, "s", missing_on=(1,)), "trade"),
        LiveObject(GrantResource(J, "ann", frozenset())),
    )
    rest = rest_of(plan, there)
    assert said(rest.changes) >= {("adopt", "topic.J"), ("update", "topic.J"), ("adopt", "subscription.J/s"), ("update", "subscription.J/s"), ("update", "grant.J/ann")}  # fmt: skip
    [topic] = [change for change in rest.changes if isinstance(change, Update) and change.address == TOPIC.address]
    assert [field.name for field in topic.fields] == ["missing_partitions", "policies.ttl"]
    assert set(rest.fingerprints) == {change.address for change in rest.changes}


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (LiveObject(TOPIC, "other"), "made by somebody else"),
        (LiveObject(replace(TOPIC, partitions=4), "trade"), "it has 4 partitions, 2 planned"),
        (LiveObject(replace(TOPIC, policies={"ttl": _ttl("9d")}), "trade"), "ttl is 9d, 1d was planned"),
    ],
)
def test_what_somebody_else_made_in_its_place_refuses(now: LiveObject, why: str) -> None:
    _foreign(_one(Create(TOPIC, ABOUT), empty()), changed(empty(), now), why)


def test_a_value_that_the_broker_shows_for_an_unset_one_is_written() -> None:
    start = applied(wanted(topology("{J: {partitions: 2, policies: {schema_validation: true}}}")))
    plan = planned(wanted(topology("{J: {partitions: 2}}")), start)
    assert _rest(plan, start) == {("update", "topic.J")}
    unset = replace(TOPIC, policies={"schema_validation": False})
    assert not _rest(plan, changed(start, LiveObject(unset, "trade")))


def test_fields_that_are_written_are_left_out() -> None:
    before = replace(TOPIC, policies={"ttl": _ttl("1d"), "max_producers": 3})
    start = applied(wanted(topology("{J: {partitions: 2, policies: {ttl: 1d, max_producers: 3}}}")))
    plan = planned(wanted(topology("{J: {partitions: 3, policies: {ttl: 2d, max_producers: 4}}}")), start)
    half = replace(before, partitions=3, policies={"ttl": _ttl("2d"), "max_producers": 3})
    [update] = rest_of(plan, changed(start, LiveObject(half, "trade"))).changes
    assert isinstance(update, Update)
    assert [field.name for field in update.fields] == ["policies.max_producers"]
    whole = replace(half, policies={"ttl": _ttl("2d"), "max_producers": 4})
    assert not rest_of(plan, changed(start, LiveObject(whole, "trade"))).changes
    _foreign(
        plan,
        changed(start, LiveObject(replace(half, policies={"ttl": _ttl("7d")}), "trade")),
        "neither what it was nor what was planned",
    )
    _foreign(plan, changed(start, without=[TOPIC.address]), "it is gone")


def _update(before: Any, after: Any, name: str, old: Any, new: Any) -> Update:
    from kodoctl.plan.changes import FieldChange, PolicyChange

    kind: Any = PolicyChange if isinstance(after, NamespaceResource) else FieldChange
    return Update(before, after, (kind(name, old, new),), ABOUT)


@pytest.mark.parametrize(
    ("before", "after", "name", "old", "new"),
    [
        (replace(TOPIC, missing=(1,)), TOPIC, "missing_partitions", (1,), ()),
        (SubscriptionResource(J, "s", missing_on=(1,)), SubscriptionResource(J, "s"), "missing_on", (1,), ()),
        (GrantResource(J, "ann", frozenset({"consume"})), GrantResource(J, "ann", frozenset({"produce"})), "actions", frozenset({"consume"}), frozenset({"produce"})),
        (NamespaceResource(HERE, {}), NamespaceResource(HERE, {"ttl": _ttl("1d")}), "ttl", None, _ttl("1d")),
        (NamespaceResource(HERE, {"replication": ("a",)}), NamespaceResource(HERE, {"replication": ("b", "a")}), "replication", ("a",), ("a", "b")),
    ],
)  # fmt: skip
def test_every_kind_of_field_is_known_when_it_is_written(
    before: Any, after: Any, name: str, old: Any, new: Any
) -> None:
    plan = _one(_update(before, after, name, old, new), live([LiveObject(before, "trade")], {}))
    assert not rest_of(plan, live([LiveObject(after, "trade")], {})).changes


def test_what_cannot_be_seen_is_written_again() -> None:
    schema, other = SchemaResource(J, "AVRO", "a"), SchemaResource(J, "AVRO", "b")
    plan = _one(_update(schema, other, "definition", "a", "b"), live([LiveObject(schema)], {}))
    assert _rest(plan, live([LiveObject(other)], {})) == {("update", "schema.J")}
    made = _one(Create(schema, ABOUT), empty())
    assert not rest_of(made, live([LiveObject(schema)], {})).changes


def test_a_delete_that_is_done_half_done_or_somebody_elses_again() -> None:
    start = _with(changed(empty(), LiveObject(TOPIC, "trade")), {TOPIC.address: OwnershipKind.CREATED})
    plan = _one(Delete(TOPIC, ABOUT), start)
    assert _rest(plan, changed(start, without=[TOPIC.address])) == {("forget", "topic.J")}
    assert not rest_of(plan, empty()).changes
    assert _rest(plan, changed(start, LiveObject(replace(TOPIC, missing=(0,)), "trade"))) == {("delete", "topic.J")}
    _foreign(plan, changed(start, LiveObject(replace(TOPIC, partitions=9), "trade")), "it is partitions 9")
    sub = SubscriptionResource(J, "s")
    half = _one(Delete(sub, ABOUT), live([LiveObject(sub, "trade")], {}))
    assert _rest(half, live([LiveObject(replace(sub, missing_on=(1,)), "trade")], {})) == {
        ("delete", "subscription.J/s")
    }


def test_adopting_and_forgetting_end_in_the_ledger() -> None:
    bare = changed(empty(), LiveObject(TOPIC))
    plan = _one(Adopt(TOPIC, ABOUT), bare)
    marked = changed(empty(), LiveObject(TOPIC, "trade"))
    assert _rest(plan, marked) == {("adopt", "topic.J")}
    assert not rest_of(plan, _with(marked, {TOPIC.address: OwnershipKind.ADOPTED})).changes
    assert not rest_of(plan, _with(bare, {TOPIC.address: OwnershipKind.ADOPTED})).changes
    _foreign(plan, empty(), "it is gone")
    held = _with(marked, {TOPIC.address: OwnershipKind.CREATED})
    forget = _one(Forget(TOPIC.address, TOPIC, ABOUT), held)
    assert _rest(forget, _with(bare, {TOPIC.address: OwnershipKind.CREATED})) == {("forget", "topic.J")}
    assert _rest(forget, _with(empty(), {TOPIC.address: OwnershipKind.CREATED})) == {("forget", "topic.J")}
    assert not rest_of(forget, bare).changes


FUNCTION = FunctionResource(HERE, "f", "builtin://f", "java", frozenset({J.full}), "acme/ns/f", config='{"a":1}')


def test_a_function_that_the_apply_made_is_written_down_and_that_of_others_refuses() -> None:
    plan = _one(Create(FUNCTION, ABOUT), empty())
    there = _with(empty(), {FUNCTION.address: OwnershipKind.INTENT})
    made = replace(FUNCTION, class_name="a.F", cpu=1.0)
    assert _rest(plan, changed(there, LiveObject(made, "trade"))) == {("adopt", FUNCTION.address)}
    _foreign(plan, changed(there, LiveObject(made, None)), "made by somebody else")
    _foreign(plan, changed(there, LiveObject(made, "bank")), "made by somebody else")
    _foreign(plan, changed(there, LiveObject(replace(made, parallelism=2), "trade")), "parallelism: not as planned")


def test_an_updated_function_is_not_written_again_nor_over_what_others_wrote() -> None:
    after = replace(FUNCTION, config='{"a":2}', class_name="b.F")
    fields = (FieldChange("config", {"a": 1}, {"a": 2}), FieldChange("class", "", "b.F"))
    there = changed(_with(empty(), {FUNCTION.address: OwnershipKind.CREATED}), LiveObject(FUNCTION, "trade"))
    plan = _one(Update(FUNCTION, after, fields, ABOUT), there)
    assert _rest(plan, there) == {("update", FUNCTION.address)}
    assert not _rest(plan, changed(there, LiveObject(after, "trade")))
    third = replace(FUNCTION, config='{"a":3}')
    _foreign(plan, changed(there, LiveObject(third, "trade")), "config is neither what it was nor what was planned")
