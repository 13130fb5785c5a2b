"""Port of stores. One store serves one worker of one subscription, and sees records of the subscription's other
workers.

Identities are names as `name_of` makes them. Every implementation passes the same contract tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from kodo_consumer.core.values.lease_protocol import LeaseGrant, LeaseRequest
    from kodo_consumer.core.values.poison import CrashMark

KEEP_S: Final = 3600.0
"""Seconds that ids of done messages are remembered unless settings say otherwise."""
MOST_PRUNED: Final = 20_000
"""Records that one call of `prune` deletes, or a few more: a worker sends no sign of life meanwhile."""
_LONGEST: Final = 200  # bytes of an identity that are kept as they are
_HASHED: Final = "sha256:"


class StoreDownError(Exception):
    """Error: the store cannot answer now, because it is locked, slow, full or gone for example. The text is for people,
    without secrets.
    """


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of a worker, with names of messages as `name_of` makes them.

    `done`: messages to be remembered, because their handlers returned or reported a repeat. `ended`: messages whose
    marks are to be removed, because their runs came to another end, a deferral for example. `starting`: messages about
    to be handled.
    """

    done: Sequence[str] = ()
    ended: Sequence[str] = ()
    starting: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """Answer about the `starting` messages of an Exchange. `done`: those that were done before; they lose their marks.
    `marks`: of the others, those with a mark of an earlier start, by this run or another, as far as the store sees; the
    mark stays. All the rest is marked as started by this worker from now on.
    """

    done: frozenset[str] = frozenset()
    marks: Mapping[str, CrashMark] = field(default_factory=dict)


class Store(Protocol):
    """Port of a store, which remembers for one worker which messages are done and which have started. A database sees
    the records of the subscription's other workers, memory those of the same process; mapped files see marks of dead
    workers, and no messages as done. Calls but `interrupt` and `close` may block and raise StoreDownError; several
    threads may make different calls at once.
    """

    run: str
    """Name of this worker's run, in marks and signs of life."""

    def create(self) -> None:
        """Creates the missing parts of the store, such as tables."""

    def exchange(self, request: Exchange) -> StoreAnswer:
        """Records the done messages, removes the marks of done and ended ones that are this run's (in mapped files also
        adopted ones), and marks the starting ones: see StoreAnswer. A database does so in one transaction, and mapped
        files record no done messages.
        """

    def take_over(self, identity: str, found: CrashMark, mark: CrashMark) -> bool:
        """Replaces the mark `found` of a message with `mark`, which is this worker's. Returns False, without effect, if
        another worker changed or removed the mark first.
        """

    def beat(self) -> Mapping[str, int]:
        """Adds one sign of life of this run. Returns the number of them by run, for all runs that the store sees and
        that have not left: in mapped files this one alone.
        """

    def prune(self, keep: int, seconds: float) -> int:
        """Deletes records of messages that were done more than `seconds` ago, except the last `keep`, and data of runs
        that died long ago, as far as the store has such. A store in memory deletes the oldest beyond 1,000,000, too.
        Returns the number of deleted records of done messages; from MOST_PRUNED on there may be more to delete.
        """

    def leave(self) -> None:
        """Deletes the marks and signs of life of this run, because the worker ends. Mapped files keep adopted marks,
        and those with a number of crashes, for the next worker.
        """

    def interrupt(self) -> None:
        """Interrupts the calls of other threads that are under way, if the implementation can hang. A call then raises
        StoreDownError, unless the implementation repeats it, once, on a new connection.
        """

    def close(self) -> None:
        """Closes connections and files."""


@runtime_checkable
class LeaseStore(Store, Protocol):
    """Store that several workers have in common (in memory: those of one process): it grants them leases of shared
    limits.
    """

    def grant(self, requests: Sequence[LeaseRequest]) -> Sequence[LeaseGrant]:
        """Returns one grant for each request, in any order, by the names of the requests, which must differ; a database
        decides about all in one transaction. Raises StoreDownError.
        """


def name_of(identity: str) -> str:
    """An identity as stores keep it: as it is, or as its SHA-256 digest if it has more than 200 bytes, has a character
    that does not print, or begins as a digest does (`sha256:`).
    """
    if (
        len(identity.encode("utf-8", "surrogatepass")) <= _LONGEST
        and identity.isprintable()
        and not identity.startswith(_HASHED)
    ):
        return identity
    return _HASHED + hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
