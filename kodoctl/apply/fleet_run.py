"""Applies of one cluster, or of several in parallel: independent of each other, apart from the barrier between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kodoctl.apply.barrier import ClusterBarrier, Participant
from kodoctl.apply.run import RunOptions, run
from kodoctl.errors import KodoctlError, LockedError, RefusedError
from kodoctl.plan.fleet import ONLY

if TYPE_CHECKING:
    from kodoctl.apply.report import ApplyReport, Listen
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.session import Session


@dataclass(frozen=True, slots=True)
class Task:
    """One cluster's plan and session. `context`: name of its context, or `ONLY` if the command has one cluster."""

    context: str
    session: Session
    plan: Plan


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """Result of one cluster's apply: its report, or the error (`problem`) that ended it; then `report` is None. A
    KodoctlError ended it before it carried out the plan; any other error is unexpected, and may have come later.
    `context`: as in `Task`.
    """

    context: str
    report: ApplyReport | None
    problem: Exception | None = None

    @property
    def complete(self) -> bool:
        """True if all changes were made and the report has no notes."""
        return self.report is not None and self.report.complete and not self.report.notes


def run_fleet(
    tasks: Sequence[Task],
    absent: Sequence[str],
    options: RunOptions,
    *,
    listen: Callable[[str], Listen],
    stop: threading.Event,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[ClusterResult, ...]:
    """Applies each cluster's plan, side by side, and blocks until all have ended. Returns the results in the order of
    `tasks`. A cluster that refuses, finds a lease taken or fails unexpectedly before its first change stops all others.
    If the command has one cluster (`ONLY`), its errors are raised; with several, each is in the result of its cluster,
    so that it hides no report of another.

    Args:
        tasks: one for each cluster, at least one.
        absent: contexts of clusters that could not be planned. Their creates and updates are missing, so nothing is
            deleted anywhere.
        options: options of every apply.
        listen: takes a context, and returns the function that takes the events of its apply, from several threads.
        stop: event that, once set, ends all waits for leases, and all applies after their running calls.
        tell: takes lines about the progress, from several threads.
    """
    if tasks[0].context == ONLY:
        report = run(tasks[0].session, tasks[0].plan, options, listen=listen(ONLY), stop=stop, tell=tell)
        return (ClusterResult(ONLY, report),)
    barrier = ClusterBarrier([*(task.context for task in tasks), *absent])
    for name in absent:
        barrier.participant(name).leave(refusing=False)
    listeners: Mapping[str, Listen] = {task.context: listen(task.context) for task in tasks}

    def carry_out(task: Task) -> ClusterResult:
        party = barrier.participant(task.context)
        return _carry_out(task, party, options, listeners[task.context], stop, tell)

    with ThreadPoolExecutor(len(tasks), thread_name_prefix="cluster") as pool:
        return tuple(pool.map(carry_out, tasks))


def _carry_out(
    task: Task,
    party: Participant,
    options: RunOptions,
    listen: Listen,
    stop: threading.Event,
    tell: Callable[[str], None],
) -> ClusterResult:
    refusing = True  # whatever nobody foresaw stops the others before they begin
    try:
        report = run(task.session, task.plan, options, listen=listen, stop=stop, tell=tell, party=party)
        refusing = False
        return ClusterResult(task.context, report)
    except KodoctlError as problem:
        refusing = isinstance(problem, RefusedError | LockedError)
        return ClusterResult(task.context, None, problem)
    except Exception as problem:  # noqa: BLE001  # the command shows it with the reports of the others
        return ClusterResult(task.context, None, problem)
    finally:
        party.leave(refusing=refusing)
