"""Recall plans, reports and peeked messages as text, from their JSON forms. Texts of messages are escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kodoctl.protocol.properties import ORIGIN_TIME, first_sent
from kodoctl.protocol.sequence_numbers import NOBODY
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import age_text, many, time_text
from kodoctl.text.line import Line

if TYPE_CHECKING:
    from kodoctl.documents.recall_document import (
        AnyRecallPlan,
        LetterSample,
        PeekDocument,
        PeekedMessage,
        RecallRunRow,
        RecallSummary,
        SendReport,
    )

_VERBS: Final = {
    "send": "to send",
    "discard": "to discard",
    "release": "to release",
    "move": "to move",
    "resend": "to send again",
}
_HEADS: Final = {"send": "Recall", "discard": "Discard", "release": "Release", "move": "Move", "resend": "Recall"}
COMMAND_WORDS: Final[Mapping[str, str]] = {
    "again": "--again",
    "limit": "--limit",
    "patch": "--edit changes the payloads",
    "part": "one of them: --where \"cause = '…'\"",
    "rest": " (--format json lists all)",
}
"""Flags and commands in the lines about a plan, by their place there. A page gives words of its own: "" for those that
it does not have.
"""
_LEFT_OUT: Final = {
    "already": "recalled or discarded before; the holder is told again ({again} sends them once more)",
    "unfinished": "begun by another recall that is not finished: run its `recall apply` again ({again} overrides)",
    "recalled": "were sent again before, and died again ({again} sends them once more)",
    "already_done": "already done, says the workers' store ({again} sends them once more)",
    "repeat": "copies of a chosen letter: acknowledged with it, not sent",
    "beyond": "beyond {limit}: plan again when these are done",
    "unreadable": "with keys or properties that are no text: they cannot be carried on unchanged",
    "not_editable": "whose payload cannot be patched",
    "nowhere": "with no lane to go to",
    "due": "due already: workers get them as soon as they read the lane",
    "part_of_a_batch": "in a batch of which not every message is chosen: choose all of it, or none",
}
_WAITING_LEFT_OUT: Final = {
    "already": "sent or discarded before, and acknowledged with this plan",
    "unfinished": "begun by another plan that is not finished: run its `waiting apply` again",
    "repeat": "copies of a chosen message: acknowledged with it, not sent",
}
_LOST_LEFT_OUT: Final = {
    "already": "sent again before: the audit knows it when that is read",
    "unfinished": "begun by another plan that is not finished: run its `recall apply` again ({again} overrides)",
    "already_done": "done, says the workers' store: their records are lost, not they ({again} sends them once more)",
    "repeat": "copies of a chosen message: one of them is sent",
    "not_landed": "whose payload the landing does not have (never read, masked, or expired there): who produced them can send them again",
    "moved_on": "that are stored further on, or may be: to send them again would double them",
}
_SHOWN: Final = 100  # characters of a text in a list
_LISTED: Final = 100  # messages with problems of one kind


def recall_plan_lines(
    document: AnyRecallPlan, target: str, *, earlier: bool = False, names: Mapping[str, str] = COMMAND_WORDS
) -> Iterator[Line]:
    """Lines of a recall plan; `target`: text that says how the cluster was reached; `earlier`: an earlier command made
    the plan, so that a line says when, and that the ages are as of then; `names`: words for flags and commands in the
    lines, by the keys of COMMAND_WORDS.
    """
    summary = document["summary"]
    lane = document.get("lane", "")
    lost = document["action"] == "resend"
    what = "lost messages" if lost else "waiting messages" if lane else "dead letters"
    head = f"{_HEADS[document['action']]} of {what}"
    yield Line(target, "bold")
    yield Line(f"{head}: {one_line(document['topic'])} / {one_line(document['subscription'])}", "bold")
    yield Line()
    yield Line(f"  where  {one_line(document['where'])}", hang=9)
    yield Line(f"  from   {document['dead_topic']}{f' ({lane})' if lane else ''}", hang=9)
    if landing := document.get("landing"):
        yield Line(f"  read   {one_line(landing, 400)}", hang=9)
    for topic, count in _targets(document).items():
        yield Line(f"  to     {topic} ({count:,})", hang=9)
    if document["edit"] is not None:
        yield Line(f"  patch  {one_line(_json(document['edit']), 400)}", hang=9)
    if document["because"]:
        yield Line(f"  why    {one_line(document['because'])}", hang=9)
    if earlier:
        yield Line(f"  made   {time_text(document['made_at'])}; the ages below are as of then", hang=9)
    yield Line()
    yield from _causes(summary, names["part"])
    yield from _counts("tenant", summary["by_tenant"])
    yield from _counts("age", summary["by_age"])
    yield from _samples(summary["samples"], document["made_at"])
    words = _LOST_LEFT_OUT if lost else _WAITING_LEFT_OUT if lane else {}
    yield from _left_out(summary, {**_LEFT_OUT, **words}, names)
    yield from _notes(document, names["patch"])
    yield from _plan_verdict(document)


def _notes(document: AnyRecallPlan, patch: str) -> Iterator[Line]:
    """Lines about the effects of the plan beside its messages. `patch`: words for a change of payloads, "" for none."""
    summary, lane, action = document["summary"], document.get("lane", ""), document["action"]
    chosen, notes = summary["chosen"], list[str]()
    if action == "send" and chosen and summary.get("died_at_once") == chosen and document["edit"] is None:
        who = "It" if chosen == 1 else f"All {chosen:,}"
        notes.append(
            f"{who} died without a later attempt, as the cause was final: that happens again unless the handler has changed"
            f" since{f', or {patch}' if patch else ''}."
        )
    if lane and action != "resend" and chosen:
        notes.append(
            f"Carrying it out pauses {lane}: its other messages wait until all of these are dealt with. The pause then"
            " ends; if the run is cut off, it ends when the plan is continued, or by itself a day later."
        )
    if action in ("release", "move") and chosen:
        notes.append(
            "It changes no limit: messages over a rate or a quota that is still used up wait again, for as long as the"
            " limit says."
        )
    for note in notes:
        yield Line(f"  ! {note}", "yellow", hang=4)
    if notes:
        yield Line()


def _targets(document: AnyRecallPlan) -> dict[str, int]:
    letters = document["letters"]
    if isinstance(letters, dict):
        counts = dict(enumerate(letters["by_lane"]))
    else:
        counts = Counter(letter["lane"] for letter in letters)
    found: dict[str, int] = {}
    for lane, target in enumerate(document["lanes"]):
        found[target["topic"]] = found.get(target["topic"], 0) + counts.get(lane, 0)
    return found


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _causes(summary: RecallSummary, hint: str) -> Iterator[Line]:
    """Lines of counts by cause; by reason if both are the same, or if the kodoctl that made the plan had no causes.
    `hint`: how one of several is chosen.
    """
    causes = summary.get("by_cause")
    if causes is None or causes == summary["by_reason"]:
        yield from _counts("reason", summary["by_reason"])
        return
    yield from _counts("cause", causes, hint=hint if len(causes) > 1 else "")


def _counts(title: str, counts: dict[str, int], hint: str = "") -> Iterator[Line]:
    if not counts:
        return
    width = max(len(f"{count:,}") for count in counts.values())
    yield Line(f"  by {title}", "dim")
    for name, count in counts.items():
        yield Line(f"    {count:>{width},}  {one_line(name, _SHOWN)}", hang=width + 6)
    if hint:
        yield Line(f"    {hint}", "dim", hang=6)
    yield Line()


def _samples(samples: list[LetterSample], now: int) -> Iterator[Line]:
    if not samples:
        return
    yield Line("  oldest", "dim")
    for sample in samples:
        key = f", key {one_line(sample['key'], _SHOWN)}" if sample["key"] else ""
        yield Line(
            f"    {sample['position']}{key}, {age_text(now - sample['dead_at'], short=True)} ago: {one_line(sample['reason'], _SHOWN)}",
            hang=6,
        )
        if sample.get("error"):
            yield Line(f"      {one_line(sample['error'])}", hang=6)
        yield Line(f"      {one_line(sample['payload'])}", hang=6)
    yield Line()


def _left_out(summary: RecallSummary, words: Mapping[str, str], names: Mapping[str, str]) -> Iterator[Line]:
    if not summary["left_out"]:
        return
    yield Line("  left out", "dim")
    for word, count in summary["left_out"].items():
        one = words["repeat"] == _LEFT_OUT["repeat"] and (word, count) == ("repeat", 1)
        text = words[word].format_map(names) if word in words else one_line(word, _SHOWN)  # of a newer kodoctl
        text = "copy of a chosen letter: acknowledged with it, not sent" if one else text
        yield Line(f"    {count:,} {text}", "yellow", hang=6)
        if word == "not_landed":
            yield from (Line(f"      {one_line(name)}", "yellow", hang=8) for name in summary.get("not_landed", ()))
    for why, count in summary["not_editable"].items():
        yield Line(f"      {count:,}: {one_line(why)}", "yellow", hang=8)
    yield Line()


def _plan_verdict(document: AnyRecallPlan) -> Iterator[Line]:
    summary = document["summary"]
    noun = "message" if document.get("lane") else "letter"
    letters = many(summary["chosen"], noun)
    stored = document["letters"]
    settled = stored["settled"] if isinstance(stored, dict) else len(document["settle"])
    settle = f", {many(settled, noun)} to acknowledge" if settled else ""
    chosen = f"Plan {document['seal'][:12]}: {letters} {_VERBS[document['action']]}{settle}"
    yield Line(f"{chosen}; {summary['matched']:,} of {summary['read']:,} match.", "bold")


def recall_report_lines(
    report: SendReport, action: str, seconds: float, noun: str, names: Mapping[str, str] = COMMAND_WORDS
) -> Iterator[Line]:
    """Lines of the report of an attempt to carry out a recall plan: messages with problems, of each problem the first
    100 (_LISTED) and the number of the others, then counts and the outcome. `action`: of the plan; `seconds`: duration
    of the attempt; `noun`: the word for one of the plan's messages; `names`: words for flags and commands in the lines,
    by the keys of COMMAND_WORDS.
    """
    for letters, title in (
        (report.refused, "never taken, still where it was"),
        (report.unclear, "nobody can tell whether it was stored; neither sent again nor acknowledged"),
        (report.elsewhere, "left alone"),
    ):
        yield from _first_lines([f"{title}: {one_line(one)}" for one in letters], "red", names["rest"])
    yield from _first_lines([one_line(one) for one in report.stored_twice], "yellow", names["rest"])
    if report.duplicates:
        text = f"  {many(report.duplicates, 'message')} stored twice when a broker took the lane over: one copy of each is acknowledged"
        yield Line(text, hang=4)
    if report.already:
        verb = {"send": "recalled", "discard": "discarded"}.get(action, "sent")
        text = f"  {many(report.already, noun)} of the plan {verb} by an earlier attempt at this plan"
        yield Line(text, hang=4)
    if report.gone:
        yield Line(
            f"  {many(report.gone, noun)} of the plan acknowledged by somebody else meanwhile",
            "yellow",
            hang=4,
        )
    if report.unacknowledged:
        yield Line(
            f"  {many(report.unacknowledged, noun)} not acknowledged yet: run the command again",
            "yellow",
            hang=4,
        )
    if report.in_doubt:
        text = f"  {many(report.in_doubt, noun)} without a receipt when this stopped: the next attempt finds out"
        yield Line(text, "yellow", hang=4)
    discards = action == "discard"
    done = [f"{report.discarded:,} discarded"] if discards else [f"{report.sent:,} sent"]
    done += [f"{report.had_already:,} stored by an earlier attempt"] * bool(report.had_already)
    done += [f"{report.before:,} done before"] * bool(report.before)
    done += [f"{many(report.acknowledged, f'old {noun}')} settled"] * (action != "resend")
    head = "Done" if report.complete else "Interrupted" if report.interrupted else "Not complete"
    yield Line(f"{head}: {', '.join(done)}; {seconds:.1f} s.", "bold")
    if report.interrupted:
        yield Line("Running the same command again continues with what is left; nothing is sent twice.")


def _first_lines(texts: list[str], style: str, rest: str) -> Iterator[Line]:
    yield from (Line(f"  {text}", style, hang=4) for text in texts[:_LISTED])
    if len(texts) > _LISTED:
        yield Line(f"  … and {len(texts) - _LISTED:,} more{rest}", style, hang=4)


def peek_lines(document: PeekDocument, now: int) -> Iterator[Line]:
    """Lines of messages, one block each; the matches counted by cause, if more messages matched than are shown; then
    `peek_end`. `now`: ms since the epoch.
    """
    for message in document["messages"]:
        yield from peeked_lines(message, now)
    causes = document.get("by_cause", {})
    if document["matched"] > len(document["messages"]):  # else each is shown with all that is known of it
        yield from _counts("cause", causes, hint=COMMAND_WORDS["part"] if len(causes) > 1 else "")
    yield Line(peek_end(document), "dim")


def peeked_lines(message: PeekedMessage, now: int) -> Iterator[Line]:
    """Lines of one message, and an empty one after them. `now`: ms since the epoch."""
    yield Line(f"{message['position']}  {message['topic']}", "bold")
    when = f"{time_text(message['published'], seconds=True)}, {age_text(now - message['published'], short=True)} ago"
    size = "no payload" if message["size"] is None else many(message["size"], "byte")
    yield Line(f"  stored {when}; {size}", hang=4)
    sent = first_sent(_value(message, ORIGIN_TIME), message["published"])
    if sent < message["published"]:
        yield Line(f"  first sent {time_text(sent, seconds=True)}, {age_text(now - sent, short=True)} ago", hang=4)
    if message["event_time"]:
        yield Line(f"  event time {time_text(message['event_time'], seconds=True)}", hang=4)
    for name, key in (("key", message["key"]), ("ordering key", message["ordering_key"])):
        if key:
            yield Line(f"  {name} {one_line(key)}", hang=4)
    for name, value in message["properties"].items():
        yield Line(f"  {one_line(name, _SHOWN)} = {one_line(value)}", hang=4)
    for control in message["control"]:
        means = f"  ({one_line(control['means'])})" if control["means"] else ""
        yield Line(f"  {one_line(control['name'], _SHOWN)} = {one_line(control['value'])}{means}", "cyan", hang=4)
    if message["broken"]:
        yield Line(f"  {message['broken']}", "red", hang=4)
    if message["preview"]:
        yield Line(f"  {one_line(message['preview'])}", "green", hang=4)
    if "content" in message and message["content"]["note"]:
        yield Line(f"  payload: {one_line(message['content']['note'])}", "yellow", hang=4)
    yield Line()


def _value(message: PeekedMessage, name: str) -> str | None:
    """Value of a control property, None without it."""
    return next((one["value"] for one in message["control"] if one["name"] == name), None)


def peek_end(document: PeekDocument) -> str:
    """Text with the numbers of messages that were read, that matched, and, if they are fewer, that are shown; and with
    the number of marks of producers, if there are any.
    """
    read = f"{many(document['matched'], 'message')} of {document['read']:,} read"
    shown = sum(not any(one["value"] == NOBODY for one in message["control"]) for message in document["messages"])
    more = [f"{shown:,} shown (--limit)"] * (document["matched"] > shown)
    more += ["there are more (--scan)"] * (not document["read_all"])
    more += [f"beside them {many(document['marks'], 'mark')} of producers"] * bool(document["marks"])
    return f"{'; '.join([read, *more])}. Nothing was consumed."


def recall_list_lines(rows: Sequence[RecallRunRow], namespace: str, ledger: str) -> Iterator[Line]:
    """Two lines for each run of `rows`, in the given order. If there is none, one line that says that the recall ledger
    at the location `ledger` has no run in `namespace`.
    """
    if not rows:
        yield Line(f"The ledger {one_line(ledger)} has no recall, release or discard in {one_line(namespace)}.")
    for row in rows:
        head = f"{one_line(row['run'])}  {time_text(row['began'])}  {one_line(row['source'])}: {recall_counts(row)}"
        yield Line(head, recall_style(row), hang=2)
        yield Line(f"  by {one_line(row['who'])}", "dim", hang=4)


def recall_counts(row: RecallRunRow) -> str:
    """Text about the numbers of messages of a run that are not 0; "" if all are."""
    counts = {
        "sent": row["sent"], "discarded": row["discarded"], "not sent": row["refused"], "unclear": row["unclear"],
        "begun and not ended": row["open"],
    }  # fmt: skip
    return ", ".join(f"{count:,} {text}" for text, count in counts.items() if count)


def recall_style(row: RecallRunRow) -> str:
    """Style of a run's line: yellow if something of it was not sent, or may not have been; else green."""
    return "yellow" if row["open"] or row["unclear"] or row["refused"] else "green"
