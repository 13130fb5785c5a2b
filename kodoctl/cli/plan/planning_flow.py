"""Planning for a command: reads files and flags, and makes a plan for one cluster, or for several in parallel."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kodoctl.cli.common import command_target, plan_options
from kodoctl.cli.common.cluster_results import load_by_context, require_each, side_by_side
from kodoctl.cli.common.console import paths_or_default, report, tell
from kodoctl.errors import ClusterError, Severity, UsageError

if TYPE_CHECKING:
    from kodoctl.plan.fleet import FleetPlan
    from kodoctl.plan.git_baseline import Baseline
    from kodoctl.plan.inventory import Desired
    from kodoctl.plan.live.planner import PlannedRun, Tolerance
    from kodoctl.plan.plan import Plan
    from kodoctl.pulsar.session import Session
    from kodoctl.topology.loaded_topology import SourceFile
    from kodoctl.topology.team_rules.rule_run import TeamRules

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlanFlags:
    """Flags of a command that plans. None: the flag was not given.

    Args:
        adopt, destroy, share, take_over: allowances of the plan.
        against: git revision to compare with.
        targets, excludes: patterns that select a part of the objects.
        rules: files of `--rules`; None: no team rules judge, not even those beside the topologies.
    """

    adopt: list[str] | None = None
    destroy: list[str] | None = None
    share: float | None = None
    take_over: bool = False
    against: str | None = None
    targets: list[str] | None = None
    excludes: list[str] | None = None
    rules: list[str] | None = None


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


def plan_all(
    sessions: Mapping[str, Session],
    paths: list[str] | None,
    env: str | None,
    given: PlanFlags,
    *,
    verbose: bool,
    tolerance: Tolerance | None = None,
) -> FleetRun:
    """Plans all clusters in parallel. If the command has several clusters, one that cannot be read (ClusterError)
    becomes a member without a plan; any error of a single cluster and all other errors, such as those of files and
    flags, are raised, and UsageError (K548) if two contexts reach the same cluster. `verbose`: prints requests and
    time; `tolerance`: what happens to an object that cannot be read; None: it raises an error.
    """
    from kodoctl.plan.fleet import ONLY, FleetPlan, Member, same_cluster

    loaded = load_by_context(sessions, env, lambda environment: _load(paths, environment, given))

    def prepare(name: str) -> PlannedRun | ClusterError:
        speak = (lambda text: tell(f"{name}: {text}" if name else text)) if verbose else None
        try:
            return _prepare(sessions[name], loaded[name], given, tell=speak, tolerance=tolerance)
        except ClusterError as problem:
            if name == ONLY:
                raise
            return problem

    found = side_by_side(prepare, sessions)
    fleet = FleetPlan(
        tuple(
            Member(name, None, one.diagnostics) if isinstance(one, ClusterError) else Member(name, one.plan)
            for name, one in found.items()
        )
    )
    if twice := tuple(same_cluster(fleet.plans)):
        raise UsageError(*twice)
    return FleetRun(fleet, {name: one for name, one in found.items() if not isinstance(one, ClusterError)})


def plan_each(sessions: Mapping[str, Session], make: Callable[[str], Plan]) -> FleetPlan:
    """Calls `make` with each context, side by side, and returns the plans as one fleet, for a command that changes
    several clusters as one. Raises the errors of all clusters, so that nothing is written anywhere if one of them
    cannot be planned; UsageError (K548) if two contexts reach the same cluster.
    """
    from kodoctl.plan.fleet import FleetPlan, Member, same_cluster

    fleet = FleetPlan(tuple(Member(name, plan) for name, plan in require_each(sessions, make).items()))
    if twice := tuple(same_cluster(fleet.plans)):
        raise UsageError(*twice)
    return fleet


def _load(paths: list[str] | None, environment: str | None, given: PlanFlags) -> _LoadedFiles:
    """Reads the files in one environment; clusters of the same environment share the result. Raises InvalidFileError
    with all errors.
    """
    named = paths_or_default(paths)
    desired = command_target.load_desired(paths, environment, rules_for=_rules_of(given))
    if given.against is None:
        return _LoadedFiles(named, desired, None)
    from kodoctl.cli.common.baseline_files import declared_at

    return _LoadedFiles(named, desired, declared_at(named, given.against, desired.environment))


def _rules_of(given: PlanFlags) -> Callable[[Sequence[SourceFile]], TeamRules | None] | None:
    """Returns the function that reads the team rules for files; None: no rules judge."""
    if given.rules is None:
        return None
    from kodoctl.cli.common.team_rules_files import team_rules

    return partial(team_rules, named=given.rules, against=given.against)


def _prepare(
    session: Session,
    loaded: _LoadedFiles,
    given: PlanFlags,
    *,
    tell: Callable[[str], None] | None,
    tolerance: Tolerance | None,
) -> PlannedRun:
    """Plans one cluster. `tell` prints requests and time; None: nothing prints them."""
    from kodoctl.plan.live.planner import Tolerance, plan_live
    from kodoctl.topology.target_flags import TargetFlags

    desired, take_over = loaded.desired, given.take_over
    allowances = plan_options.allowances_of(desired, given.adopt, given.destroy, take_over=take_over, share=given.share)
    selection = TargetFlags(tuple(given.targets or ()), tuple(given.excludes or ()))
    began = time.monotonic()
    prepared = plan_live(
        session,
        desired,
        allowances,
        against=loaded.earlier,
        selection=selection,
        tolerance=tolerance or Tolerance.NONE,
    )
    if (unanswered := session.client.problem) is not None:  # only an apply needs it: a plan reads one by one instead
        report([replace(finding, severity=Severity.WARNING) for finding in unanswered.diagnostics])
    if tell is not None:
        tell(command_target.traffic_text(session, time.monotonic() - began, prepared.live.policies_read))
    return replace(prepared, plan=replace(prepared.plan, paths=tuple(loaded.paths)))
