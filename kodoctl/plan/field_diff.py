"""Comparison of a live object with the declared one, field by field. Pure; independent of ownership."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import Diagnostic, error, warning
from kodoctl.plan.changes import Effective, FieldChange, FieldName, FieldUpdate, PolicyChange
from kodoctl.plan.policy_levels import NamespaceChanges, PolicyLevels, levels_of
from kodoctl.pulsar.values.live_objects import FunctionFacts
from kodoctl.text.formatting import many, value_text
from kodoctl.topology.function_settings import PULSAR_SETTINGS, settings_text, shown_settings
from kodoctl.topology.model.policies import (
    AT_CREATION,
    OFFLOAD_DEFAULTS,
    ONLY_WHERE_NAMED,
    TOPIC_POLICY_NAMES,
    AutoTopicCreation,
    BacklogQuota,
    Offload,
    Policies,
    PolicyValue,
)
from kodoctl.topology.resources import (
    BUILTIN,
    Address,
    FunctionResource,
    GrantResource,
    NamespaceResource,
    PackageResource,
    PlatformResource,
    PublicationResource,
    Resource,
    SchemaResource,
    SubscriptionResource,
    TopicResource,
)
from kodoctl.topology.units import UNLIMITED, Duration

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired, DesiredObject
    from kodoctl.pulsar.values.live_objects import Live, LiveObject
    from kodoctl.topology.names import NamespaceName

_JSON_TEXTS: Final = frozenset({"config", "secrets", "settings"})  # fields of a function that are texts of JSON
_MOVE: Final = """:
  1. declare a topic with another name and the same subscriptions, and apply
  2. deploy consumers that read both topics
  3. let the producers send to the new one
  4. when `kodoctl status` shows the old one drained, take it out of the file and apply; if no apply made it, delete it by hand"""
# A topic's value that, once set, can only be set back to this: DELETE answers 405, null is stored as false.
NEVER_UNSET = {"schema_validation": False}
# Namespace policies that Pulsar always answers: the default and "unset" look alike.
ALWAYS_SET = {
    "schema_validation": False,
    "encryption_required": False,
    "allow_auto_update_schema": True,
    "subscription_auth": "none",
}


class FieldDiff:
    """Comparison of the fields of live objects with those of declared ones. `set_by_us`: returns the names of a
    namespace's policies that an earlier apply of these topologies set; `includes`: returns True for the addresses that
    are compared.
    """

    def __init__(
        self,
        desired: Desired,
        live: Live,
        set_by_us: Callable[[NamespaceName], frozenset[str]],
        includes: Callable[[Address], bool],
    ) -> None:
        self._desired, self._live, self._set_by_us, self._includes = desired, live, set_by_us, includes

    def fields(self, wanted: DesiredObject, found: LiveObject) -> tuple[FieldUpdate, ...]:
        """Returns the changed fields of an object; () if an update has nothing to write. A difference that no update
        can write, such as fewer partitions, other inputs of a function, or other content of a package, may be missing
        here: `unsupported_changes` yields an error for it. Both objects are of one kind, which is not that of grants,
        schemas or slots.
        """
        match wanted.resource, found.resource:
            case TopicResource(name=name), TopicResource():
                return topic_fields(wanted, found, self._levels(name.namespace), self._live.unsupported)
            case NamespaceResource() as after, NamespaceResource() as before:
                return namespace_fields(after, before, self._set_by_us(after.name), self._live.broker_defaults)
            case PublicationResource() as after, PublicationResource() as before:
                return publication_fields(after, before)
            case FunctionResource() as after, FunctionResource() as before:
                return function_fields(after, before)
            case PackageResource(), PackageResource():
                return ()  # another content is refused
            case after, before if isinstance(after, PlatformResource):
                return platform_fields(after, before)
            case _:
                assert isinstance(found.resource, SubscriptionResource)
                return subscription_fields(found.resource)

    def supported(self, resource: Resource) -> Resource:
        """Returns a topic without the policies that this broker does not support; other resources as they are."""
        if not isinstance(resource, TopicResource) or not self._live.unsupported & resource.policies.keys():
            return resource
        kept = {name: value for name, value in resource.policies.items() if name not in self._live.unsupported}
        return replace(resource, policies=kept)

    def unsupported(self) -> Iterator[Diagnostic]:
        """Yields a warning (K421) for each topic policy that this broker does not support, if some compared topic
        declares it and, after the plan, gets another value from its namespace or the broker.
        """
        for policy in sorted(self._live.unsupported):
            unsaid = []
            for address, wanted in self._desired.objects.items():
                topic = wanted.resource
                if isinstance(topic, TopicResource) and policy in topic.policies and self._includes(address):
                    counts = self._levels(topic.name.namespace).effective(policy, None, after=True)
                    value = UNLIMITED if counts.value is None else counts.value  # Pulsar's own default
                    if value != topic.policies[policy]:
                        unsaid.append((address, f"{value} ({counts.source})", wanted.where))
            if unsaid:
                address, instead, where = unsaid[0]
                more = f" and {len(unsaid) - 1} more" if len(unsaid) > 1 else ""
                detail = (
                    f"{policy} of {address}{more} is not written: this broker knows it for namespaces only; what counts"
                    f" there is {instead}; set it under `namespace_policies`, or use a newer broker"
                )
                yield warning("K421", "a policy this broker does not have", detail, where)

    def _levels(self, namespace: NamespaceName) -> PolicyLevels:
        return levels_of(namespace, self._live, self._namespace_changes)

    @cached_property
    def _namespace_changes(self) -> NamespaceChanges:
        """The policies that the files change on namespaces, those of namespaces that are to be created among them."""
        found = {}
        for address, wanted in self._desired.objects.items():
            if isinstance(wanted.resource, NamespaceResource) and self._includes(address):
                name = wanted.resource.name
                there = NamespaceResource(name, self._live.namespace_policies.get(name, {}))
                keys, broker = self._set_by_us(name), self._live.broker_defaults
                found[name] = namespace_fields(wanted.resource, there, keys, broker)
        return found


def topic_fields(
    wanted: DesiredObject, found: LiveObject, levels: PolicyLevels, unsupported: frozenset[str]
) -> tuple[FieldUpdate, ...]:
    """Returns the changed fields of a topic: a larger number of partitions, missing partitions, policies that differ
    (also those that the file does not set, which become unset), and a setting that stalls delayed delivery. Ignored and
    unsupported policies are left out, and those of ONLY_WHERE_NAMED that the file neither sets nor unsets by name.
    """
    after, before = wanted.resource, found.resource
    assert isinstance(after, TopicResource)
    assert isinstance(before, TopicResource)
    fields: list[FieldUpdate] = []
    if after.partitions > before.partitions > 0:
        fields.append(FieldChange("partitions", before.partitions, after.partitions))
    if before.missing:
        fields.append(FieldChange("missing_partitions", before.missing, ()))
    for name in TOPIC_POLICY_NAMES:
        old, new = before.policies.get(name), after.policies.get(name)
        is_free = new is None and name in ONLY_WHERE_NAMED and name not in wanted.unset
        if name in wanted.ignore or name in unsupported or is_free:
            continue
        if not is_equal(name, old, new):
            fields.append(
                PolicyChange(
                    name,
                    old,
                    new,
                    levels.effective(name, old, after=False),
                    levels.effective(name, new, after=True),
                )
            )
    if found.stalls_delivery:
        fields.append(FieldChange("delayed_delivery", "set", None))
    return tuple(fields)


def unsupported_changes(
    wanted: DesiredObject, found: LiveObject, known: frozenset[str] = frozenset()
) -> Iterator[Diagnostic]:
    """Yields an error if a topic would need a change that Pulsar cannot make: fewer partitions (K411), a plain topic
    that becomes partitioned (K412), or the reverse (K437); if a function or connector would need a change that it
    cannot take, or has no room for a marker (K450); and if a version of a package would get other content, or its live
    content is not known (K458). `known`: codes of earlier errors; if K412 or K437 is among them, the steps to another
    topic are not listed again.
    """
    after, before = wanted.resource, found.resource
    if isinstance(after, FunctionResource) and isinstance(before, FunctionResource):
        yield from _unchangeable(wanted, after, before, found)
    if isinstance(after, PackageResource) and isinstance(before, PackageResource) and after.digest != before.digest:
        yield _other_content(wanted, before.digest)
    if not isinstance(after, TopicResource) or not isinstance(before, TopicResource):
        return
    steps = _MOVE if known.isdisjoint({"K412", "K437"}) else ""
    if after.partitions and not before.partitions:
        detail = f"{after.name} is a plain topic and cannot become partitioned. Write `partitioned: false`, or move to a new topic{steps}"
        yield error("K412", "plain topic in the place of a partitioned one", detail, wanted.where)
    elif before.partitions and not after.partitions:
        kept = many(before.partitions, "partition")
        detail = f"{after.name} has {kept} and cannot become a plain topic. Leave `partitioned` out, or move to a new topic{steps}"
        yield error("K437", "partitioned topic in the place of a plain one", detail, wanted.where)
    elif after.partitions < before.partitions:
        detail = (
            f"{after.name} has {before.partitions} partitions, the file says {after.partitions}: partitions never shrink."
            f" Write {before.partitions}; or declare a new topic, move producers, drain the old one, take it out"
        )
        yield error("K411", "partitions would shrink", detail, wanted.where)


def _unchangeable(
    wanted: DesiredObject, after: FunctionResource, before: FunctionResource, found: LiveObject
) -> Iterator[Diagnostic]:
    """Yields an error (K450) if fields differ that no update of a function can change, or if it cannot be marked."""
    values: list[tuple[str, Any, Any]] = [
        ("runtime", before.runtime, after.runtime),
        ("inputs", ", ".join(sorted(before.inputs)), ", ".join(sorted(after.inputs))),
        ("subscription", before.subscription, after.subscription),
        ("guarantees", before.guarantees, after.guarantees),
    ]
    kept: tuple[tuple[str, Any, Any], ...] = (
        ("retries", before.retries, after.retries),
        ("dead_letter_topic", before.dead_letter_topic, after.dead_letter_topic),
        ("redelivery_delay", _delay(before), _delay(after)),
    )
    values += [(name, "none" if old is None else old, new) for name, old, new in kept if new is not None]
    settings, known = json.loads(after.settings), PULSAR_SETTINGS[after.kind]
    shown = json.loads(_shown_settings(before, after))
    values += [(name, value_text(shown[name]), value_text(new)) for name, new in settings.items() if not known[name]]
    if before.output and not after.output:
        values.append(("output", before.output, "none"))
    builtin = [one.package.startswith(BUILTIN) for one in (before, after)]
    if before.package and builtin[0] != builtin[1]:
        values.append(("package", before.package, after.package))
    wrong = [f"`{name}` {old}, the file says {new}" for name, old, new in values if old != new]
    if isinstance(found.facts, FunctionFacts) and found.facts.has_foreign_options:
        wrong.append("its customRuntimeOptions are no JSON object, so that kodoctl could not mark it")
    if wrong:
        way = "write the live values, or declare one of another name and take this one out of the file"
        detail = f"{after.address}: {'; '.join(wrong)}: {way}"
        yield error("K450", "a change that no function or connector can take", detail, wanted.where)


def _other_content(wanted: DesiredObject, digest: str) -> Diagnostic:
    """An error (K458) for a package whose version has other content on the cluster, or content that is not known."""
    assert isinstance(wanted.resource, PackageResource)
    there = (
        f"the cluster has other content under this version (SHA-256 {digest[:12]}, the file has {wanted.resource.digest[:12]})"
        if digest
        else "no apply uploaded it whole, so that its content on the cluster is not known"
    )
    way = "a version never changes: declare the file under a new one, and name that in `functions`, `sinks` or `io_sources`"
    return error("K458", "a package that stays as it is", f"{wanted.resource.address}: {there}; {way}", wanted.where)


def _delay(sink: FunctionResource) -> Duration | None:
    return None if sink.redelivery_delay is None else Duration(sink.redelivery_delay)


def namespace_fields(
    after: NamespaceResource, before: NamespaceResource, set_by_us: Iterable[str], broker: Policies
) -> tuple[PolicyChange, ...]:
    """Returns the changed policies of a namespace, sorted by name: those that the file names, and those that an earlier
    apply set (`set_by_us`) and the file no longer names; () if none differs. Bundles never change, nor do policies of
    ONLY_WHERE_NAMED (clusters) that the file does not set, because Pulsar cannot unset these; one of ALWAYS_SET gets
    its default instead. `broker`: the broker's values for unset policies.
    """
    fields: list[PolicyChange] = []
    for name in sorted((after.managed or frozenset()) | frozenset(set_by_us)):
        old, new = before.policies.get(name), after.policies.get(name)
        if name in AT_CREATION or (new is None and name in ONLY_WHERE_NAMED):
            continue  # a namespace always has clusters and bundles: Pulsar knows no way to unset them
        if new is None and name in ALWAYS_SET:
            new = ALWAYS_SET[name]
        if normalize(old) != normalize(new):
            effective = (_on_namespace(name, value, broker) for value in (old, new))
            fields.append(PolicyChange(name, old, new, *effective))
    return tuple(fields)


def _on_namespace(name: str, value: PolicyValue | None, broker: Policies) -> Effective:
    if value is not None:
        return Effective(value, "namespace")
    return Effective(broker[name], "broker") if name in broker else Effective(None, "broker default")


def subscription_fields(before: SubscriptionResource) -> tuple[FieldChange, ...]:
    """Returns the field `missing_on` if partitions lack the subscription, so that an update creates it there, or ()."""
    return (FieldChange("missing_on", before.missing_on, ()),) if before.missing_on else ()


def publication_fields(after: PublicationResource, before: PublicationResource) -> tuple[FieldChange, ...]:
    """Returns the changed fields of a publication; () if it is as declared."""
    names: tuple[FieldName, ...] = ("tables", "operations", "via_root")
    values = ((name, getattr(before, name), getattr(after, name)) for name in names)
    return tuple(FieldChange(name, old, new) for name, old, new in values if old != new)


def function_fields(after: FunctionResource, before: FunctionResource) -> tuple[FieldChange, ...]:
    """Returns the changed fields of a function or connector among those that `FieldChange` has; () if none differs,
    though its inputs, for example, may (`unsupported_changes`). A field or setting that the file leaves out stays as it
    is, because the worker has filled it in; but `parallelism` and `config` then become their defaults. A live package
    that is not known ("") counts as changed.
    """
    values: tuple[tuple[FieldName, Any, Any], ...] = (
        ("package", before.package, after.package),
        ("class", before.class_name, after.class_name or before.class_name),
        ("output", before.output, after.output or before.output),
        ("parallelism", before.parallelism, after.parallelism),
        ("config", before.config, after.config),
        ("secrets", before.secrets, before.secrets if after.secrets is None else after.secrets),
        ("settings", _shown_settings(before, after), after.settings),
        ("cpu", before.cpu, before.cpu if after.cpu is None else after.cpu),
        ("memory", before.memory, before.memory if after.memory is None else after.memory),
        ("disk", before.disk, before.disk if after.disk is None else after.disk),
    )
    changed = ((name, old, new) for name, old, new in values if old != new)
    return tuple(
        FieldChange(name, *((json.loads(old or "{}"), json.loads(new)) if name in _JSON_TEXTS else (old, new)))
        for name, old, new in changed
    )


def _shown_settings(live: FunctionResource, declared: FunctionResource) -> str:
    """The live settings by Pulsar's names, as far as they are declared: what the file leaves out stays as it is."""
    return settings_text(shown_settings(json.loads(live.settings), json.loads(declared.settings)))


