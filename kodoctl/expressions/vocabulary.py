"""Vocabulary of a condition: the facts that it may name, and what a message has to offer to be asked for them."""

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
        """Its payload as JSON; None where it is none."""
