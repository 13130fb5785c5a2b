"""Changes and findings as JSON and back, for plan files and journals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pydantic import StrictInt

from kodoctl.documents.json_form import dump_values, form
from kodoctl.documents.plan_actions import POLICY_PREFIX
from kodoctl.errors import Diagnostic, Remedy, Severity
from kodoctl.plan.change_document import ChangeRow, EffectiveValue, FieldRow, FindingRow
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
from kodoctl.topology.function_settings import MASKED_KEYS, without_secrets
from kodoctl.topology.json_forms import Numbers, TextSet
from kodoctl.topology.model.policies import from_json, to_json
from kodoctl.topology.resource_json import resource_to_json
from kodoctl.topology.resources import FunctionResource

if TYPE_CHECKING:
    from kodoctl.topology.resources import Resource

Json = dict[str, Any]


_FIELDS: Final[Mapping[FieldName, Any]] = {
    "partitions": StrictInt, "missing_partitions": Numbers, "missing_on": Numbers, "actions": TextSet,
    "definition": Any, "delayed_delivery": Any, "tables": TextSet, "operations": TextSet, "via_root": bool,
    "package": str, "class": str, "output": str, "parallelism": StrictInt, "config": Any, "secrets": Any, "settings": Any, "cpu": Any,
    "memory": Any, "disk": Any, "clusters": TextSet, "admin_roles": TextSet, "service_url": str, "service_url_tls": str,
    "broker_service_url": str, "broker_service_url_tls": str, "publish_rate": Any, "dispatch_rate": Any,
    "brokers": TextSet, "namespaces": TextSet, "primary": TextSet, "secondary": TextSet, "min_available": StrictInt,
    "usage_threshold": StrictInt,
}  # fmt: skip


def field_to_json(field: FieldUpdate) -> FieldRow:
    """One changed field as JSON; values are as in a topology file, or {"foreign": TEXT} for a policy that no file can
    have; sets are sorted lists.
    """
    if isinstance(field, FieldChange) and isinstance(field.after, dict):  # JSON already, with lists
        return {"name": field.name, "before": field.before, "after": field.after}
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
    """The inverse of `field_to_json`. Raises ValueError for an unknown field or an invalid value, KeyError for an
    unknown policy or a missing key.
    """
    name = document["name"]
    if name.startswith(POLICY_PREFIX):
        return _policy_change_from_json(name.removeprefix(POLICY_PREFIX), document)
    for known, kind in _FIELDS.items():
        if known == name:
            return FieldChange(known, *(form(kind).validate_python(document[side]) for side in ("before", "after")))
    raise ValueError(f"unknown field: {name!r}"[:200])


def _policy_change_from_json(policy: str, document: Json) -> PolicyChange:
    def read_value(value: Any) -> Any:
        return None if value is None else from_json(policy, value)

    effective = [
        Effective(read_value(document[key]["value"]), document[key]["from"]) if key in document else None
        for key in ("effective_before", "effective_after")
    ]
    return PolicyChange(policy, read_value(document["before"]), read_value(document["after"]), *effective)


def finding_values(finding: Diagnostic) -> Json:
    """Values of the fields of a `FindingRow`, which `dump_values` turns into JSON."""
    values = {name: getattr(finding, name) for name in ("severity", "code", "summary", "detail", "where")}
    return values if finding.remedy is None else {**values, "remedy": asdict(finding.remedy)}


def finding_of(values: Json) -> Diagnostic:
    """Makes a finding from the values of a `FindingRow` as its form validates them (`where` is a Where, not JSON). It
    is the inverse of `finding_values`, which leaves out `allowed_because`.
    """
    remedy = Remedy(**values["remedy"]) if "remedy" in values else None
    return Diagnostic(**{**values, "severity": Severity(values["severity"]), "remedy": remedy})


def diagnostic_to_json(finding: Diagnostic) -> FindingRow:
    """One finding as JSON."""
    document: FindingRow = dump_values(FindingRow, finding_values(finding))
    return document


def change_values(change: Change) -> Json:
    """Values of the fields of a `ChangeRow`, which `dump_values` turns into JSON."""
    about = change.about
    values = {
        "action": action_of(change),
        "address": change.address,
        "owner": about.owner,
        "reason": about.reason,
        "where": about.where,
        "dangers": [finding_values(finding) for finding in about.dangers],
        "evidence": about.evidence,
        "origin": about.origin,
        "drifted": list(about.drifted),
        "before": None if isinstance(change, Create) else change.before,
        "after": change.after if isinstance(change, Create | Update) else None,
    }
    match change:
        case Update(fields=fields):
            fields_json = [field_to_json(field) for field in fields]
            return {**values, "fields": fields_json, "unload": change.unload, "adopting": change.adopting}
        case Adopt(taken_from=taken_from):
            return {**values, "taken_from": taken_from}
        case _:
            return values


def change_of(values: Json) -> Change:
    """The inverse of `change_values`."""
    origin = Origin(values["origin"]) if values["origin"] else None
    about = ChangeContext(
        values["owner"], values["reason"], values["where"], tuple(map(finding_of, values["dangers"])),
        values["evidence"], origin, tuple(values["drifted"]),
    )  # fmt: skip
    before, after = values["before"], values["after"]
    match values["action"]:
        case "create":
            return Create(after, about)
        case "update":
            fields = tuple(map(field_from_json, values["fields"]))
            return Update(before, after, fields, about, values["unload"], values["adopting"])
        case "delete":
            return Delete(before, about)
        case "adopt":
            return Adopt(before, about, values["taken_from"])
        case _:
            return Forget(values["address"], before, about)


def change_to_json(change: Change) -> ChangeRow:
    """One change as JSON."""
    document: ChangeRow = dump_values(ChangeRow, change_values(change))
    return document


def change_from_json(document: Json) -> Change:
    """The inverse of `change_to_json`. Raises ValueError (such as pydantic's ValidationError) for an invalid document,
    KeyError for one with an unknown policy.
    """
    return change_of(form(ChangeRow).validate_python(document))


def describe(resource: Resource) -> str:
    """The settings of a resource as text, for messages that compare an earlier with a present state; "there" if it has
    none. Values of a function's settings whose names say that they are secret are not shown.
    """
    document = resource_to_json(resource)
    hidden = {
        "kind",
        "name",
        "topic",
        "target",
        "role",
        "start",
        "managed",
        "policies",
        "namespace",
        "database",
        "home",
    }
    settings = {**{key: value for key, value in document.items() if key not in hidden}, **document.get("policies", {})}
    if isinstance(resource, FunctionResource):
        settings |= {key: without_secrets(json.loads(getattr(resource, key))) for key in sorted(MASKED_KEYS)}
    shown = [f"{key} {value_text(value)}" for key, value in settings.items() if value not in ([], {})]
    return ", ".join(shown) or "there"
