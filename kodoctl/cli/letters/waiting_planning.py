"""Planner of waiting messages of one lane, for the commands that show a plan or carry it out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kodoctl.cli.common.console import report
from kodoctl.cli.letters.recall_commands import run_id
from kodoctl.errors import warning

if TYPE_CHECKING:
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.plan.recall_plan import RecallAction, RecallPlan
    from kodoctl.recall.plan.waiting_lanes import WaitingLane
    from kodoctl.topology.loaded_topology import LoadedTopology


def plan_lane(
    session: Session,
    loaded: LoadedTopology,
    lane: WaitingLane,
    action: RecallAction,
    where: str,
    limit: int,
    because: str,
    ledger: str,
) -> RecallPlan:
    """Makes a plan for at most `limit` messages of a waiting lane that meet the condition `where`. `lane` also has the
    target of a move. `because`: reason, for the ledger; `ledger`: location of the recall ledger. Prints a warning for
    messages that cannot be read. Raises KodoctlError.
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
    report(warning("K561", "messages cannot be read", line) for line in cluster.unread.lines())
    return made
