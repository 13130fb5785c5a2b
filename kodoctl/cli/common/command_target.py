"""Target of a command: its connection flags, the cluster or clusters that they name, the topology
files, and the user.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common.console import paths_or_default, report, tell, tell_wait
from kodoctl.cli.common.options import CONNECTION, gathers
from kodoctl.errors import Diagnostic, InvalidFileError, Severity, UsageError, error
from kodoctl.host.host_facts import user_name
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.plan.inventory import Desired
    from kodoctl.pulsar.connection.connection import Connection
    from kodoctl.pulsar.session import Session
    from kodoctl.topology.loaded_topology import SourceFile
    from kodoctl.topology.names import NamespaceName
    from kodoctl.topology.team_rules.rule_run import TeamRules


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Values of the connection flags of a command (`--context`, `--admin-url` and so on); None for a flag that is not
    given. Nothing is read or connected before `connection` or `session` is called.
    """

    context: str | None = None
    admin_url: str | None = None
    broker_url: str | None = None
    token_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None

    def connection(self) -> Connection:
        """Returns the connection that flags, environment variables and the context define, in this order of precedence;
        a context that a flag names outranks the addresses in the environment. Prints warnings, such as for misspelled
        variables. Sends nothing. Raises UsageError if they name no cluster, KodoctlError if they are invalid.
        """
        from kodoctl.pulsar.connection.connection import Flags, connect, misspelled_variables, readable

        report(misspelled_variables(os.environ))
        found = connect(Flags(**asdict(self)), os.environ, Path.cwd())
        report(filter(None, [readable(found)]))
        return found

    def session(self) -> Session:
        """Returns a new session with the clients of `connection`, for use in a `with` statement; long waits are
        reported on standard error. Raises the errors of `connection`.
        """
        from kodoctl.pulsar.session import Session

        return Session(self.connection(), tell_wait, os.environ)


connects = gathers("target", CONNECTION, TargetOptions)
"""Gives a command the connection options: its parameter `target` becomes --context, --admin-url, --broker-url,
--token-file and --tls-cert, --tls-key, --tls-ca.
"""


@dataclass(frozen=True, slots=True)
class TargetClusters:
    """The cluster or clusters that the connection flags of a command name, such as several contexts. `targets`: the
    flags of each, in the order given.
    """

    targets: tuple[TargetOptions, ...]

    @property
    def several(self) -> bool:
        """True if the flags name more than one cluster."""
        return len(self.targets) > 1

    @property
    def by_context(self) -> dict[str, TargetOptions]:
        """The connection flags of each cluster, by context. If the command has one cluster, the key is
        `kodoctl.plan.fleet.ONLY`.
        """
        from kodoctl.plan.fleet import ONLY

        return {str(target.context) if self.several else ONLY: target for target in self.targets}

    def only(self, what: str = "this") -> TargetOptions:
        """Returns the options of the single cluster. Raises UsageError if there are several. `what`: the flag or
        command that allows only one, for the error.
        """
        if self.several:
            raise UsageError(error("K548", "one cluster at a time", f"{what} takes one --context"))
        return self.targets[0]


def _reach(context: list[str] | None, **flags: str | None) -> TargetClusters:
    names: list[str | None] = [*(context or [])] or [None]
    if len(names) > 1 and any(flags.values()):
        detail = "addresses, tokens and certificates are of one cluster: write them into the contexts"
        raise UsageError(error("K548", "one cluster at a time", detail))
    if len(set(names)) < len(names):
        raise UsageError(error("K548", "two contexts of one cluster", "name each context once"))
    if len(names) > 1 and "" in names:  # such as of a variable that is not set: the current context is not meant
        raise UsageError(error("K501", "unknown context", "one of several --context is empty: name each context"))
    return TargetClusters(tuple(TargetOptions(name, **flags) for name in names))


_SEVERAL = Annotated[
    list[str] | None,
    typer.Option("--context", help="Context of kodoctl.toml to use; repeat it for several clusters.", metavar="NAME"),
]
reaches = gathers("reach", {**CONNECTION, "context": _SEVERAL}, _reach)
"""Gives a command the connection options as `connects` does, for one or several clusters: its parameter `reach` is a
`TargetClusters`.
"""


