"""Commands for sources of change data."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Annotated

import typer

from kodo_consumer.cli.options import LogOptions, Port, Topology, connects, log_options
from kodo_consumer.sending.environment import ConnectionOptions, Environment
from kodoctl.cli.common.console import command, say
from kodoctl.errors import UsageError, error
from kodoctl.host.host_facts import working_folder
from kodoctl.text.escaping import one_line

if TYPE_CHECKING:
    from kodo_consumer.source.runner import Source
    from kodoctl.topology.change_sources import ChangeSource
    from kodoctl.topology.loaded_topology import LoadedTopology

log = logging.getLogger("kodo.source")


@command
@connects
@log_options
def run(
    topology: Topology,
    source: Annotated[
        str | None, typer.Argument(help="Source to run; may be left out if the file has one.", metavar="SOURCE")
    ] = None,
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
    from kodo_consumer.running.multi_run import ending_on_signals
    from kodo_consumer.runtime.settings import read_settings
    from kodo_consumer.source.runner import Source

    surroundings = Environment.of(**place)
    accepted = None if accept_gap is None else _position(accept_gap)
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


def _position(text: str) -> int:
    from kodo_consumer.source.positions import read_lsn

    try:
        return read_lsn(text)
    except ValueError:
        detail = f"--accept-gap: {one_line(text, 40)!r} is no position: write it as K793 printed it, such as 0/16B3748"
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
