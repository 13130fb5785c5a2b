"""Plans of lost messages: an audit finds them, their lane is chosen, and the choice is frozen as any recall's."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kodoctl.cli.pipeline_options import LandedFlags, lightly, new_run
from kodoctl.cli.recall_commands import prepare_plan, show_plan
from kodoctl.cli.recall_options import LEDGER, file_with, ledger_named, signing_keys
from kodoctl.cli.spark_progress import Bar
from kodoctl.console import tell_wait
from kodoctl.errors import RefusedError, UsageError, error
from kodoctl.formatting import many
from kodoctl.pipeline.command_hint import resend_commands

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kodoctl.cli.command_target import TargetOptions
    from kodoctl.cli.options import Format
    from kodoctl.cli.recall_options import RecallFlags
    from kodoctl.documents.audit_document import LostLaneRow
    from kodoctl.pipeline.audit.unbooked_recalls import UnbookedRecalls
    from kodoctl.pipeline.spark.spark_session import SparkSettings
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.lost_lanes import LostLane
    from kodoctl.topology.loaded_topology import LoadedTopology


@dataclass(frozen=True, slots=True)
class LostChoice:
    """Which messages: `landing` has them; `unproved`: also those that are not proved done; `lane`: None, the only one that
    lost any.
    """

    landing: str
    unproved: bool
    lane: str | None


def choose_lost(
    target: TargetOptions, asked: RecallFlags, choice: LostChoice, settings: SparkSettings, output: Format
) -> None:
    """Makes and shows the plan. Raises KodoctlError."""
    if asked.to is not None:
        detail = "--to: a lost message goes back to where it was lost; leave out --to"
        raise UsageError(error("K555", "nowhere to send to", detail))
    book = ledger_named(asked.ledger, choice.landing)
    asked = replace(asked, ledger=book)
    run = new_run()
    bar = Bar(output)
    bar.begin(run, "choosing lost messages")
    from kodoctl.pipeline.audit.audit_inputs import load_inputs
    from kodoctl.pipeline.audit.job import classify_landing
    from kodoctl.pipeline.audit.verdict import MessageStatus
    from kodoctl.pulsar.admin_http import HttpAdmin
    from kodoctl.pulsar.wait_monitor import WaitMonitor
    from kodoctl.recall.recall_plan import RecallAction
    from kodoctl.topology.expand import expand

    statuses = (MessageStatus.LOST, *((MessageStatus.UNPROVED,) if choice.unproved else ()))
    with target.session() as session:
        loaded = file_with(session, asked.topology, asked.env, asked.topic)
        expansion = expand(loaded)
        landed = LandedFlags(asked.topology, choice.landing, loaded.environment)
        place = landed.place(expansion)
        with (
            closing(HttpAdmin(session.connection, waits=WaitMonitor(tell_wait))) as admin,
            bar.session(lightly(settings, place)) as spark,
            ExitStack() as stack,
        ):
            inputs = load_inputs(spark, place, expansion, admin, book, signing_keys())
            if not asked.again:
                must_be_booked(inputs.bookings.unbooked, asked.topic)
            audited = stack.enter_context(
                classify_landing(
                    spark,
                    inputs.tables,
                    inputs.ground,
                    letters=inputs.letters,
                    keys=inputs.keys,
                    bookings=inputs.bookings,
                )
            )
            from kodoctl.pipeline.recall.lost_messages import LostMessageSelector, lanes_of

            counts = lanes_of(audited, statuses, asked.topic, asked.subscription)
            lane = replace(
                _lane(session, loaded, asked, choice, counts, landed.typed), landed=choice_uri(choice.landing)
            )
            fill = LostMessageSelector(audited, statuses)
            asked = replace(asked, where=asked.where or "true")
            made = prepare_plan(session, RecallAction.RESEND, asked, loaded, lane, fill=fill, run=run)
        show_plan(made, session, asked.out, output)


def must_be_booked(unbooked: UnbookedRecalls | None, topic: str) -> None:
    """Raises RefusedError where messages of the topic were sent again and the ledger does not know it."""
    if unbooked is not None and unbooked.ids.get(topic):
        detail = f"{unbooked.text(topic)}. If it is gone: --again plans what no recall is seen to have sent"
        raise RefusedError(error("K826", "the ledger of recalls is not here", detail))


def choice_uri(landing: str) -> str:
    """The landing as a plan names it, wherever that is applied."""
    from kodoctl.pipeline.ingest.file_store import Storage

    return Storage(landing).uri


def _lane(
    session: Session,
    loaded: LoadedTopology,
    asked: RecallFlags,
    choice: LostChoice,
    counts: Mapping[str, int],
    typed: str,
) -> LostLane:
    """The lane that was named, or the only one with such messages. Raises UsageError with a command for each of several."""
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.lost_lanes import lost_lane, lost_lanes

    lanes = lost_lanes(loaded, asked.topic, asked.subscription)
    having = [one for one in lanes if counts.get(one.dead_topic)]
    if choice.lane is None and len(having) > 1:
        rows: list[LostLaneRow] = [
            {
                "topic": one.ground,
                "subscription": one.subscription,
                "lane": one.lane,
                "messages": counts[one.dead_topic],
            }
            for one in having
        ]
        what = [f"{one['lane']}: {many(one['messages'], 'message')}" for one in rows]
        commands = [
            one
            for one in resend_commands(rows, typed, "" if asked.ledger == LEDGER else asked.ledger or "")
            if " --lost " in one
        ]
        if choice.unproved:
            commands = [one.replace(" --lost ", " --lost --unproved ") for one in commands]
        detail = "\n".join([*what, "a plan is of one lane:", *commands])
        raise UsageError(error("K824", "several lanes lost messages", detail))
    name = choice.lane or next(iter(having or lanes)).lane
    cluster = RecallCluster(session)
    return lost_lane(
        loaded, asked.topic, asked.subscription, name, lambda topic: cluster.facts(f"{topic}-partition-0").deduplicates
    )
