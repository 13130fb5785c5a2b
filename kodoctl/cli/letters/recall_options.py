"""Options that the commands on dead letters share, and the subscription that they name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common import command_target
from kodoctl.cli.common.console import Environment
from kodoctl.cli.common.ledger_option import LedgerOption
from kodoctl.cli.common.options import Format
from kodoctl.cli.common.protected_contexts import Confirm
from kodoctl.errors import InvalidFileError, UsageError, error

if TYPE_CHECKING:
    from kodoctl.pulsar.connection.secret import Secret
    from kodoctl.pulsar.session import Session
    from kodoctl.recall.plan.destinations import RecallSource
    from kodoctl.topology.loaded_topology import LoadedTopology

SIGNING_KEYS = "KODO_CONSUMER_SIGNING_KEYS"


File = Annotated[
    str, typer.Argument(help="The topology file (or folder) that declares the subscription.", metavar="TOPOLOGY")
]
Topic = Annotated[str, typer.Option("--topic", help="Ground topic, by its name in the file.", metavar="NAME")]
Subscription = Annotated[str, typer.Option("--subscription", help="Whose dead letters.", metavar="NAME")]
Where_ = Annotated[
    str, typer.Option("--where", help="Condition that letters must meet; `true` is all of them.", metavar="CONDITION")
]
Limit = Annotated[int, typer.Option("--limit", help="Maximum number of letters, the oldest first.", metavar="N")]
Because = Annotated[str, typer.Option("--because", help="Why: kept in the plan and in the ledger.", metavar="TEXT")]
Out = Annotated[
    str | None, typer.Option("-o", "--out", help="Write the plan to this file, for `recall apply`.", metavar="FILE")
]
To = Annotated[str | None, typer.Option("--to", help="Ready topic of this level instead of RETRYING.", metavar="LEVEL")]
Patch = Annotated[
    str | None, typer.Option("--edit", help="JSON merge patch (RFC 7396) for every payload.", metavar="FILE")
]
Again = Annotated[
    bool, typer.Option("--again", help="Include messages already recalled or processed; they are handled again.")
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store", help="The workers' store (else KODO_CONSUMER_STORE): leave out what is done.", metavar="URL"
    ),
]
Output = Annotated[Format, typer.Option("--format", help="How the result is printed.")]


@dataclass(frozen=True, slots=True)
class RecallFlags:
    """Values of the options of `recall plan` and `recall discard`, which choose dead letters and write a recall plan;
    each field has the name of its option. `where`: text of the condition; `edit`: path of the file with the patch.
    """

    topology: File
    topic: Topic
    subscription: Subscription
    where: Where_
    to: To = None
    limit: Limit = 10_000
    again: Again = False
    edit: Patch = None
    because: Because = ""
    out: Out = None
    ledger: LedgerOption = None
    store: Store = None
    env: Environment = None


@dataclass(frozen=True, slots=True)
class ChoiceFlags(RecallFlags):
    """RecallFlags in which condition, topic and subscription may be empty ("": all), for lost messages only: the
    command refuses a choice of dead letters if one of the three is empty.
    """

    topic: Annotated[
        str,
        typer.Option(
            "--topic", help="Ground topic, by its name in the file.", show_default="--lost: all", metavar="NAME"
        ),
    ] = ""
    subscription: Annotated[
        str, typer.Option("--subscription", help="Whose dead letters.", show_default="--lost: all", metavar="NAME")
    ] = ""
    where: Where_ = ""


PlanFile = Annotated[str, typer.Argument(help="A file of `recall plan` or `recall discard`.", metavar="PLAN")]
WaitingPlanFile = Annotated[str, typer.Argument(help="A file of `waiting plan`.", metavar="PLAN")]
RateOption = Annotated[str, typer.Option("--rate", help="Maximum rate, e.g. 100/s.", metavar="RATE")]
TopologyFile = Annotated[
    str | None, typer.Option("--topology", help="The topology file, when it moved since the plan.", metavar="PATH")
]
HashOption = Annotated[
    str | None, typer.Option("--hash", help="The plan's hash: carry out nothing else.", metavar="HASH")
]
MaxAge = Annotated[str, typer.Option("--max-age", help="Refuse a plan that was made longer ago.", metavar="TIME")]
Wait = Annotated[str, typer.Option("--wait", help="How long workers may take to leave the lane.", metavar="TIME")]


@dataclass(frozen=True, slots=True)
class ApplyFlags:
    """Values of the options of `recall apply`, which carries out a recall plan. `plan`: its file; `ledger`: path of the
    ledger, None: the default; `rate` and `max_age`: texts as typed, such as `200/s` and `7d`; `confirm_name`: the
    context's name that a protected context requires.
    """

    plan: PlanFile
    rate: RateOption = "200/s"
    ledger: LedgerOption = None
    topology: TopologyFile = None
    hash_: HashOption = None
    max_age: MaxAge = "7d"
    confirm_name: Confirm = None


@dataclass(frozen=True, slots=True)
class WaitingApplyFlags(ApplyFlags):
    """Values of the options of `waiting apply`: those of `recall apply`, and `wait`, the longest time (text such as
    `1m`) that the command waits until workers have left the lane.
    """

    plan: WaitingPlanFile
    max_age: MaxAge = "1d"
    wait: Wait = "1m"


def signing_keys() -> Secret | None:
    """Keys in KODO_CONSUMER_SIGNING_KEYS, the variable that workers and producers use; None if it is not set. Raises
    UsageError (K502).
    """
    from kodoctl.protocol.signing import Signer
    from kodoctl.pulsar.connection.secret import Secret

    given = os.environ.get(SIGNING_KEYS)
    if given is None:
        return None
    try:
        Signer.parse(given)
    except ValueError as problem:
        raise UsageError(error("K502", "cannot read configuration", f"{SIGNING_KEYS}: {problem}")) from None
    return Secret(given, variable=SIGNING_KEYS)


def family_in(
    session: Session, path: str, env: str | None, topic: str, subscription: str
) -> tuple[LoadedTopology, RecallSource]:
    """Loads the file `path`, or from a folder the one file that declares the topic. Returns the loaded topology and the
    subscription's dead letters as source of a recall. Raises UsageError, InvalidFileError.
    """
    from kodoctl.recall.plan.destinations import family_of

    chosen = file_with(session, path, env, topic)
    return chosen, family_of(chosen, topic, subscription)


def file_with(session: Session, path: str, env: str | None, topic: str | None) -> LoadedTopology:
    """Loads the file `path`, or from a folder the one file that declares the topic (if none does, the first file).
    `topic` None: the folder must have one file. Raises UsageError (K569), InvalidFileError.
    """
    desired = command_target.load_desired([path], command_target.environment_of(session.connection, env))
    topologies = [expansion.topology for expansion in desired.expansions]
    having = [one for one in topologies if topic in one.spec.topics]
    if len(having) > 1:
        detail = f"{', '.join(one.source.name for one in having)} have a topic {topic!r}: name one file"
        raise UsageError(error("K569", "more than one file has the topic", detail))
    if topic is None and len(topologies) > 1:
        detail = f"{', '.join(one.source.name for one in topologies)}: name one file, or a --topic"
        raise UsageError(error("K569", "more than one file has the topic", detail))
    return (having or topologies)[0]


def declared_schema(loaded: LoadedTopology, topic: str) -> dict[str, object] | None:
    """JSON Schema that the file declares for a topic's payloads; None if it declares none, or only `true`, or if the
    payloads are not JSON. Raises InvalidFileError if the schema cannot be used.
    """
    from kodoctl.topology.payload_definition import why_unusable

    payload = loaded.payloads.get(topic)
    if payload is None or payload.type != "json":
        return None
    if problem := payload.problem or why_unusable(payload.type, payload.definition):
        where = loaded.where("topics", topic, "payload", "schema")
        raise InvalidFileError(error("K304", "payload schema that cannot be used", f"{payload.path}: {problem}", where))
    return payload.definition if isinstance(payload.definition, dict) else None  # else it is `true`
