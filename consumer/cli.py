"""`kodo-consumer`: the consumer as a command. Parse, wire, run, print, exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from kodoctl.cli.console import command, run_application, say
from kodoctl.errors import KodoctlError, UsageError, error

Topology = Annotated[str, typer.Argument(help="The topology file.")]
Env = Annotated[str | None, typer.Option("--env", help="Environment of the file; `base` is the file without overlay.")]
Context = Annotated[str | None, typer.Option("--context", help="A cluster of kodoctl.toml.")]
AdminUrl = Annotated[str | None, typer.Option("--admin-url", help="Admin API, http://HOST:PORT.")]
BrokerUrl = Annotated[str | None, typer.Option("--broker-url", help="Binary port, pulsar://HOST:PORT.")]
TokenFile = Annotated[str | None, typer.Option("--token-file", help="File with the token.")]

app = typer.Typer(
    name="kodo-consumer",
    help="The reference consumer of a kodoctl topology.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.command()
@command
def run(  # noqa: PLR0913, PLR0917  # typer's options are parameters
    topology: Topology,
    topic: Annotated[str, typer.Option("--topic", help="Ground topic.")],
    subscription: Annotated[str, typer.Option("--subscription", help="Its subscription.")],
    handler: Annotated[str, typer.Option("--handler", help="What handles messages: module:function.")],
    env: Env = None,
    context: Context = None,
    admin_url: AdminUrl = None,
    broker_url: BrokerUrl = None,
    token_file: TokenFile = None,
) -> None:
    """Run a handler until SIGTERM; then drain and exit 0. A second signal ends it at once."""
    from consumer.application import Consumer

    consumer = Consumer.load(
        topology, topic=topic, subscription=subscription, env=env, context=context, admin_url=admin_url,
        broker_url=broker_url, token_file=token_file,
    )  # fmt: skip
    consumer.handler(load_handler(handler))
    consumer.run(say)


@app.command()
@command
def check(  # noqa: PLR0913, PLR0917
    topology: Topology,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this ground topic.")] = None,
    subscription: Annotated[str | None, typer.Option("--subscription", help="Only this subscription.")] = None,
    env: Env = None,
    context: Context = None,
    admin_url: AdminUrl = None,
    broker_url: BrokerUrl = None,
    token_file: TokenFile = None,
) -> None:
    """Compare the topology with the live cluster: exit 1 and what is missing, or exit 0."""
    from consumer.pulsar_broker import AdminCluster
    from consumer.routes import policy_of
    from consumer.service import missing
    from consumer.wiring import Surroundings

    surroundings = Surroundings.of(
        env=env, context=context, admin_url=admin_url, broker_url=broker_url, token_file=token_file
    )
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


def main() -> None:
    """Entry point of the script."""
    run_application(app)
