# pure: every branch is tested
"""Sentence of the first screen about lost messages: the verdict of the last audits, and the steps that lead to one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import age_text, many

if TYPE_CHECKING:
    from kodoctl.ui.first_screen import CommandWords

_VERDICTS: Final = {
    "no loss": ("good", "No message was lost"),
    "inconclusive": ("open", "It is open whether a message was lost"),
    "loss": ("bad", "Messages were lost"),
}
"""(style, sentence) by the verdict of an audit, the best first."""
_OLD: Final = 2 * 86_400_000  # ms: an older audit says nothing about messages that were sent since
_CLOCKS: Final = 300_000  # ms by which clocks of two machines may differ
_NAMED: Final = 4  # subscriptions, and topologies, that steps name


@dataclass(frozen=True, slots=True)
class AuditStep:
    """A step that leads to a verdict: what to do, and command lines in their order."""

    text: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sentence:
    """The sentence at the top. `style`: `good`, `bad` or `open`; `is_judged`: there is an audit; `unjudged`: topologies
    that no audit judged; `steps`: steps that lead to a verdict.
    """

    style: str
    text: str
    is_judged: bool = False
    unjudged: tuple[str, ...] = ()
    steps: tuple[AuditStep, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditedTopology:
    """A topology of the console. `topics`: their full names; `document`: name of the file for its audit; `unrecorded`:
    (ground topic / subscription, place in the file) of the subscriptions whose workers record too little.
    """

    name: str
    topics: Collection[str]
    document: str
    unrecorded: Sequence[tuple[str, str]] = ()


def audit_sentence(documents: Iterable[Mapping[str, Any]], now: int, topologies: Iterable[AuditedTopology]) -> Sentence:
    """Sentence about the last audits, documents of `kodoctl pipeline audit`: the worst verdict counts, then the oldest.
    `now`: ms since the epoch. No loss is good news only if audits judged all these topologies, and read them within two
    days. Raises KeyError, TypeError, ValueError or AttributeError for another document.
    """
    order, found = [*_VERDICTS], list(documents)
    judged = {one["topic"] for document in found for one in document["coverage"]}
    missing = tuple(sorted(one.name for one in topologies if judged.isdisjoint(one.topics)))
    if not found:
        return Sentence("open", "Not judged whether a message was lost", unjudged=missing)
    worst = max(found, key=lambda one: (order.index(one["verdict"]), -one.get("read_at", 0)))
    style, text = _VERDICTS[worst["verdict"]]
    age = now - worst.get("read_at", 0)
    text += f", as read {age_text(max(0, age))} ago" if age < now else ", as read at an unknown time"
    text += "".join(f": {one['text']}" for one in worst["reasons"][:1])
    if missing:
        text += f"; not judged: {one_line(', '.join(missing), 120)}"
    ages = [now - one.get("read_at", 0) for one in found]
    if style == "good" and (missing or not all(-_CLOCKS <= one <= _OLD for one in ages)):
        style = "open"
    return Sentence(style, text, is_judged=True, unjudged=missing)


def audit_steps(
    words: CommandWords, topologies: Sequence[AuditedTopology], *, lacks_spark: bool, lacks_java: bool
) -> tuple[AuditStep, ...]:
    """Steps that lead to a verdict about the topologies, in their order, without those that are done. `lacks_spark`,
    `lacks_java`: this installation has no extra `spark`, this machine no Java.
    """
    steps: list[AuditStep] = []
    if lacks_spark:
        extra = "In a clone of kodoctl, install the extra of audits, some 1 GB."
        steps.append(AuditStep(extra, ("pip install '.[spark]'",)))
    if lacks_java:
        steps.append(AuditStep("Install Java 17 or 21, and set JAVA_HOME if it is not on the PATH."))
    if silent := [one for one in topologies if one.unrecorded]:
        places = [f"{name} ({place})" for one in silent for name, place in one.unrecorded]
        text = (
            f"Write audit: true below {_some(places)}. Apply, restart the workers, which then record what they do, and"
            " start this console again."
        )
        steps.append(AuditStep(text, tuple(words.line("kodoctl apply", one.name) for one in silent[:_NAMED])))
    chosen = topologies[:_NAMED]
    of = "" if len(topologies) == len(chosen) else f", and so for {many(len(topologies) - len(chosen), 'other')}"
    ingests = tuple(words.line("kodoctl pipeline ingest", one.name) for one in chosen)
    steps.append(AuditStep(f"Read the topics into tables, anew before each audit{of}.", ingests))
    audits = tuple(
        f"{words.line('kodoctl pipeline audit', one.name, '--format', 'json')} > {one.document}" for one in chosen
    )
    shown = f"Audit what was read: this page shows the verdict as soon as the file is there{of}."
    return (*steps, AuditStep(shown, audits))


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    named = one_line(", ".join(names[:_NAMED]), 400)
    return f"{named} and {many(rest, 'other')}" if rest > 0 else named
