"""Field types with their JSON form, for classes whose values pydantic reads and writes by the types of the fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    StrictInt,
    TypeAdapter,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from kodoctl.topology.names import NamespaceName, TopicName


class FormOf:
    """Annotation of a field whose JSON is that of the class `cls`: validation makes a value of `cls`, and serialization
    takes one.
    """

    def __init__(self, cls: Any) -> None:
        self.cls = cls

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self.cls)


class DescribedBy:
    """Annotation of a field: the type `cls` describes its JSON in a schema. The field is read and written by its own
    type.
    """

    def __init__(self, cls: Any) -> None:
        self.cls = cls

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(TypeAdapter(self.cls).core_schema)


class Listed:
    """Annotation of a class: its JSON form is the list of its fields' values, in their order."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        hints = get_type_hints(source)
        read = BeforeValidator(lambda value: dict(zip(hints, value, strict=True)) if isinstance(value, list) else value)
        write = PlainSerializer(lambda value: [getattr(value, name) for name in hints])
        described = DescribedBy(tuple[tuple(hints.values())])  # type: ignore[misc]  # its types are known when it runs
        return handler.generate_schema(Annotated[source, read, write, described])


def _policies_to_json(policies: Mapping[str, Any]) -> dict[str, Any]:
    """Policies as a file would have them, sorted by name."""
    from kodoctl.topology.model.policies import to_json

    return {name: to_json(policies[name]) for name in sorted(policies)}


def _policies_from_json(document: Mapping[str, Any]) -> Mapping[str, Any]:
    from kodoctl.topology.model.policies import from_json

    return {name: from_json(name, value) for name, value in document.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text"[:200])  # noqa: TRY004 - pydantic reports only ValueError
    return value


def _parse_target(value: Any) -> TopicName | NamespaceName:
    return TopicName.parse(value) if "://" in _text(value) else NamespaceName.parse(value)


def _to_text(value: object) -> str:
    return str(value)


def _to_list(values: Iterable[Any]) -> list[Any]:
    return list(values)


def _to_sorted(values: Iterable[str]) -> list[str]:
    return sorted(values)


_AS_TEXT = PlainSerializer(_to_text, return_type=str)  # pydantic reads a signature; that of a builtin takes 1 ms
NamespaceText = Annotated[NamespaceName, PlainValidator(lambda value: NamespaceName.parse(_text(value))), _AS_TEXT]
TopicText = Annotated[TopicName, PlainValidator(lambda value: TopicName.parse(_text(value))), _AS_TEXT]
TargetText = Annotated[TopicName | NamespaceName, PlainValidator(_parse_target), _AS_TEXT]
TextSet = Annotated[frozenset[str], PlainSerializer(_to_sorted, return_type=list[str])]
Numbers = Annotated[tuple[StrictInt, ...], PlainSerializer(_to_list, return_type=list[int])]
Texts = Annotated[tuple[str, ...], PlainSerializer(_to_list, return_type=list[str])]
TextSets = Annotated[
    Mapping[str, frozenset[str]],
    PlainSerializer(
        lambda sets: {name: sorted(members) for name, members in sorted(sets.items())},
        return_type=dict[str, list[str]],
    ),
]
PolicyForms = Annotated[
    Mapping[str, Any],
    AfterValidator(_policies_from_json),
    PlainSerializer(_policies_to_json, return_type=dict[str, Any]),
]
