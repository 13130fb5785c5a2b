"""Commands `run` and `check`: runs workers, or checks whether the cluster has everything that they need."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from kodo_consumer.cli.consumer_loading import ConsumerChoice, attempt, raise_all, ready_consumers
from kodo_consumer.cli.options import LogOptions, Port, Topology, connects, log_options
from kodo_consumer.core.values.object_use import misuse_error
from kodo_consumer.sending.environment import ConnectionOptions, Environment, options_of_program
from kodoctl.cli.common.console import columns, command, judge_only, judging, report, say, tell
from kodoctl.cli.common.options import bundles
from kodoctl.errors import ClusterError, Diagnostic, KodoctlError, UsageError, error, warning

if TYPE_CHECKING:
    from kodo_consumer.adapters.pulsar import AdminCluster
    from kodo_consumer.consumer import Consumer
    from kodo_consumer.core.values.lane_selection import LaneSelection
    from kodo_consumer.core.values.policy import Lane, Policy
    from kodoctl.topology.loaded_topology import LoadedTopology

T = TypeVar("T")


def _choose_consumers(
    targets: Annotated[
        list[str],
        typer.Argument(
            help="Consumers of your program, such as app:consumer; or, with --handler, a topology file.",
            metavar="TARGET",
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Ground topic; one for all, or one for each handler.", metavar="NAME"),
    ] = None,
    subscription: Annotated[
        list[str] | None, typer.Option("--subscription", help="Its subscription.", metavar="NAME")
    ] = None,
    handler: Annotated[
        list[str] | None, typer.Option("--handler", help="What handles messages.", metavar="MODULE:FUNCTION")
    ] = None,
    lanes: Annotated[
        list[str] | None,
        typer.Option(
            "--lanes",
            help="Read only these levels, states or lanes: 'L2', 'retrying,pending', 'L1/ready', '!B1'; one for all, or one for each consumer.",
            metavar="LANES",
        ),
    ] = None,
) -> ConsumerChoice:
    return ConsumerChoice.of(targets, topic or (), subscription or (), handler or (), lanes or ())


@command
@connects
@log_options
@bundles("choice", _choose_consumers)
def run(
    choice: ConsumerChoice,
    port: Port = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, help="Worker processes, as many workers.", metavar="NUMBER")
    ] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start anew when a file of the program changes; for development.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Load, compare with the live cluster, show lanes and slots; then exit.")
    ] = False,
    *,
    logs: LogOptions,
    place: ConnectionOptions,
) -> None:
    """Run consumers until SIGTERM; then drain and exit 0. A second signal ends them at once.

    `run app:consumer` runs the object `consumer` of app.py, with its topology, handler and middleware.
    `run FILE --handler app:bill` runs a function for a subscription of the topology file; --topic and
    --subscription may be left out where the file leaves no choice.

    Several in one process: name several consumers, or repeat --subscription and --handler, in the same
    order; the next one has the next --port. They drain together; when one cannot go on, all end. Lanes
    that --lanes leaves out need workers of their own: messages are still moved there.

    With --workers each process is a worker with slots, look-ahead and ports of its own; they share messages and limits
    as workers on several machines do. They drain together; one that ends by itself starts again, after 1 s to 30 s.

    With --reload a change of a .py, .yaml, .yml or .toml file in the working folder or below it drains the workers and
    starts them anew; if the program cannot be imported, its error is shown, and the next change is waited for.
    """
    from kodo_consumer.running.multi_run import run_all

    with options_of_program(place):
        if workers > 1 or reload:
            from kodo_consumer.cli.worker_processes import WorkerCommand, check_group, run_group

            asked = WorkerCommand(choice, port, place, logs)
            if not dry_run:
                raise typer.Exit(run_group(asked, workers, reloads=reload))
            check_group(asked, workers)
        if dry_run:
            judge_only()
        consumers = ready_consumers(choice, place, port, workers=workers)
        if dry_run:
            _rehearse(consumers)
        else:
            logs.apply()
            run_all(*consumers, say=say)


def _rehearse(consumers: Sequence[Consumer]) -> None:
    """Compares the cluster with the needs of the consumers, and prints their lanes and slots. Raises KodoctlError with
    everything that is missing or refused.
    """
    problems: list[KodoctlError] = []
    _tell_border(native=all(consumer.settings.native for consumer in consumers))
    for consumer in consumers:
        if consumer.environment is None:
            raise misuse_error(
                "--dry-run: the consumer was not made by Consumer.load, and has no cluster to compare with"
            )
        attempt(problems, partial(_compare, consumer.environment, [consumer.policy], native=consumer.settings.native))
        if (storage := consumer.handling.inbox) is not None:
            attempt(problems, storage.check)
        for line in consumer.lanes():
            say(f"lane {line}")
        say(f"{consumer.policy.ground} {consumer.policy.subscription}: {consumer.slots()}")
    if problems:
        raise KodoctlError(*dict.fromkeys(finding for problem in problems for finding in problem.diagnostics))


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

    Exits 1 and names what is missing or refused, else exits 0.

    Opens the producers of a worker, and sends nothing: what the broker refuses at a start, it refuses here.
    Warns of limits of the broker that leave less than the declared look-ahead, waits or message
    sizes, or no room for one more worker, where the role may read them. Says whether workers here
    use the native border and the compiled core, and why not.
    """
    from kodo_consumer.core.values.lane_selection import given_selection
    from kodo_consumer.runtime.settings import read_settings

    surroundings = Environment.of(**place)
    loaded = surroundings.topology(topology)
    settings = read_settings(surroundings.environ, surroundings.folder)
    selection = given_selection(lanes) or settings.lanes
    policies = _policies(loaded, _subscriptions(loaded, topic, subscription), selection)
    _tell_border(native=settings.native)
    _compare(surroundings, policies, native=settings.native)


