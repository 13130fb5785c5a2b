"""The exclusive producer of a lease topic: the process that has it holds the lease, and writes the journal.

A receipt proves that the producer was still the only one when the entry was stored, also after a fail-over: the
producer connects again with its old topic epoch, and the broker fences it if another exclusive producer had the topic
in between (measured: a broker killed by SIGKILL, 49 s until the next receipt; with another producer in between
ProducerFenced).
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kodoctl.errors import ExitCode, LockedError, error
from kodoctl.pulsar.binary.client import CLOSE_S
from kodoctl.pulsar.binary.deadlines import Patience, UnansweredError

if TYPE_CHECKING:
    from kodoctl.topology.names import NamespaceName

RECEIPT_S: Final = 90.0
"""Seconds to wait for the receipt of an entry at most. A broker's session ends after 30 s, and the client library,
whose pauses between tries double, was connected again after 49 s if the broker was dead and after 60 s if it hung
(measured).
"""
AGAIN_S: Final = 5.0  # for one after a wait in vain: it comes as soon as the broker is back, or not in this apply
LONG_S: Final = 5.0  # after which another client may have taken a lease that shows no producer
_SENDS: Final = 3  # of one entry


class UnconfirmedError(LockedError):
    """The broker did not confirm that this process still has the lease, and no other holder is known."""

    exit_code = ExitCode.ERROR


def lost_lease_error(namespace: NamespaceName, why: str) -> LockedError:
    """Makes the error for a lease that another client took, or whose producer failed. `why`: the cause."""
    return LockedError(error("K541", "the lease was lost", f"{namespace}: {why}; nothing was written after that"))


def unconfirmed_lease_error(namespace: NamespaceName, why: str) -> UnconfirmedError:
    """Makes the error for a lease whose holder no broker confirmed. `why`: the cause."""
    detail = f"{namespace}: {why}; nothing was written meanwhile, and nobody is known to have taken the lease"
    return UnconfirmedError(error("K541", "the lease could not be confirmed", detail))


@dataclass(slots=True)
class _Entry:
    """Entry to send; `sends`: the number of tries left; `changed`: of the caller that waits for its receipt, None if
    nobody does.
    """

    data: bytes
    sends: int = _SENDS
    stored: bool = False
    changed: threading.Condition | None = None


class ExclusiveProducer:
    """A lease that this process holds (implements `kodoctl.pulsar.control.lease.Hold`). `producer`: a
    `pulsar.Producer`; `others`: looks for a client that took the lease in another way, and returns its name or None.
    Several threads may use it.

    A wait for a receipt lasts at most RECEIPT_S seconds, or AGAIN_S if the wait before was in vain. After
    UnconfirmedError, the entry may still be stored later. Once the lease is lost, every method but `note` and `close`
    raises the same LockedError.
    """

    def __init__(
        self, namespace: NamespaceName, producer: Any, patience: Patience, others: Callable[[], object] = lambda: None
    ) -> None:
        self._namespace, self._producer, self._patience, self._others = namespace, producer, patience, others
        self._order = threading.Lock()  # numbers rise in the order of sending
        self._lock = threading.Lock()  # never held while something is sent: receipts need it
        self._changed = threading.Condition(self._lock)  # of `settle`
        self._number = 0
        self._open: dict[int, _Entry] = {}  # without a receipt so far
        self._unstored: list[_Entry] = []  # whose receipt names no place
        self._silent = False  # the last wait was in vain
        self._failed: LockedError | None = None

    def beat(self) -> None:
        """Writes a heartbeat and waits until it is stored. If that took LONG_S seconds or more, checks that nobody else
        has taken the lease. Raises LockedError if the lease is lost, UnconfirmedError without a receipt.
        """
        if self._write({"kind": "lease"}) >= LONG_S and (other := self._others()) is not None:
            problem = lost_lease_error(self._namespace, f"{other} took it while no broker answered")
            self._fail(problem)
            raise problem

    def write(self, entry: Mapping[str, Any]) -> None:
        """Writes an entry to the journal and waits until it is stored. Raises LockedError, UnconfirmedError."""
        self._write(entry)

    def note(self, entry: Mapping[str, Any]) -> None:
        """Sends an entry to the journal without waiting. `settle` waits for its receipt, and raises the error of a
        failed send.
        """
        with contextlib.suppress(LockedError):  # settle raises it
            self._send(_Entry(_bytes(entry)))

    def settle(self) -> None:
        """Waits until every sent entry is stored. Raises LockedError, UnconfirmedError."""
        self._wait(lambda: not self._open and not self._unstored, self._changed)

    def close(self) -> None:
        """Closes the producer, which frees the topic, as the end of the connection would. Never raises."""
        with contextlib.suppress(Exception):
            self._patience.call(self._producer.close, f"the end of the lease of {self._namespace}", CLOSE_S)

    def _write(self, entry: Mapping[str, Any]) -> float:
        stored = threading.Condition(self._lock)
        one = _Entry(_bytes(entry), changed=stored)
        self._send(one)
        return self._wait(lambda: one.stored, stored)

    def _wait(self, done: Callable[[], object], changed: threading.Condition) -> float:
        """Waits until `done` is true, and sends entries again that the broker confirmed without storing them. Returns
        the seconds that it waited. `changed`: is notified when `done` may be true. Raises LockedError,
        UnconfirmedError.
        """
        took = 0.0
        what = f"the journal of {self._namespace} to store an entry"
        while True:
            with self._lock:
                again, self._unstored = self._unstored, []
            for entry in again:
                self._send(entry)
            with changed:
                try:
                    limit = AGAIN_S if self._silent else RECEIPT_S
                    took += self._patience.until(changed, lambda: self._failed or self._unstored or done(), what, limit)
                except UnansweredError as silence:
                    self._silent = True
                    raise unconfirmed_lease_error(self._namespace, _silence_text(silence)) from None
                if self._failed is not None:
                    raise self._failed
                if done():
                    return took

    def _send(self, entry: _Entry) -> None:
        """Sends an entry with the next number. Raises LockedError if the producer failed before, or cannot send it."""
        import pulsar

        entry.sends -= 1
        with self._order:
            with self._lock:
                if self._failed is not None:
                    raise self._failed
                self._number += 1
                number = self._number
                self._open[number] = entry
            try:
                self._producer.send_async(entry.data, partial(self._heard, number), sequence_id=number)
            except pulsar.PulsarException as problem:
                self._fail(lost_lease_error(self._namespace, f"the journal takes no entry: {problem}"))
        if self._failed is not None:
            raise self._failed

    def _heard(self, number: int, result: Any, position: Any) -> None:
        """Handles a receipt, on the client library's thread: an exception that escaped would end the process.

        The broker answers Ok without a ledger for an entry that it takes for a duplicate, even if it never stored one:
        the entry is then sent again.
        """
        import pulsar

        with contextlib.suppress(BaseException), self._lock:
            entry = self._open.pop(number)
            if result != pulsar.Result.Ok:
                self._failed = self._failed or lost_lease_error(self._namespace, _refusal(result))
            elif position is not None and position.ledger_id() >= 0:
                entry.stored, self._silent = True, False
            elif entry.sends > 0:
                self._unstored.append(entry)
            else:
                why = f"the broker confirmed an entry of the journal {_SENDS} times, and stored it nowhere"
                self._failed = self._failed or lost_lease_error(self._namespace, why)
            self._notify(entry)

    def _fail(self, problem: LockedError) -> None:
        with self._lock:
            self._failed = self._failed or problem
            self._notify(*self._open.values())

    def _notify(self, *entries: _Entry) -> None:
        """Wakes those who wait for these entries, and for all; everybody if the lease is lost or an entry is to be sent
        again. A receipt that woke everybody would cost more than its entry.
        """
        self._changed.notify_all()
        for entry in (*entries, *(self._open.values() if self._failed or self._unstored else ())):
            if entry.changed is not None:
                entry.changed.notify_all()


def _bytes(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry).encode()


def _refusal(result: Any) -> str:
    import pulsar

    if result == pulsar.Result.ProducerFenced:
        return "another apply, or `kodoctl unlock`, took it over"
    return f"the journal takes no entry: {result}"


def _silence_text(silence: UnansweredError) -> str:
    if silence.interrupted:
        return f"interrupted, the broker stored no entry of the journal for {silence.seconds:.0f} s"
    return f"the broker stored no entry of the journal for {silence.seconds:.0f} s"
