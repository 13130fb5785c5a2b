"""recall apply: carries out a recall plan at a limited rate; repeated runs continue it, and each
letter is sent once.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kodoctl.cli.apply.apply_flow import Approval, ask, confirm
from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import command, finish, is_terminal, printing, say, tell
from kodoctl.cli.common.extension_points import LOST_MESSAGES, load
from kodoctl.cli.common.ledger_option import ledger_named
from kodoctl.cli.common.options import Format, bundles, parse_duration, parse_rate
from kodoctl.cli.common.plan_files import read_plan_text
from kodoctl.cli.common.terminal import interruptible, show_lines
from kodoctl.cli.letters.console_plans import forget_plan
from kodoctl.cli.letters.recall_options import (
    ApplyFlags,
    Output,
    declared_schema,
    file_with,
    signing_keys,
)
from kodoctl.documents.recall_document import AnyRecallPlan, SendReport
from kodoctl.errors import ExitCode, RefusedError, StoppedError, UsageError, Where, error
from kodoctl.text.formatting import time_text

if TYPE_CHECKING:
    from kodoctl.protocol.signing import Signer
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.message.payload_patch import Edit
    from kodoctl.recall.plan.destinations import RecallSource
    from kodoctl.recall.plan.recall_plan import RecallPlan
    from kodoctl.recall.send.dead_letter_partitions import MessageSource
    from kodoctl.recall.send.sends_in_flight import ParallelSend, SendOptions
    from kodoctl.topology.loaded_topology import LoadedTopology
    from kodoctl.topology.units import Duration

    ParallelSends: TypeAlias = Callable[["ApprovedPlan", SendOptions, ExitStack], ParallelSend]

_TELL_EVERY = 2.0  # seconds between two lines of progress


@dataclass(frozen=True, slots=True)
class Background:
    """Controls of an attempt at a plan that runs without a terminal. `stop`: event that ends the attempt in order;
    `progress`: takes the number of messages that are done, and of all; `tell`: takes lines for people.
    """

    stop: threading.Event
    progress: Callable[[int, int], None]
    tell: Callable[[str], None]

    def sleep(self, seconds: float) -> None:
        """Sleeps for some seconds. Raises StoppedError (K538, "nothing was sent") as soon as `stop` is set."""
        if self.stop.wait(seconds):
            raise StoppedError(error("K538", "interrupted", "nothing was sent"))


@dataclass(frozen=True, slots=True)
class ApprovedPlan:
    """A recall plan that may be carried out: it was compared with the topology file and the cluster, and confirmed.
    Usable while its session is open.

    Args:
        edit: patch for payloads; None: payloads are sent as they are.
        ledger: location of the recall ledger.
        per_second: messages sent per second at most.
        signer: signs headers; None: there are no keys.
        largest: by full name of the topic, the greatest size of a message in bytes, if the file declares one.
        compression: by full name of the topic, the algorithm, if the file declares one.
        source: the source of the messages, by the file.
    """

    session: Session
    plan: RecallPlan
    edit: Edit | None
    ledger: str
    per_second: float
    signer: Signer | None
    largest: Mapping[str, int]
    compression: Mapping[str, str]
    source: RecallSource

    def send(self, parallel: ParallelSends | None = None, background: Background | None = None) -> SendReport:
        """Sends or discards the messages of the plan, each once, and returns the report. `parallel`: makes a sender
        that uses several processes, and registers what must be closed in an ExitStack; None: this process sends, as it
        always does with lost messages. Ctrl-C, or the event of `background`, ends the attempt in order: the report is
        then `interrupted`. Raises KodoctlError.
        """
        from kodoctl.recall.cluster import RecallCluster
        from kodoctl.recall.ledger.delta_ledger import DeltaLedger
        from kodoctl.recall.plan.recall_plan import LOST
        from kodoctl.recall.send.rate_limit import RateLimit
        from kodoctl.recall.send.sender import RecallSender
        from kodoctl.recall.send.sends_in_flight import SendOptions

        if self.plan.empty:
            return SendReport()
        first, second = "waiting for the receipts of what was sent", _after_the_end(self.plan)
        with (
            nullcontext(background.stop) if background else interruptible(first, second) as stop,
            ExitStack() as stack,
        ):
            options = SendOptions(
                RateLimit(self.per_second),
                command_target.who(),
                lambda: int(time.time() * 1000),
                stop,
                background.progress if background else _Progress(),
                self.signer,
                horizon=self.source.horizon,
                ordered=self.source.ordered,
            )
            cluster, source = RecallCluster(self.session, self.largest, self.compression), None
            if self.plan.kind is LOST:  # few, and no topic has them: tasks could not read them
                source, parallel = _lost_messages(self.plan, cluster, self.signer), None
            sends = parallel(self, options, stack) if parallel is not None else None
            return RecallSender(self.plan, cluster, DeltaLedger(self.ledger), self.edit, options, sends, source).run()


@command
@connects
@bundles("asked", ApplyFlags)
def apply(target: TargetOptions, asked: ApplyFlags, output: Output = Format.TEXT) -> None:
    """Send the letters of a plan, each exactly once.

    Killed, interrupted or repeated, it goes on where it was. The plan file is the approval: only a discard asks for its
    hash, and a protected context for its name.
    """
    apply_plan(target, asked, output)


def apply_plan(target: TargetOptions, asked: ApplyFlags, output: Format, parallel: ParallelSends | None = None) -> None:
    """Carries out a plan of dead or lost messages, and prints its report. Returns if everything was done, else ends the
    command as `print_report` does, or raises KodoctlError. The file of a complete plan is removed if it is one of the
    console (`forget_plan`). `parallel`: as in `ApprovedPlan.send`.
    """
    with approved_plan(target, asked, output) as approved:
        began = time.monotonic()
        report = approved.send(parallel)
        seconds = time.monotonic() - began
    if report.complete:
        forget_plan(Path(asked.plan))
    print_report(report, approved.plan, seconds, output)


@contextmanager
def approved_plan(
    target: TargetOptions, asked: ApplyFlags, output: Format, *, waiting: bool = False
) -> Iterator[ApprovedPlan]:
    """Context with a plan that may be carried out: it has been read, compared with the topology file and the cluster,
    printed (if `output` is text), and, unless it has no messages, confirmed as `confirm_plan` requires; then the
    identity of the cluster is recorded in the recall ledger. `waiting`: True accepts only plans of waiting messages,
    False only others. Raises KodoctlError, also for a plan older than `asked.max_age`.
    """
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.ledger.delta_ledger import DeltaLedger
    from kodoctl.recall.ledger.ledger_clusters import check_cluster, record_cluster
    from kodoctl.recall.plan import recall_plan_file
    from kodoctl.topology.names import TopicName

    per_second, signer = parse_rate("--rate", asked.rate), _signer()
    oldest = parse_duration("--max-age", asked.max_age)
    plan = _read_plan(asked.plan, waiting=waiting)
    _check_age(plan, oldest)
    form = recall_plan_file.to_json(plan)
    with target.session() as session:
        edit, largest, compression, source = _check_files(session, plan, asked.topology)
        cluster, tenant = RecallCluster(session), TopicName.parse(plan.source_topic).namespace.tenant
        cluster.check_identity(plan.cluster, tenant)
        ledger = ledger_named(asked.ledger, plan.landing)
        book, identity = DeltaLedger(ledger), cluster.identity(tenant)
        check_cluster(book, tenant, identity)
        if output is Format.TEXT:
            _show(form, session)
        if not plan.empty:
            confirm_plan(session.connection, plan, recall_plan_file.hash_of(form), asked.hash_, asked.confirm_name)
            record_cluster(book, tenant, identity, command_target.who(), time.time_ns() // 1_000_000)
        yield ApprovedPlan(session, plan, edit, ledger, per_second, signer, largest, compression, source)


def confirm_plan(
    connection: Connection, plan: RecallPlan, found: str, answer: str | None, names: list[str] | None
) -> None:
    """Asks for the context's name if the context is protected, and for the plan's hash if the plan is a discard.
    `found`: the hash; `answer`: the hash on the command line (None: not given), which replaces the question, and has to
    be right for any plan; `names`: contexts on the command line, which replace the question for the name. Raises
    UsageError if a question is needed and there is no terminal, RefusedError for a wrong name or hash.
    """
    from kodoctl.recall.plan.recall_plan import RecallAction

    confirm(connection, Approval(auto_approve=True, names=names), question="")
    if answer is None and plan.action is RecallAction.DISCARD:
        if not is_terminal():
            detail = f"a discard cannot be undone: say --hash {found} to confirm it"
            raise UsageError(error("K539", "confirmation needs a terminal", detail))
        question = f"Discarding cannot be undone. Type the plan's hash ({found}) to go on"
        answer = ask(question)
    if answer is not None and answer != found:
        raise RefusedError(
            error("K538", "confirmation declined", f"{answer!r} is not the plan's hash; nothing was written")
        )


def print_report(report: SendReport, plan: RecallPlan, seconds: float, output: Format) -> None:
    """Prints the report of a plan on messages. Returns if it is complete, else ends the command: with exit code 130 if
    it was interrupted and `refused`, `unclear` and `elsewhere` are empty, with 1 otherwise. `seconds`: duration.
    """
    if output is Format.JSON:
        say(json.dumps(report.to_json(plan.run, plan.action, seconds), indent=1))
    else:
        from kodoctl.render.recall import recall_report_lines

        show_lines(recall_report_lines(report, plan.action, seconds, plan.kind.noun))
    if report.unclear or report.refused or report.elsewhere:
        finish(ExitCode.ERROR)
    if report.interrupted:
        finish(ExitCode.INTERRUPTED)
    if not report.complete:
        finish(ExitCode.ERROR)


def _check_age(plan: RecallPlan, most: Duration) -> None:
    """Raises RefusedError (K559) for a plan older than `most`: letters may have come, died again or
    been handled since.
    """
    if plan.age(round(time.time() * 1000)) > most:
        made = time_text(plan.made_at)
        detail = (
            f"it was made {made}, more than {most} ago: plan again and review it, or say --max-age; nothing was sent"
        )
        raise RefusedError(error("K559", "recall plan that cannot be carried out", detail))


def _signer() -> Signer | None:
    from kodoctl.protocol.signing import Signer

    keys = signing_keys()
    return Signer.parse(keys.reveal()) if keys is not None else None


def _read_plan(file: str, *, waiting: bool) -> RecallPlan:
    from kodoctl.recall.plan import recall_plan_file
    from kodoctl.recall.plan.recall_plan import WAITING

    maker, other = ("waiting", "recall") if waiting else ("recall", "waiting")
    found = recall_plan_file.loads(read_plan_text(file, f"kodoctl {maker} plan …"), file)
    if (found.kind is WAITING) is not waiting:
        detail = f"it is a plan of {found.kind.name}: kodoctl {other} apply {file}"
        raise RefusedError(error("K559", "recall plan that cannot be carried out", detail, Where(file)))
    if found.table is not None:
        from kodoctl.recall.plan.letter_table import check_table

        check_table(found.table)
    return found


def _check_files(
    session: Session, plan: RecallPlan, topology: str | None
) -> tuple[Edit | None, dict[str, int], dict[str, str], RecallSource]:
    """Checks that the file still has the plan's topics: messages go to lanes of their own ground, and nowhere
    else.

    Returns the patch of payloads, the greatest size of messages and their compression by lane's topic, and the source
    of the messages.
    """
    from kodoctl.recall.message.payload_patch import Edit
    from kodoctl.recall.plan.destinations import fits
    from kodoctl.topology.expand import declared_compression, declared_limits
    from kodoctl.topology.load import BASE, environments_of, read_files

    path = topology or plan.path
    if not Path(path).exists():
        detail = f"{path}, which the plan was made from, is not here: name it with --topology"
        raise UsageError(error("K016", "cannot read file", detail))
    environment = plan.environment or (BASE if environments_of(read_files([path])) else None)
    loaded = file_with(session, path, environment, plan.topic)
    source = _source_in(loaded, plan)
    lanes = [(lane.topic, lane.ready, lane.partitions) for lane in plan.lanes]
    if problems := fits(source, plan.topology, plan.source_topic, plan.holder, lanes):
        detail = "\n".join([*problems, "plan again; nothing was sent"])
        raise RefusedError(error("K543", "the files changed since the plan", detail))
    sizes, algorithms = declared_limits(loaded), declared_compression(loaded)
    largest = {lane.topic: sizes[lane.topic] for lane in plan.lanes if lane.topic in sizes}
    compression = {lane.topic: algorithms[lane.topic] for lane in plan.lanes if lane.topic in algorithms}
    edit = Edit(plan.edit, declared_schema(loaded, plan.topic)) if plan.edit is not None else None
    return edit, largest, compression, source


def _source_in(loaded: LoadedTopology, plan: RecallPlan) -> RecallSource:
    """The source of the plan's messages by the topology file. Raises UsageError if the file has it no longer."""
    from kodoctl.recall.plan.destinations import family_of
    from kodoctl.recall.plan.lost_lanes import lost_lane
    from kodoctl.recall.plan.recall_plan import LOST, WAITING
    from kodoctl.recall.plan.waiting_lanes import waiting_lanes

    if plan.kind is LOST:
        return lost_lane(loaded, plan.topic, plan.subscription, plan.lane, lambda _: True)
    if plan.kind is WAITING:
        (lane,) = waiting_lanes(loaded, plan.topic, plan.subscription, [plan.lane])
        return lane
    return family_of(loaded, plan.topic, plan.subscription)


