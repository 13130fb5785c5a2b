"""A plan as Markdown for a pull request: fits one comment (65,536 bytes); destructive changes come first and are cut
last.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import filterfalse
from typing import TYPE_CHECKING, Any, Final

from kodoctl.render import plan_words as words
from kodoctl.render.plan_folding import alike, gather_warnings, loses, names_of, split_findings
from kodoctl.render.plan_text import group_changes
from kodoctl.text.escaping import code, markdown, one_line
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.plan.change_document import ChangeRow, FindingRow
    from kodoctl.plan.plan_document import PlanDocument

Json = dict[str, Any]
LIMIT: Final = 65_536  # of UTF-8, so that it holds for whoever counts bytes
_ROOM: Final = 2_000  # kept for the head's last lines and for the sentences that say what was cut
_DETAIL: Final = 2_000


def plan_markdown(document: PlanDocument, target: str, *, limit: int = LIMIT) -> str:
    """The plan as Markdown of at most `limit` bytes: head, errors, destructive changes, other changes
    with warnings, other findings, then details folded by namespace, in which many topics with the same changes are one
    entry. Parts that do not fit are counted. `target`: text that says how the cluster was reached.
    """
    document = gather_warnings(document)
    page = _Page(limit - _ROOM)
    page.add(_head(document, target))
    errors, others = split_findings(document["findings"])
    page.add_while_it_fits(map(_finding, errors), "finding")
    listed = list(_worth_naming(document["changes"]))
    _destructive(page, list(filter(_destroys, listed)))
    _warned(page, list(filterfalse(_destroys, listed)))
    page.add_while_it_fits(map(_finding, others), "finding")
    for title, rows in _sections(document):
        page.fold(title, rows)
    for title, changes in words.by_origin(document):
        if title:
            page.add_while_it_fits([f"**{markdown(title)}**"], "heading")
        for namespace, members in _by_namespace(changes):
            page.fold(f"{namespace}: {many(len(members), 'change')}", _diff_rows(members), fence="diff")
    return page.text()


class _Page:
    """Markdown of a bounded size."""

    def __init__(self, room: int) -> None:
        self._room, self._parts, self._cut = room, [""], 0
        self._warning = ""

    def fits(self, text: str) -> bool:
        return _size(text) + 2 <= self._room

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._room -= _size(text) + 2

    def warn(self, text: str) -> None:
        self._warning = text

    def add_while_it_fits(self, blocks: Iterable[str], noun: str) -> None:
        """Adds blocks in their order until one does not fit, then the number of the others."""
        rest = 0
        for block in blocks:
            if rest or not self.fits(block):
                rest += 1
            else:
                self.add(block)
        if rest:
            self.add(f"… and {many(rest, f'more {noun}')}.")
            self._cut += rest

    def fold(self, title: str, rows: list[str], *, fence: str = "") -> None:
        """Adds a section that readers unfold, with as many rows as fit; no section if none fits."""
        opened, closed = (f"```{fence}\n", "\n```") if fence else ("", "")
        frame = f"<details>\n<summary>{_title(title)}</summary>\n\n{opened}{closed}\n\n</details>"
        room = self._room - _size(frame) - 40
        shown = 0
        for row in rows:
            room -= _size(row) + 1
            if room < 0:
                break
            shown += 1
        self._cut += len(rows) - shown
        if not shown:
            return
        rest = [] if shown == len(rows) else [f"… and {many(len(rows) - shown, 'more line')}"]
        body = "\n".join([*rows[:shown], *rest])
        self.add(frame.replace(f"\n\n{opened}{closed}\n\n", f"\n\n{opened}{body}{closed}\n\n", 1))

    def text(self) -> str:
        if self._cut:
            self._parts.append(f"{many(self._cut, 'line')} did not fit: the plan file (artifact) has all of them.")
        head, *rest = self._parts[1:]
        return "\n\n".join([head, *([self._warning] if self._warning else []), *rest])


def _title(text: str) -> str:
    """Text inside HTML, where Markdown's escapes would show."""
    return html.escape(one_line(text)).replace("`", "'")


def _size(text: str) -> int:
    return len(text.encode())


def _head(document: PlanDocument, target: str) -> str:
    verdict = "⛔ refused" if document["refused"] else "changes" if document["changes"] else "no changes"
    lines = [
        f"### kodoctl plan: {verdict}",
        markdown(words.cluster_line(document, target)),
        *([f"**{markdown(part, _DETAIL)}**"] if (part := words.part_line(document)) else []),
        f"**{words.summary_line(document)}**",
        *([text] if (text := words.not_compared(document)) else []),
    ]
    return "\n\n".join(lines)


def _destructive(page: _Page, changes: list[ChangeRow]) -> None:
    """Adds the destructive changes in the fullest form that fits: with reasons, by address, or by name alone.
    If none fits, the list is cut and a warning gives the number that is missing.
    """
    if not changes:
        return
    title = f"**Destructive: {many(len(changes), 'object')}**"
    for form in (_with_reasons, _by_address, _by_name):
        block = "\n".join([title, "", *form(changes)])
        if page.fits(block):
            page.add(block)
            return
    lines, shown = [title, ""], 0
    for line in _by_address(changes):
        if not page.fits("\n".join([*lines, line])):
            break
        lines.append(line)
        shown += 1
    page.add("\n".join(lines))
    missing = many(len(changes) - shown, "destructive change")
    page.warn(f"⚠️ **{missing} could not be listed in a comment: read the plan file (artifact) before you approve.**")