def shown_target(connection: Connection) -> str:
    """Text about the cluster for the head of a plan: `context dev, http://…`, or only the address if there is no
    context.
    """
    name = f"context {connection.context.name}, " if connection.context else ""
    return f"{name}{connection.admin_url}"


def who() -> str:
    """User, host and process id of this process, as text: other users see it as the holder of a lease."""
    return f"{user_name()}@{socket.gethostname()} pid {os.getpid()}"


def commit_of(paths: Iterable[str]) -> str | None:
    """Commit that is checked out in the repository of the first existing path. None if no path exists, or there is no
    git or no repository.
    """
    from kodoctl.cli.common.git import head_of

    return next((head_of(Path(path)) for path in paths if Path(path).exists()), None)


def environment_of(connection: Connection, asked: str | None) -> str | None:
    """Name of the environment: `asked`, which is the value of `--env`, or the `env` of the context; None if neither is
    set. Raises UsageError if they differ.
    """
    bound = connection.context.env if connection.context else None
    if bound and asked and asked != bound:
        detail = f"context {connection.context.name if connection.context else ''} is bound to {bound!r}, --env says {asked!r}"
        raise UsageError(error("K017", "environment and context disagree", detail))
    return asked or bound


def load_desired(
    paths: list[str] | None,
    environment: str | None,
    warn: Callable[[Sequence[Diagnostic]], None] = report,
    rules_for: Callable[[Sequence[SourceFile]], TeamRules | None] | None = None,
) -> Desired:
    """Reads, lints and expands the topology files, and returns the declared objects. Raises InvalidFileError with all
    findings if one of them is an error; else passes the warnings to `warn`. Findings that a comment in the file allows
    are ignored. Raises UsageError for a wrong or missing environment, or a missing path.

    Args:
        paths: files and folders; None: the folder `topologies`.
        environment: environment of the files, or `base` for none; None: the files must have no environments.
        warn: takes the list of warnings, also an empty one.
        rules_for: takes the files, and returns the team rules that judge them; None: no team rules are applied.
    """
    from kodoctl.cli.common.git import source_of_topology
    from kodoctl.plan.inventory import desired_inventory
    from kodoctl.topology.lint.linter import check_set
    from kodoctl.topology.load import choose_environment, read_files

    files = read_files(paths_or_default(paths))
    chosen = choose_environment(files, environment)
    expansions, findings = check_set(files, chosen, rules_for(files) if rules_for else None)
    standing = [f for f in findings if f.allowed_because is None]
    if any(f.severity is Severity.ERROR for f in standing):
        raise InvalidFileError(*standing)
    warn(standing)
    sources = {expansion.name: source_of_topology(expansion.topology.source.path) for expansion in expansions}
    return desired_inventory(expansions, chosen, sources)


def traffic_text(session: Session, seconds: float, how: str) -> str:
    """Line that `-v` prints after planning. `seconds`: duration; `how`: text about the way in which topic policies were
    read.
    """
    return f"Planning: {_requests(session)}, {seconds:.2f} s; topic policies read {how}"


def tell_total(session: Session) -> None:
    """Prints the last line of `-v` on standard error: number of requests and duration of the whole command."""
    tell(f"In all: {_requests(session)}, {session.seconds:.2f} s")


def _requests(session: Session) -> str:
    return f"{many(session.admin.traffic.reads, 'read')}, {many(session.admin.traffic.writes, 'write')}"


def check_namespaces(session: Session, spaces: Iterable[NamespaceName]) -> None:
    """Raises UsageError if the cluster lacks some of the namespaces, and names all of these: a misspelt name must not
    give an empty result. A namespace that this role may not see counts as existing. Raises ClusterError if no broker
    answers.
    """
    from kodoctl.pulsar.admin.admin import namespace_path

    where = shown_target(session.connection)
    missing = [space for space in spaces if session.admin.call("GET", namespace_path(space)).missing]
    if missing:
        raise UsageError(*(error("K509", "namespace not found", f"{space} is not on {where}") for space in missing))


def parse_namespace(text: str) -> NamespaceName:
    """Parses TENANT/NAMESPACE. Raises UsageError for any other text."""
    from kodoctl.topology.names import InvalidNameError, NamespaceName

    try:
        return NamespaceName.parse(text)
    except InvalidNameError as problem:
        raise UsageError(error("K507", "not a namespace", str(problem))) from None
