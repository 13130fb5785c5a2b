"""A plan as annotations: changes with data at stake, on the lines of their file. The other views have the whole
plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kodoctl.render import plan_words as words
from kodoctl.render.annotations import Annotation, code_quality, github_line
from kodoctl.render.plan_folding import SEVERITIES, gather_warnings
from kodoctl.text.escaping import one_line

if TYPE_CHECKING:
    from kodoctl.plan.change_document import FindingRow
    from kodoctl.plan.plan_document import PlanDocument

_LONGEST: Final = 2_000


def plan_github(document: PlanDocument, target: str) -> str:
    """One annotation for each danger or finding, the severest first, because forges show the first ten of a kind; some
    that are alike are one annotation (`gather_warnings`). Then lines for the log: the cluster, the part of the plan if
    it is not whole, and the summary. `target`: text that says how the cluster was reached.
    """
    verdict = "refused: settle the errors, or allow what is meant. " if document["refused"] else ""
    return "\n".join(
        [
            *map(github_line, plan_annotations(document)),
            words.cluster_line(document, target),
            *(text for text in (words.part_line(document), words.not_compared(document)) if text),
            f"{verdict}{words.summary_line(document)}",
        ]
    )


def plan_gitlab(document: PlanDocument, _: str) -> str:
    """JSON text of a Code Quality report, with one finding for each danger or finding, the severest first; some that
    are alike are one (`gather_warnings`).
    """
    return code_quality(plan_annotations(document), report_path(document))


def report_path(document: PlanDocument) -> str:
    """Path for findings about no file: the first file that was planned, `.` if there is none."""
    return next(iter(document["paths"]), ".")


def plan_annotations(document: PlanDocument) -> list[Annotation]:
    """Annotations of a plan's dangers and findings, the severest first; some that are alike are one annotation
    (`gather_warnings`).
    """
    return sorted(_annotations(gather_warnings(document)), key=lambda one: SEVERITIES.index(one.severity))


def finding_annotation(finding: FindingRow, detail: str | None = None) -> Annotation:
    """Annotation of one danger or finding, with control characters in its texts escaped, except line breaks of the
    detail; each line is cut to 2,000 characters. `detail`: replaces the finding's own; None or "": does not.
    """
    where = finding["where"]
    lines = "\n".join(one_line(line, _LONGEST) for line in (detail or finding["detail"]).split("\n"))
    place = (where[0], where[1], where[2]) if where else None
    return Annotation(finding["severity"], finding["code"], one_line(finding["summary"], _LONGEST), lines, place)


def _annotations(document: PlanDocument) -> Iterator[Annotation]:
    for change in document["changes"]:
        for danger in change["dangers"]:
            detail = danger["detail"]
            text = detail if change["address"] in detail else f"{change['address']}: {detail}"
            yield finding_annotation({**danger, "where": change["where"]}, text)
    yield from map(finding_annotation, document["findings"])
