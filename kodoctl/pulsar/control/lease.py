"""One apply at a time: an exclusive producer on a namespace's lease topic (kodoctl.pulsar.binary.exclusive_producer).

Freed within 0.1 s of the holder's death; a frozen holder is fenced after 60 s and learns it at its next heartbeat
(docs/explanation/pulsar.md). Nothing to forget, nothing to clean up. While a broker fails over the holder waits, and
writes nothing, until the broker that comes after it says that the lease is still its own. Where the broker's binary
port is not known a lock topic stands in (kodoctl.pulsar.control.topic_lock); each kind takes its own first and then
looks for the other, so that never both are held.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from kodoctl.errors import ClusterError, LockedError, StoppedError, error
from kodoctl.pulsar.admin.admin import Admin, must
from kodoctl.pulsar.binary.deadlines import Patience, UnansweredError
from kodoctl.pulsar.binary.exclusive_producer import ExclusiveProducer, UnconfirmedError, unconfirmed_lease_error
from kodoctl.pulsar.connection.wait_monitor import FAIL_OVER_S
from kodoctl.pulsar.control.control_namespace import ensure_lease_topic, lease_topic
from kodoctl.pulsar.control.topic_lock import LockHolder, break_lock, lock_holder, lock_token, take_lock

if TYPE_CHECKING:
    from kodoctl.pulsar.binary.client import BrokerClient
    from kodoctl.topology.names import NamespaceName

HEARTBEAT_S: Final = 5.0  # a broker fences a silent holder after 60 s; nobody writes longer than this without asking
_RETRY_S: Final = 0.25
_QUESTIONS: Final = 3  # in a row, to a broker whose answers come too late
_PENDING: Final = 100_000  # entries without a receipt: more than an apply has, so that it never waits for room


class Hold(Protocol):
    """Handle of the held lease of one namespace. `beat` and `write` raise LockedError when it is lost."""

    def beat(self) -> None:
        """Asks the broker whether it is still held."""

    def write(self, entry: Mapping[str, Any]) -> None:
        """An entry of the namespace's journal; returns with its receipt."""

    def note(self, entry: Mapping[str, Any]) -> None:
        """An entry whose receipt `settle` waits for; it is stored before any entry that comes after it."""

    def settle(self) -> None:
        """Returns when every entry has its receipt. Raises LockedError when one has none."""

    def close(self) -> None:
        """Gives the lease back. One that another client has by now stays with it."""


def _now() -> float:
    """Seconds that go on while the process is stopped or the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease:
    """Held leases of one command. `check` before writing; a lost lease raises LockedError and nothing more is written.

    `since`: a moment before the first lease was taken, by `clock`, in seconds.
    """

    def __init__(
        self, holds: Mapping[NamespaceName, Hold], clock: Callable[[], float] = _now, *, since: float | None = None
    ) -> None:
        self._holds = holds
        self._clock = clock
        self._lock = threading.Lock()
        self._confirmed = clock() if since is None else since
        self._lost: LockedError | None = None
        self.ever_lost = False  # for whoever reports

    def check(self) -> None:
        """Returns where every lease was ours at most HEARTBEAT_S seconds ago, as the broker said; asks it where that
        is longer ago, and waits for its answer while it fails over. Raises LockedError also where there is no answer,
        or only old ones: not to know it is to have lost it, for all that check after that.
        """
        with self._lock, self._noticing():
            self._raise_lost()
            for _ in range(_QUESTIONS):
                if self._clock() - self._confirmed < HEARTBEAT_S:
                    return
                asked = (
                    self._clock()
                )  # what an answer says was true some time after the question, and may not be any more
                for namespace, hold in self._holds.items():
                    _beat(namespace, hold)
                self._confirmed = asked
            if (took := self._clock() - self._confirmed) >= HEARTBEAT_S:
                where = ", ".join(str(namespace) for namespace in self._holds)
                detail = f"{where}: the broker needs {took:.1f} s to say whether it is ours, nothing is written on answers older than {HEARTBEAT_S:.0f} s"
                raise UnconfirmedError(error("K541", "the lease could not be confirmed", detail))

    def ask(self) -> None:
        """Checks the lease as `check` does, but always asks the broker: for callers that had no answer before
        and need one now.
        """
        with self._lock:
            self._confirmed, self._lost = float("-inf"), None
        self.check()

    def write(self, namespace: NamespaceName, entry: Mapping[str, Any]) -> None:
        """An entry of the namespace's journal; returns with its receipt. Raises LockedError."""
        self._raise_lost()
        with self._noticing():
            self._holds[namespace].write(entry)

    def note(self, namespace: NamespaceName, entry: Mapping[str, Any]) -> None:
        """An entry of the namespace's journal; `settle` waits for its receipt."""
        self._holds[namespace].note(entry)

    def settle(self) -> None:
        """Returns when every entry has its receipt. Raises LockedError when one has none."""
        self._raise_lost()
        with self._noticing():
            for taken_hold in self._holds.values():
                taken_hold.settle()

    def _raise_lost(self) -> None:
        """Raises the loss that another thread noticed: to wait again would be in vain."""
        if self._lost is not None:
            raise self._lost

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except LockedError as problem:
            self._lost, self.ever_lost = problem, True
            raise


