"""Help for tests of pure plan code: inventories from files and from hypothesis, and declared objects turned into live ones."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from kodoctl.plan.changes import Change
from kodoctl.plan.diff import Allowances, Difference, diff
from kodoctl.plan.inventory import Desired, desired_inventory
from kodoctl.plan.ledger_plan import LedgerPlan, is_held, ledger_after
from kodoctl.plan.plan import Plan, make_plan
from kodoctl.plan.targeting import choose
from kodoctl.pulsar.values.ledger import Ledger, OwnershipKind, Source
from kodoctl.pulsar.values.live_objects import ClusterIdentity, Live, LiveObject, TopicFacts
from kodoctl.topology.expand import Expansion, expand
from kodoctl.topology.load import load_set, source_of
from kodoctl.topology.model.policies import NAMESPACE_POLICY_NAMES, TOPIC_POLICY_NAMES, Policies, from_json
from kodoctl.topology.names import NamespaceName
from kodoctl.topology.resources import (
    FunctionResource,
    GrantResource,
    NamespaceResource,
    SubscriptionResource,
    TopicResource,
)
from kodoctl.topology.target_flags import TargetFlags

HERE = NamespaceName("acme", "ns")
NOW = 1_800_000_000_000
SOURCE = Source("example.org/acme/topologies", "topologies/trade.yaml")


def topology(
    topics: str = "{J: {subscriptions: {s: {}}}}", head: str = "", name: str = "trade", namespace: str = "ns"
) -> str:
    """A topology file's text."""
    return f"version: 1\nname: {name}\ntenant: acme\nnamespace: {namespace}\n{textwrap.dedent(head)}topics: {topics}\n"


def expanded(*texts: str, environment: str | None = None) -> tuple[Expansion, ...]:
    """Expansions of files; rules are not run."""
    files = [source_of(text.encode(), f"file{number}.yaml") for number, text in enumerate(texts)]
    loaded = load_set(files, environment)
    assert not loaded.findings, loaded.findings
    return tuple(expand(topology) for topology in loaded.topologies)


def wanted(*texts: str, environment: str | None = None, sources: Mapping[str, Source] | None = None) -> Desired:
    """What these files declare."""
    return desired_inventory(expanded(*texts, environment=environment), environment, sources)


def applied(side: Desired, *, facts: TopicFacts | None = None) -> Live:
    """The live side right after a complete apply of everything declared."""
    objects = {
        address: LiveObject(
            _as_live(one.resource),
            one.owner if _marked(one.resource) else None,
            facts if isinstance(one.resource, TopicResource) else None,
        )
        for address, one in side.objects.items()
    }
    plan = planned(side, empty())
    ledgers: dict[NamespaceName, dict[str, Ledger]] = {namespace: {} for namespace in side.namespaces}
    for owner in plan.owners:
        ledgers[owner.namespace][owner.name] = ledger_of(owner, side)
    return live(objects.values(), ledgers)


def _marked(resource: object) -> bool:
    return isinstance(resource, TopicResource | SubscriptionResource | FunctionResource)


def _as_live(resource: Any) -> Any:
    """As the reader shows it: no positions, no list of managed keys."""
    match resource:
        case SubscriptionResource():
            return replace(resource, start="earliest")
        case NamespaceResource():
            return NamespaceResource(resource.name, resource.policies)
        case _:
            return resource


def ledger_of(owner: LedgerPlan, side: Desired) -> Ledger:
    """The entry an apply leaves behind."""
    owned = {
        a: OwnershipKind.CREATED for a, one in side.objects.items() if one.owner == owner.name and is_held(one.resource)
    }
    return ledger_after(owner, owned)


def empty() -> Live:
    """A cluster where nothing is, but the tenant."""
    return live([], {})


