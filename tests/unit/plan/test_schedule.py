"""In which order changes run and policies are written: after what they need, accepted by Pulsar at every step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kodoctl.plan.changes import Adopt, Change, Create, Delete, Forget, Update
from kodoctl.plan.diff import with_namespaces
from kodoctl.plan.inventory import Desired
from kodoctl.plan.ownership import namespace_of
from kodoctl.plan.policy_levels import PolicyLevels, with_changes
from kodoctl.plan.policy_write_order import write_order
from kodoctl.plan.schedule import Step, UpdatePhase, schedule
from kodoctl.pulsar.values.live_objects import LiveObject
from kodoctl.topology.model.policies import BacklogQuota, Policies, Retention, from_json
from kodoctl.topology.names import TopicName
from kodoctl.topology.resources import (
    GrantResource,
    NamespaceResource,
    Resource,
    SchemaResource,
    SubscriptionResource,
    TopicResource,
)
from kodoctl.topology.units import Duration, Size, as_limit
from tests.samples.inventories import HERE, applied, changed, difference, empty, live, topology, topology_texts, wanted
from tests.samples.profiles import examples

# --- every step after what it needs


def _needs(resource: Resource) -> set[str]:
    """Addresses of what an object stands in or hangs on."""
    match resource:
        case TopicResource(name=name):
            return {f"namespace.{name.namespace}", f"tenant.{name.namespace.tenant}"}
        case (
            SubscriptionResource(topic=topic) | SchemaResource(topic=topic) | GrantResource(target=TopicName() as topic)
        ):
            return {f"topic.{topic}", f"namespace.{topic.namespace}", f"tenant.{topic.namespace.tenant}"}
        case _:
            namespace = namespace_of(resource)
            return {f"tenant.{namespace.tenant}", f"namespace.{namespace}"} - {resource.address} if namespace else set()


def _run(changes: Iterable[Change]) -> list[list[Step]]:
    return [list(level) for level in schedule(changes).levels]


@given(topology_texts())
@examples(50)
def test_everything_is_created_after_what_it_needs(text: str) -> None:
    side = wanted(text)
    there: set[str] = set()
    for level in _run(difference(side, empty()).changes):
        for step in level:
            assert isinstance(step.change, Create)
            assert _needs(step.change.after) & side.objects.keys() <= there, step.key
        there |= {step.change.address for step in level}
    assert there == set(side.objects)
    assert schedule(difference(side, empty()).changes).size == len(side.objects)


@given(topology_texts())
@examples(50)
def test_everything_is_deleted_before_what_it_needs_but_what_goes_with_its_topic(text: str) -> None:
    side = wanted(text)
    before = applied(side)
    gone = Desired((), None, {}, destroyed=side.names)
    found = with_namespaces(difference(gone, before), side.names, before)
    over: set[str] = set()
    for level in _run(found.changes):
        for step in level:
            if isinstance(step.change, Delete) and isinstance(step.change.before, TopicResource | NamespaceResource):
                inside = {
                    c.address
                    for c in found.changes
                    if step.change.address in _needs(getattr(c, "before", None) or step.change.before)
                }
                topics = {address for address in inside if address.startswith("topic.")}
                assert topics <= over, step.key
        over |= {step.change.address for step in level}
    assert {c.address for c in found.changes} == over


def test_deletes_begin_when_everything_else_is_done() -> None:
    before = applied(wanted(topology("{J: {}, K: {}}")))
    levels = _run(difference(wanted(topology("{J: {subscriptions: {s: {}}}}")), before).changes)
    deleting = [number for number, level in enumerate(levels) if any(isinstance(s.change, Delete) for s in level)]
    assert deleting == [len(levels) - 1]


def test_what_hangs_on_a_deleted_topic_goes_after_it_so_that_a_refused_delete_keeps_all() -> None:
    before = applied(
        wanted(topology("{J: {}, K: {subscriptions: {s: {workers: [anna], states: [], dead_letter: false}}}}"))
    )
    order = schedule(difference(wanted(topology("{J: {}}")), before).changes)
    keys = {step.change.address: step.key for level in order.levels for step in level}
    topic = "topic.persistent://acme/ns/K"
    for address in ("subscription.persistent://acme/ns/K/s", "grant.persistent://acme/ns/K/anna"):
        assert order.waits_for[keys[address]] == {keys[topic]}


def test_an_adopted_topic_is_adopted_before_it_is_changed() -> None:
    topic = LiveObject(TopicResource(TopicName(HERE, "J"), 1, {"ttl": Duration(60_000)}))
    there = live([LiveObject(NamespaceResource(HERE, {})), topic], {})
    order = schedule(difference(wanted(topology("{J: {}}")), there).changes)
    steps = {type(step.change): step.key for level in order.levels for step in level}
    assert order.waits_for[steps[Update]] == {steps[Adopt]}


def test_what_is_forgotten_waits_for_nothing() -> None:
    before = applied(wanted(topology("{J: {}, K: {}}")))
    found = difference(
        wanted(topology("{J: {partitions: 2}}")), changed(before, without=["topic.persistent://acme/ns/K"])
    )
    order = schedule(found.changes)
    [step] = [step for level in order.levels for step in level if isinstance(step.change, Forget)]
    assert order.waits_for[step.key] == frozenset()


def test_a_namespace_whose_retention_falls_waits_for_its_topics_and_one_whose_rises_goes_first() -> None:
    def text(hours: int, own: str) -> str:
        keep = f"namespace_policies: {{retention: {{time: {hours}h, size: 1GiB}}}}\n"
        return topology(f"{{J: {{policies: {own}}}}}", keep)

    own = "{retention: {time: 9h, size: 1GiB}}"
    falling = schedule(difference(wanted(text(1, own)), applied(wanted(text(9, "{}")))).changes)
    assert [[s.part for s in level] for level in falling.levels] == [[UpdatePhase.ALL], [UpdatePhase.LATE]]
    rising = schedule(difference(wanted(text(9, "{}")), applied(wanted(text(1, own)))).changes)
    assert [[s.part for s in level] for level in rising.levels] == [[UpdatePhase.EARLY], [UpdatePhase.ALL]]


# --- accepted by Pulsar at every step: a model of its rule, on effective values, for the object written only


class Model:
    """One namespace with topics. Refuses like Pulsar: strictly quota < retention; size at both levels, time at topics."""

    def __init__(self, namespace: Policies, topics: Mapping[str, Policies]) -> None:
        self.namespace = dict(namespace)
        self.topics = {name: dict(policies) for name, policies in topics.items()}

    def effective(self, topic: str | None) -> tuple[Retention, BacklogQuota]:
        own = self.topics[topic] if topic else {}
        retention = own.get("retention") or self.namespace.get("retention") or Retention(time=Duration(0), size=Size(0))
        quotas = [own.get("backlog_quota"), self.namespace.get("backlog_quota")]
        sizes = [q.size for q in quotas if q is not None and q.size is not None]
        times = [q.time for q in quotas if q is not None and q.time is not None]
        return retention, BacklogQuota(size=sizes[0] if sizes else "unlimited", time=times[0] if times else "unlimited")

    def valid(self, topic: str | None) -> bool:
        retention, quota = self.effective(topic)
        if retention.time == 0 and retention.size == 0:
            return True
        fits = quota.size == "unlimited" or retention.size == "unlimited" or quota.size < retention.size  # type: ignore[operator]
        if topic is None:
            return fits
        return fits and (quota.time == "unlimited" or retention.time == "unlimited" or quota.time < retention.time)  # type: ignore[operator]

    def write(self, topic: str | None, policy: str, value: Any) -> None:
        place = self.topics[topic] if topic else self.namespace
        checked = value is not None and policy in ("retention", "backlog_quota")
        if value is None:
            place.pop(policy, None)
        else:
            place[policy] = value
        assert not checked or self.valid(topic), f"412 for {topic or 'the namespace'}: {policy} {value}"


_TIMES = st.sampled_from(["1m", "2m", "5m", "10m", "unlimited"])
_SIZES = st.sampled_from(["1MiB", "2MiB", "5MiB", "10MiB", "unlimited"])
_RETENTION = st.fixed_dictionaries({"time": _TIMES, "size": _SIZES}) | st.just({"time": "0s", "size": "0B"})
_QUOTA = st.fixed_dictionaries({}, optional={"size": _SIZES, "time": _TIMES}).filter(bool)
_PAIR = st.fixed_dictionaries({}, optional={"retention": _RETENTION, "backlog_quota": _QUOTA})


def _read(policies: dict[str, Any]) -> dict[str, Any]:
    return {name: from_json(name, value) for name, value in policies.items()}


@given(_PAIR, _PAIR, _PAIR)
@examples(300)
def test_one_objects_policies_are_written_in_an_order_that_pulsar_accepts(
    before: dict[str, Any], after: dict[str, Any], above: dict[str, Any]
) -> None:
    old, new, namespace = _read(before), _read(after), _read(above)
    model, end = Model(namespace, {"t": old}), Model(namespace, {"t": new})
    assume(model.valid("t") and end.valid("t"))
    changes = {
        name: (old.get(name), new.get(name))
        for name in ("retention", "backlog_quota")
        if old.get(name) != new.get(name)
    }
    for step in write_order(changes, namespace, by_time=True):
        assert step.before == model.topics["t"].get(step.name)
        model.write("t", step.name, step.after)
    assert model.topics["t"] == new


@given(st.tuples(_PAIR, _PAIR, _PAIR, _PAIR, _PAIR, _PAIR))
@examples(300)
def test_a_namespace_and_its_topics_change_in_an_order_that_pulsar_accepts_and_nothing_is_kept_for_less(
    pairs: tuple[dict[str, Any], ...],
) -> None:
    ns_before, ns_after, j_before, j_after, k_before, k_after = pairs
    # Keeping nothing passes every quota, so no value between would do for both: such a change takes two applies.
    assume(_keeps(ns_before) == _keeps(ns_after))

    def text(ns: dict[str, Any], j: dict[str, Any], k: dict[str, Any]) -> str:
        topics = {"J": {"policies": j}, "K": {"policies": k}}
        return topology(json.dumps(topics), f"namespace_policies: {json.dumps(ns)}\n")

    start = applied(wanted(text(ns_before, j_before, k_before)))
    end = wanted(text(ns_after, j_after, k_after))
    model = Model(_read(ns_before), {"J": _read(j_before), "K": _read(k_before)})
    last = Model(_read(ns_after), {"J": _read(j_after), "K": _read(k_after)})
    assume(all(m.valid(t) for m in (model, last) for t in (None, "J", "K")))
    bounds = {t: _kept(model, t) for t in ("J", "K")}
    ends = {t: _kept(last, t) for t in ("J", "K")}
    changes = difference(end, start).changes
    spaces = [c for c in changes if isinstance(c, Update) and isinstance(c.after, NamespaceResource)]
    assert len(spaces) <= 1
    after = with_changes(_read(ns_before), spaces[0].policy_changes) if spaces else _read(ns_before)
    for level in schedule(changes).levels:
        for step in level:
            _carry_out(model, step, PolicyLevels(_read(ns_before), after, {}))
            for topic in ("J", "K"):
                low = [min(a, b) for a, b in zip(bounds[topic], ends[topic], strict=True)]
                assert all(k >= least for k, least in zip(_kept(model, topic), low, strict=True)), (step.key, topic)
    assert (model.namespace, model.topics) == (last.namespace, last.topics)


def _keeps(namespace: dict[str, Any]) -> bool:
    return namespace.get("retention", {"time": "0s"})["time"] != "0s"


def _kept(model: Model, topic: str) -> tuple[float, float]:
    retention, _ = model.effective(topic)
    assert retention.time is not None
    assert retention.size is not None
    return as_limit(retention.time), as_limit(retention.size)


def _carry_out(model: Model, step: Step, levels: PolicyLevels) -> None:
    assert isinstance(step.change, Update)
    changes = {f.policy: (f.before, f.after) for f in step.policy_changes()}
    if isinstance(step.change.after, NamespaceResource):
        for write in write_order(changes, {}, by_time=False):
            assert write.before == model.namespace.get(write.name)
            model.write(None, write.name, write.after)
    else:
        topic = step.change.address.rpartition("/")[2]
        beneath = {name: levels.effective(name, None, after=True).value for name in ("retention", "backlog_quota")}
        for write in write_order(changes, beneath, by_time=True):
            model.write(topic, write.name, write.after)


@pytest.mark.parametrize(
    ("policy", "before", "after", "parts"),
    [
        ("ttl", "2h", "1h", [UpdatePhase.LATE]),
        ("ttl", "1h", "2h", [UpdatePhase.EARLY]),
        ("ttl", "unlimited", "1h", [UpdatePhase.LATE]),
        ("subscription_expiry", "1h", "unlimited", [UpdatePhase.EARLY]),
        ("inactive_topic", "{delete: never}", "{delete: caught_up, after: 1h}", [UpdatePhase.LATE]),
        ("backlog_quota", "{size: 5GiB}", "{size: 2GiB}", [UpdatePhase.EARLY]),
        ("backlog_quota", "{size: 5GiB}", "{size: 9GiB}", [UpdatePhase.LATE]),
        ("retention", "{time: 1h, size: 9GiB}", "{time: 9h, size: 1GiB}", [UpdatePhase.EARLY, UpdatePhase.LATE]),
        ("max_topics", "5", "9", [UpdatePhase.EARLY]),
    ],
)
def test_a_namespaces_policy_is_written_before_or_after_its_topics(
    policy: str, before: str, after: str, parts: list[UpdatePhase]
) -> None:
    start = applied(wanted(topology(head=f"namespace_policies: {{{policy}: {before}}}\n")))
    end = wanted(topology(head=f"namespace_policies: {{{policy}: {after}}}\n"))
    assert [step.part for level in schedule(difference(end, start).changes).levels for step in level] == parts


def test_a_tenant_comes_before_its_namespaces_and_these_before_their_topics() -> None:
    changes = difference(wanted(topology("{J: {}}", "create_tenant: {clusters: [standalone]}\n")), empty()).changes
    assert [[s.change.address.partition(".")[0] for s in level] for level in schedule(changes).levels] == [
        ["tenant"],
        ["namespace"],
        ["topic"],
    ]


def test_a_falling_namespace_waits_for_its_own_topics_only() -> None:
    def texts(hours: int, own: str) -> tuple[str, str]:
        head = f"namespace_policies: {{ttl: {hours}h}}\n"
        return topology("{J: {}}", head), topology(f"{{K: {{policies: {own}}}}}", name="other", namespace="other")

    start = applied(wanted(*texts(9, "{}")))
    order = schedule(difference(wanted(*texts(1, "{ttl: 3h}")), start).changes)
    [late] = [step for level in order.levels for step in level if step.part is UpdatePhase.LATE]
    assert order.waits_for[late.key] == frozenset()


def test_a_quota_and_a_retention_that_go_past_each_other_need_a_moment_without_quota() -> None:
    old = _read({"retention": {"time": "10m", "size": "2MiB"}, "backlog_quota": {"time": "5m", "size": "1MiB"}})
    new = _read({"retention": {"time": "4m", "size": "9MiB"}, "backlog_quota": {"time": "2m", "size": "5MiB"}})
    model = Model({}, {"t": old})
    steps = write_order({name: (old[name], new[name]) for name in old}, {}, by_time=True)
    assert [(s.name, str(s.after and s.after.time)) for s in steps] == [
        ("backlog_quota", "unlimited"),
        ("retention", "4m"),
        ("backlog_quota", "2m"),
    ]
    for step in steps:
        model.write("t", step.name, step.after)
    assert model.topics["t"] == new


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ((("a",), ("a", "b")), ["allowed_clusters", "replication", "ttl"]),
        ((None, ("a", "b")), ["allowed_clusters", "replication", "ttl"]),
        ((("a", "b"), ("a",)), ["replication", "ttl", "allowed_clusters"]),
    ],
)
def test_clusters_are_allowed_before_and_forbidden_after_the_replication_to_them(
    allowed: tuple[Any, Any], expected: list[str]
) -> None:
    changes = {"replication": (("a",), ("b",)), "allowed_clusters": allowed, "ttl": (None, Duration(1000))}
    assert [write.name for write in write_order(changes, {}, by_time=False)] == expected