def _beat(namespace: NamespaceName, hold: Hold) -> None:
    """Raises LockedError also where nobody answers."""
    try:
        hold.beat()
    except ClusterError as problem:
        raise unconfirmed_lease_error(
            namespace, f"it could not be asked for: {problem.diagnostics[0].detail}"
        ) from None


@contextlib.contextmanager
def hold(
    admin: Admin,
    client: BrokerClient,
    namespaces: Sequence[NamespaceName],
    *,
    who: str,
    plan: str,
    timeout: float,
    stop: threading.Event | None = None,
) -> Iterator[Lease]:
    """Holds the lease of each namespace, taken in sorted order so that two commands never wait for each other.

    `timeout` in seconds, 0 = refuse at once. `stop`: set when the user interrupts, waits then end soon. Raises
    LockedError naming the holder, StoppedError, ClusterError where it cannot be taken.
    """
    holds: dict[NamespaceName, Hold] = {}
    since = _now()
    taking = _Taking(
        admin, client, who, since + timeout, Patience(client.patience.waits, stop), stop or threading.Event()
    )
    try:
        for namespace in sorted(namespaces):
            holds[namespace] = taken_hold = taking.acquire(namespace)
            _write_first(namespace, taken_hold, {"kind": "lease", "who": who, "plan": plan})
        yield Lease(holds, since=since)
    finally:
        for taken_hold in holds.values():
            taken_hold.close()


def _write_first(namespace: NamespaceName, taken_hold: Hold, entry: Mapping[str, Any]) -> None:
    """Nothing is written so far: where this entry is not stored the lease was never ours."""
    try:
        taken_hold.write(entry)
    except UnconfirmedError as problem:
        raise _not_taken(namespace, problem.diagnostics[0].detail.partition(": ")[2]) from None


def _not_taken(namespace: NamespaceName, problem: object) -> ClusterError:
    return ClusterError(error("K542", "the lease could not be taken", f"{namespace}: {problem}"))


