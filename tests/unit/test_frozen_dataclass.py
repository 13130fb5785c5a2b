"""Frozen dataclasses behave as those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from functools import cached_property
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter

from kodoctl import frozen_dataclass


@frozen_dataclass.dataclass(frozen=True, slots=True, order=True)
class Version:
    """With everything that a field can have."""

    kind: str = field(default="version", kw_only=True, compare=False, repr=False)
    major: int
    minor: int = 0
    labels: list[str] = field(default_factory=list, compare=False)
    text: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", f"{self.major}.{self.minor}")


@frozen_dataclass.dataclass(frozen=True)
class Box:
    """Without slots, with one field, and with an equality written by hand."""

    content: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def weight(self) -> int:
        return len(self.content)


@frozen_dataclass.dataclass(frozen=True, slots=True)
class Nothing:
    """Without a field."""


@frozen_dataclass.dataclass(frozen=True, slots=True)
class Release(Version):
    """Inherits fields."""

    name: str = ""


def test_an_instance_has_its_arguments_and_defaults() -> None:
    version = Version(1, labels=["new"], kind="release")
    assert (version.major, version.minor, version.labels, version.kind, version.text) == (
        1,
        0,
        ["new"],
        "release",
        "1.0",
    )
    assert Version(1).labels == []
    assert Version(1).labels is not Version(1).labels
    assert Release(1, 2, [], "big").name == "big"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'major'"):
        Version()  # type: ignore[call-arg]


def test_values_compare_by_class_and_fields() -> None:
    assert Version(1, labels=["new"]) == Version(1, kind="other")
    assert Version(1) != Version(2)
    assert Version(1) != Release(1)
    assert hash(Version(1)) == hash(Version(1, 0, ["new"]))
    assert sorted([Version(2), Version(1, 1), Version(1)]) == [Version(1), Version(1, 1), Version(2)]
    assert Version(1) <= Version(1) >= Version(1) < Version(2) > Version(1)
    with pytest.raises(TypeError, match="not supported between instances"):
        assert Version(1) < Release(1)
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(())
    assert Box(1) == Box(2)


@pytest.mark.parametrize("value", [Version(1), Box([1]), Nothing()])
def test_nothing_can_be_assigned_or_deleted(value: Any) -> None:
    for change in (lambda: setattr(value, "major", 2), lambda: delattr(value, "content")):
        with pytest.raises(FrozenInstanceError, match=r"^cannot (assign to field 'major'|delete field 'content')$"):
            change()
    assert hasattr(value, "__dict__") == isinstance(value, Box)


def test_a_value_is_shown_with_its_fields() -> None:
    assert repr(Version(1)) == "Version(major=1, minor=0, labels=[])"
    assert repr(Nothing()) == "Nothing()"
    within: list[Any] = []
    within.append(Box(within))
    assert repr(within[0]) == "Box(content=[...])"


def test_a_property_can_be_kept() -> None:
    assert Box([1, 2]).weight == 2


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
@pytest.mark.parametrize("value", [Version(1, 2, ["new"]), Box([1]), Nothing()])
def test_copies_are_equal(again: Callable[[Any], Any], value: Any) -> None:
    made = again(value)
    assert made == value
    assert dataclasses.asdict(made) == dataclasses.asdict(value)


def test_libraries_take_them_for_dataclasses() -> None:
    assert dataclasses.replace(Version(1, 2), minor=3) == Version(1, 3)
    assert [one.name for one in dataclasses.fields(Version)] == ["kind", "major", "minor", "labels", "text"]
    assert get_type_hints(Version.__init__)["labels"] == list[str]
    assert str(inspect.signature(Nothing)) == "() -> None"
    assert TypeAdapter(Version).validate_python({"major": "1"}) == Version(1)
    match Version(1, 2):
        case Version(major, minor):
            assert (major, minor) == (1, 2)
