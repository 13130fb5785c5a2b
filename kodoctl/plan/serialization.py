"""Resources and changes as JSON and back: what plan files, fingerprints and digests are made of."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, assert_never

from kodoctl.errors import Diagnostic, Remedy, Severity, Where
from kodoctl.plan.changes import (
    POLICY_PREFIX,
    Adopt,
    Change,
    ChangeContext,
    Create,
    Delete,
    Effective,
    FieldChange,
    FieldUpdate,
    Forget,
    Origin,
    PolicyChange,
    Update,
    action_of,
)
from kodoctl.topology.model.policies import Policies, from_json, to_json
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import (
    GrantResource,
    NamespaceResource,
    Resource,
    SchemaResource,
    SubscriptionResource,
    TenantResource,
    TopicResource,
)

if TYPE_CHECKING:
    from kodoctl.documents.plan_document import ChangeRow, EffectiveValue, FieldRow, FindingRow

Json = dict[str, Any]


def digest(document: Any) -> str:
    """SHA-256 of a document's canonical JSON."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def policies_to_json(policies: Policies) -> Json:
    """Policies as the file would write them."""
    return {name: to_json(policies[name]) for name in sorted(policies)}


def policies_from_json(document: Json) -> Policies:
    """The inverse of policies_to_json."""
    return {name: from_json(name, value) for name, value in document.items()}


def resource_to_json(resource: Resource) -> Json:
    """One resource; `kind` tells which."""
    match resource:
        case TenantResource():
            return {
                "kind": "tenant",
                "name": resource.name,
                "clusters": sorted(resource.clusters),
                "admin_roles": sorted(resource.admin_roles),
            }
        case NamespaceResource():
            managed = None if resource.managed is None else sorted(resource.managed)
            return {
                "kind": "namespace",
                "name": str(resource.name),
                "policies": policies_to_json(resource.policies),
                "managed": managed,
            }
        case TopicResource():
            policies = policies_to_json(resource.policies)
            return {
                "kind": "topic",
                "name": resource.name.full,
                "partitions": resource.partitions,
                "policies": policies,
                "missing": list(resource.missing),
            }
        case SubscriptionResource():
            return {
                "kind": "subscription",
                "topic": resource.topic.full,
                "name": resource.name,
                "start": resource.start,
                "missing_on": list(resource.missing_on),
            }
        case GrantResource():
            return {
                "kind": "grant",
                "target": str(resource.target),
                "role": resource.role,
                "actions": sorted(resource.actions),
            }
        case SchemaResource():
            return {
                "kind": "schema",
                "topic": resource.topic.full,
                "type": resource.type,
                "definition": resource.definition,
            }
        case _:
            assert_never(resource)


def resource_from_json(document: Json) -> Resource:
    """The inverse of resource_to_json. Raises KeyError, TypeError, ValueError or pydantic's ValidationError on anything else."""
    match document["kind"]:
        case "tenant":
            return TenantResource(text(document["name"]), _texts(document["clusters"]), _texts(document["admin_roles"]))
        case "namespace":
            managed = None if document["managed"] is None else _texts(document["managed"])
            return NamespaceResource(
                NamespaceName.parse(text(document["name"])), policies_from_json(document["policies"]), managed
            )
        case "topic":
            policies = policies_from_json(document["policies"])
            name, lacking = TopicName.parse(text(document["name"])), _numbers(document["missing"])
            return TopicResource(name, _number(document["partitions"]), policies, lacking)
        case "subscription":
            topic, missing = TopicName.parse(text(document["topic"])), _numbers(document["missing_on"])
            return SubscriptionResource(topic, text(document["name"]), document["start"], missing)
        case "grant":
            target = text(document["target"])
            parsed = TopicName.parse(target) if "://" in target else NamespaceName.parse(target)
            return GrantResource(parsed, text(document["role"]), _texts(document["actions"]))
        case "schema":
            topic = TopicName.parse(text(document["topic"]))
            return SchemaResource(topic, document["type"], text(document["definition"]))
        case _:
            raise ValueError(f"unknown kind of resource: {document['kind']!r}")


