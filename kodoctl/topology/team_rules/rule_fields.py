# pure: every branch is tested
"""Fields that team rules may name: the keys of the models of a topology file, and facts that follow from them."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from math import inf, isnan, nan
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from kodoctl.expressions.ast import ValueKind
from kodoctl.topology.defaults import named_levels
from kodoctl.topology.model.field_types import PositiveInt, Text
from kodoctl.topology.model.policies import TopicPolicies
from kodoctl.topology.model.topology import GroundTopic, Subscription, Topology
from kodoctl.topology.names import Level
from kodoctl.topology.units import UNLIMITED, Duration, Rate, Size, SizeRate

_TEXTS: Final = tuple[Text, ...]
_SHARED: Final = {"owners": _TEXTS, "labels": dict[Text, Text], "partitions": PositiveInt}
"""Fields that subscriptions and topics on Pulsar have from the ground topic."""
_ELSEWHERE: Final = {"version", "topics", "environments", "allow_destroy", "forget"}
"""Keys of a file that are no values of its topology as a whole, or are judged by themselves."""


_ORDERED: Final = (int, float, Duration, Size, Rate, SizeRate)


class UnknownFieldError(ValueError):
    """No such field. The text says which part of the path is unknown, and what is known there."""


class WrongOperandError(ValueError):
    """A value that the field of a test can never have, or that the test cannot compare. The text says why."""


@cache
def _fields(kind: str) -> dict[str, Any]:
    """Name of each field of a kind of object -> its type."""
    match kind:
        case "topologies":
            return {name: one for name, one in _members(Topology).items() if name not in _ELSEWHERE}
        case "topics":
            own = {name: one for name, one in _members(GroundTopic).items() if name != "subscriptions"}
            return {"name": Text, "fed_by": _TEXTS, **own}
        case "subscriptions":
            return {"name": Text, "topic": Text, **_SHARED, **_members(Subscription)}
        case _:
            states = Literal["ready", "retrying", "pending", "blocking", "dead", "audit"]
            facts = {"name": Text, "topic": Text, "subscription": Text, "level": Text, "state": states}
            return {**facts, **_SHARED, "policies": TopicPolicies}


def _members(model: type[BaseModel]) -> dict[str, Any]:
    return {
        info.alias or name: Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
        for name, info in model.model_fields.items()
    }


def field_type(kind: str, path: str) -> Any:
    """Type of the field at a path such as `policies.retention.time` of a kind of object. After the path of a map whose
    keys a user chooses, the whole rest is one such key, and the type that of the values. Raises UnknownFieldError.
    """
    words = path.split(".")
    members: Mapping[str, Any] = _fields(kind)
    for index, word in enumerate(words[:-1]):
        options = list(_options(_known(kind, words[:index], word, members)))
        models = [one for one in options if isinstance(one, type) and issubclass(one, BaseModel)]
        maps = [one for one in options if get_origin(one) is dict]
        if models:
            members = {name: one for model in models for name, one in _members(model).items()}
        elif maps:  # the rest of the path is a name that a user chose, which may have dots
            return get_args(maps[0])[1]
        else:
            above = ".".join(words[: index + 1])
            raise UnknownFieldError(f"`{above}` has no parts: write it without `.{words[index + 1]}`")
    return _known(kind, words[:-1], words[-1], members)


def _known(kind: str, before: list[str], word: str, members: Mapping[str, Any]) -> Any:
    if word not in members:
        raise UnknownFieldError(_unknown(kind, before, word, members))
    return members[word]


def _unknown(kind: str, before: list[str], word: str, members: Mapping[str, Any]) -> str:
    place = f"`{'.'.join(before)}`" if before else kind
    near = get_close_matches(word, members, 1)
    inside = [name for name, one in members.items() if word in _names_in(one)]
    if inside or near:
        meant = f"{inside[0]}.{word}" if inside else near[0]
        return f"{place} has no {word!r}; did you mean {meant!r}?"
    return f"{place} has no {word!r}; known there: {', '.join(members)}"


def _names_in(annotation: Any) -> set[str]:
    models = [one for one in _options(annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
    return {name for model in models for name in _members(model)}


def _options(annotation: Any) -> Iterator[Any]:
    """Yields the types that a value may have, without None."""
    if get_origin(annotation) is Annotated:
        yield from _options(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from _options(one)
    elif annotation is not type(None):
        yield annotation


def value_kind(annotation: Any, path: str) -> ValueKind:
    """Kind of a field's value in a condition; a list counts as a number, that of its entries. Raises UnknownFieldError
    for a map, which has values below it alone.
    """
    options = list(_options(annotation))
    if is_list(annotation):
        return ValueKind.NUMBER
    for kinds, kind in (((Duration,), ValueKind.SPAN), (_ORDERED, ValueKind.NUMBER), ((bool,), ValueKind.TRUTH)):
        if any(one in kinds for one in options):
            return kind
    if all(get_origin(one) is dict or (isinstance(one, type) and issubclass(one, BaseModel)) for one in options):
        raise UnknownFieldError(f"`{path}` is a map: name a value below it, such as `{path}.x`")
    return ValueKind.TEXT


def is_list(annotation: Any) -> bool:
    """True if the field is a list, or may be one."""
    return any(get_origin(one) is tuple for one in _options(annotation))


def is_switch(annotation: Any) -> bool:
    """True if the field may be a map of settings, or `false` or `off` in place of the map."""
    options = list(_options(annotation))
    has_no = bool in options or any("off" in get_args(one) for one in options)
    return has_no and any(isinstance(one, type) and issubclass(one, BaseModel) for one in options)


def parse_operand(annotation: Any, raw: Any, operator: str) -> Any:
    """Converts the value `raw` of a test (one of them for `in`, `not_in` and `includes`) to the type of its field: for
    bounds of a list a number of entries, for other tests of a list but `equals` an entry. The word `double` in place of
    a list of levels becomes that list. Raises WrongOperandError for a value that the field can never have, and for a
    bound without order.
    """
    if operator in ("at_least", "at_most"):
        return _bound(annotation, raw, operator)
    entry = is_list(annotation) and operator != "equals"
    parsed = _parse(_entry_type(annotation) if entry else annotation, raw)
    is_levels = is_list(annotation) and not entry and _entry_type(annotation) is Level
    return named_levels(parsed) if is_levels else parsed


def _entry_type(annotation: Any) -> Any:
    return next(get_args(one)[0] for one in _options(annotation) if get_origin(one) is tuple)


def _bound(annotation: Any, raw: Any, operator: str) -> Any:
    if is_list(annotation):
        if isinstance(raw, bool) or not isinstance(raw, int) or raw < 0:
            raise WrongOperandError(f"`{operator}` of a list is a number of entries: write a whole number")
        return raw
    if not any(one in _ORDERED for one in _options(annotation)):
        raise WrongOperandError(f"`{operator}` compares numbers, durations, sizes and rates, and this is none of them")
    bound = _parse(annotation, raw)
    if isnan(comparable(bound)):
        raise WrongOperandError(f"`{operator}` compares numbers, durations, sizes and rates, and {raw!r} is none")
    return bound


def _parse(annotation: Any, raw: Any) -> Any:
    try:
        return TypeAdapter(annotation).validate_python(raw)
    except ValidationError as problem:
        own = [one["ctx"]["text"] for one in problem.errors() if one["type"] in ("unit", "value")]
        reasons = own or list(dict.fromkeys(one["msg"][:1].lower() + one["msg"][1:] for one in problem.errors()))
        raise WrongOperandError(f"{raw!r} is no value of it: {' or '.join(reasons[:3])}") from None


def comparable(value: Any) -> float:
    """A value as a float: a number as it is, a duration in ms, a size in bytes, a rate per second, a list as the number
    of its entries. `unlimited` is infinity; anything else, such as the word `adaptive`, is nan, with which every
    comparison is false.
    """
    match value:
        case tuple():
            return len(value)
        case Rate():
            return value.per_second
        case SizeRate(amount=amount):
            return float(amount)
        case int() | float():
            return float(value)
        case _:
            return inf if value == UNLIMITED else nan
