"""Worker processes of one `kodo-consumer run --workers`: the checks of the parent process, and the body of each worker
process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import typer

from kodo_consumer.cli.consumer_loading import ConsumerChoice, load_consumers, ready_consumers
from kodo_consumer.cli.options import LogOptions
from kodo_consumer.policy_builder import choose_subscription, policy_of
from kodo_consumer.running.multi_run import run_all
from kodo_consumer.running.program_watch import restarting_on_change
from kodo_consumer.running.worker_group import GroupMember, WorkerGroup
from kodo_consumer.runtime.settings import read_settings
from kodo_consumer.runtime.threads import any_left_behind
from kodo_consumer.sending.environment import ConnectionOptions, Environment, options_of_program
from kodoctl.cli.common.console import command, end_process, prepare_streams, say
from kodoctl.errors import Diagnostic, UsageError, error
from kodoctl.host.host_facts import working_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kodo_consumer.core.values.policy import Policy

_HIGHEST_PORT = 65_535


@dataclass(frozen=True)
class WorkerCommand:
    """Arguments of the command line, as each worker process gets them. `port`: the first port; None: that of the
    settings.
    """

    choice: ConsumerChoice
    port: int | None
    place: ConnectionOptions
    logs: LogOptions


def run_group(asked: WorkerCommand, workers: int, *, reloads: bool = False) -> int:
    """Runs a group of `workers` processes, waits for their end, and returns the exit code. `reloads`: they start anew
    when a file of the program changes. Raises KodoctlError if the subscriptions or settings do not allow several
    processes; with `reloads` this is not checked here.
    """
    if not reloads:
        check_group(asked, workers)
    asked.logs.apply()
    group = WorkerGroup(workers, partial(run_member, asked), reloads=reloads)
    if not reloads:
        return group.run()
    with restarting_on_change(working_folder(), group.restart):
        return group.run()


def check_group(asked: WorkerCommand, workers: int) -> None:
    """Raises KodoctlError if the subscriptions or settings do not allow `workers` processes."""
    if workers > 1 and (findings := list(_findings(asked, workers))):
        raise UsageError(*findings)


def _findings(asked: WorkerCommand, workers: int) -> Iterator[Diagnostic]:
    """Errors that forbid several worker processes, found before any starts. Handlers are imported in the processes
    only; a program is imported here as well, since its consumers say what they read.
    """
    surroundings = Environment.of(**asked.place)
    settings = read_settings(surroundings.environ, surroundings.folder)
    for policy in _policies(asked.choice, surroundings):
        if policy.subscription_type == "exclusive":
            detail = f"{policy.ground} {policy.subscription} is exclusive: its topics have one consumer at a time"
            yield error("K766", "not for several workers", detail)
    if settings.store is not None and str(settings.store) == "memory":
        detail = (
            "`store` is memory, which each process has for itself: shared limits would count once for each worker; name a"
            " database, such as sqlite:///kodo.db, or no store"
        )
        yield error("K766", "not for several workers", detail)
    port = settings.port if asked.port is None else asked.port
    last = (port or 0) + workers * asked.choice.size - 1
    if port and last > _HIGHEST_PORT:
        given = "port" if asked.port is None else "--port"
        yield error("K766", "not for several workers", f"{given} {port}: the last worker would listen on {last}")


def _policies(choice: ConsumerChoice, surroundings: Environment) -> list[Policy]:
    """Policies of the chosen consumers. Raises KodoctlError."""
    if choice.consumers:
        return [consumer.policy for consumer in load_consumers(choice, {})]
    loaded = surroundings.topology(choice.topology)
    pairs = (choose_subscription(loaded, one.topic, one.subscription) for one in choice.handlers)
    return [policy_of(loaded, *pair) for pair in pairs]


def run_member(asked: WorkerCommand, member: GroupMember) -> None:
    """Runs one worker until it ends, then ends this process with the exit code: only for a process that was started as
    a worker of a group. `member`: its number, from 0, and the size of the group.
    """
    prepare_streams()
    try:
        _run(asked, member)
        code = 0
    except typer.Exit as end:
        code = end.exit_code
    end_process(code, at_once=any_left_behind())


@command
def _run(asked: WorkerCommand, member: GroupMember) -> None:
    with options_of_program(asked.place):
        consumers = ready_consumers(asked.choice, asked.place, asked.port, worker=member.number, workers=member.size)
        asked.logs.apply(worker=member.number + 1)
        run_all(*consumers, say=lambda line: say(f"worker {member.number + 1}: {line}"), ready=member.report_ready)
