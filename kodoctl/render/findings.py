"""Lint findings as text, as JSON, as SARIF and as annotations of pull requests and merge requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kodoctl import __version__
from kodoctl.errors import Diagnostic, Severity
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.render.annotations import Annotation
    from kodoctl.topology.lint.linter import LintReport

FORMAT_VERSION = 1


def as_json(finding: Diagnostic) -> dict[str, Any]:
    """One finding as a JSON object; file, line and column are None for a finding about no file, line and column are 0
    for one about a whole file.
    """
    where = finding.where
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "summary": finding.summary,
        "detail": finding.detail,
        "file": where.file if where else None,
        "line": where.line if where else None,
        "column": where.column if where else None,
        "allowed_because": finding.allowed_because,
    }


def text(report: LintReport) -> str:
    """One line for each finding, `file:line:column code severity text`, then the summary. The place is only `file` for
    a finding about a whole file, `-` for one about no file. A finding that a comment allows has `allowed (REASON)` as
    its severity. A line of more than 4,000 characters is cut.
    """
    lines = []
    for f in report.findings:
        severity = f"allowed ({f.allowed_because})" if f.allowed_because else f.severity.value
        # one finding is one line, whatever the names in it hold: a line break in a name cannot forge a second finding
        detail = "; ".join(f.detail.split("\n"))
        lines.append(one_line(f"{f.where or '-'} {f.code} {severity} {f.summary}: {detail}", limit=4_000))
    return "\n".join([*lines, summary(report)])


def summary(report: LintReport) -> str:
    """Numbers of files, ground topics, team rules and their checks (if there are rules), and findings by severity, in
    one sentence. Findings that a comment allows are counted apart.
    """
    open_findings = [f for f in report.findings if f.allowed_because is None]
    counts = {severity: sum(f.severity is severity for f in open_findings) for severity in Severity}
    parts = [many(n, severity.value) for severity, n in counts.items() if n]
    allowed = len(report.findings) - len(open_findings)
    parts += [f"{allowed} allowed"] if allowed else []
    verdict = ", ".join(parts) if parts else "no findings"
    rules = sum(one.checked for one in report.rules)
    judged = f", {many(len(report.rules), 'rule')} ({many(rules, 'check')})" if report.rules else ""
    return f"{many(report.files, 'file')}, {many(report.ground_topics, 'ground topic')}{judged}: {verdict}."


def as_json_text(report: LintReport) -> str:
    """All findings, and the counts of files, ground topics and team rules, as the text of one JSON document."""
    document = {
        "format_version": FORMAT_VERSION,
        "files": report.files,
        "ground_topics": report.ground_topics,
        "failed": report.failed,
        "rules": [
            {
                "name": one.name,
                "file": one.where.file,
                "line": one.where.line,
                "checked": one.checked,
                "refused": one.refused,
                "exempt": one.exempt,
            }
            for one in report.rules
        ],
        "findings": [as_json(f) for f in report.findings],
    }
    return _dump(document)


def github(report: LintReport) -> str:
    """Text with a workflow command of GitHub for each finding that no comment allows, which becomes an annotation of
    its line in a pull request, or without a place if it is about no file; then the summary.
    """
    from kodoctl.render.annotations import github_line

    return "\n".join([*map(github_line, _annotations(report)), summary(report)])


def gitlab(report: LintReport) -> str:
    """JSON text of a Code Quality report of GitLab, with the findings that no comment allows, for a merge request."""
    from kodoctl.render.annotations import code_quality

    return code_quality(_annotations(report), ".")


def _annotations(report: LintReport) -> list[Annotation]:
    from kodoctl.render.annotations import Annotation

    return [
        Annotation(
            f.severity.value,
            f.code,
            f.summary,
            f.detail,
            (f.where.file, f.where.line, f.where.column) if f.where else None,
        )
        for f in report.findings
        if f.allowed_because is None
    ]


def sarif(report: LintReport) -> str:
    """All findings as text in SARIF 2.1.0, for code scanning; a finding that a comment allows is suppressed there."""
    from kodoctl.errors.codes import CODES

    used = {f.code for f in report.findings}
    rules = [
        {"id": number, "shortDescription": {"text": code.title}, "help": {"text": code.todo}}
        for number, code in CODES.items()
        if number in used
    ]
    run = {
        "tool": {"driver": {"name": "kodoctl", "version": __version__, "rules": rules}},
        "results": [_sarif_result(f) for f in report.findings],
    }
    document = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return _dump(document)


def _dump(document: dict[str, Any]) -> str:
    import json

    return json.dumps(document, indent=2, ensure_ascii=False)


def _sarif_result(finding: Diagnostic) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": finding.severity.value,
        "message": {"text": f"{finding.summary}: {finding.detail}"},
    }
    if where := finding.where:
        region = {"startLine": max(where.line, 1), "startColumn": max(where.column, 1)}
        location = {"artifactLocation": {"uri": where.file}, "region": region}
        result["locations"] = [{"physicalLocation": location}]
    if finding.allowed_because:
        result["suppressions"] = [{"kind": "inSource", "justification": finding.allowed_because}]
    return result


RENDERERS: dict[str, Callable[[LintReport], str]] = {
    "text": text,
    "json": as_json_text,
    "sarif": sarif,
    "github": github,
    "gitlab": gitlab,
}
