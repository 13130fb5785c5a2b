"""Recommended steps for the findings of a report: most urgent first, each with commands to copy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kodo_pipeline.audit.command_hint import resend_commands
from kodo_pipeline.ingest.events import UNKNOWN
from kodo_pipeline.report.report_words import lost_unstored, tenant_name
from kodoctl.recall.filter.condition import literal
from kodoctl.text.escaping import one_line, shell_line
from kodoctl.text.formatting import duration_text, lane_text, many

if TYPE_CHECKING:
    from kodo_pipeline.report.report_document import Advice, ReportDocument, ReportTenant, TopicFairness, WaitingLane

_MOST: Final = 3  # letters, lanes and tenants named one by one
_LEAST_RUNS: Final = 5  # failed runs, from which on one speaks of every run of a tenant
_LONG: Final = 300_000  # ms that a limit holds messages back before the report speaks of them
_SHOWN: Final = 60  # characters of a tenant or a cause in a sentence
_ASIDE: Final = frozenset({"pending", "blocking"})  # states that limits send messages to
_READERS: Final = (
    "kodoctl pipeline audit ",
    "kodoctl pipeline report ",
    "kodoctl pipeline write-off ",
    "kodoctl recall ",
)  # of the ledger of recalls


@dataclass(frozen=True, slots=True)
class NextStep:
    """A recommended step. `why`: the reason; `commands`: to copy, in order, () if no command helps."""

    title: str
    why: str
    commands: tuple[str, ...] = ()

    def to_json(self) -> Advice:
        """The step as an object of the report's JSON document."""
        return {"title": self.title, "why": self.why, "commands": list(self.commands)}


_SETTLED: Final = "--reason TEXT --out write-off.json"
_DOUBTS: Final[Mapping[tuple[str, ...], tuple[str, str, tuple[str, ...]]]] = {
    ("never read", "nothing read", "lag"): (
        "Read what is not read yet",
        "Some topics were not read to their ends. The next reading goes on where the last one ended.",
        ("kodoctl pipeline ingest {typed}", "kodoctl pipeline report {typed}"),
    ),
    ("coverage",): (
        "Find out who removed what was not read",
        (
            "The broker said that more is stored than could be read: retention, a TTL or somebody removed it meanwhile. "
            "Keep topics longer than the time between two readings; what is gone stays a doubt until somebody writes it off."
        ),
        ("kodoctl plan {file}", f"kodoctl pipeline write-off plan {{typed}} {_SETTLED}"),
    ),
    ("left",): (
        "Decide about what could not be read",
        (
            "Messages of some topics may be gone unread, so the last reading left these topics where they were; all others are "
            "judged. `--accept-holes` goes on, and writes down what is missing; then the doubt can be written off."
        ),
        ("kodoctl pipeline ingest {typed} --accept-holes", f"kodoctl pipeline write-off plan {{typed}} {_SETTLED}"),
    ),
    ("ledger",): (
        "Name the ledger of recalls",
        (
            "Messages were sent again by recalls, and the ledger of them is not here: without it the report cannot tell what is "
            "lost from what was sent again. Send nothing before it is found."
        ),
        (),
    ),
    ("beginning",): (
        "Begin to read earlier",
        (
            "Messages were there, or acknowledged, before the first reading, and nobody can tell what became of them. "
            "Run the first ingest right after `kodoctl apply`, before the first message."
        ),
        (),
    ),
    ("ttl",): (
        "Read more often than the TTL ends",
        "A TTL removes messages without a trace. Read at least a day before it ends, every time.",
        ("kodoctl pipeline ingest {typed}",),
    ),
    ("unrecorded workers",): (
        "Restart the workers that keep no records",
        "A worker learns of `audit: true` when it starts. What older ones acknowledge is not judged until an ingest finds none of them.",
        ("kodoctl pipeline ingest {typed}", "kodoctl pipeline audit {typed}"),
    ),
    ("no records", "best effort"): (
        "Let workers write down what they do",
        (
            "Write `audit: true` below the subscription in the file: without such records nothing proves that a message was done. "
            "Apply it, restart its workers, then read: what they acknowledged before that reading stays unproved."
        ),
        ("kodoctl plan {file}", "kodoctl pipeline ingest {typed}"),
    ),
    ("records", "lost or unrecorded", "unproved", "forged records", "unknown"): (
        "Look at the workers whose records do not add up",
        "The report cannot tell a lost message from a lost record. The audit names the workers, messages and queries.",
        ("kodoctl pipeline audit {typed} --format json",),
    ),
    ("overdue",): (
        "See why messages are stuck",
        "They wait for longer than any delay in the file: no worker runs, or none gets on.",
        ("kodoctl status {file} --exact",),
    ),
    ("no subscription",): (
        "Create the subscriptions that are missing",
        "The file declares them and the cluster does not have them: nothing is kept for them.",
        ("kodoctl plan {file}",),
    ),
    ("gone",): (
        "Say what is to become of topics that were deleted",
        (
            "The file declares them and the last reading did not find them. What was deleted on purpose is to be taken out of the "
            "file; the rest is created anew."
        ),
        ("kodoctl plan {file}",),
    ),
    ("producer",): (
        "Ask the producers what became of the numbers they gave",
        "A producer numbers what it sends; some numbers are stored nowhere. Restart it, so that it tells what it gave up.",
        ("kodoctl pipeline ingest {typed}", "kodoctl pipeline audit {typed}"),
    ),
    ("unsigned mark",): (
        "Give the audit the keys that producers sign with",
        "A mark that no key here signed says that messages were sent: somebody forged it, or KODO_CONSUMER_SIGNING_KEYS lacks its key.",
        ("kodoctl pipeline audit {typed}",),
    ),
    ("addressee",): (
        "Correct the names that messages are addressed to",
        (
            "Producers addressed messages to a subscription that the file does not have, and every worker acknowledges such "
            "a message unhandled. Correct the name in the producer, or declare the subscription in the file and plan."
        ),
        ("kodoctl pipeline audit {typed} --format json", "kodoctl plan {file}"),
    ),
    ("clock",): (
        "Let NTP keep the clocks of brokers and producers, then read again",
        (
            "How long a message waits is judged by the cluster's clock. Its admin API told none, or it was set back, or a producer's "
            "clock is ahead of it."
        ),
        ("kodoctl pipeline ingest {typed}", "kodoctl pipeline audit {typed}"),
    ),
}