def live(
    found: Iterable[LiveObject], ledgers: Mapping[NamespaceName, Mapping[str, Ledger]], broker: Policies | None = None
) -> Live:
    """A live side of these objects."""
    objects = {one.resource.address: one for one in found}
    policies = {
        f.resource.name: f.resource.policies for f in objects.values() if isinstance(f.resource, NamespaceResource)
    }
    identity = ClusterIdentity("standalone", {"acme": "11111111-2222-3333-4444-555555555555"})
    writers = {"acme": frozenset[str]()}
    return Live(
        identity,
        objects,
        ledgers,
        namespace_policies=policies,
        broker_defaults=broker or {},
        record_writers=writers,
    )


def changed(side: Live, *found: LiveObject, without: Iterable[str] = ()) -> Live:
    """The live side after somebody's hand: objects put in or replaced, addresses taken out."""
    objects = {**side.objects, **{one.resource.address: one for one in found}}
    for address in without:
        del objects[address]
    policies = {
        f.resource.name: f.resource.policies for f in objects.values() if isinstance(f.resource, NamespaceResource)
    }
    return replace(side, objects=objects, namespace_policies=policies)


def with_ledger(side: Live, namespace: NamespaceName, *entries: Ledger) -> Live:
    """The live side with some ledger entries replaced or added."""
    there = {**side.ledgers.get(namespace, {}), **{entry.name: entry for entry in entries}}
    return replace(side, ledgers={**side.ledgers, namespace: there})


def _allowances(allowed: dict[str, Any]) -> Allowances:
    for key, one in allowed.items():
        allowed[key] = one if isinstance(one, bool) else frozenset(one)
    return Allowances(**allowed)


def difference(side: Desired, other: Live, **allowed: Any) -> Difference:
    """The comparison with allowances by keyword."""
    return diff(side, other, _allowances(allowed))


def planned(side: Desired, other: Live, **allowed: Any) -> Plan:
    """The whole plan, without evidence."""
    allowances = _allowances(allowed)
    return make_plan(side, other, diff(side, other, allowances), evidence={}, allowances=allowances, now=NOW)


def planned_part(
    side: Desired, other: Live, *targets: str, exclude: Iterable[str] = (), allowances: Allowances | None = None
) -> Plan:
    """What `--target` and `--exclude` leave of the plan."""
    allowed = allowances or Allowances()
    found = diff(side, other, allowed, choose(TargetFlags(targets, tuple(exclude)), side, other))
    return make_plan(side, other, found, evidence={}, allowances=allowed, now=NOW)


def said(changes: Iterable[Change]) -> set[tuple[str, str]]:
    """(verb, address without the namespace's name) of each change: what a test compares."""
    return {(type(c).__name__.lower(), c.address.replace("persistent://acme/ns/", "")) for c in changes}


def granted(side: Desired) -> set[GrantResource]:
    """All grants declared."""
    return {one.resource for one in side.objects.values() if isinstance(one.resource, GrantResource)}


# --- hypothesis: policies and topologies in the form of the file

_UNLIMITED = st.just("unlimited")
_COUNTS = st.integers(1, 2**31 - 1) | _UNLIMITED


def _texts(unit: str, most: int = 10_000, least: int = 1) -> st.SearchStrategy[str]:
    return st.integers(least, most).map(lambda number: f"{number}{unit}")


def _dispatch() -> st.SearchStrategy[Any]:
    amounts = {"messages": _COUNTS, "size": _texts("KiB") | _UNLIMITED, "period": _texts("s", 3600)}
    return st.fixed_dictionaries({**amounts, "relative": st.booleans()})


def _is_limited(rate: dict[str, Any]) -> bool:
    return {rate["messages"], rate["size"]} != {"unlimited"}


def _names(*values: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=1, unique=True).map(sorted)


