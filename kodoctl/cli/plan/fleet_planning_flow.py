"""plan and drift over several clusters (`--context a --context b`): read side by side, printed together."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kodoctl.cli.common import command_target
from kodoctl.cli.common.terminal import show_lines
from kodoctl.cli.plan.planning_flow import LoadedFiles, PlanFlags, load, prepare_loaded
from kodoctl.console import finish, report, say, tell
from kodoctl.errors import ClusterError, ExitCode, UsageError, error

if TYPE_CHECKING:
    from kodoctl.cli.common.command_target import TargetClusters, TargetOptions
    from kodoctl.plan.fleet import FleetPlan
    from kodoctl.planning.planner import PlannedRun
    from kodoctl.pulsar.session import Session


@dataclass(frozen=True, slots=True)
class FleetRun:
    """The plan of several clusters. `prepared`: context -> plan and live objects, of each cluster that was read."""

    fleet: FleetPlan
    prepared: Mapping[str, PlannedRun]


@contextlib.contextmanager
def open_all(targets: Sequence[TargetOptions]) -> Iterator[dict[str, Session]]:
    """Context with the open sessions of several clusters: name of the context -> session. Raises UsageError if two
    contexts have an address in common.
    """
    with contextlib.ExitStack() as stack:
        sessions = {str(target.context): stack.enter_context(target.session()) for target in targets}
        seen: dict[str, str] = {}
        for name, session in sessions.items():
            for address in session.connection.admin_urls:
                if (first := seen.setdefault(address, name)) != name:
                    detail = f"{first} and {name} have the address {address}: name it once"
                    raise UsageError(error("K548", "two contexts of one cluster", detail))
        yield sessions


def plan_all(
    sessions: Mapping[str, Session], paths: list[str] | None, env: str | None, given: PlanFlags, *, verbose: bool
) -> FleetRun:
    """Plans all clusters at the same time. A cluster that cannot be read is a member of the plan, with its problems.
    Raises the errors of files and flags, and UsageError if two contexts are the same cluster.
    """
    from kodoctl.plan.fleet import FleetPlan, Member, same_cluster

    environments = {name: command_target.environment_of(session.connection, env) for name, session in sessions.items()}
    loaded: dict[str | None, LoadedFiles] = {
        environment: load(paths, environment, given) for environment in dict.fromkeys(environments.values())
    }

    def prepare(name: str) -> PlannedRun | ClusterError:
        speak = (lambda text: tell(f"{name}: {text}")) if verbose else None
        try:
            return prepare_loaded(sessions[name], loaded[environments[name]], given, tell=speak)
        except ClusterError as problem:
            return problem

    with ThreadPoolExecutor(len(sessions), thread_name_prefix="cluster") as pool:
        found = dict(zip(sessions, pool.map(prepare, sessions), strict=True))
    fleet = FleetPlan(
        tuple(
            Member(name, None, one.diagnostics) if isinstance(one, ClusterError) else Member(name, one.plan)
            for name, one in found.items()
        )
    )
    if twice := tuple(same_cluster(fleet.plans)):
        raise UsageError(*twice)
    return FleetRun(fleet, {name: one for name, one in found.items() if not isinstance(one, ClusterError)})


def shown_targets(sessions: Mapping[str, Session]) -> dict[str, str]:
    """Returns the text that names each cluster at the head of a plan: context -> text."""
    return {name: command_target.shown_target(session.connection) for name, session in sessions.items()}


def end_of_plan(fleet: FleetPlan, *, detailed: bool) -> None:
    """Ends the command with the exit code of a plan: 4 if it is refused, 1 if a cluster could not be read, and 2 if
    `detailed` and there are changes. Returns if none of these is the case.
    """
    if fleet.refused:
        finish(ExitCode.REFUSED)
    if fleet.unreached:
        finish(ExitCode.ERROR)
    if detailed and not fleet.empty:
        finish(ExitCode.CHANGES)


def drift_several(
    reach: TargetClusters,
    paths: list[str] | None,
    env: str | None,
    *,
    unmanaged: bool,
    json_output: bool,
    verbose: bool,
) -> None:
    """Prints the drift of each cluster. Ends the command with exit code 4 if a cluster has something that cannot be
    compared, 3 if a cluster drifted, and 1 if a cluster could not be read.
    """
    from kodoctl.plan.drift import split, to_json
    from kodoctl.plan.serialization import diagnostic_to_json

    with open_all(reach.targets) as sessions:
        planned = plan_all(sessions, paths, env, PlanFlags(), verbose=verbose)
        targets = shown_targets(sessions)
    found = {name: split(one.plan, one.live, count_unmanaged=unmanaged) for name, one in planned.prepared.items()}
    if json_output:
        clusters = [
            {
                "context": member.context,
                "drift": to_json(found[member.context]) if member.context in found else None,
                "problems": [diagnostic_to_json(problem) for problem in member.problems],
            }
            for member in planned.fleet.members
        ]
        say(json.dumps({"format_version": 1, "clusters": clusters}, indent=2))
    else:
        _show_drift({name: to_json(one) for name, one in found.items()}, planned.fleet, targets)
    if any(one.refused for one in found.values()):
        finish(ExitCode.REFUSED)
    if any(one.drifted for one in found.values()):
        finish(ExitCode.DRIFT)
    if planned.fleet.unreached:
        finish(ExitCode.ERROR)


def _show_drift(found: Mapping[str, Any], fleet: FleetPlan, targets: Mapping[str, str]) -> None:
    from kodoctl.render.drift_text import drift_lines

    for member in fleet.members:
        if member.context in found:
            say(f"--- {member.context}")
            show_lines(drift_lines(found[member.context], targets[member.context]))
        else:
            tell(f"--- {member.context}: not compared")
            report(member.problems)
