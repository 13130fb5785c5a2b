"""peek: look at stored messages without consuming any."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import reading, say
from kodoctl.cli.common.options import parse_duration
from kodoctl.cli.common.terminal import show_lines
from kodoctl.documents.recall_document import PeekDocument, PeekedMessage
from kodoctl.errors import UsageError, error

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.message_reader import Unread
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.filter.condition import Condition
    from kodoctl.recall.message.stored_message import DeadLetter

FORMAT_VERSION = 1
_MOST_CAUSES = 10_000  # further ones are counted as _OTHERS: memory stays bounded
_OTHERS = "(others)"


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
    json_output: Annotated[bool, typer.Option("--json", help="One document for machines.")] = False,
) -> None:
    """Look at stored messages, oldest first; consumes nothing.

    Reads up to what is there now. Consumes nothing, moves no subscription.

    Counts messages that meet --where, and what failed by cause. Acknowledged messages show as long as the
    topic keeps them. Exit 1, with all that can be read, where entries cannot be read.
    """
    from kodoctl.pulsar.binary.message_reader import Unread
    from kodoctl.recall.filter.condition import parse
    from kodoctl.render.recall import peek_lines

    now = int(time.time() * 1000)
    condition = parse(where, now)
    begin = now - int(parse_duration("--since", since)) if since else None
    with target.session() as session:
        unread = Unread(session.admin, session.client)
        with closing(_letters(session, topics, begin, unread)) as letters:
            document: PeekDocument = {**_look(letters, condition, limit, scan), "unread": unread.lines()}
    if json_output:
        say(json.dumps(document, indent=1))
    else:
        show_lines(peek_lines(document, now))
    unread.check()


def _look(letters: Iterator[DeadLetter], condition: Condition, limit: int, scan: int) -> PeekDocument:
    from kodoctl.protocol.properties import FOR
    from kodoctl.protocol.sequence_numbers import NOBODY
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
        is_mark = letter.properties.get(FOR) == NOBODY
        read, marks = (read, marks + 1) if is_mark else (read + 1, marks)
        if condition.chooses(letter):
            matched += not is_mark
            if (cause := letter.cause) is not None:
                causes[cause if cause in causes or len(causes) < _MOST_CAUSES else _OTHERS] += 1
            if len(shown) < limit:
                shown.append(as_json(letter))
            else:
                show_all = show_all and is_mark
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


def _letters(session: Session, topics: list[str], begin: int | None, unread: Unread) -> Generator[DeadLetter]:
    """Yields the messages of one partition after another, each up to its present last message."""
    from kodoctl.pulsar.binary.message_reader import partitions_of, read_all, read_facts
    from kodoctl.recall.cluster import letter_of

    names = [_topic(text) for text in topics]
    parts = [(name, part) for name in names for part in partitions_of(session.admin, name)]
    facts = [(name, read_facts(session.admin, part)) for name, part in parts]
    for name, one in facts:
        for stored in read_all(session.client, one, unread, since=begin):
            yield letter_of(stored, name.full, None)


def _topic(text: str) -> Any:
    from kodoctl.topology.names import InvalidNameError, TopicName

    try:
        return TopicName.parse(text)
    except InvalidNameError as problem:
        raise UsageError(error("K560", "topic not found on the cluster", str(problem))) from None