def _tell_border(*, native: bool) -> None:
    """Prints whether workers here use the native border and the compiled core, and why not."""
    from kodo_consumer.adapters.pulsar.native_border import DELIVERIES
    from kodo_consumer.core import COMPILED

    tell(DELIVERIES.choose(native=native).status)
    tell(f"{COMPILED}")


def _compare(surroundings: Environment, policies: Sequence[Policy], *, native: bool) -> None:
    """Compares the cluster with the needs of workers of these policies, and prints a line for each, and warnings. Raises
    KodoctlError with everything that is missing or refused.
    """
    from kodo_consumer.adapters.pulsar import AdminCluster
    from kodo_consumer.core.upkeep.broker_limits import limit_findings, read_broker_limits
    from kodo_consumer.core.upkeep.broker_window import lookahead_findings, unacked_limits
    from kodo_consumer.core.values.lane_selection import limit_warnings
    from kodo_consumer.runtime.start_checks import fold_findings, missing_resources

    found = []
    with closing(AdminCluster(surroundings.connection())) as cluster:
        for policy in policies:
            missing = missing_resources(policy, cluster)
            refused = [] if missing else _start_findings(surroundings, policy, native=native)
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
            if policy.unread:
                _say_lanes("reads", policy.lanes)
                _say_lanes("leaves to other workers", policy.unread)
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
    """Errors with which a start of a worker would fail; it opens the producers and closes them. Empty, with a notice on
    standard error, if that raises ClusterError, for example because the binary port does not answer.
    """
    try:
        return surroundings.start_findings(policy, native)
    except ClusterError as problem:
        tell(f"{policy.ground} {policy.subscription}: no producer was tried: {problem}")
        return []


def _policies(loaded: LoadedTopology, pairs: list[tuple[str, str]], selection: LaneSelection | None) -> list[Policy]:
    """Policies of these subscriptions with the selected lanes. Raises one KodoctlError with the faults of all."""
    from kodo_consumer.core.values.lane_selection import select_lanes
    from kodo_consumer.policy_builder import policy_of

    def selected(ground: str, name: str) -> Policy:
        return select_lanes(policy_of(loaded, ground, name), selection)

    problems: list[KodoctlError] = []
    found = [attempt(problems, partial(selected, *pair)) for pair in pairs]
    raise_all(problems)
    return [policy for policy in found if policy is not None]


def _say_lanes(what: str, lanes: Sequence[Lane]) -> None:
    text = f"{what}: {', '.join(lane.name for lane in lanes) or 'none'}"
    for line in textwrap.wrap(text, max(20, columns()), initial_indent="  ", subsequent_indent="    "):
        say(line)


def _subscriptions(loaded: Any, topic: str | None, subscription: str | None) -> list[tuple[str, str]]:
    """Pairs of ground topic and subscription that the arguments select; None selects all. If both are given they are
    returned without a look at the file. Raises UsageError if there is no such ground topic, or if no ground topic has
    the subscription.
    """
    from kodo_consumer.policy_builder import ground_of

    pairs = [(one, name) for one in loaded.spec.topics for name in ground_of(loaded, one).subscriptions]
    if topic and subscription:
        return [(topic, subscription)]  # for an unknown name `policy_of` lists the known ones
    if topic:
        return [(topic, name) for name in ground_of(loaded, topic).subscriptions]
    if subscription and subscription not in (names := sorted({name for _, name in pairs})):
        detail = f"{loaded.source.name} has {', '.join(names) or 'none'}, not {subscription!r}"
        raise UsageError(error("K703", "unknown subscription", detail))
    return [(one, name) for one, name in pairs if subscription in (None, name)]
