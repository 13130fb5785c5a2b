"""Resources as JSON and back: for plan files, fingerprints, digests and the views of `kodoctl expand`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

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

Json = dict[str, Any]
T = TypeVar("T")


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
    """The inverse of `record_to_json`. Raises KeyError for a missing field, and the errors of its forms."""
    return cls(**{name: form.read(document[name]) for name, form in forms.items()})


def resource_to_json(resource: Resource) -> Json:
    """One resource; `kind` is its kind."""
    kind = _KINDS[type(resource)]
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
NUMBER: Final = Form(_as_it_is, _number)
NUMBERS: Final = Form(list, _numbers)
_POLICIES: Final = Form(policies_to_json, policies_from_json)
_TEXTS_OR_NONE: Final = Form(
    lambda value: None if value is None else sorted(value), lambda value: None if value is None else _texts(value)
)
_RESOURCES: Final[Mapping[str, tuple[type[Resource], Forms]]] = {
    "tenant": (TenantResource, {"name": TEXT, "clusters": TEXTS, "admin_roles": TEXTS}),
    "namespace": (NamespaceResource, {"name": NAMESPACE, "policies": _POLICIES, "managed": _TEXTS_OR_NONE}),
    "topic": (TopicResource, {"name": _TOPIC, "partitions": NUMBER, "policies": _POLICIES, "missing": NUMBERS}),
    "subscription": (SubscriptionResource, {"topic": _TOPIC, "name": TEXT, "start": PLAIN, "missing_on": NUMBERS}),
    "grant": (GrantResource, {"target": Form(str, _topic_or_namespace), "role": TEXT, "actions": TEXTS}),
    "schema": (SchemaResource, {"topic": _TOPIC, "type": PLAIN, "definition": TEXT}),
}
_KINDS: Final = {cls: kind for kind, (cls, _) in _RESOURCES.items()}
