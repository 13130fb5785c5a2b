"""Resources and changes as JSON and back: what plan files, fingerprints and digests are made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, assert_never

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
    FieldName,
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
T = TypeVar("T")


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


@dataclass(frozen=True, slots=True)
class Form:
    """JSON form of a kind of value. `read` is the inverse of `write` and raises TypeError or ValueError on anything else."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


Forms = Mapping[str, Form]  # by the names of a class's fields


def record_to_json(record: object, forms: Forms) -> Json:
    """The fields of a value, by name."""
    return {name: form.write(getattr(record, name)) for name, form in forms.items()}


def record_from_json(cls: type[T], document: Json, forms: Forms) -> T:
    """The inverse of record_to_json. Raises KeyError for a missing field, and what its forms raise."""
    return cls(**{name: form.read(document[name]) for name, form in forms.items()})


def resource_to_json(resource: Resource) -> Json:
    """One resource; `kind` is its kind."""
    kind = next(kind for kind, (cls, _) in _RESOURCES.items() if isinstance(resource, cls))
    return {"kind": kind, **record_to_json(resource, _RESOURCES[kind][1])}


def resource_from_json(document: Json) -> Resource:
    """The inverse of resource_to_json. Raises KeyError, TypeError, ValueError or pydantic's ValidationError on anything else."""
    kind = document["kind"]
    if kind not in _RESOURCES:
        raise ValueError(f"unknown kind of resource: {kind!r}")
    return record_from_json(_RESOURCES[kind][0], document, _RESOURCES[kind][1])


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


def _as_it_is(value: Any) -> Any:
    return value


def _topic_or_namespace(value: Any) -> TopicName | NamespaceName:
    return TopicName.parse(text(value)) if "://" in text(value) else NamespaceName.parse(value)


PLAIN: Final = Form(_as_it_is, _as_it_is)
TEXT: Final = Form(_as_it_is, text)
TEXTS: Final = Form(sorted, _texts)
NAMESPACE: Final = Form(str, lambda value: NamespaceName.parse(text(value)))
_TOPIC: Final = Form(str, lambda value: TopicName.parse(text(value)))
_NUMBER: Final = Form(_as_it_is, _number)
_NUMBERS: Final = Form(list, _numbers)
_POLICIES: Final = Form(policies_to_json, policies_from_json)
_TEXTS_OR_NONE: Final = Form(
    lambda value: None if value is None else sorted(value), lambda value: None if value is None else _texts(value)
)
_RESOURCES: Final[Mapping[str, tuple[type[Resource], Forms]]] = {
    "tenant": (TenantResource, {"name": TEXT, "clusters": TEXTS, "admin_roles": TEXTS}),
    "namespace": (NamespaceResource, {"name": NAMESPACE, "policies": _POLICIES, "managed": _TEXTS_OR_NONE}),
    "topic": (TopicResource, {"name": _TOPIC, "partitions": _NUMBER, "policies": _POLICIES, "missing": _NUMBERS}),
    "subscription": (SubscriptionResource, {"topic": _TOPIC, "name": TEXT, "start": PLAIN, "missing_on": _NUMBERS}),
    "grant": (GrantResource, {"target": Form(str, _topic_or_namespace), "role": TEXT, "actions": TEXTS}),
    "schema": (SchemaResource, {"topic": _TOPIC, "type": PLAIN, "definition": TEXT}),
}
_FIELDS: Final[Mapping[FieldName, Form]] = {
    "partitions": _NUMBER, "missing_partitions": _NUMBERS, "missing_on": _NUMBERS, "actions": TEXTS,
    "definition": PLAIN, "delayed_delivery": PLAIN,
}  # fmt: skip


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
    name = text(document["name"])
    if name.startswith(POLICY_PREFIX):
        return _policy_change_from_json(name.removeprefix(POLICY_PREFIX), document)
    for known, form in _FIELDS.items():
        if known == name:
            return FieldChange(known, form.read(document["before"]), form.read(document["after"]))
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