def function_value(function: FunctionResource, name: str) -> Any:
    """The value of a function's field, by the field's name in `FieldChange`; that of `config`, `secrets` and `settings`
    as parsed JSON, {} if it has none.
    """
    value = getattr(function, "class_name" if name == "class" else name)
    return json.loads(value or "{}") if name in _JSON_TEXTS else value


PLATFORM_FIELDS: Final[tuple[FieldName, ...]] = (
    "clusters", "admin_roles", "service_url", "service_url_tls", "broker_service_url", "broker_service_url_tls", "settings",
    "publish_rate", "dispatch_rate", "brokers", "namespaces", "primary", "secondary", "min_available",
    "usage_threshold",
)  # fmt: skip


def platform_fields(after: PlatformResource, before: Resource) -> tuple[FieldChange, ...]:
    """Returns the changed fields of an object of the whole cluster; () if it is as declared. Addresses and `settings`
    of a cluster that the file leaves out stay as they are. `before`: an object of the same kind.
    """
    wanted = {name: getattr(after, name) for name in PLATFORM_FIELDS if hasattr(after, name)}
    values = ((name, platform_value(before, name, new), new) for name, new in wanted.items())
    return tuple(FieldChange(name, old, new) for name, old, new in values if new not in ("", old))


def platform_value(resource: Resource, name: str, like: Any) -> Any:
    """The value of a field of `platform_fields`. `like`: `settings` of a cluster whose names alone are returned, as by
    `shown_settings`; other fields do not use it.
    """
    value = getattr(resource, name)
    return shown_settings(value, like) if name == "settings" else value


