"""Command `why`: all hops of one message and the rule that caused each. It reads the topics without acknowledging
anything.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated

import typer

from kodo_consumer.cli.options import Subscription, Topic, Topology, connects
from kodo_consumer.sending.environment import ConnectionOptions, Environment
from kodoctl.cli.common.console import columns, reading, say, tell_wait
from kodoctl.cli.common.options import Format
from kodoctl.errors import KodoctlError, UsageError, error
from kodoctl.text.formatting import many
from kodoctl.topology.units import Duration, UnitError


@reading
@connects
def why(
    topology: Topology,
    message: Annotated[
        str, typer.Argument(help="Its kodo-id, or ledger:entry:partition:batch of any place.", metavar="MESSAGE-ID")
    ],
    topic: Topic,
    subscription: Subscription,
    since: Annotated[
        str | None, typer.Option("--since", help="Only what was stored so long ago or later.", metavar="DURATION")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
    *,
    place: ConnectionOptions,
) -> None:
    """Show every hop of one message and the rule that caused it.

    Reads all topics of the subscription, and consumes nothing.
    """
    from kodo_consumer.cli.history_reader import HistoryReader
    from kodo_consumer.cli.message_history import level_lines, lines
    from kodoctl.pulsar.admin.admin_http import HttpAdmin
    from kodoctl.pulsar.binary.client import BrokerClient
    from kodoctl.pulsar.binary.message_reader import Unread
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor

    if not message.strip():
        raise UsageError(
            error("K785", "message not found", "no name given: its kodo-id, or ledger:entry:partition:batch")
        )
    surroundings = Environment.of(**place)
    loaded = surroundings.topology(topology)
    connection = surroundings.connection()
    moment = _moment(since)
    waits = WaitMonitor(tell_wait)
    with closing(HttpAdmin(connection, waits=waits)) as admin, BrokerClient(connection, waits) as client:
        unread = Unread(admin, client)
        document = HistoryReader(admin, client, unread, moment).read(loaded, topic, subscription, message)
    if not document["hops"]:
        raise _not_found(document, since)
    if output is Format.JSON:
        say(json.dumps(document, indent=2))
    else:
        for line in (*lines(document, _clock), *level_lines(document["levels"])):
            for part in _wrap_line(line):
                say(part)
    unread.check()


def _moment(since: str | None) -> int | None:
    if since is None:
        return None
    try:
        return time.time_ns() // 1_000_000 - int(Duration.parse(since))
    except UnitError as problem:
        raise UsageError(error("K785", "message not found", f"--since: {problem}")) from None


def _not_found(document: dict[str, object], since: str | None) -> KodoctlError:
    topics = document["searched"]
    assert isinstance(topics, list)
    looked_at = many(int(str(document["looked_at"])), "message")
    what = f"{document['message']!r} is none of the {looked_at} stored in {many(len(topics), 'topic')}"
    unread = document["unread"]
    assert isinstance(unread, list)
    lacking = document["missing"]
    assert isinstance(lacking, list)
    missing = [f"not on the cluster: {topic}" for topic in lacking]
    advice = "an id is a `kodo-id`, or a position such as 7:1:0:-1; `kodoctl peek TOPIC` shows both"
    detail = "\n".join([f"{what}{f' since {since} ago' if since else ''}:", *topics, *missing, *unread, advice])
    return KodoctlError(error("K785", "message not found", detail))


def _wrap_line(line: str) -> Iterator[str]:
    plain = "".join(char if char.isprintable() else "\ufffd" for char in line)
    indent = " " * (len(plain) - len(plain.lstrip()))
    width = max(40, columns())
    yield from textwrap.wrap(
        plain.lstrip(), width, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
    )


def _clock(ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}.{ms % 1000:03}"
    except (ValueError, OverflowError):  # whoever wrote that
        return f"{ms} ms"
