"""replay plan: choose messages that a subscription has acknowledged, and make a plan that delivers them again."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import Environment, command, finish, say, tell
from kodoctl.cli.common.options import Format, parse_moment, parse_rate
from kodoctl.cli.common.plan_files import write_plan_text
from kodoctl.cli.common.terminal import show_lines
from kodoctl.cli.letters.recall_commands import open_done_store, run_id
from kodoctl.cli.letters.recall_options import Because, File, Output, Store, Topic, file_with
from kodoctl.errors import ExitCode, UsageError, error

if TYPE_CHECKING:
    from kodoctl.recall.message.stored_message import Position
    from kodoctl.recall.plan.replay_counts import PublishTimes

Whose = Annotated[str, typer.Option("--subscription", help="Whose messages.", metavar="NAME")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Messages published or stored at this time or later, such as 2026-11-20T10:00 (UTC), or how long ago: 2h.",
        metavar="TIME",
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", help="Only messages published or stored before this time.", metavar="TIME")
]
Message = Annotated[
    str | None,
    typer.Option(
        "--message", help="First message of its partition, by its position as `peek` shows it.", metavar="POSITION"
    ),
]
Pace = Annotated[
    str | None,
    typer.Option(
        "--rate",
        help="How fast workers handle, such as 200/s, to tell how long it takes.",
        show_default="as measured",
        metavar="RATE",
    ),
]
Out = Annotated[
    str | None, typer.Option("-o", "--out", help="Write the plan to this file, for `replay apply`.", metavar="FILE")
]


@command
@connects
def plan(
    target: TargetOptions,
    topology: File,
    topic: Topic,
    subscription: Whose,
    from_: From = None,
    message: Message = None,
    until: Until = None,
    rate: Pace = None,
    because: Because = "",
    store: Store = None,
    out: Out = None,
    env: Environment = None,
    output: Output = Format.TEXT,
) -> None:
    """Choose handled messages to deliver again; makes a plan.

    Counts what runs again, what is known to be done, and what is no longer stored. Changes nothing.

    Exits 4 if the plan cannot be carried out.
    """
    from kodoctl.recall.cluster import RecallCluster
    from kodoctl.recall.plan.ready_lanes import replay_source
    from kodoctl.recall.plan.replay_plan import dumps
    from kodoctl.recall.replay_planner import ReplayRequest, prepare_replay
    from kodoctl.render.replay_text import replay_plan_lines

    now = int(time.time() * 1000)
    span = _span(from_, message, until, now)
    first = None if message is None else _position(message)
    pace = None if rate is None else parse_rate("--rate", rate)
    with target.session() as session:
        loaded = file_with(session, topology, env, topic)
        source = replay_source(loaded, topic, subscription)
        with open_done_store(store, source.named_in_full) as done:
            request = ReplayRequest(
                source=source, span=span, message=first, rate=pace, done=done, now=now, run=run_id(now),
                path=loaded.source.name, environment=loaded.environment, because=because,
            )  # fmt: skip
            made = prepare_replay(request, session.admin, RecallCluster(session))
        shown = command_target.shown_target(session.connection)
    if out is not None:
        write_plan_text(dumps(made), out)
    if output is Format.JSON:
        say(json.dumps(made, indent=1))
    else:
        show_lines(replay_plan_lines(made, shown))
    if out is not None and made["partitions"] and not made["refusals"]:
        tell(f"Plan written to {out}; carry it out with: kodoctl replay apply {out}")
    if made["refusals"]:
        finish(ExitCode.REFUSED)


def _span(since: str | None, message: str | None, until: str | None, now: int) -> PublishTimes:
    """Parses the times of the messages. Raises UsageError (K597) if the choice has no beginning, or is empty."""
    from kodoctl.recall.plan.replay_counts import PublishTimes

    if (since is None) is (message is None):
        detail = "say --from TIME or --message POSITION, one of them"
        raise UsageError(error("K597", "no beginning of the replay", detail))
    begin = None if since is None else max(0, parse_moment("--from", since, now))
    end = None if until is None else parse_moment("--until", until, now)
    if begin is not None and begin >= (now if end is None else end):
        detail = "--from is not before --until" if until else "--from is not in the past"
        raise UsageError(error("K597", "no beginning of the replay", detail))
    return PublishTimes(begin, end)


def _position(text: str) -> Position:
    """Parses the position of a message. Raises UsageError (K594)."""
    from kodoctl.recall.message.stored_message import Position

    try:
        return Position.parse(text if text.count(":") == 3 else f"{text}:-1")
    except ValueError:
        detail = f"{text!r} is no position: write ledger:entry:partition:batch, as `kodoctl peek` shows it"
        raise UsageError(error("K594", "first message of the replay not found", detail)) from None
