"""Results of a command by cluster: made side by side, printed under the names of their contexts, written as one JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kodoctl.cli.common.command_target import environment_of, shown_target
from kodoctl.cli.common.console import finish, report, say, tell
from kodoctl.errors import KodoctlError, UsageError, error

if TYPE_CHECKING:
    from kodoctl.cli.common.command_target import TargetOptions
    from kodoctl.pulsar.session import Session

T = TypeVar("T")


@contextmanager
def open_all(targets: Mapping[str, TargetOptions]) -> Iterator[dict[str, Session]]:
    """Context with the sessions by context; it closes them at its end. Raises UsageError (K548) if two contexts have a
    common address.
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


def side_by_side(work: Callable[[str], T], names: Collection[str]) -> dict[str, T]:
    """Results by name, in the order of the names, of which there is at least one. An error is raised when all calls
    have ended; of several, the first in that order. The calling thread makes the only one, because an interrupt ends it
    at once.
    """
    if len(names) == 1:
        return {name: work(name) for name in names}
    with ThreadPoolExecutor(len(names), thread_name_prefix="cluster") as pool:
        return dict(zip(names, pool.map(work, names), strict=True))


def load_by_context(sessions: Mapping[str, Session], env: str | None, load: Callable[[str | None], T]) -> dict[str, T]:
    """Loads the files of each cluster in its environment, and returns the results by context. Clusters of the same
    environment share a result. `env`: the value of `--env`; `load`: gets the environment, None without one. Raises as
    `environment_of` and `load` do.
    """
    environments = {name: environment_of(session.connection, env) for name, session in sessions.items()}
    loaded = {environment: load(environment) for environment in dict.fromkeys(environments.values())}
    return {name: loaded[environment] for name, environment in environments.items()}


def shown_targets(sessions: Mapping[str, Session]) -> dict[str, str]:
    """Context -> text with context and address of its cluster, for the heads of plans."""
    return {name: shown_target(session.connection) for name, session in sessions.items()}


def read_each(sessions: Mapping[str, Session], read: Callable[[str], T]) -> dict[str, T | KodoctlError]:
    """Results by context, read side by side. If there are several clusters, an error is the result of its cluster and
    does not affect the others; errors of the only cluster raise.
    """

    def attempt(name: str) -> T | KodoctlError:
        try:
            return read(name)
        except KodoctlError as problem:
            if len(sessions) == 1:
                raise
            return problem

    return side_by_side(attempt, sessions)


def require_each(sessions: Mapping[str, Session], read: Callable[[str], T]) -> dict[str, T]:
    """Results by context, read side by side. Raises the errors of all clusters as one error, with the exit code of the
    first; if there are several clusters, each error names its context.
    """
    results = read_each(sessions, read)
    problems = {name: one for name, one in results.items() if isinstance(one, KodoctlError)}
    if problems:
        failure = KodoctlError(
            *(
                replace(finding, detail=f"{name}: {finding.detail}")
                for name, problem in problems.items()
                for finding in problem.diagnostics
            )
        )
        failure.exit_code = next(iter(problems.values())).exit_code
        raise failure
    return {name: one for name, one in results.items() if not isinstance(one, KodoctlError)}


def results_json(results: Mapping[str, T | KodoctlError], key: str, to_json: Callable[[T], Any]) -> Any:
    """JSON of the only cluster's result, or of the results of several: each with its context, its result as `key` (null
    for an error) and its problems.
    """
    from kodoctl.plan.fleet import ONLY
    from kodoctl.plan.serialization import diagnostic_to_json

    if ONLY in results:
        return to_json(cast("T", results[ONLY]))  # an error of the only cluster was raised
    clusters = [
        {
            "context": name,
            key: None if isinstance(one, KodoctlError) else to_json(one),
            "problems": [diagnostic_to_json(problem) for problem in one.diagnostics]
            if isinstance(one, KodoctlError)
            else [],
        }
        for name, one in results.items()
    ]
    return {"format_version": 1, "clusters": clusters}


def show_results(results: Mapping[str, T | KodoctlError], show: Callable[[str, T], None], failure: str) -> None:
    """Prints the result of each cluster by `show` (context, result), below its context if there are several. `failure`:
    text such as "not compared" for a cluster with an error, which follows.
    """
    for name, one in results.items():
        if isinstance(one, KodoctlError):
            tell(f"--- {name}: {failure}")
            report(one.diagnostics)
            continue
        if name:
            say(f"--- {name}")
        show(name, one)


def finish_problems(results: Mapping[str, T | KodoctlError]) -> None:
    """Ends the command with the exit code of the first error, if a result is one."""
    for one in results.values():
        if isinstance(one, KodoctlError):
            finish(one.exit_code)
