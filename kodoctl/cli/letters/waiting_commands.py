"""waiting list|plan: list messages that wait for their due time, and make a plan that releases, moves
or discards them.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import Environment, command, reading, say
from kodoctl.cli.common.ledger_option import LedgerOption, ledger_named
from kodoctl.cli.common.options import Format
from kodoctl.cli.common.terminal import show_lines
from kodoctl.cli.letters.recall_commands import show_plan
from kodoctl.cli.letters.recall_options import (
    Because,
    File,
    Limit,
    Output,
    Topic,
    Where_,
    file_with,
)
from kodoctl.cli.letters.waiting_planning import aimed_lane, plan_lane
from kodoctl.documents.waiting_document import WaitingListDocument
from kodoctl.recall.plan.waiting_groups import Dimension

if TYPE_CHECKING:
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.filter.condition import Condition
    from kodoctl.recall.plan.waiting_lanes import WaitingLane

FORMAT_VERSION = 1
SomeTopic = Annotated[
    str | None, typer.Option("--topic", help="Only this ground topic, by its name in the file.", metavar="NAME")
]
SomeSubscription = Annotated[str | None, typer.Option("--subscription", help="Only this subscription.", metavar="NAME")]
Lanes = Annotated[
    list[str] | None,
    typer.Option("--lane", help="Only this lane, such as L1/retrying; again for more.", metavar="LANE"),
]
SomeWhere = Annotated[str, typer.Option("--where", help="Only messages that meet this condition.", metavar="CONDITION")]
By = Annotated[
    list[Dimension] | None,
    typer.Option("--by", help="What to group by, again for more.", show_default="lane, cause, tenant and due"),
]
Most = Annotated[int, typer.Option("--most", min=1, help="Groups to show of each subscription.", metavar="N")]


Subscription = Annotated[str, typer.Option("--subscription", help="Whose messages.", metavar="NAME")]
Lane = Annotated[str, typer.Option("--lane", help="The lane they wait in, such as L1/retrying.", metavar="LANE")]
To = Annotated[
    str | None,
    typer.Option("--to", help="Where --action move sends: L2 (its ready topic) or L2/retrying.", metavar="LANE"),
]
Out = Annotated[
    str | None, typer.Option("-o", "--out", help="Write the plan to this file, for `waiting apply`.", metavar="FILE")
]


class WaitingAction(StrEnum):
    """Action of a plan on waiting messages (option --action)."""

    RELEASE = "release"
    MOVE = "move"
    DISCARD = "discard"


Action = Annotated[WaitingAction, typer.Option("--action", help="release: due now, in the lane they wait in.")]


@reading
@connects
def list_(
    target: TargetOptions,
    topology: File,
    topic: SomeTopic = None,
    subscription: SomeSubscription = None,
    lane: Lanes = None,
    where: SomeWhere = "true",
    by: By = None,
    most: Most = 20,
    env: Environment = None,
    output: Output = Format.TEXT,
) -> None:
    """Show waiting messages by lane, cause, tenant and due time.

    Looks into RETRYING, PENDING, BLOCKING and backup lanes.

    Consumes nothing. Exit 1, with all that can be read, where entries cannot be read.
    """
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.filter.condition import parse
    from kodoctl.recall.plan.waiting_lanes import waiting_lanes
    from kodoctl.render.waiting_text import waiting_lines

    condition = parse(where, int(time.time() * 1000))
    with target.session() as session:
        lanes = waiting_lanes(file_with(session, topology, env, topic), topic, subscription, lane or ())
        cluster = RecallCluster(session)
        document = _list(lanes, cluster, condition, by or list(Dimension))
        shown = command_target.shown_target(session.connection)
    if output is Format.JSON:
        say(json.dumps(asdict(document), indent=1))
    else:
        show_lines(waiting_lines(document, shown, most))
    cluster.unread.check()


def _list(
    lanes: list[WaitingLane], cluster: RecallCluster, condition: Condition, by: list[Dimension]
) -> WaitingListDocument:
    from kodoctl.recall.plan.waiting_groups import WaitingGroups
    from kodoctl.recall.recall_planner import held_letters

    groups, read, matched = WaitingGroups(lanes, by, condition.now), 0, 0
    for lane in lanes:
        with closing(held_letters(lane, cluster)) as messages:
            for message in messages:
                read += 1
                if condition.chooses(message):
                    matched += 1
                    groups.add(lane, message)
    return WaitingListDocument(
        FORMAT_VERSION,
        condition.now,
        condition.text,
        read,
        matched,
        groups.lane_rows(),
        groups.group_rows(),
        cluster.unread.lines(),
    )


@command
@connects
def plan(
    target: TargetOptions,
    topology: File,
    topic: Topic,
    subscription: Subscription,
    lane: Lane,
    where: Where_,
    action: Action = WaitingAction.RELEASE,
    to: To = None,
    limit: Limit = 10_000,
    because: Because = "",
    out: Out = None,
    ledger: LedgerOption = None,
    env: Environment = None,
    output: Output = Format.TEXT,
) -> None:
    """Choose waiting messages of a lane; makes a plan.

    The plan freezes the choice: counts, samples, a hash. Consumes and sends nothing.

    `waiting apply` then releases, moves or discards them. Their counters stay; those that are moved to a
    waiting lane keep their due time.
    """
    from kodoctl.recall.plan.recall_plan import RecallAction

    with target.session() as session:
        loaded = file_with(session, topology, env, topic)
        aim = aimed_lane(loaded, topic, subscription, lane, RecallAction(action.value), to)
        made = plan_lane(session, loaded, aim, RecallAction(action.value), where, limit, because, ledger_named(ledger))
        show_plan(made, session, out, output, "waiting apply")
