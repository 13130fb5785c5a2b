"""Lease of a namespace, so that one apply at a time writes: an exclusive producer on the namespace's lease topic
(kodoctl.pulsar.binary.exclusive_producer).

The broker frees the lease within 0.1 s after the holder's process ends. It fences a frozen holder after 60 s, and the
holder notices this at its next heartbeat (docs/explanation/pulsar.md). While a broker fails over, the holder writes
nothing until the next broker confirms the lease. If the address of the binary port is not known, a lock topic is used
instead (kodoctl.pulsar.control.topic_lock); each kind takes its own lease first and then looks for the other kind, so
that two processes never hold both.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

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

_T = TypeVar("_T")
HEARTBEAT_S: Final = 5.0  # a broker fences a silent holder after 60 s; nobody writes longer than this without asking
_RETRY_S: Final = 0.25
_GIVEN_BACK_S: Final = 2.0  # in which another command gives back a lease that it took early, as this one does
_FEW: Final = 3  # leases that need no threads
_TOGETHER: Final = 32  # leases at a time: a wait for a broker needs no processor
_QUESTIONS: Final = 3  # in a row, to a broker whose answers come too late
_PENDING: Final = 100_000  # entries without a receipt: more than an apply has, so that it never waits for room


class Hold(Protocol):
    """The held lease of one namespace (interface). ExclusiveProducer writes a journal; Lock, without the binary port,
    has none and drops each entry.
    """

    def beat(self) -> None:
        """Asks the broker whether this process still holds the lease, and waits for the answer. Raises LockedError if
        not; UnconfirmedError (a LockedError) or ClusterError without an answer.
        """

    def write(self, entry: Mapping[str, Any]) -> None:
        """Writes an entry to the namespace's journal, and returns when the entry is stored. Raises LockedError if it
        is not.
        """

    def note(self, entry: Mapping[str, Any]) -> None:
        """Sends an entry to the namespace's journal without waiting. It is stored before any later entry, unless the
        broker drops it, so that it is sent again. `settle` waits for its receipt, and raises its failure.
        """

    def settle(self) -> None:
        """Returns when every sent entry is stored; at once if entries are dropped (Lock). Raises LockedError if the
        lease is lost or an entry cannot be stored; UnconfirmedError (a LockedError) if no receipt came in time: the
        entry may still be stored later.
        """

    def close(self) -> None:
        """Gives the lease back, so that the next process gets it at once; raises nothing if that fails. Does nothing if
        another client has taken the lease.
        """


def _now() -> float:
    """Seconds of a clock that also runs while the process is stopped or the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease:
    """The leases that one command holds. The caller has to call `check` before each write: if a lease is lost, it
    raises LockedError, and the caller writes nothing more. `since`: a time before the first lease was taken, in seconds
    of `clock`, None: now; it counts as the first confirmation. `ever_lost`: a loss was noticed, even if `ask` forgot it
    since. Without the binary port there is no journal, and entries are dropped.
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
        """Returns without a request if the broker confirmed every lease in the last HEARTBEAT_S (5) seconds; else asks
        the broker, and waits for the answer, also during a fail-over. One thread asks while others wait for it.

        Raises LockedError if a lease is lost, UnconfirmedError (a LockedError) if no answer came or three in a row came
        too late. An unconfirmed lease counts as lost: later checks in all threads raise the same error, until `ask`.
        """
        with self._lock, self._noticing():
            self._raise_lost()
            for _ in range(_QUESTIONS):
                if self._clock() - self._confirmed < HEARTBEAT_S:
                    return
                asked = (
                    self._clock()
                )  # what an answer says was true some time after the question, and may not be any more
                _each(lambda one: _beat(*one), self._holds.items())
                self._confirmed = asked
            if (took := self._clock() - self._confirmed) >= HEARTBEAT_S:
                where = ", ".join(map(str, sorted(self._holds)))
                detail = f"{where}: the broker needs {took:.1f} s to say whether it is ours, nothing is written on answers older than {HEARTBEAT_S:.0f} s"
                raise UnconfirmedError(error("K541", "the lease could not be confirmed", detail))

    def ask(self) -> None:
        """Checks the leases as `check` does, but asks the broker in any case, and forgets an earlier loss: if the
        broker confirms every lease, `check` and `write` succeed again. A lease that another client took stays lost, and
        `ever_lost` stays. For callers that had no answer before and need one now.
        """
        with self._lock:
            self._confirmed, self._lost = float("-inf"), None
        self.check()

    def write(self, namespace: NamespaceName, entry: Mapping[str, Any]) -> None:
        """Writes an entry to the journal of one of the namespaces, and returns when the entry is stored. Raises
        LockedError if it is not, or if a loss of any lease was noticed before.
        """
        self._raise_lost()
        with self._noticing():
            self._holds[namespace].write(entry)

    def write_everywhere(self, entry: Mapping[str, Any]) -> None:
        """Writes an entry to the journal of every namespace, and returns when all are stored. Raises LockedError as
        `write` does; some of the journals may then have the entry.
        """
        self._raise_lost()
        with self._noticing():
            _each(lambda taken_hold: taken_hold.write(entry), self._holds.values())

    def note(self, namespace: NamespaceName, entry: Mapping[str, Any]) -> None:
        """Sends an entry to the journal of one of the namespaces without waiting; `settle` waits for its receipt, and
        raises its failure.
        """
        self._holds[namespace].note(entry)

    def settle(self) -> None:
        """Returns when every sent entry is stored. Raises LockedError if one is not, or if a loss of any lease was
        noticed before.
        """
        self._raise_lost()
        with self._noticing():
            for taken_hold in self._holds.values():
                taken_hold.settle()

    def _raise_lost(self) -> None:
        """Raises the loss of a lease that any thread noticed before: another wait would be in vain."""
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
    """Asks the broker for one lease. Raises LockedError, also (UnconfirmedError) if no broker answers."""
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
    """Context in which this command holds the lease of each namespace, and which gives all back at its end. The control
    namespaces must exist. Leases are taken in parallel; while the command waits for one that another has, it holds only
    those of earlier namespaces, so that two commands never wait for each other. Raises LockedError if another process
    still has a lease after `timeout` (with its name if that can be read), or takes it away at once; StoppedError if
    `stop` is set while it waits for another holder; ClusterError if a lease cannot be taken.

    Args:
        who, plan: the new holder, as others see it, and the plan; both also for the first entry of the journal.
        timeout: seconds to wait for other holders, for all leases together; but for each lease behind the first one at
            least 2 s.
        stop: event that an interruption sets, so that waits end soon.
    """
    holds: dict[NamespaceName, Hold] = {}
    since = _now()
    taking = _Taking(
        admin, client, who, since + timeout, Patience(client.patience.waits, stop), stop or threading.Event()
    )
    try:
        _take_all(taking, sorted(namespaces), holds)
        _each(lambda one: _write_first(*one, {"kind": "lease", "who": who, "plan": plan}), holds.items())
        yield Lease(holds, since=since)
    finally:
        _each(lambda taken_hold: taken_hold.close(), holds.values())


def _take_all(taking: _Taking, namespaces: Sequence[NamespaceName], holds: dict[NamespaceName, Hold]) -> None:
    """Takes the leases of the namespaces, in their order, into `holds`. After an error, those that are in it are held.

    The first lease is taken before all others, so that one of two commands about the same namespaces goes on. If
    another command has one of the others, those behind it are given back before the wait for it.
    """
    left = list(namespaces)
    for first in left[:1]:
        holds[first] = taking.acquire(first)
    while left := [one for one in left if one not in holds]:
        _each(lambda namespace: taking.attempt(namespace, holds), left)
        missed = next((one for one in left if one not in holds), None)
        if missed is not None:
            _each(lambda later: later.close(), [holds.pop(one) for one in left if one > missed and one in holds])
            holds[missed] = taking.acquire(missed, grace=_GIVEN_BACK_S)


def _each(work: Callable[[_T], object], items: Collection[_T]) -> None:
    """Calls `work` with each item, in parallel, and returns when all calls have ended. Raises the first error."""
    if len(items) < _FEW:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(min(len(items), _TOGETHER), thread_name_prefix="lease") as pool:
        for _ in pool.map(work, items):
            pass


def _write_first(namespace: NamespaceName, taken_hold: Hold, entry: Mapping[str, Any]) -> None:
    """Writes the first entry of a new lease. Raises ClusterError if it is not stored: nothing else was written before,
    so that the lease was never ours.
    """
    try:
        taken_hold.write(entry)
    except UnconfirmedError as problem:
        raise _not_taken(namespace, problem.diagnostics[0].detail.partition(": ")[2]) from None


def _not_taken(namespace: NamespaceName, problem: object) -> ClusterError:
    return ClusterError(error("K542", "the lease could not be taken", f"{namespace}: {problem}"))


@dataclass(frozen=True, slots=True)
class _Taking:
    """Parameters of taking leases. `who`: the new holder; `deadline`: by `_now`; `stop`: set by an interruption."""

    admin: Admin
    client: BrokerClient
    who: str
    deadline: float
    patience: Patience
    stop: threading.Event

    def attempt(self, namespace: NamespaceName, holds: dict[NamespaceName, Hold]) -> None:
        """Tries once to take the lease into `holds`; leaves it out if another process has it. Raises ClusterError."""
        taken_hold = self._try(namespace, ensure_lease_topic(self.admin, namespace))
        if taken_hold is not None:
            holds[namespace] = taken_hold

    def acquire(self, namespace: NamespaceName, *, grace: float = 0.0) -> Hold:
        """Tries until `deadline`, and for `grace` seconds at least, to take the lease. Raises LockedError,
        StoppedError, ClusterError.
        """
        topic = ensure_lease_topic(self.admin, namespace)
        deadline = max(self.deadline, _now() + grace)
        limit = max(deadline - _now(), FAIL_OVER_S)  # one try lasts as long as a fail-over
        with self.patience.waits.during(f"the lease of {namespace}", limit) as wait:
            while True:
                taken_hold = self._try(namespace, topic)
                if taken_hold is not None:
                    return taken_hold
                if _now() >= deadline:
                    detail = f"{namespace} is being applied by {_holder_text(self.admin, namespace)}; wait for it with --lock-timeout 10m; if it hangs or has died: kodoctl unlock {namespace}"
                    raise LockedError(error("K540", "another apply is running", detail))
                wait.what = f"the lease of {namespace}, which another apply has"
                if self.stop.wait(_RETRY_S):
                    detail = f"while it waited for the lease of {namespace}; nothing of the plan was written"
                    raise StoppedError(error("K538", "interrupted", detail))

    def _try(self, namespace: NamespaceName, topic: str) -> Hold | None:
        """Takes the lease of its own kind first, then looks for the other kind: if two processes do so at once, at
        least one sees the other. None: another process has a lease.
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
    """Takes a namespace's lease away from its holder and frees it. Returns the former holder, None if there was none.
    The former holder writes nothing more once it notices this, at its next heartbeat (HEARTBEAT_S, 5 s) or the receipt
    of an entry; a request that is under way may still be carried out. `who`: name of the caller, for the record in the
    lease topic. Raises ClusterError, also if the holder has a producer and the caller no binary port; LockedError if
    another client takes the lease meanwhile.
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
    """Present holder of the lease of a namespace, None if there is none. Raises ClusterError if the cluster gives no
    clear answer.
    """
    return lock_holder(admin, namespace) or _publisher(admin, lease_topic(namespace))


def _publisher(admin: Admin, topic: str) -> LockHolder | None:
    """The exclusive producer of a lease topic; None only if the broker says that there is none, or no such topic."""
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
