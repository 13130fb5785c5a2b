"""The report of an apply, printed as text or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kodoctl.cli.common.console import defect, say, tell
from kodoctl.cli.common.console import report as report_findings
from kodoctl.cli.common.terminal import say_folded
from kodoctl.errors import KodoctlError
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.apply.fleet_run import ClusterResult
    from kodoctl.apply.report import ApplyReport, ChangeOutcome, ChangeStatus
    from kodoctl.errors import Diagnostic
    from kodoctl.pulsar.session import Session


def report_json(report: ApplyReport) -> dict[str, Any]:
    """JSON of the report of one cluster's apply. Applying commands with `--format json` print it as one line after all
    events, and add the context if there are several clusters.
    """
    from kodoctl.apply.report import ChangeStatus

    return {
        "type": "report",
        "id": report.id,
        "complete": report.complete,
        "interrupted": report.interrupted,
        "writes": report.writes,
        "seconds": round(report.seconds, 3),
        "counts": {status.value: report.count(status) for status in ChangeStatus},
        "outcomes": [
            {"action": o.verb, "address": o.address, "status": o.status.value, "detail": o.detail}
            for o in report.outcomes
        ],
        "notes": list(report.notes),
    }


def show_result(result: ClusterResult, session: Session, *, json_output: bool, repeats: bool) -> None:
    """Prints the report of one cluster's apply, or the error that ended it. With several clusters, the context is
    printed too. `session`: that of the cluster; `repeats`: as in `report_texts`.
    """
    if isinstance(result.problem, KodoctlError):
        show_problem(result.context, "not applied", result.problem.diagnostics, json_output=json_output)
        return
    if result.problem is not None:
        show_problem(result.context, "perhaps applied in part", [defect(result.problem)], json_output=json_output)
        return
    assert result.report is not None
    if json_output:
        named = {"context": result.context} if result.context else {}
        say(json.dumps({**report_json(result.report), **named}))
        return
    if result.context:
        say(f"--- {result.context}")
    show_report(result.report, context_name(session), repeats=repeats)


def context_name(session: Session) -> str:
    """Name of the context through which a session reaches its cluster; "" if it has none."""
    return session.connection.context.name if session.connection.context else ""


def show_problem(context: str, status: str, problems: Sequence[Diagnostic], *, json_output: bool) -> None:
    """Prints why the plan of one of several clusters is not applied: on standard error, or as a line of JSON on
    standard output. `status`: a text such as "not applied".
    """
    if json_output:
        from kodoctl.plan.serialization import diagnostic_to_json

        found = [diagnostic_to_json(one) for one in problems]
        say(json.dumps({"type": "error", "context": context, "status": status, "problems": found}))
        return
    tell(f"--- {context}: {status}")
    report_findings(problems)


def show_report(report: ApplyReport, context: str = "", *, repeats: bool = True) -> None:
    """Prints the report of an apply on standard output: changes that failed, were skipped or did not start, with their
    reasons (several with one reason may be folded to the first and the number of the others); then notes; then counts,
    and advice if the apply is not complete. `context`, `repeats`: as in `report_texts`.
    """
    for text, hang in report_texts(report, context, repeats=repeats):
        if hang is None:
            say(text)
        else:
            say_folded(text, hang)


def report_texts(report: ApplyReport, context: str = "", *, repeats: bool) -> Iterator[tuple[str, int | None]]:
    """Yields the lines that `show_report` prints, each as (text, column at which its further lines begin if it is
    folded to the width of the screen). The column is None for a line that must not be folded. `context`: that of the
    cluster, "" if it has none; `repeats`: the command, run again, would continue what is not complete; False: it would
    refuse, or do something else.
    """
    from kodoctl.apply.report import ChangeStatus
    from kodoctl.text.escaping import one_line

    for status in (ChangeStatus.FAILED, ChangeStatus.SKIPPED, ChangeStatus.NOT_STARTED):
        for first, others in _for_one_reason(report, status):
            more = f", and {others} more" if others else ""
            yield f"  {status.value}: {first.verb} {one_line(first.address)}{more}", None
            yield f"      {one_line(first.detail)}", 6
    for note in report.notes:
        yield f"  note: {one_line(note)}", 4
    counts = ", ".join(
        f"{report.count(status)} {status.value}"
        for status in ChangeStatus
        if report.count(status) or status is ChangeStatus.DONE
    )
    head = "Applied" if report.complete else "Interrupted" if report.interrupted else "Not complete"
    yield f"{head}: {counts}; {many(report.writes, 'write request')}, {report.seconds:.1f} s.", None
    if not report.complete:
        yield _advice(report, context, repeats=repeats), None


def _advice(report: ApplyReport, context: str, *, repeats: bool) -> str:
    """The way to continue an apply that is not complete; `context` and `repeats` as in `report_texts`."""
    from kodoctl.text.escaping import shell_line

    if repeats:
        return "Running the same command again continues with what is left."
    if report.journal:
        reach = ["--context", context] if context else []
        return f"`{shell_line(['kodoctl', 'apply', '--resume', report.journal, *reach])}` continues with what is left."
    return "The next plan shows what is left."


def _for_one_reason(report: ApplyReport, status: ChangeStatus) -> Iterator[tuple[ChangeOutcome, int]]:
    """Yields outcomes to show, each with the number of others that it represents: those of the same verb and reason, if
    the names of their topics are ignored. A line for each would hide another failure. Few outcomes are shown one by
    one, unless they did not start.
    """
    from kodoctl.apply.report import ChangeStatus
    from kodoctl.render.plan_folding import FOLDED_FROM
    from kodoctl.render.plan_words import topic_of

    began = status is not ChangeStatus.NOT_STARTED
    by_reason: dict[tuple[str, str], list[ChangeOutcome]] = {}
    for outcome in report.outcomes:
        if outcome.status is status:
            topic = topic_of(outcome.address).removeprefix("persistent://")
            reason = outcome.detail.replace(topic, "") if topic else outcome.detail
            by_reason.setdefault((outcome.verb if began else "", reason), []).append(outcome)
    for some in by_reason.values():
        if began and len(some) < FOLDED_FROM:
            yield from ((outcome, 0) for outcome in some)
        else:
            yield some[0], len(some) - 1
