"""Vocabulary of a condition: the facts that it may name, and the interface of a message that has these facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kodoctl.expressions.ast import Value, ValueKind


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The facts that a condition may name. `kinds`: name -> kind; `payload`: it may also read values in the JSON
    payload; `hidden`: prefix of properties that it may not read, "" if it may read all. `resolve`: returns the kind of
    the fact at a path such as `policies.ttl`, in place of `kinds`; it raises ValueError with the reason if there is
    none.
    """

    kinds: Mapping[str, ValueKind]
    payload: bool = True
    hidden: str = ""
    resolve: Callable[[str], ValueKind] | None = None


class Subject(Protocol):
    """Interface of a message for which conditions are evaluated."""

    def read_property(self, name: str) -> str | None:
        """Value of a property of the message; None if it has no property of that name. An adapter may raise an
        exception of its own, which the evaluation does not catch.
        """

    def fact(self, name: str) -> Value | None:
        """Value of a fact of the vocabulary that the condition was compiled with; None is NULL. Raises as
        `read_property`.
        """

    @property
    def document(self) -> Any:
        """The payload parsed as JSON; None if it is not JSON."""
