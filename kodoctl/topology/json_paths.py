"""Paths to values in a JSON document: a part of JSONPath (RFC 9535) without filters and slices. Pure.

$.customer.email    $.lines[*].iban    $['odd name'][0]    $..email, at any depth
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
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

    def replace(self, document: Any, change: Callable[[Any], Any]) -> bool:
        """Sets each value at this step of `document` to `change(value)`, in place, unless `change` returns `_KEPT`.
        Returns True if any was set.
        """
        found = False
        for holder in _holders(document) if self.deep else (document,):
            for key in self._keys(holder):
                new = change(holder[key])
                found |= new is not _KEPT
                holder[key] = holder[key] if new is _KEPT else new
        return found

    def _keys(self, holder: Any) -> list[Any]:
        if isinstance(holder, dict):
            return list(holder) if self.key is None else [self.key] if self.key in holder else []
        if isinstance(holder, list):
            places = range(len(holder))
            return list(places) if self.key is None else [self.key] if self.key in places else []
        return []


_KEPT: Final = object()  # nothing was replaced in it


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path: one step or more from the document to values in it."""

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
        """Replaces every value at the path by `value`, in place. Returns False if the document has none there."""
        return _replace(self.steps, document, value)


def _replace(steps: tuple[JsonPathStep, ...], document: Any, value: Any) -> bool:
    first, rest = steps[0], steps[1:]
    if not rest:
        return first.replace(document, lambda _: value)
    return first.replace(document, lambda found: found if _replace(rest, found, value) else _KEPT)


def _holders(document: Any) -> Iterator[Any]:
    """Yields all objects and lists in a document, the innermost first, the document last."""
    if isinstance(document, dict | list):
        for one in list(document.values() if isinstance(document, dict) else document):
            yield from _holders(one)
        yield document
