"""Fewer copies of stored messages (K406): persistence or replication is lowered, judged by the effective
values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kodoctl.errors import Diagnostic, warning
from kodoctl.topology.model.policies import Persistence

if TYPE_CHECKING:
    from kodoctl.plan.changes import Update

K406 = "durability or replication lowered"


def durability_warnings(change: Update) -> Iterator[Diagnostic]:
    """Yields a warning (K406) if the change gives persistence a smaller ensemble or quorum than is known to apply, or
    the broker's own numbers if these are not known, and one if it takes a cluster out of the replication. Only new
    messages are concerned.
    """
    for one in change.policy_changes:
        before, after = one.counting(after=False), one.counting(after=True)
        if one.policy == "persistence" and (lower := _fewer(before, after)):
            yield _weaker(change, f"persistence: {lower}; messages stored before keep their copies")
        elif one.policy == "replication" and (gone := frozenset(before or ()) - frozenset(after or ())):
            yield _weaker(change, f"replication: {', '.join(sorted(gone))} no longer gets new messages")


def _weaker(change: Update, what: str) -> Diagnostic:
    return warning("K406", K406, f"{change.address}: {what}")


def _fewer(before: Any, after: Any) -> str:
    """Text of the numbers that become less; of all of them, if the broker does not show its default."""
    if not isinstance(before, Persistence):
        return ""
    if not isinstance(after, Persistence):
        return "from the file's numbers to the broker's own, which it does not tell"
    numbers = [
        (name.replace("_", " "), getattr(before, name), getattr(after, name))
        for name in ("ensemble", "write_quorum", "ack_quorum")
    ]
    return ", ".join(f"{name} {old} → {new}" for name, old, new in numbers if old and new and new < old)
