"""Choice of an instance's ports: admin (HTTP), broker (binary) and bookie (also the storage's identity).

All ports are below 32768, because the system uses higher ones for outgoing connections, and a broker could find its
port in use.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from kodoctl.dev.dev_errors import failure
from kodoctl.dev.typed_command import dev_command
from kodoctl.errors import KodoctlError, UsageError, error

LOWEST: Final = 1024
HIGHEST: Final = 32767
HOST: Final = "127.0.0.1"

Role: TypeAlias = Literal["admin", "broker", "bookie"]
IsFree: TypeAlias = Callable[[int], bool]
Claims: TypeAlias = Mapping[int, str]
"""Port -> name of another instance that uses or used it."""

_ROLES: Final[tuple[Role, ...]] = ("admin", "broker", "bookie")


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of an instance, on 127.0.0.1 only."""

    admin: int = 8080
    broker: int = 6650
    bookie: int = 3181

    def of(self, role: Role) -> int:
        """Port of one role of the instance, on 127.0.0.1."""
        return {"admin": self.admin, "broker": self.broker, "bookie": self.bookie}[role]

    def all(self) -> tuple[int, int, int]:
        """All three ports: admin, broker, bookie."""
        return self.admin, self.broker, self.bookie


@dataclass(frozen=True, slots=True)
class ClusterPorts:
    """Ports of the nodes of a cluster, on 127.0.0.1 only: ZooKeeper, each bookie, each broker (admin, binary)."""

    zookeeper: int
    bookies: tuple[int, ...]
    brokers: tuple[tuple[int, int], ...]

    def all(self) -> tuple[int, ...]:
        """Every port of the cluster: ZooKeeper, bookies, then admin and binary port of each broker."""
        return (self.zookeeper, *self.bookies, *(port for pair in self.brokers for port in pair))


@dataclass(frozen=True, slots=True)
class AskedPorts:
    """Ports that the command line names; None: kodoctl chooses."""

    admin: int | None = None
    broker: int | None = None
    bookie: int | None = None

    def of(self, role: Role) -> int | None:
        """The port that the user chose for one role; None: kodoctl chooses."""
        return {"admin": self.admin, "broker": self.broker, "bookie": self.bookie}[role]


