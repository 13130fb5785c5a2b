"""Commands for sources of change data."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kodo_consumer.cli.options import LogOptions, Port, Topology, connects, log_options
from kodo_consumer.sending.environment import ConnectionOptions, Environment
from kodo_consumer.source.commit_proof import CommitStatus
from kodoctl.cli.common.console import command, judging, say
from kodoctl.cli.common.options import Format
from kodoctl.errors import UsageError, error
from kodoctl.host.host_facts import working_folder
from kodoctl.text.escaping import one_line
from kodoctl.text.formatting import many, size_text

if TYPE_CHECKING:
    from kodo_consumer.source.runner import Source
    from kodo_consumer.source.verifier import Verification
    from kodoctl.topology.change_sources import ChangeSource
    from kodoctl.topology.loaded_topology import LoadedTopology

log = logging.getLogger("kodo.source")
_SHOWN: Final = 10  # findings, and names of producers, in a text
_MOST_NAME: Final = 60  # characters of such a name
SourceName = Annotated[str | None, typer.Argument(help="May be left out if the file has one.", metavar="SOURCE")]
Output = Annotated[Format, typer.Option("--format", help="How the result is printed.")]


@command
@connects
@log_options
def run(
    topology: Topology,
    source: SourceName = None,
    port: Port = None,
    accept_gap: Annotated[
        str | None,
        typer.Option("--accept-gap", help="Go on without the changes before this position (K793).", metavar="LSN"),
    ] = None,
    *,
    logs: LogOptions,
    place: ConnectionOptions,
) -> None:
    """Send the rows that a database commits until SIGTERM.

    Then waits for receipts and exits 0. A second process of the same source waits until the first one has ended.
    """
    from kodo_consumer.adapters.metrics.http_server import serving
    from kodo_consumer.adapters.metrics.source_metrics import SourceView
    from kodo_consumer.runtime.settings import read_settings
    from kodo_consumer.source.runner import Source
    from kodoctl.host.end_signals import ending_on_signals

    surroundings = Environment.of(**place)
    accepted = None if accept_gap is None else _position("--accept-gap", accept_gap)
    loaded = surroundings.topology(topology)
    chosen = _choose(loaded, source)
    _check_database(chosen, surroundings)
    settings = read_settings(os.environ, working_folder())
    runner = Source(
        loaded, chosen, surroundings.connection(), surroundings.environ, settings.signing_keys, accepted_gap=accepted
    )
    logs.apply()
    say(f"source {chosen.name}: {', '.join(table.name for table in chosen.tables)}")
    with serving(SourceView(runner), settings.host, port, log), ending_on_signals() as asked:
        runner.serve(asked, drain_timeout=settings.drain_timeout / 1000)
    say(_summary(runner))


@judging
@connects
def verify(
    topology: Topology,
    source: SourceName = None,
    wait: Annotated[
        float, typer.Option("--wait", min=0.0, max=86_400, help="Seconds to wait for commits that are not stored yet.")
    ] = 10.0,
    accept: Annotated[
        str | None,
        typer.Option("--accept", help="Pass over the commits up to this position, whatever they are.", metavar="LSN"),
    ] = None,
    end: Annotated[
        bool, typer.Option("--end", help="Verify no more: drop the slot that keeps the log. The next call begins anew.")
    ] = False,
    output: Output = Format.TEXT,
    *,
    place: ConnectionOptions,
) -> None:
    """Prove that each commit is stored as messages.

    It reads the database's log once more.

    The first call makes a slot of its own; call it every few minutes from then on, because the slot keeps the log.

    Exits 0 if each commit since the last call is stored once, 5 if one is missing or stored twice, 6 for inconclusive.

    With signing keys (KODO_CONSUMER_SIGNING_KEYS), only messages count that are signed by one of them.
    """
    from kodo_consumer.runtime.settings import read_settings
    from kodo_consumer.source.verifier import SourceVerifier

    surroundings = Environment.of(**place)
    accepted = None if accept is None else _position("--accept", accept)
    if end and accepted is not None:
        raise UsageError(error("K004", "wrong value", "--accept goes on with the proof, and --end ends it: name one"))
    loaded = surroundings.topology(topology)
    chosen = _choose(loaded, source)
    _check_database(chosen, surroundings)
    signer = read_settings(os.environ, working_folder()).signing_keys
    verifier = SourceVerifier(loaded, chosen, surroundings.connection(), surroundings.environ, signer)
    if end:
        is_gone = verifier.end()
        if output is Format.JSON:
            say(json.dumps({"source": chosen.name, "slot": verifier.slot, "dropped": is_gone}, indent=2))
        else:
            say(
                f"slot {verifier.slot} is dropped" if is_gone else f"there was no slot {verifier.slot}: nothing to drop"
            )
        return
    found = verifier.verify(wait, accepted)
    verdict, code = _verdict(found)
    if output is Format.JSON:
        say(json.dumps(_document(chosen, verifier.slot, found, verdict), indent=2))
    else:
        say("\n".join(_lines(chosen, verifier.slot, found, verdict)))
    raise typer.Exit(code)


def _verdict(found: Verification) -> tuple[str, int]:
    """(verdict, exit code), as those of an audit."""
    if found.proof is not None and found.proof.is_loss:
        return "loss", 5
    is_proved = found.proof is not None and found.proof.is_conclusive and found.is_whole
    return ("no loss", 0) if is_proved else ("inconclusive", 6)


def _lines(source: ChangeSource, slot: str, found: Verification, verdict: str) -> Iterator[str]:
    from kodo_consumer.source.positions import lsn_text

    yield verdict.upper()
    start, end, proof = lsn_text(found.start), lsn_text(found.end), found.proof
    if (accepted := found.accepted) is not None:
        least = "" if accepted.is_whole else "at least "
        yield f"accepted up to {lsn_text(accepted.end)}, and passed over: {least}{_counts(accepted.commits)}"
    if found.slot.is_lost:
        yield f"  the server has removed the log after {start}, which slot {slot} needs (max_slot_wal_keep_size):"
        yield "  what was committed since then is unknown. --end drops the slot, and the next call begins anew"
        return
    if proof is None:
        yield f"  the proof begins at {start}, where source {source.name} is now: run this again later"
    else:
        yield from (f"  {one.text}" for one in proof.findings[:_SHOWN])
        if len(proof.findings) > _SHOWN:
            yield f"  … and {many(len(proof.findings) - _SHOWN, 'more commit')}: --format json has them"
        yield f"source {source.name}, {start} to {end}: {_counts(proof.commits)}"
        yield f"messages that these commits require: {proof.messages:,}; proved up to {lsn_text(found.slot.position)}"
        if proof.strangers:
            names = ", ".join(one_line(name, _MOST_NAME) for name in list(proof.strangers)[:_SHOWN])
            names += ", …" if len(proof.strangers) > _SHOWN else ""
            count = many(sum(proof.strangers.values()), "message")
            yield f"sent by others with ids of this source, and without effect on the proof: {count}, producer {names}"
    if not found.is_whole:
        yield "the log has more: run this again"
    yield f"slot {slot} keeps {size_text(found.slot.kept)} of log until the next call, or --end"


def _counts(commits: Mapping[CommitStatus, int]) -> str:
    counts = ", ".join(f"{count:,} {status}" for status, count in commits.items() if count)
    return f"commits: {counts}" if counts else "no commits"


def _document(source: ChangeSource, slot: str, found: Verification, verdict: str) -> dict[str, object]:
    from kodo_consumer.source.positions import lsn_text

    proof, accepted = found.proof, found.accepted
    return {
        "source": source.name,
        "verdict": verdict,
        "from": lsn_text(found.start),
        "to": lsn_text(found.end),
        "whole": found.is_whole,
        "proved": lsn_text(found.slot.position),
        "commits": {status.value: proof.commits[status] if proof else 0 for status in CommitStatus},
        "messages": proof.messages if proof else 0,
        "findings": [{"status": one.status.value, "text": one.text} for one in (proof.findings if proof else ())],
        "strangers": dict(proof.strangers) if proof else {},
        "accepted": accepted
        and {
            "to": lsn_text(accepted.end),
            "commits": {status.value: accepted.commits[status] for status in CommitStatus},
            "whole": accepted.is_whole,
        },
        "slot": {"name": slot, "kept_bytes": found.slot.kept, "lost": found.slot.is_lost},
    }


def _position(option: str, text: str) -> int:
    from kodo_consumer.source.positions import read_lsn

    try:
        return read_lsn(text)
    except ValueError:
        detail = f"{option}: {one_line(text, 40)!r} is no position: write it as it was printed, such as 0/16B3748"
        raise UsageError(error("K004", "wrong value", detail)) from None


def _choose(topology: LoadedTopology, name: str | None) -> ChangeSource:
    from kodoctl.topology.change_sources import change_sources

    found = {source.name: source for source in change_sources(topology.spec)}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name in found:
        return found[name]
    has = f"the file has {', '.join(found)}" if found else "the file has no `sources`"
    detail = has if not found else f"name one of its sources: {has}" if name is None else f"no source {name}: {has}"
    raise UsageError(error("K790", "source cannot start", detail))


def _check_database(source: ChangeSource, surroundings: Environment) -> None:
    """Raises UsageError for an address that can never work."""
    from kodoctl.database.postgres import DatabaseError, address_of

    try:
        address_of(source.spec.database, surroundings.environ)
    except DatabaseError as problem:
        raise UsageError(error("K790", "source cannot start", str(problem))) from None


def _summary(runner: Source) -> str:
    names = ("sent", "known", "superseded", "truncates", "schema_changes", "restarts")
    shown = (
        f"{name.replace('_', ' ')} {runner.counts[name]}" for name in names if name == "sent" or runner.counts[name]
    )
    return ", ".join(shown)
