"""peek: look at stored messages without consuming any."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import Environment, reading, say, tell
from kodoctl.cli.common.options import Format, bundles, parse_duration
from kodoctl.cli.common.terminal import show_lines
from kodoctl.documents.recall_document import MessageRow, PeekDocument, PeekedMessage
from kodoctl.errors import UsageError, Where, error
from kodoctl.host.private_files import create_private, put_in_place
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.message_reader import PartitionFacts, Unread
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.filter.condition import Condition
    from kodoctl.recall.message.message_rows import Encoder
    from kodoctl.recall.message.payload_view import PayloadForm
    from kodoctl.recall.message.stored_message import DeadLetter
    from kodoctl.topology.names import TopicName

    Forms = Mapping[str, PayloadForm]

FORMAT_VERSION = 1
_MOST_CAUSES = 10_000  # further ones are counted as _OTHERS: memory stays bounded
_OTHERS = "(others)"
_MOST_GROUPS = 2_000
_SHOWN = 10
_GROWTH_TIMEOUT = 2.0  # seconds for an answer, for a look that is repeated soon


@dataclass(frozen=True, slots=True)
class PeekFlags:
    """Options of `peek` that choose messages, and that say how payloads are read and where they are written."""

    where: Annotated[
        str, typer.Option("--where", help="Only messages that meet this condition.", metavar="CONDITION")
    ] = "true"
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=0,
            help="Show at most so many; 0 only counts.",
            metavar="N",
            show_default="10, with --out all",
        ),
    ] = None
    since: Annotated[
        str | None, typer.Option("--since", help="Begin with messages of this age, such as 2h.", metavar="DURATION")
    ] = None
    scan: Annotated[int, typer.Option("--scan", min=1, help="Read at most so many messages.", metavar="N")] = 100_000
    subscription: Annotated[
        str | None, typer.Option("--subscription", help="Only messages that it has not acknowledged.", metavar="NAME")
    ] = None
    topology: Annotated[
        str | None,
        typer.Option("--topology", help="File that declares the topics, to read and redact payloads.", metavar="PATH"),
    ] = None
    env: Environment = None
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Write the messages to this new file, .jsonl or .parquet.", metavar="FILE"),
    ] = None


@reading
@connects
@bundles("asked", PeekFlags)
def peek(
    target: TargetOptions,
    topics: Annotated[
        list[str], typer.Argument(help="Topics, or single partitions: TENANT/NAMESPACE/TOPIC.", metavar="TOPIC")
    ],
    *,
    asked: PeekFlags,
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

    With --topology, payloads are JSON or Avro of the declared schema, redacted as the file declares
    (`payloads.mask`, `error_text.redact`); without it, their beginning is shown as it is stored.

    With --follow, marks of producers are left out. If the connection is lost, the command reports it and waits.
    """
    from kodoctl.pulsar.binary.message_reader import Unread
    from kodoctl.recall.filter.condition import parse

    now = int(time.time() * 1000)
    condition = parse(asked.where, now)
    begin = now - int(parse_duration("--since", asked.since)) if asked.since else None
    encoder = _new_file(asked.out, asked.limit, follow=follow) if asked.out is not None else None
    with target.session() as session:
        unread = Unread(session.admin, session.client)
        named = [_topic(text) for text in topics]
        forms = _forms(session, named, asked.topology, asked.env) if asked.topology is not None else {}
        places = _places(session, named)
        with closing(_letters(session, places, begin, unread, asked.subscription, forms)) as letters:
            if asked.out is not None and encoder is not None:
                _write(asked.out, encoder, letters, condition, forms, asked.scan, asked.limit)
            else:
                shown = _SHOWN if asked.limit is None else asked.limit
                looked = look(letters, condition, shown, asked.scan, forms, marks_too=not follow)
                _show({**looked, "unread": unread.lines()}, now, output, follow=follow)
        if follow:
            _follow(session, places, condition, unread, forms, json_output=output is Format.JSON)
    unread.check()


def _show(document: PeekDocument, now: int, output: Format, *, follow: bool) -> None:
    from kodoctl.render.recall import peek_end, peek_lines

    if output is Format.TEXT:
        show_lines(peek_lines(document, now))
    elif not follow:
        say(json.dumps(document, indent=1))
    else:
        for message in document["messages"]:
            say(json.dumps(message))
        tell(peek_end(document))


def _new_file(out: Path, limit: int | None, *, follow: bool) -> Encoder:
    """Encoder for a file of this name. Raises UsageError (K585, K021) for another suffix, with `follow`, for a limit of
    0, or if the file is there.
    """
    from kodoctl.recall.message.message_rows import encoder_of

    if follow:
        detail = "--out writes what is stored now, without --follow"
        raise UsageError(error("K585", "messages cannot be written", detail))
    if limit == 0:
        detail = "--limit 0 counts messages and writes none: leave --out or --limit away"
        raise UsageError(error("K585", "messages cannot be written", detail))
    if out.exists():
        raise UsageError(error("K021", "file exists", "name another file, or remove it", Where(str(out))))
    return encoder_of(out.suffix.removeprefix("."))