def is_free(port: int) -> bool:
    """True if a server can listen on the port of 127.0.0.1 now. Closed connections in TIME_WAIT do not count."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:  # macOS lets two bind: see who answers
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) != 0


def choose(asked: AskedPorts, preferred: Ports, claims: Claims, free: IsFree) -> Ports:
    """Chooses the ports of a new instance: each is the port in `asked`, else the preferred one, else the next free one
    above it. `claims`: port -> name of another instance that uses or used it; only a port in `asked` may be one of
    these, if it is free now.

    Raises UsageError (K605) for ports that are out of range or equal, KodoctlError (K604) if a port in `asked` is
    taken, or no other port up to HIGHEST is free.
    """
    _check(asked)
    chosen: dict[Role, int] = {}
    reserved = {port for role in _ROLES if (port := asked.of(role)) is not None}
    for role in _ROLES:
        wanted = asked.of(role)
        if wanted is None:
            chosen[role] = _next_free(preferred.of(role), {*reserved, *claims, *chosen.values()}, free)
        elif free(wanted):
            chosen[role] = wanted
        else:
            advice = f"name another with --{role}-port, or leave the option out: a free one is chosen then"
            raise _port_taken_error(role, wanted, claims, advice)
    return Ports(**chosen)


def choose_cluster(first: Ports, brokers: int, bookies: int, claims: Claims, free: IsFree) -> ClusterPorts:
    """Chooses the ports of a new cluster: an admin and a binary port for each broker, one for each bookie, and one for
    ZooKeeper. There is at least one broker and one bookie.

    The first broker and the first bookie have the ports in `first`, which are not checked. Each other port is the next
    free one above that of the node before it (for ZooKeeper: of the last bookie) that is not in `claims`. Raises
    KodoctlError (K604) if no port up to 32767 is left.
    """
    used = {*first.all(), *claims}

    def after(port: int) -> int:
        found = _next_free(port + 1, used, free)
        used.add(found)
        return found

    storage, pairs = [first.bookie], [(first.admin, first.broker)]
    while len(storage) < bookies:
        storage.append(after(storage[-1]))
    while len(pairs) < brokers:
        pairs.append((after(pairs[-1][0]), after(pairs[-1][1])))
    return ClusterPorts(after(storage[-1]), tuple(storage), tuple(pairs))


def check_cluster(name: str, known: ClusterPorts, asked: AskedPorts, claims: Claims, free: IsFree) -> None:
    """Checks that a cluster with data can start on the same ports as before. Its nodes know each other by their ports,
    so none may change. `claims`: only names the instance that has a port, for errors. Raises KodoctlError: K613 if
    `asked` changes a port, K604 if a port is taken.
    """
    first = {"admin": known.brokers[0][0], "broker": known.brokers[0][1], "bookie": known.bookies[0]}
    moved = [role for role in _ROLES if asked.of(role) not in (None, first[role])]
    if moved:
        detail = f"nodes of `{name}` know each other by their ports ({moved[0]} port {first[moved[0]]}), which stay with the data"
        raise failure("K613", "the data was made otherwise", detail)
    for port in known.all():
        if not free(port):
            advice = f"`{name}` used it so far: free it, or give the data up with {dev_command('reset', name)}"
            raise _port_taken_error("cluster", port, claims, advice)


def check_nodes(name: str, wanted: Mapping[str, int], free: IsFree) -> None:
    """Checks that nodes of a cluster can start on their ports, which other programs may take while the nodes do not
    run. `wanted`: name of the node -> port. Raises KodoctlError (K604) if one is taken.
    """
    for node, port in wanted.items():
        if not free(port):
            advice = (
                f"{node} of `{name}` is known by it: free it, or give the data up with {dev_command('reset', name)}"
            )
            raise _port_taken_error(node, port, {}, advice)


def keep(name: str, known: Ports, asked: AskedPorts, claims: Claims, free: IsFree) -> Ports:
    """Ports for the next start of an instance with data: those in `known`, except that an admin or broker port in
    `asked` replaces the known one. The bookie port may not change. `claims`: only names the instance that has a port,
    for errors.

    Raises UsageError (K605) if a port in `asked` is out of range or two of the three ports are equal, and KodoctlError:
    K604 if one of the three ports is taken, K613 if `asked` names another bookie port.
    """
    _check(asked)
    if asked.bookie not in (None, known.bookie):
        raise failure("K613", "the data was made otherwise", _moved_bookie(name, known.bookie))
    ports = Ports(asked.admin or known.admin, asked.broker or known.broker, known.bookie)
    if len(set(ports.all())) < len(_ROLES):
        detail = f"admin, broker and bookie port must differ; `{name}` has bookie port {known.bookie}"
        raise UsageError(error("K605", "port cannot be used", detail))
    for role in _ROLES:
        if not free(ports.of(role)):
            raise _port_taken_error(role, ports.of(role), claims, _advice_when_kept(name, role))
    return ports


def _check(asked: AskedPorts) -> None:
    named = [(role, port) for role in _ROLES if (port := asked.of(role)) is not None]
    for role, port in named:
        if not LOWEST <= port <= HIGHEST:
            detail = f"--{role}-port {port}: choose one from {LOWEST} to {HIGHEST}; above, the system uses them itself"
            raise UsageError(error("K605", "port cannot be used", detail))
    if len({port for _, port in named}) < len(named):
        raise UsageError(error("K605", "port cannot be used", "admin, broker and bookie port must differ"))


def _next_free(start: int, excluded: set[int], free: IsFree) -> int:
    port = next((p for p in range(start, HIGHEST + 1) if p not in excluded and free(p)), None)
    if port is None:
        raise failure("K604", "port taken", f"no free port from {start} to {HIGHEST} on {HOST}")
    return port


def _advice_when_kept(name: str, role: Role) -> str:
    if role == "bookie":
        return f"{_moved_bookie(name, None)}\nfree the port, or give the data up with {dev_command('reset', name)}"
    return f"`{name}` used it so far: free it, or choose another with --{role}-port N"


def _moved_bookie(name: str, port: int | None) -> str:
    which = f"bookie port {port}" if port else "this port"
    return f"the data of `{name}` belongs to {which} and is not found again on another"


def _port_taken_error(role: str, port: int, claims: Claims, advice: str) -> KodoctlError:
    holder = f"the instance `{claims[port]}`" if port in claims else "another program"
    detail = f"{role} port {port} on {HOST} is taken by {holder}; see who has it: {_who_has(port)}\n{advice}"
    return failure("K604", "port taken", detail)


def _who_has(port: int) -> str:
    return f"ss -ltnp 'sport = :{port}'" if sys.platform == "linux" else f"lsof -nP -iTCP:{port} -sTCP:LISTEN"
