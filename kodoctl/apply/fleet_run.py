"""Applies of one cluster, or of several side by side: each is independent, apart from the barrier between them."""

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
    """One cluster's plan and session; the context of the only cluster of a command is `ONLY`."""

    context: str
    session: Session
    plan: Plan


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """Result of one cluster's apply: its report, or the error for which it wrote nothing."""

    context: str
    report: ApplyReport | None
    problem: KodoctlError | None = None

    @property
    def complete(self) -> bool:
        """True if all changes were done and recorded: the report has no notes."""
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
    """Applies a plan to its clusters, and blocks until all are over. Returns each cluster's result, in the order of the
    tasks. Errors of the only cluster of a command raise, in the calling thread.

    `absent`: clusters that could not be planned. Their creates and updates were not made, so nothing is deleted
    anywhere. `listen`: returns the listener for a context; `stop`: ends all applies after their running calls; `tell`:
    receives lines about the progress.
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
    except (RefusedError, LockedError) as problem:
        return ClusterResult(task.context, None, problem)
    except KodoctlError as problem:
        refusing = False
        return ClusterResult(task.context, None, problem)
    finally:
        party.leave(refusing=refusing)
