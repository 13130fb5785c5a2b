"""A plan as annotations: changes with data at stake, on the lines of their file. The other views have the whole
plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kodoctl.render import plan_words as words
from kodoctl.render.github_annotations import annotation
from kodoctl.render.plan_folding import SEVERITIES, gather_warnings
from kodoctl.text.escaping import one_line

if TYPE_CHECKING:
    from kodoctl.plan.change_document import FilePosition
    from kodoctl.plan.plan_document import PlanDocument

Json = dict[str, Any]
_LONGEST: Final = 2_000


def plan_github(document: PlanDocument, target: str) -> str:
    """One annotation for each danger or finding, the severest first, because forges show the first ten of a kind; a
    warning that many changes share is one annotation. Then lines for the log: the cluster and the summary. `target`:
    text that says how the cluster was reached.
    """
    found = sorted(_annotations(gather_warnings(document)), key=lambda item: SEVERITIES.index(item[0]))
    verdict = "refused: settle the errors, or allow what is meant. " if document["refused"] else ""
    return "\n".join(
        [
            *(line for _, line in found),
            words.cluster_line(document, target),
            *(text for text in (words.part_line(document), words.not_compared(document)) if text),
            f"{verdict}{words.summary_line(document)}",
        ]
    )


def _annotations(document: PlanDocument) -> Iterator[tuple[str, str]]:
    for change in document["changes"]:
        for danger in change["dangers"]:
            title = f"{danger['code']} {danger['summary']}"
            detail = danger["detail"]
            text = detail if change["address"] in detail else f"{change['address']}: {detail}"
            yield danger["severity"], _annotation(danger["severity"], title, text, change["where"])
    for finding in document["findings"]:
        title = f"{finding['code']} {finding['summary']}"
        yield finding["severity"], _annotation(finding["severity"], title, finding["detail"], finding["where"])


def _annotation(severity: str, title: str, text: str, where: FilePosition | None) -> str:
    lines = "\n".join(one_line(line, _LONGEST) for line in text.split("\n"))
    return annotation(severity, one_line(title), lines, (where[0], where[1], where[2]) if where else None)