def grant_fields(
    after: GrantResource, before: GrantResource, granted_by_us: frozenset[str], granted_by_others: frozenset[str]
) -> tuple[FieldChange, ...]:
    """Returns the change of the field `actions` of a grant; () if it does not change. Actions are revoked only if our
    ledger gave them, no other ledger did, and the file no longer names them; other actions that the role has stay.
    """
    revoked = granted_by_us - after.actions - granted_by_others
    actions = (before.actions | after.actions) - revoked
    return (FieldChange("actions", before.actions, actions),) if actions != before.actions else ()


def schema_fields(after: SchemaResource, before: SchemaResource) -> tuple[FieldChange, ...]:
    """Returns the change to a new version of the schema; () if definition and type are equal."""
    same = after.definition == before.definition and after.type == before.type
    return () if same else (FieldChange("definition", before.definition, after.definition),)


def is_equal(name: str, shown: PolicyValue | None, wanted: PolicyValue | None) -> bool:
    """True if the broker shows the wanted value, or one with the same meaning (`normalize`). If no value is wanted, the
    default of a topic policy that cannot be unset (NEVER_UNSET) counts as equal; that of a namespace's (ALWAYS_SET)
    does not.
    """
    return normalize(shown) == normalize(wanted) or (
        wanted is None and name in NEVER_UNSET and shown == NEVER_UNSET[name]
    )


