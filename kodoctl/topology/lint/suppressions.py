"""Allow-comments, `# kodoctl: allow K203 because …`: they allow findings of one code at one place of a file, with a
reason.

A comment on a line with content is about the entry that begins on that line; a comment on a line of its own about the
entry that follows; both include everything inside of the entry.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kodoctl.errors import Diagnostic, Where, error, warning

if TYPE_CHECKING:
    from kodoctl.topology.yaml.nodes import Node

MAX_ALLOWS: Final = 1_000  # of one file: each finding is compared with each

TEAM_RULE: Final = "K310"  # no comment allows it: the files that a rule judges cannot soften it

_MARK = re.compile(r"#\s*kodoctl:\s*(.*)$")
_ALLOW = re.compile(r"allow\s+(K\d{3}(?:\s*,\s*K\d{3})*)(?:\s+because\s+(\S.*))?\s*$")


@dataclass(frozen=True, slots=True)
class Suppression:
    """An allow-comment for one code. It allows findings with that `code` in the lines `first` to `last` (from 1,
    inclusive) because of `reason`. `where`: place of the comment.
    """

    code: str
    reason: str
    first: int
    last: int
    where: Where

    def covers(self, finding: Diagnostic) -> bool:
        """True if this comment allows the finding. The caller makes sure that both are of the same file."""
        return finding.where is not None and finding.code == self.code and self.first <= finding.where.line <= self.last


def find_allows(text: str, root: Node, file: str) -> tuple[list[Suppression], list[Diagnostic]]:
    """(allow-comments of a file, one for each code, with the lines they cover; errors in such comments). If both are
    more than MAX_ALLOWS together, the rest of the file is not read, which is an error, too.
    """
    if "kodoctl:" not in text:
        return [], []
    from kodoctl.topology.yaml.comments import find_comments

    following = _next_content(text.splitlines())
    spans = _spans(root)
    allows: list[Suppression] = []
    findings: list[Diagnostic] = []
    for comment in find_comments(text):
        if (mark := _MARK.match(comment.text)) is None:
            continue
        where = Where(file, comment.line, comment.column)
        order = _ALLOW.fullmatch(mark[1].strip())
        if order is None:
            detail = "write `# kodoctl: allow Kxxx because …`"
            findings.append(error("K018", "unrecognized kodoctl comment", detail, where))
        elif not order[2]:
            detail = f"write `allow {order[1]} because …`"
            findings.append(error("K018", "an allowance without a reason", detail, where))
        elif TEAM_RULE in order[1]:
            detail = f"{TEAM_RULE} is a rule of this repository: exempt the object under `exempt` of the rules file"
            findings.append(error("K018", "an allowance that a rules file gives", detail, where))
        else:
            first = following[comment.line - 1] if comment.alone else comment.line
            last = spans.get(first, first)
            allows += [Suppression(code.strip(), order[2], first, last, where) for code in order[1].split(",")]
        if len(allows) + len(findings) > MAX_ALLOWS:
            detail = f"more than {MAX_ALLOWS:,} allowances: split the file"
            return allows[:MAX_ALLOWS], [*findings[:MAX_ALLOWS], error("K018", "too many comments", detail, where)]
    return allows, findings


def apply_allows(
    findings: Iterable[Diagnostic], allows: list[Suppression], firm: Collection[Diagnostic] = ()
) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """(all findings in their order, allowed ones with `allowed_because` set; a warning for each of `allows` that covers
    no finding, or only findings that an earlier one of the file covers). `firm`: findings that no comment allows; a
    comment that covers one gives no warning.
    """
    used: set[Suppression] = set()
    result: list[Diagnostic] = []
    by_file: dict[str, list[Suppression]] = {}
    for allow in allows:
        by_file.setdefault(allow.where.file, []).append(allow)
    for finding in findings:
        near = by_file.get(finding.where.file, []) if finding.where else []
        covering = next((a for a in near if a.covers(finding)), None)
        if covering is None:
            result.append(finding)
        else:
            used.add(covering)
            result.append(finding if finding in firm else replace(finding, allowed_because=covering.reason))
    stale = [
        warning("K019", "an allowance that allows nothing", f"no {a.code} is found there: remove the comment", a.where)
        for a in allows
        if a not in used
    ]
    return result, stale


def _next_content(lines: list[str]) -> list[int]:
    """Number (from 1) of the next line with content below each line, in the order of the lines; the last line if there
    is none.
    """
    following: list[int] = []
    content = len(lines)
    for index in range(len(lines), 0, -1):
        following.append(content)
        if (line := lines[index - 1].strip()) and not line.startswith("#"):
            content = index
    return following[::-1]


def _spans(root: Node) -> dict[int, int]:
    """First line of each entry -> last line of the longest entry that begins on it."""
    spans: dict[int, int] = {}
    stack = list(root.children())
    while stack:
        node = stack.pop()
        spans[node.key_line] = max(spans.get(node.key_line, 0), node.end_line)
        stack.extend(node.children())
    return spans