_RETENTION = st.fixed_dictionaries({"time": _texts("m") | _UNLIMITED, "size": _texts("MiB") | _UNLIMITED}) | st.just(
    {"time": "0s", "size": "0B"}
)
_ACTIONS = st.sampled_from(["hold_producers", "fail_producers", "evict"])
_QUOTA = (
    st.fixed_dictionaries(
        {"when_full": _ACTIONS},
        optional={"size": _texts("MiB") | _UNLIMITED, "time": _texts("s") | _UNLIMITED},
    )
    .filter(lambda quota: len(quota) > 1)
    .flatmap(
        lambda quota: (
            st.fixed_dictionaries(
                {name: st.just(value) for name, value in quota.items()}, optional={"when_old": _ACTIONS}
            )
            if len(quota) == 3
            else st.just(quota)
        )
    )
)
_PERSISTENCE = st.fixed_dictionaries(
    {"ensemble": st.integers(1, 5), "write_quorum": st.integers(1, 5), "ack_quorum": st.integers(1, 5)},
    optional={"mark_delete_rate": st.floats(0, 10)},
)
_INACTIVE = st.just({"delete": "never"}) | st.fixed_dictionaries(
    {"delete": st.sampled_from(["no_subscriptions", "caught_up"]), "after": _texts("s")}
)
_COMPATIBILITY = st.sampled_from(["ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL", "FULL_TRANSITIVE"])
_AUTO_TOPIC = st.booleans() | st.fixed_dictionaries(
    {"type": st.just("partitioned")}, optional={"partitions": st.integers(1, 64)}
) | st.just({"type": "non-partitioned"})  # fmt: skip
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "retention": _RETENTION,
    "backlog_quota": _QUOTA,
    "ttl": _texts("s") | _UNLIMITED,
    "subscription_expiry": _texts("m") | _UNLIMITED,
    "persistence": _PERSISTENCE,
    "deduplication": st.booleans(),
    "deduplication_snapshot": _texts("s") | _UNLIMITED,
    "inactive_topic": _INACTIVE,
    "auto_subscription_creation": st.booleans(),
    "publish_rate": st.fixed_dictionaries(
        {"messages": _texts("/s") | _UNLIMITED, "size": _texts("KiB/s") | _UNLIMITED}
    ),
    "dispatch_rate": _dispatch(),
    "subscription_dispatch_rate": _dispatch(),
    "subscribe_rate": st.fixed_dictionaries({"subscribes": _COUNTS, "period": _texts("s", 3600)}),
    "compaction_threshold": _texts("MiB") | _UNLIMITED,
    "schema_compatibility": _COMPATIBILITY,
    "schema_validation": st.booleans(),
    "max_message_size": _texts("KiB"),
    "replication": st.just(["standalone"]),
    "auto_topic_creation": _AUTO_TOPIC,
    "encryption_required": st.booleans(),
    "subscription_rates": st.dictionaries(st.sampled_from(["s", "t"]), _dispatch().filter(_is_limited), min_size=1),
    "shadow_topics": st.just(["persistent://acme/copies/orders"]),
    "offload": st.fixed_dictionaries(
        {"driver": st.just("aws-s3")},
        optional={
            "bucket": st.just("cold"),
            "after_size": _texts("MiB", least=0) | _UNLIMITED,
            "after": _texts("s") | _UNLIMITED,
            "delete_after": _texts("ms") | _UNLIMITED,
            "read_first": st.sampled_from(["bookkeeper", "tiered_storage"]),
            "settings": st.just({"managedLedgerOffloadMaxThreads": 8, "s3ManagedLedgerOffloadRole": "reader"}),
        },
    ),
    "replicator_dispatch_rate": _dispatch(),
    "subscription_types": _names("exclusive", "failover", "key_shared", "shared"),
    "entry_filters": _names("a", "b"),
    "pause_on_ack_state_loss": st.just(True),
    "delayed_delivery": st.fixed_dictionaries(
        {"enabled": st.booleans(), "max_delay": _texts("ms") | _UNLIMITED, "tick": _texts("ms", least=0)}
    ),
    "allowed_clusters": st.just(["standalone"]),
    "subscription_auth": st.sampled_from(["none", "prefix"]),
    "resource_group": st.just("batch"),
    "anti_affinity_group": st.just("apart"),
    "bookie_affinity": st.fixed_dictionaries({"primary": st.just("ssd")}, optional={"secondary": st.just("hdd")}),
    "metric_properties": _names("team", "cost"),
    "subscription_roles": st.dictionaries(st.sampled_from(["s", "t"]), _names("a", "b"), min_size=1),
    "properties": st.dictionaries(
        st.sampled_from(["team", "cost"]),
        st.text("ab /", max_size=3),
        min_size=1,
    ),
    "bundles": st.integers(1, 64),
    "allow_auto_update_schema": st.booleans(),
}


