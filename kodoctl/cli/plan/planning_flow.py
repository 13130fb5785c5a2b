"""Planning for a command line: reads files and flags and makes a plan for one cluster or for several."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kodoctl.cli.common import command_target, plan_options
from kodoctl.console import paths_or_default, report
from kodoctl.errors import Severity

if TYPE_CHECKING:
    from kodoctl.plan.git_baseline import Baseline
    from kodoctl.plan.inventory import Desired
    from kodoctl.planning.planner import PlannedRun
    from kodoctl.pulsar.session import Session


@dataclass(frozen=True, slots=True)
class PlanFlags:
    """Flags of a command that plans: allowances, `against` (the git revision to compare with), and `targets` and
    `excludes`, which select a part of the objects.
    """

    adopt: list[str] | None = None
    destroy: list[str] | None = None
    share: float | None = None
    take_over: bool = False
    against: str | None = None
    targets: list[str] | None = None
    excludes: list[str] | None = None


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """The files in one environment: the objects that they declare now, and at an earlier git revision (`earlier`; None:
    no revision was named).
    """

    paths: list[str]
    desired: Desired
    earlier: Baseline | None


def load(paths: list[str] | None, environment: str | None, given: PlanFlags) -> LoadedFiles:
    """Reads the files in one environment; clusters of the same environment share the result. Raises InvalidFileError
    with all errors.
    """
    named = paths_or_default(paths)
    desired = command_target.load_desired(paths, environment)
    if given.against is None:
        return LoadedFiles(named, desired, None)
    from kodoctl.cli.plan.baseline_files import declared_at

    return LoadedFiles(named, desired, declared_at(named, given.against, desired.environment))


def prepare_loaded(
    session: Session,
    loaded: LoadedFiles,
    given: PlanFlags,
    *,
    tell: Callable[[str], None] | None,
    may_reduce: bool = False,
) -> PlannedRun:
    """Reads one cluster, and returns the plan that makes it equal to the files. `tell`: takes a line about requests and
    time; None: no line. `may_reduce`: the plan may leave out what could not be read, because it will only be shown.
    """
    from kodoctl.plan.targeting import TargetFlags
    from kodoctl.planning.planner import plan_live

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


def prepare_files(
    session: Session,
    paths: list[str] | None,
    env: str | None,
    given: PlanFlags,
    *,
    verbose: bool,
    may_reduce: bool = False,
) -> PlannedRun:
    """Reads the files and one cluster, and returns the plan. `env`: the value of --env; `may_reduce`: as in
    `prepare_loaded`.
    """
    from kodoctl.console import tell

    loaded = load(paths, command_target.environment_of(session.connection, env), given)
    return prepare_loaded(session, loaded, given, tell=tell if verbose else None, may_reduce=may_reduce)
