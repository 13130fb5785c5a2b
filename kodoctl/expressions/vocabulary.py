"""Vocabulary of a condition: the facts that it may name, and what a message has to offer to be asked for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kodoctl.expressions.ast import Value, ValueKind


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Facts by name. `payload`: values inside the JSON payload may be named as well."""

    kinds: Mapping[str, ValueKind]
    payload: bool = True


class Subject(Protocol):
    """A message that conditions are evaluated for."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties."""

    @property
    def document(self) -> Any:
        """Its payload as JSON; None where it is none."""

    def fact(self, name: str) -> Value | None:
        """A fact of the vocabulary that the condition was compiled for; None is NULL."""
