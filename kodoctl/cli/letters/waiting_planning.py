"""Plans of waiting messages: the messages of one lane that are chosen now, for the commands that show or carry out the
plan.
"""

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
    """Makes a plan for at most `limit` messages of a lane that meet `where`; `lane` contains the target. `because`:
    reason, for the ledger; `ledger`: its location. Prints a warning for messages that cannot be read. Raises
    KodoctlError.
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
