"""Commands around one worker: run it, check what it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from consumer.cli.wiring import Topology, connects
from consumer.wiring import Place, Surroundings
from kodoctl.cli.console import command, say
from kodoctl.errors import KodoctlError, UsageError, error


def register(app: typer.Typer) -> None:
    """Adds the commands of this file."""
    app.command()(run)
    app.command()(check)


@command
@connects
def run(
    topology: Topology,
    topic: Annotated[str, typer.Option("--topic", help="Ground topic.", metavar="NAME")],
    subscription: Annotated[str, typer.Option("--subscription", help="Its subscription.", metavar="NAME")],
    handler: Annotated[str, typer.Option("--handler", help="What handles messages.", metavar="MODULE:FUNCTION")],
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            metavar="PORT",
            help="Serve /metrics, /healthz and /readyz here; 0: any free one.",
        ),
    ] = None,
    *,
    place: Place,
) -> None:
    """Run a handler until SIGTERM; then drain and exit 0. A second signal ends it at once."""
    from consumer.application import Consumer

    consumer = Consumer.load(topology, topic=topic, subscription=subscription, **place)
    if port is not None:
        consumer.settings = replace(consumer.settings, port=port)
    consumer.take_handler(load_handler(handler))
    consumer.run(say)


@command
@connects
def check(
    topology: Topology,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this ground topic.", metavar="NAME")] = None,
    subscription: Annotated[
        str | None, typer.Option("--subscription", help="Only this subscription.", metavar="NAME")
    ] = None,
    *,
    place: Place,
) -> None:
    """Compare the topology with the live cluster: exit 1 and what is missing, or exit 0."""
    from consumer.pulsar_broker import AdminCluster
    from consumer.routes import policy_of
    from consumer.service import missing

    surroundings = Surroundings.of(**place)
    loaded = surroundings.topology(topology)
    found = []
    with closing(AdminCluster(surroundings.connection())) as cluster:
        for ground, name in _subscriptions(loaded, topic, subscription):
            findings = missing(policy_of(loaded, ground, name), cluster)
            found += findings
            say(f"{ground} {name}: {f'{len(findings)} missing' if findings else 'complete'}")
    if found:
        raise KodoctlError(*dict.fromkeys(found))


def _subscriptions(loaded: Any, topic: str | None, subscription: str | None) -> Iterator[tuple[str, str]]:
    from consumer.routes import ground_of

    for ground in [topic] if topic else loaded.spec.topics:
        names = ground_of(loaded, ground).subscriptions
        yield from ((ground, name) for name in ([subscription] if subscription else names))


def load_handler(text: str) -> Callable[..., Any]:
    """`module:function`, looked for from the working folder on. Raises UsageError."""
    module, _, name = text.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), name) if module and name else None
    except (ImportError, AttributeError) as problem:
        raise UsageError(error("K718", "no such handler", f"{text}: {problem}")) from None
    if not callable(found):
        raise UsageError(error("K718", "no such handler", f"{text}: write MODULE:FUNCTION, for example app:bill"))
    handler: Callable[..., Any] = found
    return handler
