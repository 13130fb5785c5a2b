"""Planner of waiting messages of one lane, for the commands that show a plan or carry it out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kodoctl.cli.common.console import report
from kodoctl.cli.letters.recall_commands import run_id
from kodoctl.errors import Diagnostic, UsageError, error, warning

if TYPE_CHECKING:
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.plan.recall_plan import RecallAction, RecallPlan
    from kodoctl.recall.plan.waiting_lanes import WaitingLane
    from kodoctl.topology.loaded_topology import LoadedTopology


def aimed_lane(
    loaded: LoadedTopology, topic: str, subscription: str, lane: str, action: RecallAction, to: str | None
) -> WaitingLane:
    """Returns the waiting lane `lane`, such as `L1/retrying`, with the target of an action: for a release the lane
    itself, for a move the lane `to`, such as `L2` (its ready topic) or `L2/retrying`; a discard has no target. Raises
    UsageError for names that the file lacks, if no message can be sent to the target, and if `to` is missing for a move
    or given for another action.
    """
    from kodoctl.recall.plan.recall_plan import RecallAction
    from kodoctl.recall.plan.waiting_lanes import waiting_lanes, with_target

    if (to is None) is (action is RecallAction.MOVE):
        detail = "--action move needs --to, such as --to L2" if to is None else "--to is for --action move"
        raise UsageError(error("K555", "nowhere to send to", detail))
    (chosen,) = waiting_lanes(loaded, topic, subscription, [lane])
    return with_target(chosen, to) if action is not RecallAction.DISCARD else chosen


def plan_lane(
    session: Session,
    loaded: LoadedTopology,
    lane: WaitingLane,
    action: RecallAction,
    where: str,
    limit: int,
    because: str,
    ledger: str,
    warn: Callable[[Iterable[Diagnostic]], None] = report,
) -> RecallPlan:
    """Makes a plan for at most `limit` messages of a waiting lane that meet the condition `where`. `lane`: the lane
    with its target, as `aimed_lane` returns it; only a discard needs no target. `because`: reason, for the ledger;
    `ledger`: location of the recall ledger; `warn`: called once, with the warnings about messages that cannot be read,
    perhaps none. Raises KodoctlError.
    """
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.filter.condition import parse
    from kodoctl.recall.ledger.delta_ledger import DeltaLedger
    from kodoctl.recall.recall_planner import RecallRequest, prepare

    now = int(time.time() * 1000)
    request = RecallRequest(
        action, lane, parse(where, now), run_id(now), None, limit, again=False, edit=None,
        path=loaded.source.name, environment=loaded.environment, because=because,
    )  # fmt: skip
    cluster = RecallCluster(session)
    made = prepare(request, cluster, DeltaLedger(ledger))
    warn(warning("K561", "messages cannot be read", line) for line in cluster.unread.lines())
    return made
