# pure: every branch is tested
"""Replay plans, reports and the list of replays, as text from their JSON forms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import age_text, duration_text, many, time_text
from kodoctl.text.line import Line

if TYPE_CHECKING:
    from kodoctl.documents.replay_document import (
        ReplayDuration,
        ReplayPartition,
        ReplayPlanDocument,
        ReplayReport,
        ReplayRow,
        ReplaySummary,
    )

_HANG: Final = 9
_TENANTS: Final = 5


def replay_plan_lines(document: ReplayPlanDocument, target: str, *, is_applied: bool = False) -> Iterator[Line]:
    """Lines of a replay plan. `target`: text that says how the cluster was reached; `is_applied`: the plan is carried
    out now, so that the last line, with its verdict and "Nothing was changed", is left out.
    """
    yield Line(target, "bold")
    yield Line(f"Replay: {one_line(document['topic'])} / {one_line(document['subscription'])}", "bold")
    yield Line()
    yield Line(f"  from   {_begin(document)}", hang=_HANG)
    if document["until"] is not None:
        yield Line(f"  until  {time_text(document['until'], seconds=True)}", hang=_HANG)
    for lane, rows in _by_lane(document["partitions"]).items():
        count = sum(row["messages"] for row in rows)
        span = f"{time_text(min(row['first'] for row in rows))} to {time_text(max(row['last'] for row in rows))}"
        where = f"{one_line(rows[0]['topic'])} ({lane})"
        yield Line(f"  lane   {where}: {many(count, 'message')}, published {span}", hang=_HANG)
    if document["because"]:
        yield Line(f"  why    {one_line(document['because'])}", hang=_HANG)
    if document["message"] is None:
        yield Line(f"  clock  {_CLOCKS[document['clocks']]}", hang=_HANG)
    yield Line()
    yield from _counts(document)
    yield from _warnings(document)
    for title, lines, style in (
        ("Not stored (removed by retention, or never sent):", document["gone"], "yellow"),
        ("Stored, but no message can be read of it, so that it is not counted:", document["unread"], "yellow"),
        ("Not known:", document["unknown"], "yellow"),
        ("Cannot be carried out:", document["refusals"], "bold red"),
    ):
        if lines:
            yield Line(f"  {title}", style)
            yield from (Line(f"    {one_line(line, 400)}", style, hang=6) for line in lines)
    yield Line()
    if not is_applied:
        yield _verdict(document)


_CLOCKS: Final = {
    "broker": "the broker's, which notes when it stores a message",
    "producers": "the producers': the broker notes only when it closes a ledger. Within a ledger most clocks are taken"
    " to be right, and each to within 10 min",
}


def _begin(document: ReplayPlanDocument) -> str:
    if document["message"] is not None:
        return f"message {document['message']}, to the end of its partition (other partitions stay as they are)"
    since = document["since"] or 0
    return f"{time_text(since, seconds=True)}, {age_text(max(0, document['made_at'] - since))} before this plan"


def _by_lane(partitions: list[ReplayPartition]) -> dict[str, list[ReplayPartition]]:
    found: dict[str, list[ReplayPartition]] = {}
    for row in partitions:
        found.setdefault(row["lane"], []).append(row)
    return found


def _counts(document: ReplayPlanDocument) -> Iterator[Line]:
    summary = document["summary"]
    yield Line(f"  {summary['again']:>9,} run again: handled before, and acknowledged", "bold", hang=12)
    if document["store"]:
        yield Line(f"  {summary['done']:>9,} are skipped: done, says the workers' store", hang=12)
    for name, text in _ROWS:
        if count := summary[name]:
            yield Line(f"  {count:>9,} {text}", "dim", hang=12)
    if tenants := summary["by_tenant"]:
        yield Line()
        yield from _tenants(tenants)
    yield Line()
    yield Line(f"  takes  {_duration_text(document['duration'], _coming(summary))}", hang=_HANG)


_ROWS: Final[tuple[tuple[Literal["unfinished", "copies", "others"], str], ...]] = (
    ("unfinished", "come anyway: not acknowledged yet"),
    ("copies", "stay done: copies in lower levels of messages that run again"),
    ("others", "stay done: for another subscription"),
)


def _coming(summary: ReplaySummary) -> int:
    return summary["again"] + summary["done"] + summary["unfinished"]


def _tenants(tenants: dict[str, int]) -> Iterator[Line]:
    shown = [(name, count) for name, count in tenants.items() if name][:_TENANTS]
    rest = sum(tenants.values()) - sum(count for _, count in shown)
    parts = [f"{one_line(name, 40)} {count:,}" for name, count in shown]
    yield Line(f"  tenant {', '.join([*parts, *([f'others {rest:,}'] if rest else [])])}", hang=_HANG)


def _duration_text(duration: ReplayDuration, messages: int) -> str:
    rate, arriving = duration["rate"], duration["arriving"]
    if rate is None:
        return "not known: workers were not busy in the last minute. Say --rate 200/s if they handle so many"
    come = f"while {arriving:,.1f}/s arrive" if arriving else "while nothing arrives"
    how = "as measured in the last minute" if duration["measured"] else "as said"
    if duration["ms"] is None:
        return f"for ever: workers handle {rate:,.1f}/s ({how}), {come}"
    return f"about {duration_text(duration['ms'])}: {many(messages, 'message')} at {rate:,.1f}/s ({how}), {come}"


def _warnings(document: ReplayPlanDocument) -> Iterator[Line]:
    summary = document["summary"]
    texts = []
    if not document["store"] and summary["again"]:
        texts.append(
            "What is done is not known (--store names the workers' store): all of it is handled again. `message.once`,"
            " `advance` and idempotency keys protect; other handlers repeat their effects."
        )
    if summary["again"]:
        texts.append(
            "If the workers have an inbox, they acknowledge a message whose row is still in it, without handling it. For"
            " such messages run `kodo-consumer inbox retry`."
        )
    if summary["elsewhere"]:
        texts.append(
            f"{summary['elsewhere']:,} of them also wait in another lane, or are dead letters: they are handled there as"
            " well, and only a store or `message.once` tells the second one."
        )
    if summary["by_place"]:
        texts.append(
            f"{summary['by_place']:,} were published outside of this time and stored in it: the clock of their producer"
            " is wrong."
        )
    if summary["expiring"]:
        texts.append(
            f"{summary['expiring']:,} are older than the time to live: the broker drops them again within minutes, unless"
            " workers take them before. Raise `ttl` first."
        )
    if summary["in_batches"]:
        texts.append(
            f"{summary['in_batches']:,} of those not acknowledged are in batches: parts of these that are done may come"
            " again as well."
        )
    if document["ordered"] and summary["again"]:
        texts.append(
            "The subscription keeps order: old messages of a key come after newer ones that it has seen. A handler that"
            " only writes newer versions (`advance`) drops them."
        )
    if texts:
        yield Line()
    yield from (Line(f"  ! {text}", "yellow", hang=4) for text in texts)


def _verdict(document: ReplayPlanDocument) -> Line:
    if document["refusals"]:
        return Line("Refused: change what is named, then plan again. Nothing was changed.", "bold red")
    if not document["partitions"]:
        return Line("Nothing to replay: no acknowledged message is stored there. Nothing was changed.", "bold")
    count = sum(row["messages"] for row in document["partitions"])
    parts = many(len(document["partitions"]), "partition")
    text = f"Plan {document['seal'][:12]}: {many(count, 'message')} of {parts} to deliver again. Nothing was changed."
    return Line(text, "bold")


def replay_report_lines(report: ReplayReport) -> Iterator[Line]:
    """Lines of the result of an attempt to carry out a replay, or to undo it."""
    entries = many(report.entries, "entry", "entries")
    parts = many(report.partitions, "partition")
    if report.action == "undo":
        yield Line(f"Undone {report.run}: {entries} of {parts} acknowledged again, which come no more.", "bold", hang=2)
        if report.again_done:
            done = many(report.again_done, "entry was", "entries were")
            yield Line(f"  {done} handled again meanwhile: what handlers did stays done.", hang=2)
    else:
        yield Line(f"Replay {report.run}: {entries} of {parts} come again.", "bold", hang=2)
        if report.kept:
            kept = many(report.kept, "entry stays", "entries stay")
            yield Line(f"  {kept} acknowledged behind the new position: handled since, or not of the plan.", hang=2)
    if report.unclear:
        yield Line(
            "  Not known whether these came again: an attempt was killed while their cursor moved, and the lane was"
            " resumed before this one. They were not moved again; plan them anew if your handlers did not see them:",
            "yellow", hang=2,
        )  # fmt: skip
    yield from (Line(f"    {one_line(line, 400)}", "yellow", hang=6) for line in report.unclear)
    yield from (Line(f"  {one_line(problem, 400)}", "yellow", hang=4) for problem in report.problems)
    if not report.complete:
        yield Line("Not complete: run the same command again.", "bold red")


def replay_list_lines(rows: list[ReplayRow], namespace: str) -> Iterator[Line]:
    """Two lines for each replay of a namespace, in the given order; one line that says so if there is none."""
    if not rows:
        yield Line(f"No replay in {one_line(namespace)} yet.")
    for row in rows:
        where = f"{one_line(row['topic'])}/{one_line(row['subscription'])}"
        head = f"{row['run']}  {time_text(row['began'])}  {where}: {many(row['messages'], 'message')}, {row['state']}"
        yield Line(head, _STYLES[row["state"]], hang=2)
        because = f": {one_line(row['because'])}" if row["because"] else ""
        yield Line(f"  by {one_line(row['who'])}{because}", "dim", hang=4)


_STYLES: Final = {"complete": "green", "incomplete": "bold red", "undoing": "bold red", "undone": "yellow"}