def advice(document: ReportDocument, file: str, typed: str, ledger: str = "") -> list[NextStep]:
    """Steps for the findings of a report, most urgent first, at most three for tenants, lanes or dead letters each;
    without findings one step that says to run the pipeline again.

    `file`: command-line arguments that name the topology file; `typed`: those that name the landing as well, both
    quoted for a shell; `ledger`: address of the recall ledger, "" if it is the default.
    """
    words = {"file": file, "typed": typed, "ledger": ledger}
    found = [
        *_losses(document, words),
        *_doubts(document, words),
        *_failing(document, words),
        *_limited_lanes(document, words),
        *_letters(document, words),
        *_noise(document, words),
    ]
    return found or [_again(words)]


def _again(words: Mapping[str, str]) -> NextStep:
    why = "Nothing needs you. Read again regularly: a report shows what was read."
    commands = ("kodoctl pipeline ingest {typed}", "kodoctl pipeline report {typed}")
    return NextStep("Come back tomorrow", why, _fill_words(commands, words))


def _fill_words(commands: tuple[str, ...], words: Mapping[str, str]) -> tuple[str, ...]:
    return _add_ledger_option([one.format(**words) for one in commands], words)


def _add_ledger_option(commands: Iterable[str], words: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the commands, with the option `--ledger` added to those that read the recall ledger. Without the ledger
    an audit would report recalled messages as lost, and a recall would send them again.
    """
    book = f" {shell_line(['--ledger', words['ledger']])}" if words["ledger"] else ""
    return tuple(one + book if one.startswith(_READERS) else one for one in commands)


def _losses(document: ReportDocument, words: Mapping[str, str]) -> Iterator[NextStep]:
    lost = [one for one in document["audit"]["findings"] if one["fate"] == "lost"]
    if document["audit"]["verdict"] == "loss":
        again = resend_commands(document["audit"]["lost"], words["typed"], words["ledger"])
        commands = [*_fill_words(("kodoctl pipeline audit {typed} --format json",), words)]
        commands += [
            f"kodo-consumer why {words['file']} "
            + shell_line(["--topic", one["topic"], "--subscription", one["subscription"], one["id"]])
            for one in lost[:_MOST]
        ]
        why = []
        if again:
            why.append(
                "The audit lists their places and the queries that show what they were. The landing has them: `recall plan "
                "--lost` sends each of them again exactly once, to where it should be, and the next audit counts it as sent "
                "again."
            )
        if lost_unstored(document) or not again:
            some = "Others" if again else "They"
            why.append(f"{some} never reached a topic: only their producers can send them again.")
        yield NextStep("Find the lost messages and send them again", " ".join(why), (*commands, *again))


def _doubts(document: ReportDocument, words: Mapping[str, str]) -> Iterator[NextStep]:
    kinds = {one["kind"] for one in document["audit"]["reasons"] if one["proves"] == "inconclusive"}
    for some, (title, why, commands) in _DOUBTS.items():
        if kinds & set(some):
            yield NextStep(title, why, _fill_words(commands, words))


def _failing(document: ReportDocument, words: Mapping[str, str]) -> Iterator[NextStep]:
    """Yields a step for each of the tenants whose runs of handlers all failed, at most `_MOST`."""
    tenants = [one for one in document["tenants"] if one["failed"] >= _LEAST_RUNS and not one["done"]]
    for one in sorted(tenants, key=lambda one: -one["failed"])[:_MOST]:
        name = tenant_name(one["tenant"])
        why = (
            f"{many(one['failed'], 'run')} of handlers failed on {one['topic']} for {name}, and none ended well: something "
            "of this customer is broken, not its messages one by one. See what fails, and repair that first; the messages "
            "are tried again until their attempts are used up."
        )
        of = f"{words['file']} {shell_line(['--topic', one['topic']])}"
        where = f" {shell_line(['--where', condition])}" if (condition := _condition_of(one["tenant"])) else ""
        commands = (f"kodoctl waiting list {of}{where} --by cause",)
        yield NextStep(f"Find out why every run of {name} fails", why, commands)


def _limited_lanes(document: ReportDocument, words: Mapping[str, str]) -> Iterator[NextStep]:
    """Yields a step for each lane in which messages wait for long, at most `_MOST`, if a limit sent messages of its
    topic aside.
    """
    aside: dict[str, list[ReportTenant]] = {}
    for row in document["tenants"]:
        if row["over_limit"]:
            aside.setdefault(row["topic"], []).append(row)
    lanes = [one for one in document["waiting"] if one["state"] in _ASIDE and one["oldest_ms"] >= _LONG]
    lanes = [one for one in lanes if one["topic"] in aside]
    for one in sorted(lanes, key=lambda one: -one["messages"])[:_MOST]:
        limited = aside[one["topic"]]
        times, most = sum(row["over_limit"] for row in limited), max(limited, key=lambda row: row["over_limit"])
        number = one["messages"]
        why = (
            f"{many(number, 'message')} {'waits' if number == 1 else 'wait'} in {lane_text(one['level'], one['state'])} of "
            f"{one['topic']} / {one['subscription']}, the oldest for {duration_text(one['oldest_ms'])}. A limit sent messages "
            f"of this topic aside {many(times, 'time')}, most often those of {tenant_name(most['tenant'])}. They come back by "
            "themselves when the limit has room. If that is too late, raise the limit in the file and plan, or for a while "
            "with `kodo-consumer limit --release`."
        )
        of = f"{words['file']} {shell_line(['--topic', one['topic'], '--subscription', one['subscription']])}"
        commands = (f"kodoctl waiting list {of} --lane {one['level']}/{one['state']}", f"kodoctl plan {words['file']}")
        yield NextStep("Decide about messages that a limit holds back", why, commands)


def _condition_of(tenant: str | None) -> str:
    """Condition that selects the messages of a tenant, "" if none can: `waiting list` takes a tenant that cannot be read
    for a missing one.
    """
    if not tenant or tenant == UNKNOWN or one_line(tenant, _SHOWN) != tenant:
        return ""
    return f"tenant = {literal(tenant)}"


def _letters(document: ReportDocument, words: Mapping[str, str]) -> Iterator[NextStep]:
    """Yields a step for each lane of dead letters, at most `_MOST`: they wait for a decision, to be sent again, or
    discarded if that would not help.
    """
    dead = sorted((one for one in document["waiting"] if one["state"] == "dead"), key=lambda one: -one["messages"])
    for one in dead[:_MOST]:
        of = f"{words['file']} {shell_line(['--topic', one['topic'], '--subscription', one['subscription']])}"
        cause = _commonest_cause(document, one)
        where = shell_line([f"cause = {literal(cause)}" if cause else "true"])
        sending = (
            f"kodoctl recall plan {of} --where {where} --out recall.json",
            "kodoctl recall apply recall.json --rate 200/s",
        )
        discarding = (
            f"kodoctl recall discard {of} --where {where} --because TEXT --out discard.json",
            "kodoctl recall apply discard.json",
        )
        at_once = bool(cause) and _given_up_at_once(document, one, cause)
        commands = _add_ledger_option((*discarding, *sending) if at_once else sending, words)
        number = one["messages"]
        wait = f"{many(number, 'message')} {'waits' if number == 1 else 'wait'}"
        why = f"{wait} in the dead letters of {one['topic']} / {one['subscription']} until somebody fixes the cause and sends them again."
        if at_once:
            why += (
                f" Those of the cause {one_line(cause, _SHOWN)!r} were given up at their first run: sent again as they are, "
                "they die again. Discard them, or change the handler or the messages (`recall plan --edit`) before they are sent."
            )
        yield NextStep("Decide about the dead letters", why, commands)


def _given_up_at_once(document: ReportDocument, lane: WaitingLane, cause: str) -> bool:
    """True if no failure of this cause in the document, which has the most frequent ones, led to another attempt: the
    handler, or the consumer, took it for final.
    """
    place = (lane["topic"], lane["subscription"])
    return not any(
        one["event"] != "dead" and one["cause"] == cause and (one["topic"], one["subscription"]) == place
        for one in document["failures"]
    )


def _commonest_cause(document: ReportDocument, lane: WaitingLane) -> str:
    """The cause by which most letters of the lane died, also those that were recalled or discarded since; "" if it is
    not among the document's failures, or if no condition can name it.
    """
    causes = [
        one["cause"]
        for one in document["failures"]
        if one["event"] == "dead" and (one["topic"], one["subscription"]) == (lane["topic"], lane["subscription"])
    ]
    return causes[0] if causes and causes[0].isprintable() else ""


def _noise(document: ReportDocument, words: Mapping[str, str]) -> Iterator[NextStep]:
    """Yields a step for each topic on which a noisy tenant makes others wait."""
    for one in document["fairness"]:
        if is_harmed(one):
            why = (
                f"On {one['topic']} the others waited as long as the busiest. `fair_by` shares turns, `limits` hold a tenant to "
                "a rate, `isolate` moves a flood aside; write them into the file and plan."
            )
            commands = _fill_words(("kodoctl pipeline recommend {typed}", "kodoctl plan {file}"), words)
            yield NextStep("Keep a noisy tenant from delaying the others", why, commands)


def is_harmed(fairness: TopicFairness) -> bool:
    """True if quiet tenants waited at least a second, and at least half as long as noisy ones, by the 95th percentile.
    Where tenants are kept apart, quiet ones wait a small part of that time.
    """
    noisy = fairness["noisy"]["latency_ms"] if fairness["noisy"] else None
    quiet = fairness["quiet"]["latency_ms"]
    return bool(quiet and noisy and quiet["p95"] >= 0.5 * noisy["p95"] and quiet["p95"] >= 1000)
