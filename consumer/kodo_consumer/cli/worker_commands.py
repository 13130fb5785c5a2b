"""Commands `run` and `check`: runs workers, or checks whether the cluster has everything that they need."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from kodo_consumer.cli.consumer_loading import attempt, ready_consumers
from kodo_consumer.cli.options import Port, Topology, connects
from kodo_consumer.sending.environment import ConnectionOptions, Environment
from kodoctl.cli.common.console import columns, command, judging, report, say, tell
from kodoctl.errors import ClusterError, Diagnostic, KodoctlError, UsageError, error, warning

if TYPE_CHECKING:
    from kodo_consumer.adapters.pulsar import AdminCluster
    from kodo_consumer.core.values.lane_selection import LaneSelection
    from kodo_consumer.core.values.policy import Lane, Policy
    from kodoctl.topology.loaded_topology import LoadedTopology

T = TypeVar("T")


@command
@connects
def run(
    topology: Topology,
    topic: Annotated[
        list[str], typer.Option("--topic", help="Ground topic; one for all, or one for each handler.", metavar="NAME")
    ],
    subscription: Annotated[list[str], typer.Option("--subscription", help="Its subscription.", metavar="NAME")],
    handler: Annotated[list[str], typer.Option("--handler", help="What handles messages.", metavar="MODULE:FUNCTION")],
    lanes: Annotated[
        list[str] | None,
        typer.Option(
            "--lanes",
            help="Read only these levels, states or lanes: 'L2', 'retrying,pending', 'L1/ready', '!B1'; one for all, or one for each handler.",
            metavar="LANES",
        ),
    ] = None,
    port: Port = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, help="Worker processes, as many workers.", metavar="NUMBER")
    ] = 1,
    *,
    place: ConnectionOptions,
) -> None:
    """Run a handler until SIGTERM; then drain and exit 0. A second signal ends it at once.

    Several in one process: repeat --subscription and --handler, in the same order; the next handler has the next
    --port. They drain together; when one cannot go on, all end. Lanes that --lanes leaves out need workers of their
    own: messages are still moved there.

    With --workers each process is a worker with slots, look-ahead and ports of its own; they share messages and limits
    as workers on several machines do. They drain together; one that ends by itself starts again, after 1 s to 30 s.
    """
    from kodo_consumer.running.multi_run import run_all

    wanted = _together(topic, subscription, handler)
    if workers > 1:
        from kodo_consumer.cli.worker_processes import WorkerCommand, run_group

        raise typer.Exit(run_group(WorkerCommand(topology, wanted, lanes or (), port, place), workers))
    run_all(*ready_consumers(topology, wanted, place, lanes or (), port), say=say)


def _together(topics: list[str], subscriptions: list[str], handlers: list[str]) -> list[tuple[str, str, str]]:
    """Triples of topic, subscription and handler, by their order on the command line; one topic counts for all
    handlers. Raises UsageError if the numbers differ, or a subscription is named twice.
    """
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


@judging
@connects
def check(
    topology: Topology,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this ground topic.", metavar="NAME")] = None,
    subscription: Annotated[
        str | None, typer.Option("--subscription", help="Only this subscription.", metavar="NAME")
    ] = None,
    lanes: Annotated[
        str | None, typer.Option("--lanes", help="As a worker that reads only these, as in `run`.", metavar="LANES")
    ] = None,
    *,
    place: ConnectionOptions,
) -> None:
    """Compare the topology with the live cluster.

    Exits 1 and names what is missing, or exits 0.

    Opens the producers of a worker, and sends nothing: what the broker refuses at a start, it refuses here.
    Warns of limits of the broker that leave less than the declared look-ahead, waits or message
    sizes, or no room for one more worker, where the role may read them. Says whether workers here
    use the native border and the compiled core, and why not.
    """
    from kodo_consumer.adapters.pulsar import AdminCluster
    from kodo_consumer.adapters.pulsar.native_border import DELIVERIES
    from kodo_consumer.core import COMPILED
    from kodo_consumer.core.upkeep.broker_limits import limit_findings, read_broker_limits
    from kodo_consumer.core.upkeep.broker_window import lookahead_findings, unacked_limits
    from kodo_consumer.core.values.lane_selection import given_selection, limit_warnings
    from kodo_consumer.runtime.settings import read_settings
    from kodo_consumer.runtime.start_checks import fold_findings, missing_resources

    surroundings = Environment.of(**place)
    loaded = surroundings.topology(topology)
    settings = read_settings(surroundings.environ, surroundings.folder)
    selection = given_selection(lanes) or settings.lanes
    policies = _policies(loaded, _subscriptions(loaded, topic, subscription), selection)
    found = []
    with closing(AdminCluster(surroundings.connection())) as cluster:
        for policy in policies:
            missing = missing_resources(policy, cluster)
            refused = [] if missing else _start_findings(surroundings, policy, native=settings.native)
            found += [*missing, *refused]
            report(
                [
                    *lookahead_findings(policy, unacked_limits(policy, cluster)),
                    *limit_warnings(policy),
                    *limit_findings(policy, read_broker_limits(policy, cluster)),
                    *_no_room(policy, cluster),
                ]
            )
            what = f"{len(missing)} missing" if missing else f"{len(refused)} refused" if refused else "complete"
            say(f"{policy.ground} {policy.subscription}: {what}")
            if selection is not None:
                _say_lanes("reads", policy.lanes)
                _say_lanes("leaves to other workers", policy.unread)
    tell(DELIVERIES.choose(native=settings.native).status)
    tell(f"{COMPILED}")
    if found:
        raise KodoctlError(*fold_findings(found))


def _no_room(policy: Policy, cluster: AdminCluster) -> list[Diagnostic]:
    """Warnings about lanes that one more worker could not read now. They are no errors, because a worker waits until
    another one ends, as in a rolling update.
    """
    from kodo_consumer.core.upkeep.broker_limits import summarize_topics

    full = ((lane.topic, cluster.used_up_consumers(lane.topic, policy.subscription)) for lane in policy.lanes)
    return summarize_topics(
        (warning("K713", "cannot subscribe", f"{why}: one more worker reads nothing until one of them ends"), topic)
        for topic, why in full
        if why
    )


def _start_findings(surroundings: Environment, policy: Policy, *, native: bool) -> list[Diagnostic]:
    """Errors with which a start of a worker would fail; it opens the producers and closes them. Empty, with a notice,
    if the binary port does not answer.
    """
    try:
        return surroundings.start_findings(policy, native)
    except ClusterError as problem:
        tell(f"{policy.ground} {policy.subscription}: no producer was tried: {problem}")
        return []


def _policies(loaded: LoadedTopology, pairs: list[tuple[str, str]], selection: LaneSelection | None) -> list[Policy]:
    """Policies of these subscriptions with the selected lanes. Raises one UsageError with the faults of all of them."""
    from kodo_consumer.core.values.lane_selection import select_lanes
    from kodo_consumer.policy_builder import policy_of

    problems: list[KodoctlError] = []
    whole = [policy_of(loaded, ground, name) for ground, name in pairs]
    found = [attempt(problems, partial(select_lanes, policy, selection)) for policy in whole]
    if problems:
        raise UsageError(*(finding for problem in problems for finding in problem.diagnostics))
    return [policy for policy in found if policy is not None]


def _say_lanes(what: str, lanes: Sequence[Lane]) -> None:
    text = f"{what}: {', '.join(lane.name for lane in lanes) or 'none'}"
    for line in textwrap.wrap(text, max(20, columns()), initial_indent="  ", subsequent_indent="    "):
        say(line)


def _subscriptions(loaded: Any, topic: str | None, subscription: str | None) -> list[tuple[str, str]]:
    """Pairs of ground topic and subscription that the arguments select; None selects all. Raises UsageError if no
    ground topic has the subscription.
    """
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
