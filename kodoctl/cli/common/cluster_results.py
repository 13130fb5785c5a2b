"""Results of a command for each cluster: computed side by side, printed under the names of their contexts, or written
as one JSON document.
"""

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
    """Context with an open session for each cluster, by context; its end closes them. Raises UsageError (K548) if two
    contexts have an admin address in common, and the errors of `TargetOptions.session`.
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
    """Calls `work` with each of the names, on a thread each, and returns the results by name, in the order of the names
    (at least one). If calls raise, raises the first error in that order, after all calls have ended. A single call is
    made on the calling thread, so that an interrupt ends it at once.
    """
    if len(names) == 1:
        return {name: work(name) for name in names}
    with ThreadPoolExecutor(len(names), thread_name_prefix="cluster") as pool:
        return dict(zip(names, pool.map(work, names), strict=True))


def load_by_context(sessions: Mapping[str, Session], env: str | None, load: Callable[[str | None], T]) -> dict[str, T]:
    """Loads the topology files for each cluster, and returns the results by context. Clusters of the same environment
    share one call of `load`. `env`: the value of `--env`; `load`: takes the name of the environment, or None. Raises
    UsageError if `env` contradicts a context, and the errors of `load`.
    """
    environments = {name: environment_of(session.connection, env) for name, session in sessions.items()}
    loaded = {environment: load(environment) for environment in dict.fromkeys(environments.values())}
    return {name: loaded[environment] for name, environment in environments.items()}


def shown_targets(sessions: Mapping[str, Session]) -> dict[str, str]:
    """Context -> text with context and address of its cluster, for the heads of plans. Makes no request."""
    return {name: shown_target(session.connection) for name, session in sessions.items()}


def read_each(sessions: Mapping[str, Session], read: Callable[[str], T]) -> dict[str, T | KodoctlError]:
    """Calls `read` with each context, side by side, and returns the results by context. If there are several clusters,
    a KodoctlError is returned as the result of its cluster, and the others go on; an error of the only cluster is
    raised.
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
    """Calls `read` with each context, side by side, and returns the results by context. Raises the errors of all
    clusters as one error, with the exit code of the first; if there are several clusters, each finding begins with its
    context.
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
    """JSON of the results of a command: of the only cluster, the value that `to_json` returns; of several, an object
    whose `clusters` is a list with the context of each, its result under `key` (null for an error) and its problems.
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
    """Prints the results in order, each by a call of `show` (context, result); if there are several, the context is
    printed above its result. For an error, the context, `failure` (a text such as "not compared") and the findings are
    printed on standard error.
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
    """Ends the command with the exit code of the first error, if a result is one: called when all results are printed,
    so that one cluster's error hides no other cluster's result.
    """
    for one in results.values():
        if isinstance(one, KodoctlError):
            finish(one.exit_code)