def _warned(page: _Page, changes: list[ChangeRow]) -> None:
    """Adds the other changes with a warning of their own, as many as fit."""
    title = f"**Warnings: {many(len(changes), 'object')}**"
    if changes and page.fits(title):
        page.add(title)
    page.add_while_it_fits(("\n".join(_with_reasons([change])) for change in changes), "object with a warning")


def _destroys(change: ChangeRow) -> bool:
    return loses(change) or change["action"] == "delete"


def _worth_naming(changes: list[ChangeRow]) -> Iterator[ChangeRow]:
    """Deletes and changes with dangers. An object that is deleted with its topic is left out: the topic's line
    includes it.
    """
    topics = {
        words.topic_of(c["address"]) for c in changes if c["action"] == "delete" and c["address"].startswith("topic.")
    }
    for change in changes:
        with_its_topic = words.topic_of(change["address"]) in topics and not change["address"].startswith("topic.")
        if change["dangers"] or (change["action"] == "delete" and not with_its_topic):
            yield change


def _with_reasons(changes: list[ChangeRow]) -> Iterator[str]:
    for change in changes:
        drift = ", not by these edits (drift)" if change["origin"] == "drift" else ""
        yield f"- {code(change['address'])} {words.VERBS[change['action']]}{drift}"  # a sign first would begin a list in the list
        for danger in change["dangers"]:
            yield f"  - {markdown(danger['code'])} {danger['severity']}: {_detail(danger)}"


def _by_address(changes: list[ChangeRow]) -> Iterator[str]:
    for change in changes:
        codes = ", ".join(sorted({markdown(danger["code"]) for danger in change["dangers"]}))
        yield f"- {change['action']} {code(change['address'])}{f' {codes}' if codes else ''}"


def _by_name(changes: list[ChangeRow]) -> Iterator[str]:
    for namespace, members in _by_namespace(changes):
        verbs: dict[str, list[str]] = defaultdict(list)
        for change in members:
            kind, _, name = change["address"].partition(".")
            short = name.removeprefix("persistent://").removeprefix(f"{namespace}/")
            verbs[f"{words.symbol(change)} {kind}"].append(code(short))
        for verb, names in sorted(verbs.items()):
            yield f"- {markdown(namespace)} {verb}: {', '.join(names)}"


def _finding(finding: FindingRow) -> str:
    return f"- **{finding['severity']}** {markdown(finding['code'])} {markdown(finding['summary'])}: {_detail(finding)}"


def _detail(finding: FindingRow) -> str:
    return markdown(finding["detail"].replace("\n", "; "), _DETAIL)


def _sections(document: PlanDocument) -> Iterator[tuple[str, list[str]]]:
    for title, objects in words.part_lists(document):
        yield title, [f"- {markdown(row, _DETAIL)}" for row in objects]
    if document["consumer_changes"]:
        rows = [
            f"- {code(change['subscription'])} {markdown(name)}: {code(words.setting_text(before, after))}"
            for change in document["consumer_changes"]
            for name, before, after in change["settings"]
        ]
        yield "Only consumers read these: deploy them", rows
    if document["unmanaged"]:
        yield (
            many(len(document["unmanaged"]), "unmanaged object"),
            [f"- {code(n)}" for n in document["unmanaged"]],
        )


def _by_namespace(changes: list[ChangeRow]) -> list[tuple[str, list[ChangeRow]]]:
    found: dict[str, list[ChangeRow]] = defaultdict(list)
    for change in changes:
        name = change["address"].partition(".")[2].removeprefix("persistent://")
        found["/".join(name.split("/")[:2])].append(change)
    return sorted(found.items())


def _diff_rows(changes: list[ChangeRow]) -> list[str]:
    rows = [
        _fenced_line(line)
        for groups in alike(group_changes(changes))
        for line in (
            *(line for change in groups[0] for line in _diff(change, len(groups))),
            *(f"#         {name}" for name in names_of(groups) if len(groups) > 1),
        )
    ]
    return [*rows, f"# {words.LEGEND}"] if any(map(words.fields_of, changes)) else rows


def _diff(change: ChangeRow, topics: int) -> Iterator[str]:
    mark = {"create": "+", "delete": "-", "update": "!", "adopt": "#", "forget": "#"}[change["action"]]
    yield f"{mark} {words.name_of(change, topics)} {words.VERBS[change['action']]}"
    if change["action"] == "create" and (text := words.created_text(change["after"])):
        yield f"{mark}     {text}"
    for field in words.fields_of(change):
        drift = words.drift_mark(change, field)
        yield f"{mark}     {words.field_name(field['name'])}: {words.field_text(field)}{drift}"


def _fenced_line(text: str) -> str:
    """One line that cannot end the fence."""
    return one_line(text, _DETAIL).replace("```", "'''")
