"""peek: look at stored messages without consuming any."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import reading, say, tell
from kodoctl.cli.common.options import Format, parse_duration
from kodoctl.cli.common.terminal import show_lines
from kodoctl.documents.recall_document import PeekDocument, PeekedMessage
from kodoctl.errors import UsageError, error
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.message_reader import PartitionFacts, Unread
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.filter.condition import Condition
    from kodoctl.recall.message.stored_message import DeadLetter
    from kodoctl.topology.names import TopicName

FORMAT_VERSION = 1
_MOST_CAUSES = 10_000  # further ones are counted as _OTHERS: memory stays bounded
_OTHERS = "(others)"
_GROWTH_TIMEOUT = (2.0, 5.0)  # seconds to connect and to answer, for a look that is repeated soon


@reading
@connects
def peek(
    target: TargetOptions,
    topics: Annotated[
        list[str], typer.Argument(help="Topics, or single partitions: TENANT/NAMESPACE/TOPIC.", metavar="TOPIC")
    ],
    where: Annotated[
        str, typer.Option("--where", help="Only messages that meet this condition.", metavar="CONDITION")
    ] = "true",
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Show at most so many; 0 only counts.", metavar="N")
    ] = 10,
    since: Annotated[
        str | None, typer.Option("--since", help="Begin with messages of this age, such as 2h.", metavar="DURATION")
    ] = None,
    scan: Annotated[int, typer.Option("--scan", min=1, help="Read at most so many messages.", metavar="N")] = 100_000,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Then show messages as they arrive, until Ctrl-C.")
    ] = False,
    output: Annotated[
        Format, typer.Option("--format", help="text or json; with --follow, a document a line for each message.")
    ] = Format.TEXT,
) -> None:
    """Look at stored messages, oldest first; consumes nothing.

    Reads the messages that are stored now. No subscription moves.

    Counts messages that meet --where, and failures by cause. Acknowledged messages are shown as long as the
    topic keeps them. Exits 1 if entries cannot be read, after it has shown all others.

    With --follow, marks of producers are left out. If the connection is lost, the command reports it and waits.
    """
    from kodoctl.pulsar.binary.message_reader import Unread
    from kodoctl.recall.filter.condition import parse
    from kodoctl.render.recall import peek_end, peek_lines

    now = int(time.time() * 1000)
    condition = parse(where, now)
    begin = now - int(parse_duration("--since", since)) if since else None
    with target.session() as session:
        unread = Unread(session.admin, session.client)
        places = _places(session, topics)
        with closing(_letters(session, places, begin, unread)) as letters:
            looked = look(letters, condition, limit, scan, marks_too=not follow)
            document: PeekDocument = {**looked, "unread": unread.lines()}
        if output is Format.TEXT:
            show_lines(peek_lines(document, now))
        elif not follow:
            say(json.dumps(document, indent=1))
        else:
            for message in document["messages"]:
                say(json.dumps(message))
            tell(peek_end(document))
        if follow:
            _follow(session, places, condition, unread, json_output=output is Format.JSON)
    unread.check()


def look(
    letters: Iterator[DeadLetter], condition: Condition, limit: int, scan: int, *, marks_too: bool = True
) -> PeekDocument:
    """Reads messages until `scan`, and counts those that meet the condition. Shows `limit` of them at most, with marks
    of producers if `marks_too`.
    """
    from kodoctl.recall.message.message_json import as_json
    from kodoctl.recall.plan.selection import count_values

    read = matched = marks = 0
    causes: Counter[str] = Counter()
    shown: list[PeekedMessage] = []
    read_all = show_all = True
    for letter in letters:
        if read + marks >= scan:
            read_all = False
            break
        mark = is_mark(letter)
        read, marks = (read, marks + 1) if mark else (read + 1, marks)
        if condition.chooses(letter):
            matched += not mark
            if (cause := letter.cause) is not None:
                causes[cause if cause in causes or len(causes) < _MOST_CAUSES else _OTHERS] += 1
            if mark and not marks_too:
                continue
            if len(shown) < limit:
                shown.append(as_json(letter))
            else:
                show_all = show_all and mark
    return {
        "format_version": FORMAT_VERSION,
        "read": read,
        "matched": matched,
        "marks": marks,
        "complete": read_all and show_all,
        "read_all": read_all,
        "messages": shown,
        "by_cause": count_values(causes.elements()),
    }


def is_mark(letter: DeadLetter) -> bool:
    """True for a message that only reports the sequence numbers of its producer."""
    from kodoctl.protocol.properties import FOR
    from kodoctl.protocol.sequence_numbers import NOBODY

    return letter.properties.get(FOR) == NOBODY


def _places(session: Session, topics: list[str]) -> list[tuple[TopicName, PartitionFacts]]:
    """Partitions of the topics, each with its topic and its present entries."""
    from kodoctl.pulsar.binary.message_reader import partitions_of, read_facts

    names = [_topic(text) for text in topics]
    parts = [(name, part) for name in names for part in partitions_of(session.admin, name)]
    return [(name, read_facts(session.admin, part)) for name, part in parts]


def _letters(
    session: Session, places: list[tuple[TopicName, PartitionFacts]], begin: int | None, unread: Unread
) -> Generator[DeadLetter]:
    """Yields the messages of one partition after another, each up to its present last message."""
    from kodoctl.pulsar.binary.message_reader import read_all
    from kodoctl.recall.cluster import letter_of

    for name, one in places:
        for stored in read_all(session.client, one, unread, since=begin):
            yield letter_of(stored, name.full, None)


def _follow(
    session: Session,
    places: list[tuple[TopicName, PartitionFacts]],
    condition: Condition,
    unread: Unread,
    *,
    json_output: bool,
) -> None:
    """Prints messages that meet the condition as they arrive, until Ctrl-C."""
    from kodoctl.pulsar.admin.admin_http import HttpAdmin
    from kodoctl.pulsar.binary.topic_follower import TopicFollower
    from kodoctl.recall.cluster import letter_of
    from kodoctl.recall.message.message_json import as_json
    from kodoctl.render.recall import peeked_lines

    tell(f"Following {many(len(places), 'partition')}; Ctrl-C ends it.")
    try:
        with (
            closing(HttpAdmin(session.connection, limit=0.0, timeout=_GROWTH_TIMEOUT)) as admin,
            closing(TopicFollower(admin, session.client, unread, tell).follow(places)) as arrivals,
        ):
            for topic, stored in arrivals:
                letter = letter_of(stored, topic.full, None)
                if is_mark(letter) or not condition.chooses(letter):
                    continue
                if json_output:
                    say(json.dumps(as_json(letter)))
                else:
                    show_lines(peeked_lines(as_json(letter), int(time.time() * 1000)))
    except KeyboardInterrupt:
        return


def _topic(text: str) -> TopicName:
    from kodoctl.topology.names import InvalidNameError, TopicName

    try:
        return TopicName.parse(text)
    except InvalidNameError as problem:
        raise UsageError(error("K560", "topic not found on the cluster", str(problem))) from None
