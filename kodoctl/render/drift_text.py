"""Drift as text: manual changes, separate from changes of the file that are not applied yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kodoctl.render.plan_folding import alike
from kodoctl.render.plan_text import finding_lines, group_changes, group_lines, topic_lines
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many
from kodoctl.text.line import Line

if TYPE_CHECKING:
    from kodoctl.plan.change_document import ChangeRow, FindingRow
    from kodoctl.plan.plan_document import DriftDocument


def drift_lines(document: DriftDocument, target: str, *, verbose: bool = False) -> Iterator[Line]:
    """Lines of all groups that are not empty, then the verdict. `target`: text that says how the cluster was reached;
    `verbose`: every topic with the same changes is named.
    """
    yield Line(target, "bold")
    yield Line()
    by_hand = "Changed by hand (the next apply puts it back):"
    either = "Different, by hand or by the file, which changed since its last apply:"
    yield from _changes(by_hand, document["by_hand"], "bold red", verbose=verbose, by_hand=True)
    yield from _changes(either, document["either"], "bold yellow", verbose=verbose)
    yield from _changes("File not applied yet:", document["not_applied"], "bold", verbose=verbose)
    beyond = "Changed by hand, and no apply can put it back:"
    yield from _findings(beyond, document["beyond_repair"], "bold red")
    yield from _findings("Not compared:" if document["refused"] else "Notes:", document["conflicts"], "bold")
    if document["unmanaged"] and document["counts_unmanaged"]:
        yield Line("Unmanaged:", "bold yellow")
        yield from (Line(f"    {one_line(name)}") for name in document["unmanaged"])
        yield Line()
    clean = not document["drifted"] and not document["refused"]
    yield Line(_verdict(document), "bold green" if clean else "bold red")


def _changes(
    title: str, changes: list[ChangeRow], style: str, *, verbose: bool, by_hand: bool = False
) -> Iterator[Line]:
    if not changes:
        return
    yield Line(title, style)

    def notes(change: ChangeRow) -> Iterator[Line]:
        if by_hand and change["action"] == "create":
            yield Line(f"      {_created_again(change['after'] or {})}", hang=6)

    for groups in alike(group_changes(changes)):
        yield from group_lines(groups[0], len(groups), notes)
        yield from topic_lines(groups, verbose=verbose)
    if any(change["action"] == "update" for change in changes):
        yield Line("  (what is there now → what the next apply writes)", "dim")
    yield Line()


def _created_again(resource: dict[str, Any]) -> str:
    """Consequence for an object that somebody deleted and that the next apply creates again."""
    match resource:
        case {"kind": "subscription", "start": "earliest"}:
            return "deleted by hand; created again from earliest: every stored message comes to it again"
        case {"kind": "subscription"}:
            return "deleted by hand; created again: what was sent until then never comes to it"
        case {"kind": "topic"}:
            return "deleted by hand with its messages; created again empty"
        case _:
            return "deleted by hand; created again"


def _findings(title: str, findings: list[FindingRow], style: str) -> Iterator[Line]:
    if findings:
        yield Line(title, style)
        for finding in findings:
            yield from finding_lines(finding)
        yield Line()


def _verdict(document: DriftDocument) -> str:
    stale, unmanaged = document["stale_topologies"], document["unmanaged"]
    waiting = f"; not applied yet: {', '.join(one_line(name) for name in stale)}" if stale else ""
    if not document["counts_unmanaged"] and unmanaged:
        waiting += f"; {len(unmanaged)} unmanaged (--unmanaged counts them)"
    if not document["drifted"]:
        return f"{'Not everything could be compared' if document['refused'] else 'No drift'}{waiting}."
    counted = len(document["by_hand"]) + len(document["either"]) + len(document["beyond_repair"])
    counted += len(unmanaged) if document["counts_unmanaged"] else 0
    return f"Drift: {many(counted, 'object')}{waiting}."
