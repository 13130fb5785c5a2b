"""Drift as text: manual changes, separate from changes of the file that are not applied yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kodoctl.render.plan_folding import alike, share_warnings
from kodoctl.render.plan_text import finding_lines, group_changes, group_lines, topic_lines
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many
from kodoctl.text.line import Line

if TYPE_CHECKING:
    from kodoctl.plan.change_document import ChangeRow, FindingRow
    from kodoctl.plan.plan_document import DriftDocument


def drift_lines(document: DriftDocument, target: str, *, verbose: bool = False) -> Iterator[Line]:
    """Lines of the drift: how the cluster was reached (`target`), then each group of changes or findings that is not
    empty, the unmanaged objects if they count as drift, then the verdict. `verbose`: every topic with the same changes
    is named, else only the first 3 of more than 8.
    """
    yield Line(target, "bold")
    yield Line()
    by_hand = "Changed by hand (the next apply puts it back):"
    either = "Different, by hand or by the file, which changed since its last apply:"
    returning = document["returning"]
    yield from _changes(by_hand, document["by_hand"], "bold red", verbose=verbose, by_hand=True, returning=returning)
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
    title: str,
    changes: list[ChangeRow],
    style: str,
    *,
    verbose: bool,
    by_hand: bool = False,
    returning: Mapping[str, int | None] = {},
) -> Iterator[Line]:
    if not changes:
        return
    yield Line(title, style)
    changes, shared = share_warnings(changes)
    for groups in alike(group_changes(changes)):
        notes = partial(_notes, groups, returning, by_hand=by_hand)
        yield from group_lines(groups[0], len(groups), notes)
        yield from topic_lines(groups, verbose=verbose)
    if any(change["action"] == "update" for change in changes):
        yield Line("  (what is there now → what the next apply writes)", "dim")
    yield Line()
    for finding in shared:
        yield from finding_lines(finding)
    if shared:
        yield Line()


def _notes(
    groups: Sequence[Sequence[ChangeRow]], returning: Mapping[str, int | None], change: ChangeRow, *, by_hand: bool
) -> Iterator[Line]:
    """Lines below a change of the first group: what its return means, for the same changes of all groups."""
    place = groups[0].index(change)
    coming = _coming([[group[place]] for group in groups], returning)
    if by_hand and change["action"] == "create":
        yield Line(f"      {_created_again(change['after'] or {})}{coming}", hang=6)
    elif change["address"] in returning:
        yield Line(f"      created there again from earliest{coming}", hang=6)


def _created_again(resource: dict[str, Any]) -> str:
    """Consequence for an object that somebody deleted and that the next apply creates again."""
    match resource:
        case {"kind": "subscription", "start": "earliest"}:
            return "deleted by hand; created again from earliest"
        case {"kind": "subscription"}:
            return "deleted by hand; created again: what was sent until then never comes to it"
        case {"kind": "topic"}:
            return "deleted by hand with its messages; created again empty"
        case _:
            return "deleted by hand; created again"


def _coming(groups: Sequence[Sequence[ChangeRow]], returning: Mapping[str, int | None]) -> str:
    """Number of messages that come again to the subscriptions of these changes, as text; "" if they are not put back at
    the earliest message.
    """
    counts = [
        returning[change["address"]] for changes in groups for change in changes if change["address"] in returning
    ]
    if not counts:
        return ""
    if None in counts:
        return ": every stored message comes to it again (how many there are cannot be read)"
    if not (count := sum(filter(None, counts))):
        return ": nothing is stored that could come again"
    return f": about {many(count, 'stored message')} come{'s' * (count == 1)} again (a batch counts as one)"


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
        waiting += f"; in no file, and not counted without --unmanaged: {one_line(', '.join(unmanaged), 200)}"
    if not document["drifted"]:
        return f"{'Not everything could be compared' if document['refused'] else 'No drift'}{waiting}."
    counted = len(document["by_hand"]) + len(document["either"]) + len(document["beyond_repair"])
    counted += len(unmanaged) if document["counts_unmanaged"] else 0
    return f"Drift: {many(counted, 'object')}{waiting}."
