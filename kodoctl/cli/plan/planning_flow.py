"""Planning for a command: reads files and flags, and makes a plan for one cluster, or for several in parallel."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from kodoctl.cli.common import command_target, plan_options
from kodoctl.cli.common.console import paths_or_default, report, tell
from kodoctl.errors import ClusterError, Severity, UsageError, error

if TYPE_CHECKING:
    from kodoctl.cli.common.command_target import TargetOptions
    from kodoctl.plan.fleet import FleetPlan
    from kodoctl.plan.git_baseline import Baseline
    from kodoctl.plan.inventory import Desired
    from kodoctl.plan.live.planner import PlannedRun
    from kodoctl.pulsar.session import Session

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlanFlags:
    """Flags of a command that plans. `adopt`, `destroy`, `share`, `take_over`: allowances; `against`: git revision to
    compare with; `targets`, `excludes`: patterns that select a part of the objects. None: the flag was not given.
    """

    adopt: list[str] | None = None
    destroy: list[str] | None = None
    share: float | None = None
    take_over: bool = False
    against: str | None = None
    targets: list[str] | None = None
    excludes: list[str] | None = None


@dataclass(frozen=True, slots=True)
class _LoadedFiles:
    """The files in one environment: the objects that they declare now, and at an earlier git revision (`earlier`; None:
    no revision was named).
    """

    paths: list[str]
    desired: Desired
    earlier: Baseline | None


@dataclass(frozen=True, slots=True)
class FleetRun:
    """The plans of all clusters. `prepared`: by context, the plan and the live inventory of each cluster that could be
    read.
    """

    fleet: FleetPlan
    prepared: Mapping[str, PlannedRun]


@contextmanager
def open_all(targets: Mapping[str, TargetOptions]) -> Iterator[dict[str, Session]]:
    """Context with a session for each target, by context; all are closed at its end. Raises UsageError (K548) if two
    contexts have an address in common.
    """
    with ExitStack() as stack:
        sessions = {name: stack.enter_context(target.session()) for name, target in targets.items()}
        seen: dict[str, str] = {}
        for name, session in sessions.items():
            for address in session.connection.admin_urls:
                if (first := seen.setdefault(address, name)) != name:
                    detail = f"{first} and {name} have the address {address}: name it once"
                    raise UsageError(error("K548", "two contexts of one cluster", detail))
        yield sessions


def plan_all(
    sessions: Mapping[str, Session],
    paths: list[str] | None,
    env: str | None,
    given: PlanFlags,
    *,
    verbose: bool,
    may_reduce: bool = False,
) -> FleetRun:
    """Plans all clusters in parallel. If the command has several clusters, one that cannot be read becomes a member
    without a plan; the errors of a single cluster, of files and of flags are raised. `verbose`: prints requests and
    time; `may_reduce`: a role that may not read everything gets a reduced plan.
    """
    from kodoctl.plan.fleet import ONLY, FleetPlan, Member, same_cluster

    environments = {name: command_target.environment_of(session.connection, env) for name, session in sessions.items()}
    loaded: dict[str | None, _LoadedFiles] = {
        environment: _load(paths, environment, given) for environment in dict.fromkeys(environments.values())
    }

    def prepare(name: str) -> PlannedRun | ClusterError:
        speak = (lambda text: tell(f"{name}: {text}" if name else text)) if verbose else None
        try:
            return _prepare(sessions[name], loaded[environments[name]], given, tell=speak, may_reduce=may_reduce)
        except ClusterError as problem:
            if name == ONLY:
                raise
            return problem

    found = dict(zip(sessions, _side_by_side(prepare, sessions), strict=True))
    fleet = FleetPlan(
        tuple(
            Member(name, None, one.diagnostics) if isinstance(one, ClusterError) else Member(name, one.plan)
            for name, one in found.items()
        )
    )
    if twice := tuple(same_cluster(fleet.plans)):
        raise UsageError(*twice)
    return FleetRun(fleet, {name: one for name, one in found.items() if not isinstance(one, ClusterError)})


def _side_by_side(prepare: Callable[[str], T], names: Collection[str]) -> Iterable[T]:
    """Results in the order of the names. The calling thread makes the only one, because an interrupt ends it at once."""
    if len(names) == 1:
        return [prepare(name) for name in names]
    with ThreadPoolExecutor(len(names), thread_name_prefix="cluster") as pool:
        return list(pool.map(prepare, names))


def _load(paths: list[str] | None, environment: str | None, given: PlanFlags) -> _LoadedFiles:
    """Reads the files in one environment; clusters of the same environment share the result. Raises InvalidFileError
    with all errors.
    """
    named = paths_or_default(paths)
    desired = command_target.load_desired(paths, environment)
    if given.against is None:
        return _LoadedFiles(named, desired, None)
    from kodoctl.cli.plan.baseline_files import declared_at

    return _LoadedFiles(named, desired, declared_at(named, given.against, desired.environment))


def _prepare(
    session: Session, loaded: _LoadedFiles, given: PlanFlags, *, tell: Callable[[str], None] | None, may_reduce: bool
) -> PlannedRun:
    """Plans one cluster. `tell` prints requests and time; None: nothing prints them."""
    from kodoctl.plan.live.planner import plan_live
    from kodoctl.topology.target_flags import TargetFlags

    desired, take_over = loaded.desired, given.take_over
    allowances = plan_options.allowances_of(desired, given.adopt, given.destroy, take_over=take_over, share=given.share)
    selection = TargetFlags(tuple(given.targets or ()), tuple(given.excludes or ()))
    began = time.monotonic()
    prepared = plan_live(
        session, desired, allowances, against=loaded.earlier, selection=selection, may_reduce=may_reduce
    )
    if (unanswered := session.client.problem) is not None:  # only an apply needs it: a plan reads one by one instead
        report([replace(finding, severity=Severity.WARNING) for finding in unanswered.diagnostics])
    if tell is not None:
        tell(command_target.traffic_text(session, time.monotonic() - began, prepared.live.policies_read))
    return replace(prepared, plan=replace(prepared.plan, paths=tuple(loaded.paths)))


def shown_targets(sessions: Mapping[str, Session]) -> dict[str, str]:
    """Text with context and address of each cluster, by context, for the heads of plans."""
    return {name: command_target.shown_target(session.connection) for name, session in sessions.items()}
