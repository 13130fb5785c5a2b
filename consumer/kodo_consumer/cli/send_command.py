"""Command `kodoctl send`: sends one message, or one for each line, and prints what was stored.

`kodoctl` finds it by name, as it finds the commands of the pipeline.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kodo_consumer.cli.message_batch import (
    EncodedMessage,
    MessageArguments,
    OutcomeStatus,
    SendOutcome,
    encode_messages,
    send_messages,
    size_findings,
)
from kodo_consumer.cli.options import connects
from kodo_consumer.cli.typed_messages import (
    TypedMessage,
    argument_error,
    findings_by_line,
    parse_event_time,
    parse_properties,
    split_lines,
)
from kodo_consumer.core.values.envelope import Level
from kodo_consumer.core.values.send_target import SendTarget
from kodo_consumer.runtime.settings import read_settings
from kodo_consumer.sending.environment import ConnectionOptions, Environment
from kodoctl.cli.common.console import command, finish, report, say, tell, tell_wait
from kodoctl.cli.common.options import Format, bundles
from kodoctl.cli.common.protected_contexts import Confirm, confirm_context
from kodoctl.errors import Diagnostic, ExitCode, UsageError, error
from kodoctl.pulsar.admin.admin import must, schema_path
from kodoctl.pulsar.admin.message_limit import largest_message
from kodoctl.pulsar.binary.message_reader import partitions_of
from kodoctl.pulsar.connection.connection import Connection, misspelled_variables
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from kodoctl.text.formatting import many
from kodoctl.topology.names import InvalidNameError, TopicName, whole_topic

if TYPE_CHECKING:
    from kodo_consumer.sending.route_reload import GroundLevels
    from kodoctl.pulsar.admin.admin import Admin

_FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """Options about messages: their input, and everything that all of them have beside payloads."""

    text: Annotated[str | None, typer.Argument(help="The payload; - reads standard input.", metavar="TEXT")] = None
    file: Annotated[
        str | None, typer.Option("--file", help="Send the bytes of this file; - reads standard input.", metavar="FILE")
    ] = None
    lines: Annotated[
        bool, typer.Option("--lines", help="Send each line of the input as a message, except empty lines.")
    ] = False
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", help="A property of the messages (repeatable).", metavar="NAME=VALUE"),
    ] = None
    key: Annotated[str | None, typer.Option("--key", help="Key of the messages.", metavar="KEY")] = None
    id: Annotated[
        str | None, typer.Option("--id", help="Identity (kodo-id) of the message, else a new one.", metavar="ID")
    ] = None
    event_time: Annotated[
        str | None,
        typer.Option("--event-time", help="Such as 2026-11-30T10:00:00Z, or ms since the epoch.", metavar="TIME"),
    ] = None


@command
@connects
@bundles("given", MessageOptions)
def send(
    topic: Annotated[
        str, typer.Argument(help="TENANT/NAMESPACE/TOPIC; with --topology a ground topic of it.", metavar="TOPIC")
    ],
    given: MessageOptions,
    topology: Annotated[
        str | None,
        typer.Option("--topology", help="Check the messages by this file, and follow its routes.", metavar="FILE"),
    ] = None,
    level: Annotated[
        str | None, typer.Option("--level", help="Level of the ground topic, L1 if not given.", metavar="LEVEL")
    ] = None,
    confirm_name: Confirm = None,
    output: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
    *,
    place: ConnectionOptions,
) -> None:
    """Send a message, or each line of a file as one.

    Prints identity (kodo-id) and topic of a message that is stored; with --lines how many are stored where.

    All messages are checked first: nothing is sent if one is refused. With --topology they are checked by the file,
    else by the topic's Avro schema, if it has one. On an Avro topic payloads are written as JSON. Topics are never
    created.
    """
    arguments = _arguments(given, topology, level, place)
    surroundings, levels, target = Environment.of(**place), None, None
    if topology is not None:
        from kodo_consumer.sending.route_reload import GroundLevels

        levels = GroundLevels(surroundings.topology(topology), topic)
        target = levels.send_target(level or Level.L1)
    name = _topic_name(topic if target is None else target.topic)
    typed = _typed_messages(given)
    messages = [] if target is None else _encode(target, typed, arguments)
    connection = _confirmed_connection(surroundings, confirm_name)
    from kodo_consumer.producer import Producer
    from kodoctl.pulsar.admin.admin_http import HttpAdmin

    with closing(HttpAdmin(connection, waits=WaitMonitor(tell_wait))) as admin:
        check = partial(_check_exists, admin, topology or "FILE")
        check(name.full)
        if target is None:
            target = _target_on_cluster(admin, name)
            messages = _encode(target, typed, arguments)
        limit = min(filter(None, (target.largest.get(name.full), largest_message(admin, name.full))), default=0)
        _refuse(size_findings(target, messages, arguments, limit, has_file=topology is not None), typed)
        # without numbers: the mark of their end would be one more stored message for each call
        producer = Producer.to(
            target,
            connection,
            read_settings(surroundings.environ, surroundings.folder),
            siblings=None if levels is None else partial(_sibling, levels, check),
            numbered=False,
            encoded=True,
        )
        outcomes, interrupted = send_messages(producer, messages, arguments)
    _show(outcomes, json_output=output is Format.JSON)
    if any(one.finding for one in outcomes):
        finish(ExitCode.INTERRUPTED if interrupted else ExitCode.ERROR)


def _arguments(
    given: MessageOptions, topology: str | None, level: str | None, place: ConnectionOptions
) -> MessageArguments:
    """Arguments of all messages. Raises UsageError with all findings about the command line."""
    properties, findings = parse_properties(given.properties or ())
    event_time = 0
    if given.event_time is not None:
        try:
            event_time = parse_event_time(given.event_time)
        except UsageError as problem:
            findings += problem.diagnostics
    if (given.text is None) is (given.file is None):
        both = "TEXT and --file are given: say one of them" if given.file else "no payload: say TEXT, --file FILE or -"
        findings.append(argument_error(both))
    if given.lines and given.id is not None:
        findings.append(argument_error("--id is for one message: each of --lines gets a new one"))
    for option, value in (("--level", level), ("--env", place.get("env"))):
        if topology is None and value is not None:
            findings.append(argument_error(f"{option} is about a topology file: name it with --topology"))
    if findings:
        raise UsageError(*findings)
    return MessageArguments(properties, given.key, given.id, event_time)


def _topic_name(text: str) -> TopicName:
    """Name of a topic that is not a partition. Raises UsageError."""
    try:
        name = TopicName.parse(text)
    except InvalidNameError as problem:
        advice = f"{problem}, or name the topology file of a ground topic with --topology"
        raise UsageError(error("K710", "topic not found", advice)) from None
    if whole_topic(name.full) != name.full:
        raise UsageError(argument_error(f"{text} is a partition: name its topic, and --key chooses the partition"))
    return name


def _typed_messages(given: MessageOptions) -> list[TypedMessage]:
    """Reads the input. Raises UsageError if it cannot be read, or has no message."""
    source, data = given.file or "TEXT", b""
    if "-" in (given.text, given.file):
        source = "standard input"
        if sys.stdin.isatty():
            tell("Reading the payload from standard input; Ctrl-D ends it.")
        data = sys.stdin.buffer.read()
    elif given.file is not None:
        try:
            data = Path(given.file).read_bytes()
        except OSError as problem:
            raise UsageError(error("K016", "cannot read file", f"{given.file}: {problem.strerror}")) from None
    else:
        data = os.fsencode(given.text or "")
    messages = split_lines(data) if given.lines else [TypedMessage(0, data)]
    if not messages or (not data and given.text in (None, "-")):
        raise UsageError(argument_error(f"no payload: {source} is empty"))
    return messages


def _encode(target: SendTarget, typed: Sequence[TypedMessage], arguments: MessageArguments) -> list[EncodedMessage]:
    """Encodes all messages, or ends the command with all findings about them."""
    messages, findings = encode_messages(target, typed, arguments)
    _refuse(findings, typed)
    return messages


def _refuse(findings: Sequence[tuple[int, Diagnostic]], typed: Sequence[TypedMessage]) -> None:
    """Ends the command if there are findings, and prints them. Each has a line, 0: it is about all messages."""
    if not findings:
        return
    report(findings_by_line(findings))
    lines = {line for line, _ in findings}
    refused = "" if 0 in lines else f": {len(lines):,} of {many(len(typed), 'message')} refused"
    tell(f"Nothing was sent{refused}.")
    finish(ExitCode.USAGE)


def _check_exists(admin: Admin, file: str, topic: str) -> None:
    """Raises UsageError if there is no such topic: a producer could create it. Raises AdminError if that cannot be
    known.
    """
    try:
        partitions_of(admin, TopicName.parse(topic))
    except UsageError:
        detail = f"{topic}: `kodoctl apply {file}` creates it"
        raise UsageError(error("K710", "topic not found", detail)) from None


def _confirmed_connection(surroundings: Environment, names: list[str] | None) -> Connection:
    """Connection of this process, whose context is confirmed if it is protected. `names`: those of `--confirm`."""
    report(misspelled_variables(surroundings.environ))
    connection = surroundings.connection()
    if (context := connection.context) is not None and context.protected:
        confirm_context(context, names, partial(typer.prompt, default="", show_default=False, err=True))
    return connection


def _sibling(levels: GroundLevels, check: Callable[[str], None], level: str) -> SendTarget:
    """Send target of another level, to which a route sends. Raises UsageError if it takes no messages, or if its topic
    does not exist.
    """
    target = levels.send_target(level)
    check(target.topic)
    return target


def _target_on_cluster(admin: Admin, name: TopicName) -> SendTarget:
    """Send target of a topic that no file describes, with its Avro schema if it has one. Raises UsageError for a topic
    with another schema: without it the broker stores any payload, which readers may not understand.
    """
    reply = admin.call("GET", f"{schema_path(name)}/schema")
    found = {} if reply.missing else must(reply, f"reading the schema of {name}")
    kind = found.get("type", "NONE")
    if kind not in ("NONE", "BYTES", "AVRO"):
        detail = (
            f"{name} has a schema of type {kind}, which kodoctl does not write (only AVRO), and without it readers may not"
            " understand the message: send with a client that has the schema"
        )
        raise UsageError(error("K714", "cannot publish", detail))
    schema = json.loads(found["data"]) if kind == "AVRO" else None
    # who reads it is unknown: keeping the order of keys, and a key a batch, suits every type of subscription
    return SendTarget(name.full, schema, {}, by_key=True, ordered=True, payload_type="avro" if schema else "json")


def _show(outcomes: Sequence[SendOutcome], *, json_output: bool) -> None:
    """Prints the stored messages on standard output, and findings about all others on standard error."""
    stored = [one for one in outcomes if one.finding is None]
    if json_output:
        say(json.dumps({"format_version": _FORMAT_VERSION, "messages": [_document(one) for one in outcomes]}, indent=1))
    elif len(outcomes) == 1 and not outcomes[0].message.line:
        for one in stored:
            say(f"{one.message.id}  {one.topic}")
    else:
        for topic, count in Counter(one.topic for one in stored).items():
            say(f"{many(count, 'message')} stored in {topic}")
    report(findings_by_line((one.message.line, one.finding) for one in outcomes if one.finding))
    if outcomes[0].status is OutcomeStatus.IN_DOUBT and not outcomes[0].message.line:
        tell(f"To send it again as the same message: --id {outcomes[0].message.id}")
    if len(stored) < len(outcomes) and outcomes[0].message.line:
        doubt = sum(one.status is OutcomeStatus.IN_DOUBT for one in outcomes)
        rest = len(outcomes) - len(stored) - doubt
        tell(f"Of {many(len(outcomes), 'message')} {len(stored):,} stored, {doubt:,} in doubt, {rest:,} not stored.")


def _document(outcome: SendOutcome) -> dict[str, Any]:
    message, finding = outcome.message, outcome.finding
    return {
        "line": message.line or None,
        "id": message.id,
        "status": outcome.status.value,
        "topic": outcome.topic,
        "position": outcome.position,
        "reason": finding.detail if finding else "",
    }
