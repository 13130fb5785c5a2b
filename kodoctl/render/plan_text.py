"""A plan as text for people, in the style of Terraform: dangerous changes first, unchanged objects only counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kodoctl.documents.plan_actions import UNREAD_CODES
from kodoctl.render import plan_words as words
from kodoctl.render.plan_folding import alike, gather_warnings, loses, names_of, split_findings
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import MAX_LISTED, many
from kodoctl.text.line import Line

if TYPE_CHECKING:
    from kodoctl.plan.change_document import ChangeRow, FindingRow
    from kodoctl.plan.plan_document import PlanDocument

Json = dict[str, Any]
_FEW: Final = 8  # topics with the same changes that are all named
_FIRST: Final = 3  # of more, so many are
_STYLES = {"create": "green", "update": "yellow", "delete": "red", "adopt": "cyan", "forget": "magenta"}


def plan_lines(document: PlanDocument, target: str, *, verbose: bool = False) -> Iterator[Line]:
    """Lines of the whole plan, from its JSON form; `target`: text that says how the cluster was reached; `verbose`:
    every topic with the same changes is named, else only the first 3 of more than 8.
    """
    yield Line(words.cluster_line(document, target), "bold")
    yield from body_lines(document, verbose=verbose)


def body_lines(document: PlanDocument, *, verbose: bool = False) -> Iterator[Line]:
    """Lines of the plan below the line that names the cluster. `verbose`: every topic with the same changes is named,
    else only the first 3 of more than 8.
    """
    document = gather_warnings(document)
    if part := words.part_line(document):
        yield Line(part, "bold yellow", 4)
    yield Line()
    errors, others = split_findings(document["findings"])
    yield from _findings(errors)
    for title, changes in words.by_origin(document):
        if title:
            yield Line(title, "bold")
        for groups in alike(group_changes(changes)):
            yield from group_lines(groups[0], len(groups))
            yield from topic_lines(groups, verbose=verbose)
        if any(map(words.fields_of, changes)):
            yield Line(f"  {words.LEGEND}", "dim")
        yield Line()
    yield from _part(document)
    yield from _consumers(document)
    yield from _unmanaged_lines(document)
    if elsewhere := words.elsewhere_line(document):
        yield Line(elsewhere, "dim")
        yield Line()
    yield from _findings(others)
    yield from _order(document)
    yield from _verdict(document)


def group_changes(changes: list[ChangeRow]) -> list[list[ChangeRow]]:
    """Groups changes by topic: a topic with its objects is one group, and every other object a group of its
    own. Groups with data at risk come first, then those with warnings.
    """
    groups: dict[str, list[ChangeRow]] = {}
    for change in changes:
        groups.setdefault(words.topic_of(change["address"]), []).append(change)
    frame = groups.pop("", [])
    for members in groups.values():
        members.sort(key=_place_in_group)
    ordered = [
        *([change] for change in sorted(frame, key=lambda change: change["address"], reverse=True)),
        *(groups[topic] for topic in sorted(groups)),
    ]
    return sorted(ordered, key=_urgency)


def _urgency(group: list[ChangeRow]) -> tuple[bool, bool]:
    return not any(map(loses, group)), not any(change["dangers"] for change in group)


def topic_lines(groups: list[list[ChangeRow]], *, verbose: bool) -> Iterator[Line]:
    """Lines with the names of the topics whose changes are shown as one: one line with all of them, or with the first 3
    of more than 8; with `verbose` a line for each. No line for a single topic.
    """
    names = [one_line(name) for name in names_of(groups)]
    if len(names) > 1 and verbose:
        yield from (Line(f"        {name}", "dim") for name in names)
    elif len(names) > 1:
        shown = names if len(names) <= _FEW else names[:_FIRST]
        rest = f" and {len(names) - _FIRST:,} more (--verbose names all)" if len(names) > _FEW else ""
        yield Line(f"      {', '.join(shown)}{rest}", "dim", 8)


def _place_in_group(change: ChangeRow) -> tuple[bool, str, bool]:
    """Sort key in a group: the topic comes before its objects, and its adoption before its other changes."""
    return not change["address"].startswith("topic."), change["address"], change["action"] != "adopt"


def group_lines(
    changes: list[ChangeRow], topics: int, notes: Callable[[ChangeRow], Iterable[Line]] = lambda _: ()
) -> Iterator[Line]:
    """Lines of one group, or of the first of `topics` groups that are alike: a topic's own changes in full. If the
    topic is created, deleted or adopted, each of its objects to which the same happens is one short line right below.
    `notes`: further lines of a change that is shown in full.

    Objects with dangers are printed in full after these: a short line belongs to the nearest line above that is
    indented less.
    """
    own = [change for change in changes if change["address"].startswith("topic.")]
    hanging = [change for change in changes if _hangs(change, own)]
    for change in own:
        yield from change_lines(change, topics)
        yield from notes(change)
    for change in hanging:
        yield Line(f"      {words.symbol(change)} {words.short_address(change)}", _STYLES[change["action"]], 10)
    for change in changes:
        if change not in own and change not in hanging:
            yield from change_lines(change, topics)
            yield from notes(change)


def _hangs(change: ChangeRow, own: list[ChangeRow]) -> bool:
    """True if a change only follows from the creation, adoption or deletion of its topic."""
    whole = bool(own) and own[0]["action"] in ("create", "delete", "adopt")
    return whole and change not in own and change["action"] == own[0]["action"] and not change["dangers"]


def change_lines(change: ChangeRow, topics: int = 1) -> Iterator[Line]:
    """Lines of one change with its fields and dangers; it stands for `topics` topics with the same change."""
    style = _STYLES[change["action"]]
    place = change["where"] if topics == 1 else None
    where = f"  ({place[0]}:{place[1]})" if place and place[1] else ""
    address = words.name_of(change, topics)
    match change["action"]:
        case "create":
            yield Line(f"  + {address}", style)
            if text := words.created_text(change["after"]):
                yield Line(f"      {text}")
        case "update" if topics > 1 and len(change["fields"]) == 1:
            [field] = change["fields"]
            text = f"{words.field_name(field['name'])} {words.field_text(field)}{words.drift_mark(change, field)}"
            yield Line(f"  ~ {address}: {text}", style, 4)
        case "update":
            yield Line(f"  ~ {address}{where}", style, 4)
            width = max(len(words.field_name(field["name"])) for field in change["fields"])
            for field in change["fields"]:
                name = f"      {words.field_name(field['name']):<{width}}  "
                yield Line(f"{name}{words.field_text(field)}{words.drift_mark(change, field)}", hang=len(name))
        case _:
            yield Line(f"  {words.symbol(change)} {address}{where}", style, 4)
            if reason := words.reason_of(change, topics):
                yield Line(f"      {one_line(reason)}")
    if change.get("unload"):
        yield Line("      the topic is unloaded once: its consumers reconnect")
    for danger in change["dangers"]:
        color = "red" if loses(change) else "yellow"
        yield Line(f"      ! {danger['code']} {danger['severity']}: {one_line(danger['summary'])}", f"bold {color}", 8)
        for text in words.stake_lines(danger, change["address"]):
            yield Line(f"        {text}", color)


def _allowing(document: PlanDocument) -> Iterator[Line]:
    for lead, flags in words.remedies(document):
        yield Line(lead)
        for number, flag in enumerate(flags, 1):
            yield Line(f"  {flag}" if number == len(flags) else f"  {flag} \\")


def _part(document: PlanDocument) -> Iterator[Line]:
    for title, rows in words.part_lists(document):
        yield Line(title)
        yield from (Line(f"    {row}", hang=8) for row in rows[:MAX_LISTED])
        yield from _rest(rows)
        yield Line()
    if text := words.not_compared(document):
        yield Line(text, "bold yellow")
        yield Line()


def _rest(rows: list[str]) -> Iterator[Line]:
    if len(rows) > MAX_LISTED:
        yield Line(f"    … and {len(rows) - MAX_LISTED} more (--format json lists all)", "dim")


def _consumers(document: PlanDocument) -> Iterator[Line]:
    if not document["consumer_changes"]:
        return
    yield Line("Only consumers read these; deploy them (nothing is written to topics):", "bold")
    for change in document["consumer_changes"]:
        for name, before, after in change["settings"]:
            yield Line(f"    {one_line(change['subscription'])}  {name}  {words.setting_text(before, after)}")
    yield Line()


def _unmanaged_lines(document: PlanDocument) -> Iterator[Line]:
    names = document["unmanaged"]
    if not names:
        return
    yield Line("Unmanaged (no file declares them, kodoctl never touches them):", "dim")
    for name in names[:MAX_LISTED]:
        yield Line(f"    {one_line(name)}", "dim")
    yield from _rest(names)
    yield Line()


def _findings(findings: list[FindingRow]) -> Iterator[Line]:
    for finding in findings:
        yield from finding_lines(finding)
        yield Line()


def _order(document: PlanDocument) -> Iterator[Line]:
    notes = words.rollout_notes(document)
    for text in notes:
        yield Line(text)
    if notes:
        yield Line()


def _verdict(document: PlanDocument) -> Iterator[Line]:
    """Summary of the plan, placed last, where readers see it."""
    number = document["summary"]["unchanged"]
    as_said = f"{many(number, 'object')} {'is' if number == 1 else 'are'} as the files say." if number else ""
    if document["changes"]:
        yield Line(words.summary_line(document), "bold", 6)
    elif document["refused"]:
        yield Line(f"Plan: nothing that could be applied{'; ' * bool(number)}{as_said or '.'}", "bold")
    else:
        left = words.left_out(document)
        rest = f" {many(left, 'object')} left out." if left else ""
        unread = any(finding["code"] in UNREAD_CODES for finding in document["findings"])
        where = f"{' in this part' * bool(left)}{' where it could be read' * unread}"
        yield Line(f"No changes{where}. {as_said}".rstrip() + rest, "bold yellow" if unread else "bold green")
    if document["refused"]:
        codes = words.refusing_codes(document)
        yield Line(f"This plan is refused by {codes}: nothing can be applied until that is settled.", "bold red")
        yield from _allowing(document)


def finding_lines(finding: FindingRow) -> Iterator[Line]:
    """Lines of a finding with its place and details."""
    style = {"error": "bold red", "warning": "yellow"}.get(finding["severity"], "dim")
    yield Line(f"{finding['severity'].capitalize()}: {one_line(finding['summary'])} [{finding['code']}]", style)
    if finding["where"]:
        yield Line(f"  at {finding['where'][0]}:{finding['where'][1]}")
    for line in words.detail_lines(finding):
        yield Line(f"  {one_line(line, 2000)}")
