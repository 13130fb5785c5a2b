# pure: every branch is tested
"""Repetition in a plan's views: a warning of many objects is shown once, and so is a change of many topics.

The JSON of a plan keeps each of them at its object. Changes that lose data, or refuse the plan, are never
folded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kodoctl.render import plan_words as words
from kodoctl.text.formatting import many, shorten_lines

if TYPE_CHECKING:
    from kodoctl.plan.change_document import ChangeRow, FindingRow
    from kodoctl.plan.plan_document import PlanDocument

FOLDED_FROM: Final = 5  # alike groups; fewer are quicker read than counted
DELETIONS_FOLDED_FROM: Final = 100  # alike groups in which a topic or subscription goes; nobody reads 20,000 of them
SEVERITIES: Final = ("error", "warning", "note")  # the highest first
_LOSSES: Final = frozenset({"K401", "K402", "K408", "K409"})  # still a loss when a flag allows it
_TOPIC: Final = re.compile(r"(?:\b[a-z]+\.)?persistent://[^\s,;:'\"`()]+")  # a topic, or an object of one
_HOLDING: Final = ("topic.", "subscription.")  # objects that may hold messages
_Group = list["ChangeRow"]


def loses(change: ChangeRow) -> bool:
    """True if a danger of the change is an error, or is of a code for lost messages, even if a flag allows the loss."""
    return any(danger["severity"] == "error" or danger["code"] in _LOSSES for danger in change["dangers"])


def gather_warnings(document: PlanDocument) -> PlanDocument:
    """Returns the plan for a view: warnings that several changes share (`share_warnings`) are findings; 5 (FOLDED_FROM)
    or more findings of the plan that differ only in the names of topics are one, with the first 20 names of the others
    and their number. The findings with the highest severity come first.
    """
    changes, shared = share_warnings(document["changes"])
    findings = [*_one_per_cause(document["findings"]), *shared]
    return {**document, "changes": changes, "findings": sorted(findings, key=_severity)}


def share_warnings(changes: list[ChangeRow]) -> tuple[list[ChangeRow], list[FindingRow]]:
    """Returns (changes, findings): a warning that several changes have in the same words, apart from the names of their
    topics, is moved from these changes to the findings, with the first 20 of their addresses and the number of the
    others. Warnings about lost messages stay at their changes.
    """
    shared: dict[tuple[str, str, str], list[ChangeRow]] = {}
    for change, danger in _warnings(changes):
        shared.setdefault(_cause(change, danger), []).append(change)
    shared = {cause: those for cause, those in shared.items() if len(those) > 1}
    kept = [
        words.with_dangers(change, [one for one in change["dangers"] if _cause(change, one) not in shared])
        for change in changes
    ]
    return kept, [*map(_shared_finding, shared.items())]


def _one_per_cause(findings: list[FindingRow]) -> Iterator[FindingRow]:
    causes: dict[tuple[str, str, str, bool], list[FindingRow]] = {}
    for finding in findings:
        alone = words.has_remedy_line(finding)  # its flags are listed with the value of each
        text = finding["detail"] if alone else _TOPIC.sub("", finding["detail"])
        causes.setdefault((finding["code"], finding["summary"], text, alone), []).append(finding)
    for same in causes.values():
        first, *others = same
        names = [found[0] for other in others if (found := _TOPIC.search(other["detail"]))]
        if len(same) < FOLDED_FROM or len(names) < len(others):
            yield from same
        else:
            lines = [first["detail"], f"the same for {many(len(others), 'more object')}:", *shorten_lines(names)]
            yield {**first, "detail": "\n".join(lines)}


def split_findings(findings: list[FindingRow]) -> tuple[list[FindingRow], list[FindingRow]]:
    """(errors, other findings), each in their order."""
    errors = [finding for finding in findings if finding["severity"] == "error"]
    return errors, [finding for finding in findings if finding["severity"] != "error"]


def _severity(finding: FindingRow) -> int:
    return SEVERITIES.index(finding["severity"])


def _warnings(changes: list[ChangeRow]) -> Iterator[tuple[ChangeRow, FindingRow]]:
    for change in changes:
        for danger in change["dangers"]:
            if danger["severity"] == "warning" and danger["code"] not in _LOSSES:
                yield change, danger


def _cause(change: ChangeRow, danger: FindingRow) -> tuple[str, str, str]:
    """Code, summary and detail, without the names of the object and of its topic."""
    detail = danger["detail"].removeprefix(f"{change['address']}: ")
    return danger["code"], danger["summary"], words.of_any_topic(detail, change["address"])


def _shared_finding(shared: tuple[tuple[str, str, str], list[ChangeRow]]) -> FindingRow:
    (code, summary, detail), changes = shared
    lines = [detail, *shorten_lines([change["address"] for change in changes])]
    where = next((change["where"] for change in changes if change["where"]), None)
    return {"severity": "warning", "code": code, "summary": summary, "detail": "\n".join(lines), "where": where}


def alike(groups: list[_Group]) -> list[list[_Group]]:
    """Lists of groups: 5 (FOLDED_FROM) or more groups whose changes look the same, apart from the name of the topic and
    the place in the file, are one list, at the place of the first; every other group is a list of its own. Groups with
    dangers, and objects of no topic, are never in a list with others. Groups that delete a topic or a subscription are
    one list only if there are 100 (DELETIONS_FOLDED_FROM) or more. `groups`: as `group_changes` makes them.
    """
    keys = [_key(group, number) for number, group in enumerate(groups)]
    bundles: dict[str, list[_Group]] = {}
    for key, group in zip(keys, groups, strict=True):
        bundles.setdefault(key, []).append(group)
    few = {key for key, members in bundles.items() if len(members) < _folded_from(members[0])}
    found: list[list[_Group]] = []
    for key, group in zip(keys, groups, strict=True):
        if key in few:
            found.append([group])
        elif members := bundles.pop(key, None):
            found.append(members)
    return found


def _key(group: _Group, number: int) -> str:
    """Equal for groups with the same text; the number of the group if a view never folds it."""
    if any(_stands_alone(change) for change in group):
        return str(number)
    return json.dumps([_visible_parts(change) for change in group], sort_keys=True, default=str)


def _folded_from(group: _Group) -> int:
    deletes = any(change["action"] == "delete" and change["address"].startswith(_HOLDING) for change in group)
    return DELETIONS_FOLDED_FROM if deletes else FOLDED_FROM


def _stands_alone(change: ChangeRow) -> bool:
    return bool(change["dangers"]) or not words.topic_of(change["address"])


def _visible_parts(change: ChangeRow) -> list[Any]:
    """Everything that a view shows of a change, without its topic and its place in the file."""
    topic = words.topic_of(change["address"])
    created = words.created_text(change["after"]) if change["action"] == "create" else ""
    return [
        change["action"], change["address"].replace(topic, ""), change["reason"].replace(topic, ""), created,
        change.get("fields"), change.get("unload"), change["origin"], change["drifted"],
    ]  # fmt: skip


def names_of(groups: list[_Group]) -> list[str]:
    """Full name of the topic of each group, without the scheme; "" for a group of no topic."""
    return [words.topic_of(group[0]["address"]).removeprefix("persistent://") for group in groups]
