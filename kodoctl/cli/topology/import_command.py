"""import: writes topology files for objects that exist. An apply of the files adopts the objects and changes none of
them.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common import command_target
from kodoctl.cli.common.command_target import TargetOptions, connects
from kodoctl.cli.common.console import command, say, tell
from kodoctl.errors import Diagnostic, KodoctlError, UsageError, Where, error

if TYPE_CHECKING:
    from kodoctl.plan.importing.import_planner import Import
    from kodoctl.pulsar.session import Session
    from kodoctl.pulsar.values.live_objects import Live
    from kodoctl.topology.names import NamespaceName


@command
@connects
def import_(
    target: TargetOptions,
    places: Annotated[
        list[str],
        typer.Argument(
            help="Namespaces to import, or tenants for all of theirs.",
            metavar="TENANT[/NAMESPACE]",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Name of the topology, for one namespace.", show_default="the namespace's", metavar="NAME"
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--out",
            help="Write the file here instead of to standard output; for several, a folder.",
            metavar="FILE|FOLDER",
        ),
    ] = None,
    *,
    platform: Annotated[
        bool, typer.Option("--platform", help="Import the objects of the whole cluster, for one namespace.")
    ] = False,
) -> None:
    """Write topology files for live objects that nobody owns.

    With --platform one file for the tenants, clusters, resource groups, failure domains and isolation policies of the
    whole cluster; the namespace, which need not exist, will have the record of what is owned.

    An apply of the files adopts the objects, and changes none of them. No file is overwritten.
    """
    from kodoctl.pulsar.inventory.live_inventory import read_live
    from kodoctl.pulsar.inventory.read_scope import ReadScope

    several = len(places) > 1 or "/" not in places[0]
    if platform and several:
        raise UsageError(error("K507", "not a namespace", "--platform takes one TENANT/NAMESPACE"))
    _check_options(several, name, out)
    with target.session() as session:
        spaces = _find_namespaces(session, places)
        files = {} if out is None else _files(spaces, out, several=several)
        if platform:
            _write_found(_import_platform(session, spaces[0], name or spaces[0].namespace), out)
            return
        live = read_live(session.admin, session.client, ReadScope(tuple(spaces), everything=True))
        _check_there(session, spaces, live)
    if several:
        _write_all(live, files)
        return
    _write_one(live, spaces[0], name or spaces[0].namespace, out)


def _check_options(several: bool, name: str | None, out: str | None) -> None:  # all options of one command
    if several and out is None:
        raise UsageError(error("K508", "nothing named", "each namespace gets a file: name their folder with --out"))
    if several and name is not None:
        detail = "--name is for one namespace; several topologies are named after theirs"
        raise UsageError(error("K508", "nothing named", detail))


def _find_namespaces(session: Session, places: Iterable[str]) -> list[NamespaceName]:
    """The namespaces in `places`; for a Pulsar tenant those that `_importable` chooses. Raises UsageError (K509) if a
    tenant does not exist, ClusterError if its namespaces cannot be listed.
    """
    from kodoctl.pulsar.admin.admin import must

    found: dict[NamespaceName, None] = {}
    for place in places:
        if "/" in place:
            found[command_target.parse_namespace(place)] = None
            continue
        reply = session.admin.call("GET", f"namespaces/{command_target.parse_namespace(f'{place}/any').tenant}")
        if reply.missing:
            where = command_target.shown_target(session.connection)
            raise UsageError(error("K509", "namespace not found", f"no tenant {place} is on {where}"))
        found |= dict.fromkeys(_importable(place, must(reply, f"listing the namespaces of {place}")))
    return list(found)


def _importable(tenant: str, listed: Iterable[str]) -> list[NamespaceName]:
    """The namespaces of a Pulsar tenant, sorted, without the control namespace. Prints a line about each whose name has
    another form, such as the old TENANT/CLUSTER/NAMESPACE, and one if no namespace is left.
    """
    from kodoctl.protocol.properties import CONTROL_NAMESPACE
    from kodoctl.text.escaping import one_line
    from kodoctl.topology.names import InvalidNameError, NamespaceName

    found: list[NamespaceName] = []
    for text in listed:
        try:
            found.append(NamespaceName.parse(text))
        except InvalidNameError:
            tell(f"{one_line(text)}: not of the form TENANT/NAMESPACE; no file")
    found = sorted(space for space in found if space.namespace != CONTROL_NAMESPACE)
    if not found:
        tell(f"{tenant}: no namespaces to import; no file")
    return found


def _files(spaces: Sequence[NamespaceName], out: str, *, several: bool) -> dict[NamespaceName, Path]:
    """The file of each namespace. Raises UsageError with every file that exists already."""
    tenants = {space.tenant for space in spaces}
    files = {
        space: Path(out, *([space.tenant] if len(tenants) > 1 else []), f"{space.namespace}.yaml")
        if several
        else Path(out)
        for space in spaces
    }
    there = [file for file in files.values() if os.path.lexists(file)]  # also a link to what is not there yet
    if there:
        detail = "import never overwrites: name another with --out"
        raise UsageError(*(error("K021", "file exists", detail, Where(str(file))) for file in there))
    return files


def _check_there(session: Session, spaces: Iterable[NamespaceName], live: Live) -> None:
    command_target.check_namespaces(session, [space for space in spaces if f"namespace.{space}" not in live.objects])


def _write_one(live: Live, space: NamespaceName, name: str, out: str | None) -> None:
    from kodoctl.plan.importing.import_planner import import_namespace

    _write_found(import_namespace(live, space, name), out)


def _import_platform(session: Session, home: NamespaceName, name: str) -> Import:
    from kodoctl.plan.importing.platform_import import import_platform
    from kodoctl.pulsar.admin.broker_info import read_server
    from kodoctl.pulsar.control.control_namespace import read_control_namespace
    from kodoctl.pulsar.inventory.platform_objects import list_platform_objects, read_owners

    cluster = read_server(session.admin).cluster
    index = read_control_namespace(session.admin, home.tenant).index
    known = read_owners(session.admin, {home, *(place for places in index.values() for place in places)})
    owners = {address: f"{found.owner} in {found.home}" for address, found in known.items()}
    return import_platform(list_platform_objects(session.admin, cluster, home), owners, cluster, home, name)


def _write_found(found: Import, out: str | None) -> None:
    if out is None:
        say(found.text.rstrip("\n"))
    else:
        _write(Path(out), found)
    tell(f"{_import_summary(found)}.")
    if out is not None:
        tell(f"Next: kodoctl plan {out}")


def _write_all(live: Live, files: dict[NamespaceName, Path]) -> None:
    """Writes a file for each namespace. A namespace that cannot be imported does not stop the others: all problems
    raise at the end.
    """
    from kodoctl.plan.importing.import_planner import import_namespace
    from kodoctl.plan.importing.yaml_writer import listed

    names = Counter(space.namespace for space in files)
    problems: list[Diagnostic] = []
    written: set[Path] = set()
    for space, file in files.items():
        try:
            alone = names[space.namespace] == 1
            found = import_namespace(live, space, space.namespace if alone else f"{space.tenant}-{space.namespace}")
            if not found.adopted:
                tell(f"{space}: nothing to adopt{_left_out_text(found)}; no file")
                for line in listed(dict(found.left_out)):
                    tell(f"  {line}")
                continue
            _write(file, found)
        except KodoctlError as problem:
            problems += problem.diagnostics
            continue
        written.add(file.parent)
        tell(f"{file}: {_import_summary(found)}")
    if written:
        tell(f"Next: kodoctl plan {' '.join(sorted(map(str, written)))}")
    if problems:
        raise KodoctlError(*problems)


def _write(file: Path, found: Import) -> None:
    """Writes a file, missing folders above it, and the schema for editors. Raises UsageError (K020) if the file cannot
    be written, or if somebody wrote it while the cluster was read.
    """
    from kodoctl.cli.topology.editor_schema import editor_schema

    with contextlib.suppress(OSError):  # writing the file says why it cannot
        file.parent.mkdir(parents=True, exist_ok=True)
    schema = editor_schema(file)
    try:
        with file.open("xb") as stream:
            stream.write(f"{schema.line}{found.text}".encode())
    except OSError as problem:
        raise UsageError(error("K020", "cannot write file", f"{file}: {problem.strerror}")) from None
    schema.write()


def _import_summary(found: Import) -> str:
    from kodoctl.text.formatting import many

    created = f", {found.created} to create" if found.created else ""
    listed = " (listed at the end of the file)" if found.left_out else ""
    return f"{many(found.families, 'ground topic')}, {many(found.adopted, 'object')} to adopt{created}{_left_out_text(found)}{listed}"


def _left_out_text(found: Import) -> str:
    return f", {len(found.left_out)} left out" if found.left_out else ""
