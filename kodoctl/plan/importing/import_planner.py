"""Import of a live namespace as a topology file: planning in reverse.

Families are recognised by the naming rule. Then the file is planned against the inventory it was made from, and
objects that would not be adopted unchanged leave the file, with the reason. So an import followed by a plan
gives Adopt only (and a Create of `kodo-hold` where dead letters have no holder).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodoctl.errors import KodoctlError
from kodoctl.plan.changes import Adopt, Change, Create, FieldChange, PolicyChange, Update
from kodoctl.plan.diff import diff
from kodoctl.plan.importing.families import (
    ImportedFamily,
    UnownedObjects,
    expected_readers,
    misfit_reason,
    recognise_families,
)
from kodoctl.plan.importing.yaml_writer import document, render
from kodoctl.plan.inventory import desired_inventory
from kodoctl.plan.ownership import claim
from kodoctl.topology.lint.linter import check_set
from kodoctl.topology.load import source_of
from kodoctl.topology.model.policies import Foreign, Policies
from kodoctl.topology.names import (
    HOLDER,
    RESERVED_PREFIX,
    NamespaceName,
    State,
    TopicName,
    reserved_suffix,
    why_not_pulsar_name,
)
from kodoctl.topology.resources import (
    FUNCTION_KINDS,
    Address,
    FunctionResource,
    GrantResource,
    NamespaceResource,
    SchemaResource,
    SubscriptionResource,
    TopicResource,
)

if TYPE_CHECKING:
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.expand import Expansion


_PACKAGES: Final = ("package.function", "package.sink", "package.source")
_PLAIN_ROLE: Final = re.compile(r"[\w.@/+-]{1,80}", re.ASCII)  # valid without a look


@dataclass(frozen=True, slots=True)
class Import:
    """An imported topology file. `text`: its YAML; `left_out`: (object or setting, reason) that the file leaves out,
    sorted; `families`: number of its ground topics; `adopted`, `created`: numbers of objects that its first apply
    adopts and creates, without the namespace that objects of the whole cluster have as their home.
    """

    text: str
    left_out: tuple[tuple[str, str], ...]
    families: int
    adopted: int
    created: int = 0


def import_namespace(live: Live, namespace: NamespaceName, name: str) -> Import:
    """Returns the file, with the topology `name`, for the topics of a namespace that no topology owns, with their
    subscriptions and producers, and for the namespace's policies and grants that no other topology owns, as far as all
    of them fit the format. Other objects without an owner, such as all functions, connectors and schemas, and settings
    that do not fit are in `left_out` with the reason; owned functions, and owned topics with their subscriptions, are
    in neither. `live`: read with `ReadScope.everything`. Raises KodoctlError if the file is not valid, such as by
    `name`.
    """
    left_out: dict[str, str] = {**_undeclarable(live, namespace), **dict(_unfit(live, namespace))}
    left_out |= _odd_roles(live, namespace, name)
    left_out |= _functions(live, namespace)
    excluded: set[str] = set()
    while True:
        seen = _unowned_objects(live, namespace, name, excluded)
        families = recognise_families(seen)
        expansions, findings = load_import(render(document(name, seen, families), {}))
        changes = diff(desired_inventory(expansions, None), live).changes
        wrong = dict(_not_adopted(changes))
        new = {topic.local: (topic, reason) for topic, reason in wrong.items() if topic.local not in excluded}
        if not new:
            break
        for found, reason in new.values():
            excluded.add(found.local)
            left_out[f"topic.{found}"] = reason
    members = {member for family in families.values() for member in family.members}
    left_out.update(_java_retries(seen, families))
    there = {topic.name.local: topic for _, topic in live.topics_in(namespace)}
    for local, topic in seen.topics.items():
        if local not in members:
            left_out.setdefault(f"topic.{topic.name}", _why_not(local, seen, families, there))
    left_out.update(_odd_subscriptions(seen, families))
    left_out |= {address: why for address, why in _read_by_functions(live) if address in left_out}
    left_out.update(_hanging(live, namespace, {change.address for change in changes}, left_out))
    text = render(document(name, seen, families), left_out, findings)
    adopted = sum(isinstance(change, Adopt) for change in changes)
    created = sum(isinstance(change, Create) for change in changes)
    return Import(text, tuple(sorted(left_out.items())), len(families), adopted, created)


def load_import(text: str) -> tuple[tuple[Expansion, ...], dict[int, set[str]]]:
    """Returns (the expansion of the file's text, alone in a tuple; line -> codes of the lint findings there, errors
    included). Comments of the file will allow these findings. Raises KodoctlError if the file cannot be loaded.
    """
    expansions, findings = check_set([source_of(text.encode(), "import")], None)
    if not expansions:
        raise KodoctlError(*findings)
    found: dict[int, set[str]] = {}
    for finding in findings:
        assert finding.where is not None
        found.setdefault(finding.where.line, set()).add(finding.code)
    return expansions, found


def _not_adopted(changes: tuple[Change, ...]) -> Iterator[tuple[TopicName, str]]:
    """Yields the topics that an apply of the imported file would change, each with the fields that would
    change. They are left out of the file.
    """
    for change in changes:
        if isinstance(change, Update) and isinstance(change.after, TopicResource):
            yield change.after.name, "; ".join(_difference(change.after, field) for field in change.fields)


def _difference(topic: TopicResource, field: PolicyChange | FieldChange) -> str:
    """The reason why a topic cannot be adopted unchanged, for one field that an apply would change."""
    if isinstance(field, FieldChange) and field.name == "missing_partitions":
        numbers = ", ".join(map(str, field.before))
        return f"partition {numbers} of {topic.partitions} is missing, and an apply would create it"
    if field.label == "delayed_delivery":
        return "it has a delayed-delivery policy of its own, which an apply would remove: it stalls delivery"
    return f"its {field.label} differs from what the file can declare for one topic of its family"


def _undeclarable(live: Live, namespace: NamespaceName) -> dict[str, str]:
    kinds = (
        "topic.persistent", "topic.non-persistent", "subscription.persistent", "schema.persistent", "grant.non-persistent",
        *_PACKAGES,
    )  # fmt: skip
    inside = (f"namespace.{namespace} ", *(f"{kind}://{namespace}/" for kind in kinds))
    return {name: reason for name, reason in live.undeclarable.items() if name.startswith(inside)}


def _unfit(live: Live, namespace: NamespaceName) -> Iterator[tuple[Address, str]]:
    for address, topic in live.topics_in(namespace):
        foreign = sorted(name for name, value in topic.policies.items() if isinstance(value, Foreign))
        if why := live.unread.get(topic.name):
            yield address, f"it cannot be read: {why}"
        elif foreign:
            yield address, "; ".join(f"{name}: {topic.policies[name].reason}" for name in foreign)


def _unowned_objects(live: Live, namespace: NamespaceName, importer: str, excluded: set[str]) -> UnownedObjects:
    given = _given_by_others(live, namespace, importer)
    topics: dict[str, TopicResource] = {}
    subscriptions: dict[str, set[str]] = {}
    grants: dict[str, tuple[str, ...]] = {}
    producers: dict[str, set[str]] = {}
    policies: Policies = {}
    for address, found in live.objects.items():
        match found.resource:
            case GrantResource() if address in given:
                pass
            case TopicResource(name=name) as topic if name.namespace == namespace and name not in live.unread:
                odd = any(isinstance(value, Foreign) for value in topic.policies.values())
                if name.local not in excluded and not odd and claim(address, found, live).owner is None:
                    topics[name.local] = topic
            case SubscriptionResource(topic=name, name=subscription) if name.namespace == namespace:
                subscriptions.setdefault(name.local, set()).add(subscription)
            case GrantResource(target=target, role=role, actions=actions) if target == namespace:
                if _why_not_role(role) is None:
                    grants[role] = tuple(sorted(actions))
            case GrantResource(target=TopicName() as name, role=role, actions=actions) if name.namespace == namespace:
                if actions == {"produce"} and _why_not_role(role) is None:
                    producers.setdefault(name.local, set()).add(role)
            case NamespaceResource(name=name, policies=set_policies) if name == namespace and claim(
                address, found, live, asking=importer
            ).owner in (None, importer):
                policies = {key: value for key, value in set_policies.items() if not isinstance(value, Foreign)}
            case _:
                pass
    names_by_topic = {local: frozenset(names) for local, names in subscriptions.items()}
    return UnownedObjects(namespace, topics, names_by_topic, policies, grants, live.identity.cluster, producers)


def _java_retries(seen: UnownedObjects, families: Mapping[str, ImportedFamily]) -> Iterator[tuple[str, str]]:
    """Yields (printed name, reason) of ground topics of the file with the name that Java clients give a retry topic."""
    for ground in families:
        name = ground.removesuffix("-RETRY")
        if name != ground and any(name.startswith(f"{other}-") for other in seen.topics):
            yield (
                f"topic.persistent://{seen.namespace}/{ground} as a retry topic",
                "Java clients name theirs so; it is a ground topic of its own in the file",
            )


def _odd_roles(live: Live, namespace: NamespaceName, importer: str) -> Iterator[tuple[Address, str]]:
    """Yields (address, reason) of grants on the namespace whose role no file can hold, without those that another
    topology than `importer` gave.
    """
    given = _given_by_others(live, namespace, importer)
    for address, found in live.objects.items():
        match found.resource:
            case GrantResource(target=target, role=role) if (
                target == namespace and address not in given and (why := _why_not_role(role))
            ):
                yield address, f"its role: {why}"


def _given_by_others(live: Live, namespace: NamespaceName, importer: str) -> frozenset[Address]:
    """Addresses of the grants that ledgers of other topologies in the namespace list."""
    others = (entry for entry in live.ledgers.get(namespace, {}).values() if entry.name != importer)
    return frozenset(address for entry in others for address in entry.grants)


def _functions(live: Live, namespace: NamespaceName) -> dict[str, str]:
    """Address -> reason for each function or connector without an owner: a file needs its package, which Pulsar shows
    of builtin connectors alone.
    """
    unread = live.unknown_functions_in(namespace)
    found = {
        place: f"{'it' if place.count('/') == 2 else 'they'} cannot be read: {why}" for place, why in unread.items()
    }
    for address, one in live.objects.items():
        function = one.resource
        if not isinstance(function, FunctionResource) or function.namespace != namespace:
            continue
        if claim(address, one, live).owner is None:
            key = FUNCTION_KINDS[function.kind]
            why = f"its package is {function.package}" if function.package else "Pulsar does not show its package"
            found[address] = (
                f"an import writes no functions and connectors; {why}: declare it under `{key}`, and --adopt it"
            )
    return found


def _read_by_functions(live: Live) -> Iterator[tuple[Address, str]]:
    for found in live.objects.values():
        if isinstance(function := found.resource, FunctionResource):
            for address, one in live.objects.items():
                if isinstance(one.resource, SubscriptionResource) and function.may_read_by(one.resource):
                    yield address, f"{function.address} reads by it"


def _why_not_role(role: str) -> str | None:
    """The reason why a topology file cannot hold a role, by the loader's own words; None: it can."""
    if _PLAIN_ROLE.fullmatch(role):
        return None
    head = {"version": 1, "name": "t", "tenant": "t", "namespace": "t"}
    try:
        [expansion], _ = load_import(render({**head, "namespace_grants": {role: ["consume"]}, "topics": {}}, {}))
    except KodoctlError as problem:
        return problem.diagnostics[0].summary
    kept = GrantResource(NamespaceName("t", "t"), role, frozenset()).address in expansion.resources
    return None if kept else "YAML would read another one"


