"""Resolver of the instance that `dev up` starts: combines the flags with the existing instance. Pure: the caller passes
functions that examine the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kodoctl.dev import ports, versions
from kodoctl.dev.dev_errors import failure
from kodoctl.dev.instance import Auth, EngineName, Instance
from kodoctl.dev.ports import AskedPorts, Claims, IsFree, Ports
from kodoctl.dev.typed_command import DEFAULT_NAME, dev_command
from kodoctl.errors import UsageError, error

DEFAULT_NODES = 3
"""Number of brokers or bookies of a cluster if the command line names only the other number."""


@dataclass(frozen=True, slots=True)
class UpFlags:
    """Flags of `dev up`. None: the value of the existing instance is used if it has data (was ready once), else the
    default. `preferred`: ports of a new instance where `ports` names none and they are free.
    """

    name: str = DEFAULT_NAME
    version: str | None = None
    auth: Auth | None = None
    engine: EngineName | None = None
    ports: AskedPorts = field(default_factory=AskedPorts)
    brokers: int | None = None
    bookies: int | None = None
    preferred: Ports = field(default_factory=Ports)


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Facts about this machine that the choice of ports and engine needs. `claims`: ports of other instances;
    `is_free`: tests a port; `best_engine`: chooses the engine.
    """

    claims: Claims
    is_free: IsFree
    best_engine: Callable[[], EngineName]


def settle(asked: UpFlags, known: Instance | None, around: MachineFacts) -> Instance:
    """Settings of the instance to start: those of `known` again if it has data, else new ones.

    Version, engine and bookie port belong to the data and stay; admin port, broker port and authentication may change.
    All ports of a cluster stay, and so do the numbers of its nodes. Raises KodoctlError: K604 and K605 (ports), K611
    (version), K613 (the data does not permit a change), K624 (cluster on Docker).
    """
    if known is None or not known.ready_once:
        return _new(asked, around)
    _check_data(asked, known)
    if known.cluster is not None:
        ports.check_cluster(known.name, known.cluster, asked.ports, around.claims, around.is_free)
        return replace(known, auth=asked.auth or known.auth, process=None)
    kept = ports.keep(known.name, known.ports, asked.ports, around.claims, around.is_free)
    return replace(known, auth=asked.auth or known.auth, ports=kept, process=None)


def _new(asked: UpFlags, around: MachineFacts) -> Instance:
    version = versions.exact(asked.version or versions.DEFAULT_LINE)
    many = asked.brokers is not None or asked.bookies is not None
    if many and asked.engine is EngineName.DOCKER:
        detail = "a cluster runs on the Java engine only: leave --engine out, or say --engine java"
        raise UsageError(error("K624", "no cluster on Docker", detail))
    chosen = ports.choose(asked.ports, asked.preferred, around.claims, around.is_free)
    cluster = None
    if many:
        size = (asked.brokers or DEFAULT_NODES, asked.bookies or DEFAULT_NODES)
        cluster = ports.choose_cluster(chosen, *size, around.claims, around.is_free)
    return Instance(
        name=asked.name,
        version=version,
        engine=EngineName.JAVA if many else asked.engine or around.best_engine(),
        auth=asked.auth or Auth.NONE,
        ports=chosen,
        cluster=cluster,
    )


def check_running(asked: UpFlags, running: Instance) -> None:
    """Raises KodoctlError (K614) if the flags of `dev up` differ from the settings of the running instance, UsageError
    (K611) for an unknown version.
    """
    if asked.version is not None:
        versions.exact(asked.version)
    differs = [f"{what} {have}, asked {want}" for what, have, want in _differences(asked, running)]
    if differs:
        again = f"stop it first, with {dev_command('down', running.name)}; data is kept"
        raise failure("K614", "runs already, but otherwise", f"`{running.name}` has {'; '.join(differs)}\n{again}")


def _differences(asked: UpFlags, running: Instance) -> list[tuple[str, object, object]]:
    members: list[tuple[str, object, object]] = [
        ("engine", running.engine, asked.engine),
        ("auth", running.auth, asked.auth),
    ]
    members += [(what, have, want) for what, have, want in _sizes(asked, running)]
    roles: tuple[ports.Role, ...] = ("admin", "broker", "bookie")
    numbers = [(f"{role} port", running.ports.of(role), asked.ports.of(role)) for role in roles]
    found = [(what, have, want) for what, have, want in [*members, *numbers] if want not in (None, have)]
    if asked.version is not None and not versions.fits(asked.version, running.version):
        found.insert(0, ("Pulsar", running.version, asked.version))
    return found


def _sizes(asked: UpFlags, known: Instance) -> list[tuple[str, int, int | None]]:
    """Numbers of brokers and bookies: name, present number (0 for a standalone), and the number in `asked`."""
    have = (len(known.cluster.brokers), len(known.cluster.bookies)) if known.cluster else (0, 0)
    return [("brokers", have[0], asked.brokers), ("bookies", have[1], asked.bookies)]


def _check_data(asked: UpFlags, known: Instance) -> None:
    wrong = []
    if asked.version is not None and not versions.fits(asked.version, known.version):
        wrong.append(f"Pulsar {known.version}, not {versions.exact(asked.version)}")
    if asked.engine not in (None, known.engine):
        wrong.append(f"the {known.engine} engine, not {asked.engine}")
    sizes = [f"{have} {what}, not {want}" for what, have, want in _sizes(asked, known) if want not in (None, have)]
    wrong += sizes if known.cluster else ["a standalone broker, not a cluster"] if sizes else []
    if wrong:
        detail = (
            f"the data of `{known.name}` was made with {' and '.join(wrong)}\n"
            f"give it another --name, or give the data up with {dev_command('reset', known.name)}"
        )
        raise failure("K613", "the data was made otherwise", detail)
