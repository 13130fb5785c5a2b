"""Plans of lost messages: an audit finds the messages, and each lane that lost some gets a recall plan."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kodo_pipeline.landing.command_options import LandedFlags, lightly, new_run
from kodo_pipeline.spark.spark_progress import Bar, tell_folded
from kodoctl.cli.common.console import say, tell_wait
from kodoctl.cli.common.ledger_option import ledger_named
from kodoctl.cli.common.options import Format
from kodoctl.cli.letters.recall_commands import prepare_plan, show_plan
from kodoctl.cli.letters.recall_options import file_with, signing_keys
from kodoctl.errors import RefusedError, UsageError, error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kodo_pipeline.audit.unbooked_recalls import UnbookedRecalls
    from kodo_pipeline.spark.spark_session import SparkSettings
    from kodoctl.cli.common.command_target import TargetOptions
    from kodoctl.cli.letters.recall_options import RecallFlags
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.plan.lost_lanes import LostLane
    from kodoctl.topology.loaded_topology import LoadedTopology


@dataclass(frozen=True, slots=True)
class LostChoice:
    """Choice of lost messages to plan. `landing`: address of the landing that has them; `unproved`: also messages that
    are not proved done; `lane`: name of the only lane, such as `L1/ready`, None: every lane that has such messages.
    """

    landing: str
    unproved: bool
    lane: str | None


def choose_lost(
    target: TargetOptions, asked: RecallFlags, choice: LostChoice, settings: SparkSettings, output: Format
) -> None:
    """Audits the landing, and makes plans for the subscriptions that `asked` names by topic and subscription ("": all):
    for the lane of `choice`, which each must have; without one for each lane that has messages to choose (if topic and
    subscription are named and no lane has any, one empty plan). When all are made, writes them to files (`plan_file` of
    `asked.out`), and prints them as text, or, if `output` is JSON, as one document `{"plans": […]}`. Sends nothing.
    Raises KodoctlError.
    """
    if asked.to is not None:
        detail = "--to: a lost message goes back to where it was lost; leave out --to"
        raise UsageError(error("K555", "nowhere to send to", detail))
    asked = replace(asked, ledger=ledger_named(asked.ledger, choice.landing), where=asked.where or "true")
    run = new_run()
    bar = Bar(output)
    bar.begin(run, "choosing lost messages")
    from kodo_pipeline.audit.audit_inputs import load_inputs
    from kodo_pipeline.audit.job import classify_inputs
    from kodo_pipeline.evidence.audit_evidence import MessageStatus
    from kodoctl.pulsar.admin.admin_http import HttpAdmin
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
    from kodoctl.recall.plan.recall_plan import RecallAction
    from kodoctl.topology.expand import expand

    statuses = (MessageStatus.LOST, *((MessageStatus.UNPROVED,) if choice.unproved else ()))
    with target.session() as session:
        loaded = file_with(session, asked.topology, asked.env, asked.topic or None)
        expansion = expand(loaded)
        place = LandedFlags(asked.topology, choice.landing, loaded.environment).place(expansion)
        with (
            closing(HttpAdmin(session.connection, waits=WaitMonitor(tell_wait))) as admin,
            bar.session(lightly(settings, place)) as spark,
            ExitStack() as stack,
        ):
            inputs = load_inputs(spark, place, expansion, admin, asked.ledger or "", signing_keys())
            if not asked.again:
                must_be_booked(inputs.bookings.unbooked, asked.topic or None)
            audited = stack.enter_context(classify_inputs(spark, inputs))
            from kodo_pipeline.recall.lost_messages import LostMessageSelector, lanes_of

            lanes = _lanes(session, loaded, asked, choice.lane, lanes_of(audited, statuses))
            fill, made = LostMessageSelector(audited, statuses), []
            for number, lane in enumerate(lanes, 1):
                one = replace(
                    asked,
                    topic=lane.ground,
                    subscription=lane.subscription,
                    out=plan_file(asked.out, number, len(lanes)),
                )
                source = replace(lane, landing=choice_uri(choice.landing))
                named = run if number == 1 else new_run()  # a lane's broker counts the numbers of each plan
                plan = prepare_plan(session, RecallAction.RESEND, one, loaded, source, fill=fill, run=named)
                made.append((plan, one.out))
        plans: list[Any] = []
        for plan, out in made:
            show_plan(plan, session, out, output, print_json=plans.append)
        if output is Format.JSON:
            say(json.dumps({"plans": plans}, indent=1))
    if not made:
        tell_folded("No lane has lost messages: there is nothing to plan.")


def plan_file(out: str | None, number: int, plans: int) -> str | None:
    """Path for plan number `number` (from 1) of `plans`: `out` if there is one plan, else such as `lost-2.json` beside
    `lost.json`; None if `out` is None.
    """
    if out is None or plans == 1:
        return out
    path = Path(out)
    return str(path.with_name(f"{path.stem}-{number}{path.suffix}"))


def must_be_booked(unbooked: UnbookedRecalls | None, topic: str | None) -> None:
    """Raises RefusedError (K826) if recalls have already sent messages of the ground topic `topic` (None: of any topic)
    again, and the recall ledger has no entry of them: messages would be sent twice. `unbooked` None: no such recall.
    """
    if unbooked is not None and (topic is None or unbooked.ids.get(topic)):
        detail = f"{unbooked.text(topic)}. If it is gone: --again plans what no recall is seen to have sent"
        raise RefusedError(error("K826", "the ledger of recalls is not here", detail))


def choice_uri(landing: str) -> str:
    """Absolute address of the landing, for the plan, which may be applied in another folder."""
    from kodo_pipeline.landing.file_store import Storage

    return Storage(landing).uri


def _lanes(
    session: Session,
    loaded: LoadedTopology,
    asked: RecallFlags,
    name: str | None,
    counts: Mapping[tuple[str, str], int],
) -> list[LostLane]:
    """Lanes to plan for: the one of this name; None: each that has messages in `counts`. Of the named subscription, or
    of every one.
    """
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.plan.lost_lanes import lost_lane, lost_lanes

    cluster = RecallCluster(session)
    found = []
    for topic, subscription in _readers(loaded, asked):
        lanes = lost_lanes(loaded, topic, subscription)
        names = [one.lane for one in lanes if counts.get((one.source_topic, subscription))] if name is None else [name]
        if not names and asked.topic and asked.subscription:
            names = [lanes[0].lane]  # a plan of nothing says so
        found += [lost_lane(loaded, topic, subscription, one, cluster.deduplicates) for one in names]
    return found


def _readers(loaded: LoadedTopology, asked: RecallFlags) -> list[tuple[str, str]]:
    """(ground topic, subscription) that were named, or all of them. Raises UsageError for a name that the file does not
    have.
    """
    from kodoctl.recall.plan.destinations import found_subscription

    if asked.topic and asked.subscription:
        found_subscription(loaded, asked.topic, asked.subscription)
    return [
        (topic, subscription)
        for topic, ground in loaded.spec.topics.items()
        for subscription in ground.subscriptions
        if asked.topic in ("", topic) and asked.subscription in ("", subscription)
    ]