def _why_not(
    local: str, seen: UnownedObjects, families: Mapping[str, ImportedFamily], there: Mapping[str, TopicResource]
) -> str:
    if suffix := reserved_suffix(local):
        return f"it ends in {suffix} and does not fit a family: {misfit_reason(local, seen, families, there)}"
    return f"its name: {why_not_pulsar_name(local)}"


def _odd_subscriptions(seen: UnownedObjects, families: Mapping[str, ImportedFamily]) -> Iterator[tuple[Address, str]]:
    """Yields (address, reason) of subscriptions on imported topics that do not belong to their family; the file leaves
    them out.
    """
    for ground, family in families.items():
        expected = {local: set(expected_readers(ground, local, family)) for local in family.members}
        for local, names in expected.items():
            own = {HOLDER} if local.endswith(State.DEAD.suffix) else set()
            for name in sorted(seen.subscriptions.get(local, frozenset()) - names - own):
                yield f"subscription.persistent://{seen.namespace}/{local}/{name}", _why_odd(name, local)


def _why_odd(name: str, local: str) -> str:
    if problem := why_not_pulsar_name(name):
        return f"its name: {problem}"
    if suffix := reserved_suffix(name):
        return f"its name ends in {suffix}, which marks topics of a family"
    if name.startswith(RESERVED_PREFIX):
        return f"its name begins with {RESERVED_PREFIX}, which marks subscriptions of kodoctl"
    read = f"it reads a {suffix} topic" if (suffix := reserved_suffix(local)) else "it is not of the family"
    return f"{read}; only subscriptions of the family read there"


def _hanging(
    live: Live, namespace: NamespaceName, planned: Collection[Address], left_out: Mapping[str, str]
) -> Iterator[tuple[Address, str]]:
    """Yields (address, reason) of live subscriptions, grants on topics and schemas that no planned change is about:
    those of topics that the file leaves out, and those that the file cannot declare.
    """
    for address, found in live.objects.items():
        match found.resource:
            case SubscriptionResource(topic=name) if f"topic.{name}" in left_out:
                reason = "its topic is left out"
            case GrantResource(target=TopicName() as name):
                reason = "a grant on a topic; the format declares roles that produce, work and recall"
            case SchemaResource(topic=name):
                kind = found.resource.definition.partition(":")[0]  # of Avro the text begins with its JSON
                shown = kind if kind.isidentifier() else found.resource.type
                reason = f"a schema ({shown}); declare it as `payload` of the topic"
            case _:
                continue
        if name.namespace == namespace and address not in planned and claim(address, found, live).owner is None:
            yield address, reason
