"""A plan as one HTML page that loads nothing: reviewers read, search, fold and print it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from kodoctl.render import plan_words as words
from kodoctl.render.html_page import page
from kodoctl.render.plan_folding import alike, gather_warnings, loses, names_of
from kodoctl.render.plan_text import group_changes
from kodoctl.text.escaping import one_line

if TYPE_CHECKING:
    from kodoctl.plan.change_document import ChangeRow, FindingRow
    from kodoctl.plan.plan_document import PlanDocument

Json = dict[str, Any]


def plan_html(document: PlanDocument, target: str) -> str:
    """HTML of the page of the whole plan: no change is left out, and topics with the same changes are all named.
    Changes with data at risk come first; if the plan was compared with a revision, edits come before drift.
    `target`: text that says how the cluster was reached.
    """
    plan = plan_parts(document, target)
    return page("plan.html.j2", plan=plan, version=document["kodoctl_version"], seal=document["seal"])


def plan_parts(document: PlanDocument, target: str, *, anchor: str = "plan-") -> Json:
    """Values of one plan for the template of a page; `anchor`: prefix of the names of its HTML anchors, if a page has
    several plans.
    """
    document = gather_warnings(document)
    number = count(1)
    sections = [
        (one_line(title), [_bundle(members, f"{anchor}{next(number)}") for members in alike(group_changes(changes))])
        for title, changes in words.by_origin(document)
    ]
    return {
        "stakes": [
            (group["anchor"], change["address"], [line for danger in change["dangers"] for line in danger["lines"]])
            for _, groups in sections
            for group in groups
            for change in group["changes"]
            if change["loses"]
        ],
        "cluster": words.cluster_line(document, target),
        "summary": words.summary_line(document),
        "part": words.part_line(document),
        "part_lists": words.part_lists(document),
        "not_compared": words.not_compared(document),
        "refused": document["refused"],
        "refused_by": words.refusing_codes(document),
        "counts": document["summary"],
        "sections": sections,
        "findings": [page_finding(finding) for finding in document["findings"]],
        "consumers": [
            (
                one_line(change["subscription"]),
                [(name, words.setting_text(*sides)) for name, *sides in change["settings"]],
            )
            for change in document["consumer_changes"]
        ],
        "unmanaged": [one_line(name) for name in document["unmanaged"]],
        "elsewhere": words.elsewhere_line(document),
        "legend": words.LEGEND,
        "order": words.rollout_notes(document),
        "remedies": words.remedies(document) if document["refused"] else [],
    }


def _bundle(groups: list[list[ChangeRow]], anchor: str) -> Json:
    """Values of one topic with its objects, or of one other object, or of several topics with the same changes.
    `topics`: their names, [] for a single object.
    """
    first = groups[0]
    found = [_change(change, len(groups)) for change in first]
    topic = words.topic_of(first[0]["address"]).removeprefix("persistent://")
    return {
        "anchor": anchor,
        "name": words.name_of(first[0], len(groups)) if len(groups) > 1 or not topic else one_line(topic),
        "topics": [one_line(name) for name in names_of(groups)] if len(groups) > 1 else [],
        "number": len(groups),
        "fields": "; ".join(f"{name} {text}" for change in found for name, text in change["fields"]),
        "changes": found,
        "actions": sorted({change["action"] for change in found}),
        "at_stake": any(change["loses"] for change in found),
        "warned": any(change["dangers"] for change in found),
    }


def _change(change: ChangeRow, topics: int) -> Json:
    where = change["where"] if topics == 1 else None
    reason = words.reason_of(change, topics)
    return {
        "action": change["action"],
        "symbol": words.symbol(change),
        "address": words.name_of(change, topics),
        "verb": words.VERBS[change["action"]],
        "where": f"{where[0]}:{where[1]}" if where and where[1] else "",
        "text": words.created_text(change["after"]) if change["action"] == "create" else one_line(reason),
        "unload": change.get("unload", False),
        "fields": [
            (words.field_name(field["name"]), words.field_text(field) + words.drift_mark(change, field))
            for field in words.fields_of(change)
        ],
        "loses": loses(change),
        "dangers": [{**danger, "lines": words.stake_lines(danger, change["address"])} for danger in change["dangers"]],
    }


def page_finding(finding: FindingRow) -> Json:
    """Values of a finding for the template of a page. A remedy that is the last line of the detail is left out."""
    lines = [one_line(line, 2_000) for line in words.detail_lines(finding)]
    where = f"{finding['where'][0]}:{finding['where'][1]}" if finding["where"] else ""
    return {**finding, "summary": one_line(finding["summary"]), "lines": lines, "where": where}
