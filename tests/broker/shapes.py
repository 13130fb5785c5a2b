"""The five shapes that the documentation teaches: how each is written, and topic -> subscriptions it must have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

STATES = ("PENDING", "BLOCKING", "RETRYING")


@dataclass(frozen=True)
class Shape:
    """One row of the table."""

    ground: str
    expected: Mapping[str, set[str]]

    def partitions(self, number: int) -> dict[str, int]:
        """Topic -> partitions, when the file says `number`: dead letters have one."""
        return {local: 1 if local.endswith("-DLQ") else number for local in sorted(self.expected)}


def _family(levels: tuple[str, ...], states: tuple[str, ...], *, backup: bool, dead: bool) -> dict[str, set[str]]:
    found = {f"J{level}": {"s"} for level in levels}
    found |= {f"J{level}-s-{state}": {"s"} for level in levels for state in states}
    found |= {"J-B1": {"s"}} if backup else {}
    found |= {"J-s-DLQ": {"kodo-hold"}} if dead else {}
    return found


SHAPES = {
    "simplest": Shape("{subscriptions: {s: {states: [], dead_letter: false}}}", _family(("",), (), backup=False, dead=False)),
    "simple": Shape("{subscriptions: {s: {states: [retrying]}}}", _family(("",), ("RETRYING",), backup=False, dead=True)),
    "single level": Shape("{subscriptions: {s: {}}}", _family(("",), STATES, backup=False, dead=True)),
    "single level with backup": Shape("{backup: true, subscriptions: {s: {}}}", _family(("",), STATES, backup=True, dead=True)),
    "double level with backup": Shape(
        "{levels: double, backup: true, subscriptions: {s: {}}}", _family(("", "-L2"), STATES, backup=True, dead=True)
    ),
}  # fmt: skip