def text(value: Any) -> str:
    """A value that must be text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text"[:200])
    return value


def _texts(values: Any) -> frozenset[str]:
    return frozenset(map(text, values))


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no number"[:200])
    return value


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(map(_number, values))


def field_to_json(field: FieldUpdate) -> FieldRow:
    """One changed field, values as the file would write them."""
    document: FieldRow = {"name": field.name, "before": _value(field.before), "after": _value(field.after)}
    if isinstance(field, PolicyChange):
        if field.effective_before is not None:
            document["effective_before"] = _effective(field.effective_before)
        if field.effective_after is not None:
            document["effective_after"] = _effective(field.effective_after)
    return document


def _effective(counting: Effective) -> EffectiveValue:
    return {"value": _value(counting.value), "from": counting.source}


def _value(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return None if value is None else to_json(value)


def field_from_json(document: Json) -> FieldUpdate:
    """The inverse of field_to_json. Raises ValueError for a field that there is not."""
    name, before, after = text(document["name"]), document["before"], document["after"]
    if name.startswith(POLICY_PREFIX):
        return _policy_change_from_json(name.removeprefix(POLICY_PREFIX), document)
    match name:
        case "actions":
            return FieldChange(name, _texts(before), _texts(after))
        case "missing_on" | "missing_partitions":
            return FieldChange(name, _numbers(before), _numbers(after))
        case "partitions":
            return FieldChange(name, _number(before), _number(after))
        case "definition" | "delayed_delivery":
            return FieldChange(name, before, after)
        case _:
            raise ValueError(f"unknown field: {name!r}"[:200])


def _policy_change_from_json(policy: str, document: Json) -> PolicyChange:
    def read(value: Any) -> Any:
        return None if value is None else from_json(policy, value)

    effective = [
        Effective(read(document[key]["value"]), document[key]["from"]) if key in document else None
        for key in ("effective_before", "effective_after")
    ]
    return PolicyChange(policy, read(document["before"]), read(document["after"]), *effective)


def diagnostic_to_json(finding: Diagnostic) -> FindingRow:
    """One finding."""
    where = [finding.where.file, finding.where.line, finding.where.column] if finding.where else None
    document: FindingRow = {
        "severity": finding.severity.value,
        "code": finding.code,
        "summary": finding.summary,
        "detail": finding.detail,
        "where": where,
    }
    if finding.remedy is not None:
        document["remedy"] = {"flag": finding.remedy.flag, "value": finding.remedy.value}
    return document


def diagnostic_from_json(document: Json) -> Diagnostic:
    """The inverse of diagnostic_to_json."""
    where = Where(*document["where"]) if document["where"] else None
    remedy = _remedy_from_json(document["remedy"]) if "remedy" in document else None
    return Diagnostic(
        Severity(document["severity"]),
        document["code"],
        document["summary"],
        document["detail"],
        where,
        remedy=remedy,
    )


def _remedy_from_json(document: Json) -> Remedy:
    return Remedy(text(document["flag"]), None if document["value"] is None else text(document["value"]))


def change_to_json(change: Change) -> ChangeRow:
    """One change: `action` tells which; `before` and `after` are whole resources or null."""
    about = change.about
    document: ChangeRow = {
        "action": action_of(change).value,
        "address": change.address,
        "owner": about.owner,
        "reason": about.reason,
        "where": [about.where.file, about.where.line, about.where.column] if about.where else None,
        "dangers": [diagnostic_to_json(finding) for finding in about.dangers],
        "evidence": about.evidence,
        "origin": about.origin,
        "drifted": list(about.drifted),
        "before": None,
        "after": None,
    }
    if not isinstance(change, Create) and change.before is not None:
        document["before"] = resource_to_json(change.before)
    match change:
        case Create(after=after):
            document["after"] = resource_to_json(after)
        case Update(after=after, fields=fields):
            document["after"] = resource_to_json(after)
            document["fields"] = [field_to_json(field) for field in fields]
            document["unload"], document["adopting"] = change.unload, change.adopting
        case Adopt(taken_from=taken_from):
            document["taken_from"] = taken_from
        case Delete() | Forget():
            pass
        case _:
            assert_never(change)
    return document


def change_from_json(document: Json) -> Change:
    """The inverse of change_to_json."""
    where = Where(*document["where"]) if document["where"] else None
    dangers = tuple(diagnostic_from_json(finding) for finding in document["dangers"])
    origin = Origin(document["origin"]) if document["origin"] else None
    drifted = tuple(document["drifted"])
    about = ChangeContext(
        text(document["owner"]), document["reason"], where, dangers, document["evidence"], origin, drifted
    )
    before = resource_from_json(document["before"]) if document["before"] else None
    after = resource_from_json(document["after"]) if document["after"] else None
    match document["action"], before, after:
        case "create", None, resource if resource:
            return Create(resource, about)
        case "update", old, new if old and new:
            fields = tuple(field_from_json(field) for field in document["fields"])
            return Update(old, new, fields, about, document["unload"], document["adopting"])
        case "delete", resource, None if resource:
            return Delete(resource, about)
        case "adopt", resource, None if resource:
            return Adopt(resource, about, document["taken_from"])
        case "forget", resource, None:
            return Forget(text(document["address"]), resource, about)
        case _:
            raise ValueError(f"not a change: {document['action']!r}")


def describe(resource: Resource) -> str:
    """A resource in a few words, for messages about what was and is."""
    document = resource_to_json(resource)
    hidden = {"kind", "name", "topic", "target", "role", "start", "managed"}
    shown = [f"{key} {_plain(value)}" for key, value in document.items() if key not in hidden and value not in ([], {})]
    return ", ".join(shown) or "there"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