@dataclass(frozen=True, slots=True)
class _Taking:
    """Leases being taken: for whom, until when (by _now), and who interrupts it."""

    admin: Admin
    client: BrokerClient
    who: str
    deadline: float
    patience: Patience
    stop: threading.Event

    def acquire(self, namespace: NamespaceName) -> Hold:
        """Asks until it is given or time is up."""
        topic = ensure_lease_topic(self.admin, namespace)
        limit = max(self.deadline - _now(), FAIL_OVER_S)  # one try lasts as long as a fail-over
        with self.patience.waits.during(f"the lease of {namespace}", limit) as wait:
            while True:
                taken_hold = self._try(namespace, topic)
                if taken_hold is not None:
                    return taken_hold
                if _now() >= self.deadline:
                    detail = f"{namespace} is being applied by {_holder_text(self.admin, namespace)}; wait for it with --lock-timeout 10m; if it hangs or has died: kodoctl unlock {namespace}"
                    raise LockedError(error("K540", "another apply is running", detail))
                wait.what = f"the lease of {namespace}, which another apply has"
                if self.stop.wait(_RETRY_S):
                    detail = f"while it waited for the lease of {namespace}; nothing of the plan was written"
                    raise StoppedError(error("K538", "interrupted", detail))

    def _try(self, namespace: NamespaceName, topic: str) -> Hold | None:
        """Takes the lease of its own kind first, then looks for the other kind: if two processes do so at once,
        at least one sees the other.
        """
        ours = self.client.available
        taken_hold = self._exclusive(namespace, topic) if ours else take_lock(self.admin, namespace, self.who)
        if taken_hold is None:
            return None
        other: object = "unknown"
        try:
            other = lock_holder(self.admin, namespace) if ours else _publisher(self.admin, topic)
        finally:
            if other is not None:
                taken_hold.close()
        return taken_hold if other is None else None

    def _exclusive(self, namespace: NamespaceName, topic: str) -> ExclusiveProducer | None:
        import pulsar

        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        options = {
            "access_mode": pulsar.ProducerAccessMode.Exclusive,
            "properties": {"holder": self.who, "since": since},
            "send_timeout_millis": 0,  # an entry stays in its order until its broker is back: limits are ours
            "max_pending_messages": _PENDING,
            "batching_enabled": True,  # of entries that are sent while others are on their way
            "batching_max_publish_delay_ms": 1,
        }
        try:
            producer = self.client.ask(
                lambda client: client.create_producer(topic, **options),
                f"the lease of {namespace}",
                late=lambda made: made.close(),
                patience=self.patience,
                new_topic=True,
            )
        except (pulsar.ProducerFenced, pulsar.ProducerBusy):
            return None
        except pulsar.PulsarException as problem:
            raise _not_taken(namespace, problem) from None
        except UnansweredError as silence:
            raise _not_taken(namespace, silence.diagnostics[0].detail) from None
        return ExclusiveProducer(namespace, producer, self.patience, lambda: lock_holder(self.admin, namespace))


def _holder_text(admin: Admin, namespace: NamespaceName) -> str:
    """Text about the holder of a lease that could not be taken."""
    try:
        return str(held_by(admin, namespace) or "somebody who has just ended")
    except ClusterError as problem:
        return f"somebody (who it is cannot be read: {problem.diagnostics[0].detail})"


def break_lease(admin: Admin, client: BrokerClient, namespace: NamespaceName, who: str) -> LockHolder | None:
    """Takes a namespace's lease away from whoever holds it, and lets go of it; None: nobody held it. The holder learns it
    with its next entry or heartbeat, and writes nothing more. Raises ClusterError.
    """
    topic = lease_topic(namespace)
    token, locked = lock_token(admin, namespace), lock_holder(admin, namespace)
    holder = _publisher(admin, topic)
    if token is not None:
        break_lock(admin, namespace, token)
    if holder is None:
        return locked
    import pulsar

    try:
        producer = client.ask(
            lambda opened: opened.create_producer(
                topic, access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing, send_timeout_millis=0
            ),
            f"the lease of {namespace}",
            late=lambda made: made.close(),
        )
    except pulsar.PulsarException as problem:
        raise _not_taken(namespace, problem) from None
    taken = ExclusiveProducer(namespace, producer, client.patience)
    with contextlib.closing(taken):
        _write_first(namespace, taken, {"kind": "unlock", "who": who, "from": str(holder)})
    return holder


def held_by(admin: Admin, namespace: NamespaceName) -> LockHolder | None:
    """Holder of the lease of a namespace, as the broker knows it; None: no holder. Raises ClusterError where it does not say."""
    return lock_holder(admin, namespace) or _publisher(admin, lease_topic(namespace))


def _publisher(admin: Admin, topic: str) -> LockHolder | None:
    """The exclusive producer; None only where the broker says that there is none, or no such topic."""
    reply = admin.call("GET", f"{topic.replace('://', '/', 1)}/stats")
    if reply.missing:
        return None
    stats = must(reply, f"asking who holds {topic}")
    if not isinstance(stats, dict) or not isinstance(stats.get("publishers"), list):
        detail = f"{topic}: the broker does not say who writes to it: {str(stats)[:200]}"
        raise ClusterError(error("K542", "the lease could not be taken", detail))
    if not stats["publishers"]:
        return None
    metadata = stats["publishers"][0].get("metadata") or {}
    address = str(stats["publishers"][0].get("address", "")).lstrip("/")
    return LockHolder(f"{metadata.get('holder', 'an unknown client')} ({address})", metadata.get("since", ""))
