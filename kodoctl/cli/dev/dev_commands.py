"""`kodoctl dev`: a real Pulsar for laptops, CI, tests and drills: one process, or a cluster of brokers and bookies."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from kodoctl.cli.common.console import command, finish, is_terminal, reading, say, tell
from kodoctl.cli.common.options import Format
from kodoctl.dev.instance import Auth, EngineName, Homes, Instance
from kodoctl.dev.ports import AskedPorts
from kodoctl.errors import ExitCode, KodoctlError, RefusedError, error
from kodoctl.host.user_folders import cache_folder, data_folder

FORMAT_VERSION = 1
HOME_VARIABLE = "KODOCTL_DEV_HOME"

Name = Annotated[str, typer.Option("--name", help="Which instance; several can run side by side.")]
NodeName = Annotated[str, typer.Argument(help="A node, as `kodoctl dev status` names it: broker-1, for example.")]
AnyName = Annotated[str | None, typer.Option("--name", help="One instance only.", show_default="all")]


class AskedEngine(StrEnum):
    """Values of `--engine`; with `auto` kodoctl chooses the engine."""

    AUTO = "auto"
    JAVA = "java"
    DOCKER = "docker"

    @property
    def chosen(self) -> EngineName | None:
        """The engine that the user chose; None: kodoctl chooses."""
        return None if self is AskedEngine.AUTO else EngineName(self.value)


Output = Annotated[Format, typer.Option("--format", help="How the result is printed.")]


def homes() -> Homes:
    """Folders of instances (KODOCTL_DEV_HOME, else below XDG_DATA_HOME) and of downloaded jars (below XDG_CACHE_HOME).
    Raises UsageError (K020) if one depends on the home folder and the user has none.
    """
    named = os.environ.get(HOME_VARIABLE)
    data = Path(named).absolute() if named else data_folder() / "dev"
    return Homes(data, cache_folder())


@command
def up(
    name: Name = "dev",
    version: Annotated[
        str | None, typer.Option("--version", help="4.2, 4.0 or an exact release; the first time 4.2.")
    ] = None,
    auth: Annotated[Auth | None, typer.Option("--auth", help="Who may connect; the first time none.")] = None,
    engine: Annotated[AskedEngine, typer.Option("--engine", help="What runs it.")] = AskedEngine.AUTO,
    admin_port: Annotated[
        int | None, typer.Option("--admin-port", help="HTTP port; the first time 8080 or the next free one.")
    ] = None,
    broker_port: Annotated[
        int | None, typer.Option("--broker-port", help="Clients' port; the first time 6650 or the next free one.")
    ] = None,
    bookie_port: Annotated[
        int | None, typer.Option("--bookie-port", help="Storage port, part of the data; 3181 or the next free one.")
    ] = None,
    brokers: Annotated[
        int | None, typer.Option("--brokers", min=1, max=9, help="A cluster with this many brokers; needs Java.")
    ] = None,
    bookies: Annotated[
        int | None, typer.Option("--bookies", min=1, max=9, help="Its bookies; 3 where only --brokers is said.")
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Make its context the current one.")] = False,
    timeout: Annotated[int, typer.Option("--timeout", min=1, help="Seconds until it must be ready.")] = 120,
    output: Output = Format.TEXT,
) -> None:
    """Start a broker or a cluster, or show how to connect to it.

    Keeps the data of the last time, and its ports, version, engine and authentication unless an option changes
    them. If only a part of a cluster runs, the missing nodes are started.
    """
    from kodoctl.cli.dev.dev_progress import show_progress
    from kodoctl.cli.dev.dev_views import startup_text
    from kodoctl.dev import contexts
    from kodoctl.dev.dev_errors import disk_errors
    from kodoctl.dev.instance import lock
    from kodoctl.dev.resolve import UpFlags
    from kodoctl.dev.up import up as start
    from kodoctl.pulsar.connection.connection import read_contexts

    places = homes()
    config = _usable_config(places, name)
    ports = AskedPorts(admin_port, broker_port, bookie_port)
    asked = UpFlags(name, version, auth, engine.chosen, ports, brokers, bookies)
    with show_progress() as progress:
        result = start(places, os.environ, asked, progress, limit=timeout)
    with disk_errors(config), lock(places, ".contexts", progress):
        contexts.write(config, result.instance, result.folder, use=use)
    document = {
        "format_version": FORMAT_VERSION,
        **_connection(result.instance, places),
        "current": read_contexts(os.environ, Path.cwd()).current == name,
        "already": result.already,
        "seconds": round(result.seconds, 1),
        "tokens": _tokens(result.instance, places),
    }
    say(json.dumps(document, indent=2) if output is Format.JSON else startup_text(document))
    if use and not document["current"]:
        tell(f"Note: `{name}` is not current here: KODOCTL_CONTEXT or the project's kodoctl.toml comes first.")


def _usable_config(places: Homes, name: str) -> Path:
    """Path of the configuration file for the instance's context. Reads and checks the file before the broker starts,
    and raises KodoctlError for its faults.
    """
    from kodoctl.dev import contexts
    from kodoctl.pulsar.connection.connection import own_config, read_contexts

    config = own_config(os.environ)
    places.folder(name)
    contexts.check_usable(config, name)
    read_contexts(os.environ, Path.cwd())
    return config


@command
def down(
    name: Name = "dev",
    every: Annotated[bool, typer.Option("--all", help="Every instance.")] = False,
) -> None:
    """Stop a broker and keep its data. One that does not run is no error."""
    from kodoctl.cli.dev.dev_progress import show_progress
    from kodoctl.dev import service
    from kodoctl.dev.instance import all_instances

    places = homes()
    names = [one.name for one in all_instances(places)] if every else [name]
    if not names or not _is_there(places, names[0]):
        say("Nothing to stop: " + ("there is no instance." if every else f"there is no instance `{name}`."))
        return
    failures: list[KodoctlError] = []
    for one in names:
        try:
            with show_progress() as progress:
                ran = service.down(places, os.environ, one, progress)
        except KodoctlError as problem:  # the others are stopped all the same
            failures.append(problem)
        else:
            say(f"`{one}` is stopped; data is kept." if ran else f"`{one}` was not running.")
    if failures:
        raise (
            KodoctlError(*(one for problem in failures for one in problem.diagnostics)) if failures[1:] else failures[0]
        )


@reading
def status(name: AnyName = None, output: Output = Format.TEXT) -> None:
    """Show instances. Exit code 0 when there are some and all that are shown run, else 1."""
    from kodoctl.cli.dev.dev_views import instance_table
    from kodoctl.dev import service

    places = homes()
    found = service.status(places, os.environ, name)
    documents = [
        {
            **_connection(one.instance, places),
            "state": one.state.value,
            "problem": one.problem,
            "nodes": [
                {"name": part.node.name, "state": part.state.value, "pid": part.pid, "port": part.node.port}
                for part in one.nodes
            ],
        }
        for one in found
    ]
    if output is Format.JSON:
        say(json.dumps({"format_version": FORMAT_VERSION, "instances": documents}, indent=2))
    else:
        say(instance_table(documents) if documents else "No instances; start one with `kodoctl dev up`.")
    if not found or any(one.state is not service.InstanceState.RUNNING for one in found):
        finish(ExitCode.ERROR)


@reading
def logs(
    node: Annotated[str | None, typer.Argument(help="Of a cluster: zookeeper, bookie-1, broker-1 and so on.")] = None,
    name: Name = "dev",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until interrupted.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 50,
) -> None:
    """Show the end of a broker's log, or of a node's.

    For a cluster without a node named: the log of its first broker.
    """
    from kodoctl.dev import drills, service
    from kodoctl.dev.dev_errors import disk_errors

    places = homes()
    if node is None:
        instance = service.find_instance(places, name)
        engine = service.engine_of(instance, places, os.environ)
        last, more = partial(engine.last_lines, instance, lines), partial(engine.follow, instance)
    else:
        cluster, instance, found = drills.find(places, os.environ, name, node)
        last, more = partial(cluster.node_lines, instance, found, lines), partial(cluster.follow_node, instance, found)
    with disk_errors(places.folder(name).logs):
        for line in last():
            say(line)
        for line in more() if follow else ():
            say(line)


@command
def kill(node: NodeName, name: Name = "dev") -> None:
    """End a node of a cluster at once, as a crash does (SIGKILL)."""
    _do(name, node, "kill")


@command
def pause(node: NodeName, name: Name = "dev") -> None:
    """Stop a node as it is (SIGSTOP).

    Its connections stay open, and nothing answers.
    """
    _do(name, node, "pause")


@command
def resume(node: NodeName, name: Name = "dev") -> None:
    """Let a node that was paused go on (SIGCONT)."""
    _do(name, node, "resume")


@command
def stop(node: NodeName, name: Name = "dev") -> None:
    """End a node in order.

    A broker hands over its topics first. For the whole instance: `kodoctl dev down`.
    """
    _do(name, node, "stop")


@command
def start_node(node: NodeName, name: Name = "dev") -> None:
    """Start a node again on its data, and wait until it is ready."""
    _do(name, node, "start")


def _do(name: str, node: str, action: str) -> None:
    from kodoctl.cli.dev.dev_progress import show_progress
    from kodoctl.dev.drills import NodeAction, carry_out

    with show_progress() as progress:
        state = carry_out(homes(), os.environ, name, node, NodeAction(action), progress)
    say(f"{node} of `{name}` is {state}.")


@reading
def token(
    role: Annotated[str, typer.Argument(help="Any role, for example planner or consumer.")], name: Name = "dev"
) -> None:
    """Print a token for a role, and nothing else. Needs an instance with `--auth token`."""
    from kodoctl.dev import service, tokens
    from kodoctl.dev.dev_errors import disk_errors

    places = homes()
    folder = places.folder(name)
    with disk_errors(folder.path):
        say(tokens.token(folder, service.find_instance(places, name), role).reveal())


@command
def reset(name: Name = "dev", yes: Annotated[bool, typer.Option("--auto-approve", help="Do not ask.")] = False) -> None:
    """Stop a broker and remove it with all its data."""
    from kodoctl.cli.dev.dev_progress import show_progress
    from kodoctl.dev import contexts, service
    from kodoctl.dev.dev_errors import disk_errors
    from kodoctl.dev.instance import lock
    from kodoctl.pulsar.connection.connection import own_config

    config, places = own_config(os.environ), homes()
    if not _is_there(places, name):
        say(f"Nothing to remove: there is no instance `{name}`.")
        return
    _confirm_removal(name, yes=yes)
    with show_progress() as progress:
        instance = service.reset(places, os.environ, name, progress)
    with disk_errors(config), lock(places, ".contexts", progress):
        contexts.remove(config, instance)
    say(f"`{name}` is removed with all its data.")


def _is_there(places: Homes, name: str) -> bool:
    from kodoctl.dev.instance import read_instance

    return read_instance(places.folder(name)) is not None


def _confirm_removal(name: str, *, yes: bool) -> None:
    if yes:
        return
    if not is_terminal():
        raise RefusedError(
            error("K619", "not confirmed", f"this removes `{name}` with all its data: say --auto-approve")
        )
    if not typer.confirm(f"Remove `{name}` with all its topics and messages?", err=True):
        raise RefusedError(error("K619", "not confirmed", f"`{name}` stays as it is"))


def _connection(instance: Instance, places: Homes) -> dict[str, Any]:
    folder = places.folder(instance.name)
    return {
        "name": instance.name,
        "version": instance.version,
        "engine": instance.engine.value,
        "auth": instance.auth.value,
        "admin_url": instance.admin_url,
        "broker_url": instance.broker_url,
        "pid": instance.process.pid if instance.process else None,
        "folder": str(folder.path),
    }


def _tokens(instance: Instance, places: Homes) -> list[dict[str, str]]:
    from kodoctl.dev import tokens

    if instance.auth is not Auth.TOKEN:
        return []
    folder = places.folder(instance.name)
    return [
        {
            "role": role.name,
            "may": role.may,
            "token_file": str(tokens.token_file(folder, role.name)),
            "token": tokens.token(folder, instance, role.name).reveal(),
        }
        for role in tokens.ROLES
    ]
