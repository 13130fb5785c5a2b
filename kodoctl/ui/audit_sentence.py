# pure: every branch is tested
"""Sentence of the first screen about lost messages: the verdict of the last audits, and the steps that lead to one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kodoctl.text.escaping import one_line, shell_line
from kodoctl.text.formatting import age_text, many

if TYPE_CHECKING:
    from kodoctl.ui.first_screen import CommandWords

_VERDICTS: Final = {
    "no loss": ("good", "No message was lost"),
    "inconclusive": ("open", "It is open whether a message was lost"),
    "loss": ("bad", "Messages were lost"),
}
"""(style, sentence) by the verdict of an audit, the best first."""
BEFORE_AUDIT: Final = "the subscription, or what is known of its records, may have begun behind it"
"""Cause of messages in an audit that were acknowledged before it began (kodo_pipeline.evidence.audit_evidence)."""
JUDGED_FROM: Final = "An audit judges messages that are sent from then on: what was handled before cannot be proved."
_UNPROVED: Final = "unproved"  # status of messages, and kind of reason, in an audit
_OLD: Final = 2 * 86_400_000  # ms: an older audit says nothing about messages that were sent since
_CLOCKS: Final = 300_000  # ms by which clocks of two machines may differ
_WRITE_OFF: Final = "write-off.json"
_NAMED: Final = 4  # subscriptions, and topologies, that steps name


@dataclass(frozen=True, slots=True)
class AuditStep:
    """A step that leads to a verdict: what to do, and command lines in their order."""

    text: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sentence:
    """The sentence at the top of the first screen. `style`: `good`, `bad` or `open`; `is_judged`: there is an audit of
    one of the topologies; `unjudged`: names of topologies that no audit judged; `files`: documents whose verdicts
    count; `steps`: steps that lead to a verdict; `about`: text before the steps, "" for none; `earlier`: number of
    messages from before the audit began, because of which alone the verdict is inconclusive.
    """

    style: str
    text: str
    is_judged: bool = False
    unjudged: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    steps: tuple[AuditStep, ...] = ()
    about: str = ""
    earlier: int = 0


@dataclass(frozen=True, slots=True)
class AuditedTopology:
    """A topology of the console. `topics`: full names of its topics; `document`: path of the file for its audit, quoted
    for a shell; `unrecorded`: (ground topic / subscription, place in the file) of the subscriptions whose workers
    record too little for an audit.
    """

    name: str
    topics: Collection[str]
    document: str
    unrecorded: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """The verdict of an audit. `file`: its document; `verdict`: key of _VERDICTS; `reason`: text of the first reason,
    "" for none; `read_at`: when its topics were read, in ms since the epoch, 0 if unknown; `topics`: full names of
    these; `earlier`: number of messages from before the audit began if nothing else keeps it inconclusive, else 0.
    """

    file: str
    verdict: str
    reason: str
    read_at: int
    topics: frozenset[str]
    earlier: int = 0

    def is_of(self, topology: AuditedTopology) -> bool:
        """True if the audit judged at least one topic of the topology."""
        return not self.topics.isdisjoint(topology.topics)


def audit_verdict(file: str, document: Mapping[str, Any]) -> AuditVerdict:
    """The verdict in a document of `kodoctl pipeline audit`. Raises KeyError, TypeError, ValueError or AttributeError
    for another document.
    """
    verdict, read_at = document["verdict"], document.get("read_at", 0)
    if verdict not in _VERDICTS or not isinstance(read_at, int):
        raise ValueError(f"verdict {verdict!r:.40}, read at {read_at!r:.40}")
    reasons = [str(one["text"]) for one in document["reasons"]]
    topics = frozenset(one["topic"] for one in document["coverage"])
    reason, (earlier, is_whole) = (reasons or [""])[0], _earlier(document)
    if earlier and not is_whole:
        reason += "; all that the audit names left a lane before it began"
    return AuditVerdict(file, verdict, reason, read_at, topics, earlier if is_whole else 0)


def _earlier(document: Mapping[str, Any]) -> tuple[int, bool]:
    """Number of unproved messages if these are the only doubt and all that the audit names are from before it began,
    else 0; and whether it names them all. Raises KeyError, TypeError, ValueError or AttributeError for another
    document.
    """
    named = [one["cause"] for one in document.get("findings", ()) if one["fate"] == _UNPROVED]
    if {one.get("kind") for one in document["reasons"]} != {_UNPROVED} or {*named} != {BEFORE_AUDIT}:
        return 0, False
    total = sum(int(one["messages"].get(_UNPROVED, 0)) for one in document.get("subscriptions", ()))
    return total, len(named) >= total


def audit_sentence(verdicts: Iterable[AuditVerdict], now: int, topologies: Iterable[AuditedTopology]) -> Sentence:
    """Sentence about the last audits of these topologies: it has the worst verdict, of equal ones the oldest; an
    inconclusive one is worse if more than `earlier` messages keep it open. `now`: ms since the epoch. The style is
    `good` only for "no loss", and only if audits judged all these topologies, and read each within the last two days.
    An audit that judged none of these topologies counts for nothing; the text names its document.
    """
    order, every, wanted = [*_VERDICTS], list(verdicts), list(topologies)
    found = [one for one in every if any(map(one.is_of, wanted))]
    missing = tuple(sorted(one.name for one in wanted if not any(verdict.is_of(one) for verdict in found)))
    strange = [one.file for one in every if one not in found]
    notes = "".join(f"; {one_line(file, 120)} judges none of these topologies" for file in strange)
    if not found:
        return Sentence("open", f"Not judged whether a message was lost{notes}", unjudged=missing)
    worst = max(found, key=lambda one: (order.index(one.verdict), not one.earlier, -one.read_at))
    style, text = _VERDICTS[worst.verdict]
    age = now - worst.read_at
    text += f", as read {age_text(max(0, age))} ago" if worst.read_at else ", as read at an unknown time"
    if worst.earlier:
        text += (
            f": {many(worst.earlier, 'message')} left a lane before the audit began, and nothing can prove any more how;"
            " of later ones no loss was found"
        )
    elif worst.reason:
        text += f": {worst.reason}"
    if missing:
        text += f"; not judged: {one_line(', '.join(missing), 120)}"
    ages = [now - one.read_at for one in found]
    if style == "good" and (missing or not all(-_CLOCKS <= one <= _OLD for one in ages)):
        style = "open"
    files = tuple(one.file for one in found)
    return Sentence(style, text + notes, is_judged=True, unjudged=missing, files=files, earlier=worst.earlier)


def audit_steps(
    words: CommandWords,
    topologies: Sequence[AuditedTopology],
    *,
    lacks_spark: bool,
    lacks_java: bool,
    earlier: int = 0,
) -> tuple[AuditStep, ...]:
    """Steps that lead to a verdict about the topologies, in the order in which to do them, without those that are done.
    Steps with command lines for each topology have them for the first four. `lacks_spark`, `lacks_java`: this
    installation has no extra `spark`, this machine no Java. `earlier`: number of messages from before the audit began
    that have to be written off.
    """
    steps: list[AuditStep] = []
    if lacks_spark:
        extra = "In a clone of kodoctl, install the extra of audits, some 1 GB."
        steps.append(AuditStep(extra, ("pip install '.[spark]'",)))
    if lacks_java:
        steps.append(AuditStep("Install Java 17 or 21, and set JAVA_HOME if it is not on the PATH."))
    if silent := [one for one in topologies if one.unrecorded]:
        places = [f"{name} ({place})" for one in silent for name, place in one.unrecorded]
        steps.append(AuditStep(f"Write audit: true below {_some(places)}."))
        applies = tuple(words.line("kodoctl apply", one.name) for one in silent[:_NAMED])
        steps.append(AuditStep("Apply it.", applies))
        steps.append(
            AuditStep(
                "Restart the workers: only then they record what they do. (This console names these three steps until it is"
                " started again; its verdict is right without that.)"
            )
        )
    chosen = topologies[:_NAMED]
    of = "" if len(topologies) == len(chosen) else f", and so for {many(len(topologies) - len(chosen), 'other')}"
    if earlier:
        files = [(one.name, f"{one.name}-{_WRITE_OFF}") for one in chosen]
        lines = [
            (
                words.line("kodoctl pipeline write-off plan", name, "--reason", "before the audit", "--out", file),
                shell_line(["kodoctl", "pipeline", "write-off", "apply", file]),
            )
            for name, file in files
        ]
        text = f"Write the {many(earlier, 'message')} off, once and by name: later audits judge the others without them{of}."
        steps.append(AuditStep(text, tuple(line for pair in lines for line in pair)))
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
