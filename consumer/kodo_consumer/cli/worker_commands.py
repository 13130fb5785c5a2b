"""Commands around one worker: run it, check what it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from kodo_consumer.cli.options import Port, Topology, connects
from kodo_consumer.environment import ConnectionOptions, Environment
from kodo_consumer.runtime.handler_import import load_handler
from kodoctl.console import command, judging, report, say
from kodoctl.errors import KodoctlError, UsageError, error

if TYPE_CHECKING:
    from kodo_consumer.consumer import Consumer

T = TypeVar("T")


def register(app: typer.Typer) -> None:
    """Adds the commands of this file."""
    app.command()(run)
    app.command()(check)


@command
@connects
def run(
    topology: Topology,
    topic: Annotated[
        list[str], typer.Option("--topic", help="Ground topic; one for all, or one for each handler.", metavar="NAME")
    ],
    subscription: Annotated[list[str], typer.Option("--subscription", help="Its subscription.", metavar="NAME")],
    handler: Annotated[list[str], typer.Option("--handler", help="What handles messages.", metavar="MODULE:FUNCTION")],
    port: Port = None,
    *,
    place: ConnectionOptions,
) -> None:
    """Run a handler until SIGTERM; then drain and exit 0. A second signal ends it at once.

    Several in one process: repeat --subscription and --handler, in the same order; the next handler has the next
    --port. They drain together; when one cannot go on, all end.
    """
    from kodo_consumer.multi_run import run_all

    consumers = _consumers(topology, _together(topic, subscription, handler), place)
    for number, consumer in enumerate(consumers):
        first = consumer.settings.port if port is None else port
        consumer.settings = replace(consumer.settings, port=first + number if first else first)
    run_all(*consumers, say=say)


def _together(topics: list[str], subscriptions: list[str], handlers: list[str]) -> list[tuple[str, str, str]]:
    """Triples of topic, subscription and handler, by their order on the command line. Raises UsageError."""
    count = len(handlers)
    topics = topics * count if len(topics) == 1 else topics
    if not len(topics) == len(subscriptions) == count:
        detail = f"{len(topics)} --topic, {len(subscriptions)} --subscription, {count} --handler: as many of each, or one --topic"
        raise UsageError(error("K759", "options do not match", detail))
    pairs = Counter(zip(topics, subscriptions, strict=True))
    if twice := sorted(pair for pair, times in pairs.items() if times > 1):
        detail = ", ".join(f"{ground} {name} is named twice" for ground, name in twice)
        raise UsageError(error("K759", "options do not match", detail))
    return list(zip(topics, subscriptions, handlers, strict=True))


def _consumers(topology: str, wanted: list[tuple[str, str, str]], place: ConnectionOptions) -> list[Consumer]:
    """Loaded, with their handlers. Raises with everything that is wrong with any of them."""
    from kodo_consumer.consumer import Consumer

    found: list[Consumer] = []
    problems: list[KodoctlError] = []
    for ground, name, handler in wanted:
        consumer = _tried(problems, partial(Consumer.load, topology, topic=ground, subscription=name, **place))
        function = _tried(problems, partial(load_handler, handler))
        if consumer is not None and function is not None:
            _tried(problems, partial(consumer.take_handler, function))
            found.append(consumer)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise UsageError(*dict.fromkeys(finding for problem in problems for finding in problem.diagnostics))
    return found


def _tried(problems: list[KodoctlError], act: Callable[[], T]) -> T | None:
    try:
        return act()
    except KodoctlError as problem:
        problems.append(problem)
        return None


@judging
@connects
def check(
    topology: Topology,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this ground topic.", metavar="NAME")] = None,
    subscription: Annotated[
        str | None, typer.Option("--subscription", help="Only this subscription.", metavar="NAME")
    ] = None,
    *,
    place: ConnectionOptions,
) -> None:
    """Compare the topology with the live cluster: exit 1 and what is missing, or exit 0.

    Warns of limits of the broker that leave less than the declared look-ahead, waits or message
    sizes, where the role may read them.
    """
    from kodo_consumer.adapters.pulsar import AdminCluster
    from kodo_consumer.core.broker_limits import limit_findings, read_broker_limits
    from kodo_consumer.core.broker_window import lookahead_findings, unacked_limits
    from kodo_consumer.policy_builder import policy_of
    from kodo_consumer.runtime.supervisor import missing_resources

    surroundings = Environment.of(**place)
    loaded = surroundings.topology(topology)
    found = []
    with closing(AdminCluster(surroundings.connection())) as cluster:
        for ground, name in _subscriptions(loaded, topic, subscription):
            policy = policy_of(loaded, ground, name)
            findings = missing_resources(policy, cluster)
            found += findings
            report(
                [
                    *lookahead_findings(policy, unacked_limits(policy, cluster)),
                    *limit_findings(policy, read_broker_limits(policy, cluster)),
                ]
            )
            say(f"{ground} {name}: {f'{len(findings)} missing' if findings else 'complete'}")
    if found:
        raise KodoctlError(*dict.fromkeys(found))


def _subscriptions(loaded: Any, topic: str | None, subscription: str | None) -> list[tuple[str, str]]:
    """Of every ground topic that has them. Raises UsageError where none has."""
    from kodo_consumer.policy_builder import ground_of

    pairs = [(one, name) for one in loaded.spec.topics for name in ground_of(loaded, one).subscriptions]
    if topic and subscription:
        return [(topic, subscription)]  # what is not there is told with what is
    if topic:
        return [(topic, name) for name in ground_of(loaded, topic).subscriptions]
    if subscription and subscription not in (names := sorted({name for _, name in pairs})):
        detail = f"{loaded.source.name} has {', '.join(names) or 'none'}, not {subscription!r}"
        raise UsageError(error("K703", "unknown subscription", detail))
    return [(one, name) for one, name in pairs if subscription in (None, name)]