def normalize(value: PolicyValue | None) -> PolicyValue | None:
    """Returns a form of the value for comparison alone, in which values with the same meaning are equal: it ignores the
    order of a list, `when_full` of a backlog quota that has `when_old` and no size, a `when_old` that equals
    `when_full`, and Pulsar's defaults among offload settings. For automatically created topics, one partition is the
    default, and the type `non-partitioned` is the same as true. None ("not set") stays None.
    """
    match value:
        case tuple():
            return frozenset(value)
        case dict():
            return {name: normalize(member) for name, member in value.items()}
        case BacklogQuota(size=None, when_old=str() as when_old):  # Pulsar keeps the one action, that of the age
            return value.model_copy(update={"when_full": when_old, "when_old": None})
        case BacklogQuota(when_full=when_full, when_old=when_old) if when_full == when_old:
            return value.model_copy(update={"when_old": None})
        case Offload(settings=dict() as settings):  # Pulsar shows numbers, and its defaults whoever set them
            kept = {name: str(one) for name, one in settings.items() if str(one) != str(OFFLOAD_DEFAULTS.get(name))}
            return value.model_copy(update={"settings": kept or None})
        case AutoTopicCreation(type="non-partitioned"):
            return True
        case AutoTopicCreation(partitions=None):
            return AutoTopicCreation(type="partitioned", partitions=1)
        case _:
            return value
