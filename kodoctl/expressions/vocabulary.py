"""Vocabulary of a condition: the facts that it may name, and the interface of a message that has these facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kodoctl.expressions.ast import Value, ValueKind


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Facts by name. `payload`: values inside the JSON payload may be named as well. `hidden`: properties whose names
    begin so may not; "" hides none.
    """

    kinds: Mapping[str, ValueKind]
    payload: bool = True
    hidden: str = ""


class Subject(Protocol):
    """A message that conditions are evaluated for."""

    def read_property(self, name: str) -> str | None:
        """One of its properties; None where it has none of this name."""

    def fact(self, name: str) -> Value | None:
        """A fact of the vocabulary that the condition was compiled for; None is NULL."""

    @property
    def document(self) -> Any:
        """The payload as JSON; None if the payload is no JSON."""