def _show(form: AnyRecallPlan, session: Session) -> None:
    from kodoctl.render.recall import recall_plan_lines

    show_lines(recall_plan_lines(form, command_target.shown_target(session.connection), earlier=True))


def _lost_messages(plan: RecallPlan, cluster: RecallCluster, signer: Signer | None) -> MessageSource:
    """The source of the messages of a plan of lost ones. Raises UsageError if the landing does not exist."""
    made: Callable[[RecallPlan, RecallCluster, Signer | None], MessageSource] = load(LOST_MESSAGES)
    return made(plan, cluster, signer)


def _after_the_end(plan: RecallPlan) -> str:
    """Text for a second Ctrl-C: how to continue, and which lane stays paused."""
    from kodoctl.recall.plan.recall_plan import WAITING

    paused = f" {plan.lane} stays paused until then." if plan.kind is WAITING else ""
    return f"The same command again goes on, and sends nothing twice.{paused}"


class _Progress:
    """Prints the progress every 2 s: on a terminal one line that changes, else a new line."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last < _TELL_EVERY:
            return
        self._last = now
        if sys.stderr.isatty():
            with printing(sys.stderr):
                sys.stderr.write(f"\r\x1b[2K{done:,} of {total:,}\r")
                sys.stderr.flush()
        else:
            tell(f"{done:,} of {total:,}")
