# pure: every branch is tested
"""Annotations: findings of lint and of plans for the lines of a file, as workflow commands of GitHub and as a Code
Quality report of GitLab.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kodoctl.text.escaping import one_line

_KINDS: Final = {"error": "error", "warning": "warning", "note": "notice"}
_SEVERITIES: Final = {"error": "critical", "warning": "minor", "note": "info"}  # GitLab's
_LONGEST: Final = 2_000


@dataclass(frozen=True, slots=True)
class Annotation:
    """A finding for a line of a file. `severity`: `error`, `warning` or `note`; `where`: (file, line, column), both
    numbers from 1, 0 if unknown; None: the finding is about no file.
    """

    severity: str
    code: str
    summary: str
    detail: str
    where: tuple[str, int, int] | None


def github_line(annotation: Annotation) -> str:
    """Returns one line, a workflow command that becomes an annotation (GitHub, and forges that read the same). An
    unknown line or column counts as 1.

    Nothing in a name can end the command or begin another: %, line breaks, and in properties : and , are escaped.
    """
    place = ""
    if annotation.where is not None:
        file, line, column = annotation.where
        place = f"file={_property(file)},line={line or 1},col={column or 1},"
    title = _property(f"{annotation.code} {annotation.summary}")
    return f"::{_KINDS[annotation.severity]} {place}title={title}::{_message(annotation.detail)}"


def code_quality(annotations: Iterable[Annotation], path: str) -> str:
    """Returns the JSON text of a Code Quality report, which GitLab shows in a merge request, with the findings in the
    given order. An unknown line counts as 1; a text of more than 2,000 characters is cut. `path`: place of findings
    about no file, because GitLab ignores all findings after one without a place.

    A fingerprint leaves the line out, so that a finding stays the same one when lines are added above it.
    """
    rows, counts = [], Counter[str]()
    for one in annotations:
        file, line, _ = one.where or (path, 0, 0)
        file = posixpath.normpath(file)
        content = json.dumps([one.code, file, one.summary, one.detail])
        counts[content] += 1  # two findings with one fingerprint would be shown as one
        fingerprint = hashlib.sha256(f"{content}{counts[content]}".encode()).hexdigest()
        detail = "; ".join(one.detail.split("\n"))
        row = {
            "description": one_line(f"{one.code} {one.summary}: {detail}", _LONGEST),
            "check_name": one.code,
            "fingerprint": fingerprint,
            "severity": _SEVERITIES[one.severity],
            "location": {"path": file, "lines": {"begin": line or 1}},
        }
        rows.append(row)
    return json.dumps(rows, indent=2, ensure_ascii=False)


def _message(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _message(value).replace(":", "%3A").replace(",", "%2C")