def policy_json(name: str) -> st.SearchStrategy[Any]:
    """A value of one policy as the file writes it."""
    return _VALUES.get(name, _COUNTS)


def policy_values(name: str) -> st.SearchStrategy[Any]:
    """A value of one policy in our types."""
    return policy_json(name).map(lambda value: from_json(name, value))


def policies_json(names: Iterable[str], most: int = 4) -> st.SearchStrategy[dict[str, Any]]:
    """A few policies as the file writes them."""
    chosen = st.lists(st.sampled_from(sorted(names)), unique=True, max_size=most)
    return chosen.flatmap(lambda picked: st.fixed_dictionaries({name: policy_json(name) for name in picked}))


_TOPIC_NAMES = sorted(set(TOPIC_POLICY_NAMES) - {"replication"})
_ROLES = st.lists(st.sampled_from(["anna", "ben", "cleo"]), unique=True, max_size=2)


def _subscriptions() -> st.SearchStrategy[Any]:
    body = st.fixed_dictionaries(
        {},
        optional={
            "states": st.lists(st.sampled_from(["retrying", "pending", "blocking"]), unique=True),
            "dead_letter": st.booleans() | policies_json(_TOPIC_NAMES, 2),
            "audit": st.booleans(),
            "start": st.sampled_from(["earliest", "latest"]),
            "type": st.sampled_from(["shared", "key_shared", "failover"]),
            "workers": _ROLES,
            "recall": _ROLES,
            "produces": st.lists(st.sampled_from(["a", "b", "acme/other/x"]), unique=True, max_size=2),
            "concurrency": st.integers(1, 64),
        },
    )
    return st.dictionaries(st.sampled_from(["s", "t"]), body, max_size=2)


def _grounds() -> st.SearchStrategy[Any]:
    body = st.fixed_dictionaries(
        {"subscriptions": _subscriptions()},
        optional={
            "levels": st.sampled_from(["single", "double", ["L1", "S1"]]),
            "backup": st.booleans(),
            "partitions": st.integers(1, 4),
            "policies": policies_json(_TOPIC_NAMES),
            "state_policies": policies_json(_TOPIC_NAMES, 2),
            "ignore": st.lists(st.sampled_from(_TOPIC_NAMES), unique=True, max_size=2),
            "producers": _ROLES,
        },
    )
    return st.dictionaries(st.sampled_from(["a", "b", "c"]), body, max_size=3)


def topology_texts(name: str = "trade") -> st.SearchStrategy[str]:
    """Topology files (JSON is YAML) in the namespace acme/ns."""
    head = {"version": st.just(1), "name": st.just(name), "tenant": st.just("acme"), "namespace": st.just("ns")}
    optional = {
        "namespace_policies": policies_json(NAMESPACE_POLICY_NAMES),
        "namespace_grants": st.dictionaries(st.sampled_from(["anna", "dora"]), st.just(["consume"]), max_size=2),
        "defaults": st.fixed_dictionaries(
            {}, optional={"partitions": st.integers(1, 3), "policies": policies_json(_TOPIC_NAMES)}
        ),
    }
    return st.fixed_dictionaries({**head, "topics": _grounds()}, optional=optional).map(json.dumps)
