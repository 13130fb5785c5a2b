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
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kodo_consumer.cli.options import Subscription, Topic, Topology, connects
from kodo_consumer.sending.environment import ConnectionOptions, Environment
from kodoctl.cli.common.console import columns, reading, say, tell_wait
from kodoctl.cli.common.options import Format
from kodoctl.errors import ClusterError, KodoctlError, UsageError, error
from kodoctl.text.formatting import many
from kodoctl.topology.units import Duration, UnitError

if TYPE_CHECKING:
    from kodo_consumer.cli.message_history import FoundMessage, Search
    from kodo_consumer.cli.message_history import SearchedTopic as Searched
    from kodo_consumer.core.values.policy import Policy
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.pulsar.binary.client import BrokerClient
    from kodoctl.pulsar.binary.message_reader import Unread

_PASSES: Final = 4  # each may learn another name of the message: its identity, its first place, where it went


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
    from kodo_consumer.cli.message_history import Search, level_lines, lines, to_json
    from kodo_consumer.policy_builder import policy_of
    from kodoctl.pulsar.admin.admin_http import HttpAdmin
    from kodoctl.pulsar.binary.client import BrokerClient
    from kodoctl.pulsar.binary.message_reader import Unread
    from kodoctl.pulsar.connection.wait_monitor import WaitMonitor

    if not message.strip():
        raise UsageError(
            error("K785", "message not found", "no name given: its kodo-id, or ledger:entry:partition:batch")
        )
    surroundings = Environment.of(**place)
    policy = policy_of(surroundings.topology(topology), topic, subscription)
    connection = surroundings.connection()
    places = _places(policy)
    search = Search(message, places)
    moment = _moment(since)
    waits = WaitMonitor(tell_wait)
    with closing(HttpAdmin(connection, waits=waits)) as admin, BrokerClient(connection, waits) as client:
        unread = Unread(admin, client)
        for _ in range(_PASSES):
            search.grew = False
            _pass(policy, places, search, admin, client, moment, unread)
            if not search.grew:
                break
        levels = _levels(policy, search, admin)
    document = {**to_json(message, search, places), "levels": levels, "unread": unread.lines()}
    if not document["hops"]:
        raise _not_found(document, since)
    if output is Format.JSON:
        say(json.dumps(document, indent=2))
    else:
        for line in (*lines(document, _clock), *level_lines(levels)):
            for part in _wrap_line(line):
                say(part)
    unread.check()


def _places(policy: Policy) -> list[Searched]:
    """Topics to search, in the order messages go through them."""
    from kodo_consumer.cli.message_history import DEAD_LETTERS
    from kodo_consumer.cli.message_history import SearchedTopic as Searched

    dead = [Searched(policy.dead_letter.topic, DEAD_LETTERS)] if policy.dead_letter else []
    audit = [Searched(policy.audit.topic, "audit records")] if policy.audit else []
    return [*(Searched(lane.topic, lane.name) for lane in policy.lanes), *dead, *audit]


def _pass(  # what is looked for, where and from when on
    policy: Policy,
    places: list[Searched],
    search: Search,
    admin: Admin,
    client: BrokerClient,
    moment: int | None,
    unread: Unread,
) -> None:
    for searched in places:
        show = search.records if policy.audit and searched.topic == policy.audit.topic else search.message
        for seen in _read_messages(searched, policy.subscription, admin, client, moment, unread):
            show(seen)


def _read_messages(
    searched: Searched,
    subscription: str,
    admin: Admin,
    client: BrokerClient,
    moment: int | None,
    unread: Unread,
) -> Iterator[FoundMessage]:
    from kodo_consumer.cli.message_history import FoundMessage
    from kodoctl.pulsar.binary.message_reader import partitions_of, read_all, read_facts
    from kodoctl.topology.names import TopicName

    for part in partitions_of(admin, TopicName.parse(searched.topic)):
        facts = read_facts(admin, part)
        cursor = facts.cursors.get(subscription)
        for found in read_all(client, facts, unread, since=moment):
            position = f"{found.ledger}:{found.entry}:{facts.partition}:{found.batch}"
            gone = cursor is not None and cursor.has((found.ledger, found.entry))
            yield FoundMessage(
                searched.topic, position, found.payload, found.properties, found.publish_time, gone, found.key
            )


def _levels(policy: Policy, search: Search, admin: Admin) -> dict[str, Any]:
    """Levels that the message's tenants have now: see `tenant_levels`."""
    from kodo_consumer.cli.message_history import tenant_levels
    from kodoctl.pulsar.control.override_store import OverrideStore

    tenants = search.tenants(policy.tenant) if policy.fair_by else []
    store = OverrideStore(admin, policy.ground_lane.topic, policy.subscription, Random())  # noqa: S311  # it only reads
    try:
        orders = store.read(time.time_ns() // 1_000_000) if tenants else ()
    except ClusterError as problem:
        return tenant_levels(policy, tenants, (), problem.diagnostics[0].detail)
    return tenant_levels(policy, tenants, orders)


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
    advice = "an id is a `kodo-id`, or a position such as 7:1:0:-1; `kodoctl peek TOPIC` shows both"
    detail = "\n".join([f"{what}{f' since {since} ago' if since else ''}:", *topics, *unread, advice])
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
