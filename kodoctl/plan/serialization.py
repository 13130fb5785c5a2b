"""Changes and findings as JSON and back, for plan files and journals; digests of documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

from kodoctl.documents.plan_actions import POLICY_PREFIX
from kodoctl.errors import Diagnostic, Remedy, Severity, Where
from kodoctl.plan.changes import (
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
from kodoctl.text.formatting import value_text
from kodoctl.topology.model.policies import from_json, to_json
from kodoctl.topology.resource_json import (
    NUMBER,
    NUMBERS,
    PLAIN,
    TEXTS,
    Form,
    resource_from_json,
    resource_to_json,
    text,
)

if TYPE_CHECKING:
    from kodoctl.documents.plan_document import ChangeRow, EffectiveValue, FieldRow, FindingRow
    from kodoctl.topology.resources import Resource

Json = dict[str, Any]


def digest(document: Any) -> str:
    """SHA-256 of a document's canonical JSON."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


_FIELDS: Final[Mapping[FieldName, Form]] = {
    "partitions": NUMBER, "missing_partitions": NUMBERS, "missing_on": NUMBERS, "actions": TEXTS,
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
    """One change as JSON. `action` is its kind; `before` and `after` are whole resources or null."""
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
    """A resource in a few words, for messages that compare an earlier with a present state."""
    document = resource_to_json(resource)
    hidden = {"kind", "name", "topic", "target", "role", "start", "managed", "policies"}
    settings = {**{key: value for key, value in document.items() if key not in hidden}, **document.get("policies", {})}
    shown = [f"{key} {value_text(value)}" for key, value in settings.items() if value not in ([], {})]
    return ", ".join(shown) or "there"
