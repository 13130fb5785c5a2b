"""Paths to values in a JSON document: a part of JSONPath (RFC 9535) without filters and slices. Pure.

$.customer.email    $.lines[*].iban    $['odd name'][0]    $..email, at any depth
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

_STEP: Final = re.compile(
    r"(?P<deep>\.\.)?(?:(?(deep)|\.)(?P<name>[^\W\d][\w-]*)|(?(deep)|\.)(?P<all>\*)"
    r"|\[(?:'(?P<single>[^']+)'|\"(?P<double>[^\"]+)\"|(?P<index>\d{1,9})|(?P<every>\*))\])"
)
_EXAMPLE: Final = "write $.customer.email, $.lines[*].iban, $['odd name'][0] or $..email"


@dataclass(frozen=True, slots=True)
class JsonPathStep:
    """One step. `key`: name of a member or index of an element, None: each of them; `deep`: at any depth."""

    key: str | int | None
    deep: bool = False

    def places(self, values: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yields (holder, key) of each value at this step: `holder` is an object or a list among `values`, or, if
        `deep`, within them. Each place is yielded once if no two of `values` are the same object.
        """
        for holder in _holders(values) if self.deep else values:
            for key in self._keys(holder):
                yield holder, key

    def _keys(self, holder: Any) -> list[Any]:
        if isinstance(holder, dict):
            return list(holder) if self.key is None else [self.key] if self.key in holder else []
        if isinstance(holder, list):
            places = range(len(holder))
            return list(places) if self.key is None else [self.key] if self.key in places else []
        return []


@dataclass(frozen=True, slots=True)
class JsonPath:
    """Path from a JSON document to values in it: at least one step. A document may have no value, one or several there."""

    steps: tuple[JsonPathStep, ...]

    @classmethod
    def parse(cls, text: str) -> JsonPath:
        """Parses a path. Raises ValueError, whose text shows correct paths."""
        steps, at = [], 1
        while at < len(text) and text[0] == "$" and (found := _STEP.match(text, at)):
            names = [found[name] for name in ("name", "single", "double") if found[name] is not None]
            index = int(found["index"]) if found["index"] else None
            steps.append(JsonPathStep(names[0] if names else index, deep=found["deep"] is not None))
            at = found.end()
        if not steps or at < len(text):
            raise ValueError(f"{text} is no path to values in a document: {_EXAMPLE}")
        return cls(tuple(steps))

    def replace(self, document: Any, value: Any) -> bool:
        """Replaces every value at the path by `value`, in place. Returns False if the document has none there. Looks at
        each value of the document once for each step at most, and does not recurse: senders choose documents.
        """
        values = [document]
        for step in self.steps[:-1]:
            values = [holder[key] for holder, key in step.places(values)]
        found = list(self.steps[-1].places(values))
        for holder, key in found:
            holder[key] = value
        return bool(found)


def _holders(values: Iterable[Any]) -> Iterator[Any]:
    """Yields all objects and lists among values and within them, each once."""
    seen: set[int] = set()
    rest = list(values)
    while rest:
        one = rest.pop()
        if isinstance(one, dict | list) and id(one) not in seen:
            seen.add(id(one))
            yield one
            rest += one.values() if isinstance(one, dict) else one
