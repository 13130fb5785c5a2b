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
_LONGEST: Final = 200  # bytes of an identity that are kept as they are
_HASHED: Final = "sha256:"


class StoreDownError(Exception):
    """Error: the store cannot answer now: locked, slow, broken, gone. The text is for people, without secrets."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of a worker, with identities of messages.

    `done`: handlers that returned, to be remembered. `ended`: handlers that came to any other end. `starting`: messages
    about to be handled.
    """

    done: Sequence[str] = ()
    ended: Sequence[str] = ()
    starting: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """Answer about the `starting` messages of an Exchange. `done`: done before. `marks`: an earlier start of them, by
    this run or another, has not ended. All others are marked as started by this worker from now on.
    """

    done: frozenset[str] = frozenset()
    marks: Mapping[str, CrashMark] = field(default_factory=dict)


class Store(Protocol):
    """Port of a store, which remembers for one worker which messages are done and which have started. A database sees
    the records of the subscription's other workers, mapped files see marks of dead ones, and no messages as done. Calls
    but `interrupt` and `close` block and may raise StoreDownError; any of them may come from several threads.
    """

    run: str
    """Name of this worker's run, in marks and signs of life."""

    def create(self) -> None:
        """Creates the missing parts of the store, such as tables."""

    def exchange(self, request: Exchange) -> StoreAnswer:
        """Records the done messages, removes this run's marks of done and ended ones, and marks the starting ones, in
        one transaction: see StoreAnswer.
        """

    def take_over(self, identity: str, found: CrashMark, mark: CrashMark) -> bool:
        """Replaces the mark `found` of a message with `mark`, which is this worker's. Returns False if another worker
        changed or removed the mark first.
        """

    def beat(self) -> Mapping[str, int]:
        """Adds one sign of life of this run. Returns the number of them by run, for all runs that the store sees and
        that have not left.
        """

    def prune(self, keep: int, seconds: float) -> int:
        """Deletes records of messages that were done more than `seconds` ago, except the last `keep`, and data of runs
        that died long ago. Returns the number of deleted records of done messages.
        """

    def leave(self) -> None:
        """Deletes the marks and signs of life of this run, because the worker ends."""

    def interrupt(self) -> None:
        """Interrupts the calls of other threads that are under way, if the implementation can hang. A call then raises
        StoreDownError, unless the implementation repeats it on a new connection.
        """

    def close(self) -> None:
        """Closes connections and files."""


@runtime_checkable
class LeaseStore(Store, Protocol):
    """Store that several workers have in common: it grants them leases of shared limits."""

    def grant(self, requests: Sequence[LeaseRequest]) -> Sequence[LeaseGrant]:
        """Answers every request in one transaction; grants come in any order, and have the names of the requests."""


def name_of(identity: str) -> str:
    """An identity as stores keep it: as it is, or its SHA-256 digest if it has more than 200 bytes or characters that
    do not print, or begins as a digest does.
    """
    if (
        len(identity.encode("utf-8", "surrogatepass")) <= _LONGEST
        and identity.isprintable()
        and not identity.startswith(_HASHED)
    ):
        return identity
    return _HASHED + hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