def _write(
    out: Path, encoder: Encoder, letters: Iterator[DeadLetter], condition: Condition, forms: Forms, scan: int,
    limit: int | None,
) -> None:  # fmt: skip
    """Writes the messages that meet the condition, and says how many. Only the owner may read the file, which is there
    when it is complete: an error or an interrupt leaves none.
    """
    scanned = written = 0
    part = out.with_name(f".{out.name}.{os.getpid()}.new")

    def rows() -> Iterator[MessageRow]:
        nonlocal scanned, written
        for letter in letters:
            if scanned >= scan or written == limit:
                tell("There are more messages (--scan, --limit).")
                return
            scanned += 1
            if (row := chosen_row(letter, condition, forms)) is not None:
                written += 1
                yield row

    try:
        create_private(part)
        with part.open("wb") as stream:
            for content in encoder(rows()):
                stream.write(content)
        put_in_place(part, out)
    except FileExistsError:
        raise UsageError(error("K021", "file exists", "name another file, or remove it", Where(str(out)))) from None
    except OSError as problem:
        reason = str(problem.strerror or problem)
        raise UsageError(error("K585", "messages cannot be written", reason, Where(str(out)))) from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    tell(f"{many(written, 'message')} written to {out}; nothing was consumed.")


def chosen_row(letter: DeadLetter, condition: Condition, forms: Forms) -> MessageRow | None:
    """Row of a message that meets the condition; None for any other, and for a mark (`is_mark`). `forms`: by full name
    of the topic; a topic without one has NO_FORM.
    """
    from kodoctl.recall.message.message_rows import message_row
    from kodoctl.recall.message.payload_view import NO_FORM

    if is_mark(letter) or not condition.chooses(letter):
        return None
    return message_row(letter, forms.get(letter.topic, NO_FORM))


def look(
    letters: Iterator[DeadLetter],
    condition: Condition,
    limit: int,
    scan: int,
    forms: Forms = MappingProxyType({}),
    *,
    marks_too: bool = True,
) -> PeekDocument:
    """Reads messages until `scan` of them were read, marks (`is_mark`) included, and returns the document of `peek`:
    the count of messages that were read; and, of those that meet the condition, the count, the failures by cause, and
    the first `limit` messages.

    `forms`: forms of payloads, by full name of the topic; `marks_too`: marks are among the messages as well. They are
    counted apart in any case.
    """
    from kodoctl.recall.message.message_json import as_json
    from kodoctl.recall.plan.selection import count_values

    read = matched = marks = 0
    causes: Counter[str] = Counter()
    groups: Counter[tuple[str, str]] = Counter()
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
                group = cause, letter.tenant
                if group in groups or len(groups) < _MOST_CAUSES:
                    groups[group] += 1
            if mark and not marks_too:
                continue
            if len(shown) < limit:
                shown.append(as_json(letter, forms.get(letter.topic)))
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
        "groups": [
            {"cause": cause, "tenant": tenant, "messages": count}
            for (cause, tenant), count in groups.most_common(_MOST_GROUPS)
        ],
        "left_out": causes.total() - sum(count for _, count in groups.most_common(_MOST_GROUPS)),
    }


def is_mark(letter: DeadLetter) -> bool:
    """True for a message that only reports the sequence numbers of its producer."""
    from kodoctl.protocol.properties import FOR
    from kodoctl.protocol.sequence_numbers import NOBODY

    return letter.properties.get(FOR) == NOBODY


def _forms(session: Session, topics: list[TopicName], path: str, env: str | None) -> dict[str, PayloadForm]:
    """Form of the payloads of each topic by its full name. Raises UsageError (K022) for one that the file lacks."""
    from kodoctl.cli.letters.payload_forms import payload_form
    from kodoctl.topology.names import whole_topic

    desired = command_target.load_desired([path], command_target.environment_of(session.connection, env))
    declared = {topic.name.full: (one, topic) for one in desired.expansions for topic in one.topics}
    wanted = {name.full: whole_topic(name.full) for name in topics}
    if unknown := sorted({*wanted.values()} - declared.keys()):
        raise UsageError(*(error("K022", "unknown topic", f"{path} does not declare {one}") for one in unknown))
    return {name: payload_form(session.admin, *declared[whole]) for name, whole in wanted.items()}


def _places(session: Session, topics: list[TopicName]) -> list[tuple[TopicName, PartitionFacts]]:
    """Partitions of the topics, each with its topic and its present entries."""
    from kodoctl.pulsar.binary.message_reader import partitions_of, read_facts

    parts = [(name, part) for name in topics for part in partitions_of(session.admin, name)]
    return [(name, read_facts(session.admin, part)) for name, part in parts]


def _letters(
    session: Session,
    places: list[tuple[TopicName, PartitionFacts]],
    begin: int | None,
    unread: Unread,
    subscription: str | None,
    forms: Forms,
) -> Generator[DeadLetter]:
    """Yields the messages of one partition after another, each up to its present last message. `subscription`: only
    those that it has not acknowledged; None: all that are stored.
    """
    from kodoctl.pulsar.binary.message_reader import read_all, read_unacknowledged
    from kodoctl.recall.cluster import letter_of

    for name, one in places:
        form = forms.get(name.full)
        stored = (
            read_all(session.client, one, unread, since=begin)
            if subscription is None
            else read_unacknowledged(session.client, one, unread, subscription, since=begin)
        )
        for message in stored:
            yield letter_of(message, name.full, form.tenant_by if form is not None else None)


def _follow(
    session: Session,
    places: list[tuple[TopicName, PartitionFacts]],
    condition: Condition,
    unread: Unread,
    forms: Forms,
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
                form = forms.get(topic.full)
                letter = letter_of(stored, topic.full, form.tenant_by if form is not None else None)
                if is_mark(letter) or not condition.chooses(letter):
                    continue
                if json_output:
                    say(json.dumps(as_json(letter, form)))
                else:
                    show_lines(peeked_lines(as_json(letter, form), int(time.time() * 1000)))
    except KeyboardInterrupt:
        return


def _topic(text: str) -> TopicName:
    from kodoctl.topology.names import InvalidNameError, TopicName

    try:
        return TopicName.parse(text)
    except InvalidNameError as problem:
        raise UsageError(error("K560", "topic not found on the cluster", str(problem))) from None
