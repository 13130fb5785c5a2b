"""One apply at a time: an exclusive producer on a namespace's lease topic.

Freed within 0.1 s of the holder's death; a frozen holder is fenced after 60 s and learns it at its next heartbeat
(pulsar-measured §4). Nothing to forget, nothing to clean up. Where the broker's binary port is not known a lock topic stands
in (kodoctl.pulsar.lock); each kind takes its own first and then looks for the other, so that never both are held.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from kodoctl.errors import ClusterError, LockedError, error
from kodoctl.pulsar.admin import Admin, must
from kodoctl.pulsar.client import BrokerClient
from kodoctl.pulsar.control import ensure_lease_topic, lease_topic
from kodoctl.pulsar.lock import Holder, break_lock, lock_holder, lock_token, take_lock
from kodoctl.topology.names import NamespaceName

HEARTBEAT_S: Final = 5.0  # a broker fences a silent holder after 60 s; nobody writes longer than this without asking
_RETRY_S: Final = 0.25
_QUESTIONS: Final = 3  # in a row, to a broker whose answers come too late
_Heard = Callable[[LockedError | None], None]


class Hold(Protocol):
    """What somebody has who holds the lease of one namespace. `beat` and `write` raise LockedError when it is lost."""

    def beat(self) -> None:
        """Asks the broker whether it is still held."""

    def write(self, entry: Mapping[str, Any]) -> None:
        """An entry of the namespace's journal; returns with its receipt."""

    def note(self, entry: Mapping[str, Any]) -> None:
        """An entry whose receipt `settle` waits for; it is stored before any entry that comes after it."""

    def settle(self) -> None:
        """Returns when every entry has its receipt. Raises LockedError when one has none."""

    def close(self) -> None:
        """Gives it back."""


class _Exclusive:
    """The exclusive producer."""

    def __init__(self, namespace: NamespaceName, producer: Any) -> None:
        self._namespace, self._producer = namespace, producer
        self._changed = threading.Condition()
        self._under_way = 0
        self._failed: LockedError | None = None

    def beat(self) -> None:
        self.write({"kind": "lease"})

    def write(self, entry: Mapping[str, Any]) -> None:
        if self._failed:  # a producer that is connected again does not say who wrote meanwhile
            raise self._failed
        try:
            _send(self._producer, self._namespace, entry)
        except LockedError as lost:
            self._failed = lost
            raise

    def note(self, entry: Mapping[str, Any]) -> None:
        with self._changed:
            self._under_way += 1
        _send_on(self._producer, self._namespace, entry, self._heard)

    def _heard(self, problem: LockedError | None) -> None:
        with self._changed:
            self._under_way -= 1
            self._failed = self._failed or problem
            self._changed.notify_all()

    def settle(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way)
            if self._failed:
                raise self._failed

    def close(self) -> None:
        with contextlib.suppress(Exception):  # it ends with the connection in any case
            self._producer.close()


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

    def check(self) -> None:
        """Returns where every lease was ours at most HEARTBEAT_S seconds ago, as the broker said; asks it where that is longer
        ago. Raises LockedError also where there is no answer, or only old ones: not to know it is to have lost it.
        """
        with self._lock:
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
                raise LockedError(error("K541", "the lease was lost", detail))

    def ask(self) -> None:
        """As `check`, but asks in any case: for who could not be told before, and must know now."""
        with self._lock:
            self._confirmed = float("-inf")
        self.check()

    def write(self, namespace: NamespaceName, entry: Mapping[str, Any]) -> None:
        """An entry of the namespace's journal; returns with its receipt. Raises LockedError."""
        self._holds[namespace].write(entry)

    def note(self, namespace: NamespaceName, entry: Mapping[str, Any]) -> None:
        """An entry of the namespace's journal; `settle` waits for its receipt."""
        self._holds[namespace].note(entry)

    def settle(self) -> None:
        """Returns when every entry has its receipt. Raises LockedError when one has none."""
        for held in self._holds.values():
            held.settle()


def _beat(namespace: NamespaceName, hold: Hold) -> None:
    """Raises LockedError also where nobody answers."""
    try:
        hold.beat()
    except ClusterError as problem:
        detail = f"{namespace}: whether it is still held could not be asked: {problem.diagnostics[0].detail}; what was done so far is reported"
        raise LockedError(error("K541", "the lease was lost", detail)) from None


def _send(producer: Any, namespace: NamespaceName, entry: Mapping[str, Any]) -> None:
    import pulsar

    try:
        producer.send(json.dumps(entry).encode())
    except pulsar.PulsarException as problem:
        raise _lost(namespace, str(problem)) from None


def _send_on(producer: Any, namespace: NamespaceName, entry: Mapping[str, Any], heard: _Heard) -> None:
    """Sends without waiting; `heard` is called with the receipt, or with why there is none (after 15 s at the latest)."""
    import pulsar

    def told(result: Any, _: Any) -> None:
        heard(None if result == pulsar.Result.Ok else _lost(namespace, str(result)))

    try:
        producer.send_async(json.dumps(entry).encode(), told)
    except pulsar.PulsarException as problem:
        heard(_lost(namespace, str(problem)))


def _lost(namespace: NamespaceName, problem: str) -> LockedError:
    detail = (
        f"{namespace}: {problem}: another apply took over, or the broker was away; what was done so far is reported"
    )
    return LockedError(error("K541", "the lease was lost", detail))


@contextlib.contextmanager
def hold(
    admin: Admin, client: BrokerClient, namespaces: Sequence[NamespaceName], *, who: str, plan: str, timeout: float
) -> Iterator[Lease]:
    """Holds the lease of each namespace, taken in sorted order so that two commands never wait for each other.

    `timeout` in seconds, 0 = refuse at once. Raises LockedError naming the holder.
    """
    holds: dict[NamespaceName, Hold] = {}
    since = _now()
    deadline = since + timeout
    try:
        for namespace in sorted(namespaces):
            holds[namespace] = held = _acquire(admin, client, namespace, who, deadline)
            held.write({"kind": "lease", "who": who, "plan": plan})
        yield Lease(holds, since=since)
    finally:
        for held in holds.values():
            held.close()


def _acquire(admin: Admin, client: BrokerClient, namespace: NamespaceName, who: str, deadline: float) -> Hold:
    """Asks until it is given or time is up."""
    topic = ensure_lease_topic(admin, namespace)
    while True:
        held = _try(admin, client, namespace, topic, who)
        if held is not None:
            return held
        if _now() >= deadline:
            holder = _named(admin, namespace)
            detail = f"{namespace} is being applied by {holder}; wait for it with --lock-timeout 10m; if it hangs or has died: kodoctl unlock {namespace}"
            raise LockedError(error("K540", "another apply is running", detail))
        time.sleep(_RETRY_S)


def _named(admin: Admin, namespace: NamespaceName) -> str:
    """Who holds a lease that could not be had, in words."""
    try:
        return str(held_by(admin, namespace) or "somebody who has just ended")
    except ClusterError as problem:
        return f"somebody (who it is cannot be read: {problem.diagnostics[0].detail})"


def _try(admin: Admin, client: BrokerClient, namespace: NamespaceName, topic: str, who: str) -> Hold | None:
    """Its own kind first, then a look for the other: of two who do so at once at least one sees the other."""
    held = _exclusive(client, namespace, topic, who) if client.available else take_lock(admin, namespace, who)
    if held is None:
        return None
    other: object = "unknown"
    try:
        other = lock_holder(admin, namespace) if client.available else _publisher(admin, topic)
    finally:
        if other is not None:
            held.close()
    return held if other is None else None


def _exclusive(client: BrokerClient, namespace: NamespaceName, topic: str, who: str) -> _Exclusive | None:
    import pulsar

    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        producer = client.get().create_producer(
            topic,
            access_mode=pulsar.ProducerAccessMode.Exclusive,
            properties={"holder": who, "since": since},
            send_timeout_millis=15_000,
            block_if_queue_full=True,
            batching_enabled=True,  # of entries that nobody waits for; one that is waited for goes at once, and takes them along
        )
    except (pulsar.ProducerFenced, pulsar.ProducerBusy):
        return None
    except pulsar.PulsarException as problem:
        raise ClusterError(error("K542", "the lease could not be taken", f"{namespace}: {problem}")) from None
    return _Exclusive(namespace, producer)


def break_lease(admin: Admin, client: BrokerClient, namespace: NamespaceName, who: str) -> Holder | None:
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
        producer = client.get().create_producer(topic, access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing)
        with contextlib.closing(producer):
            producer.send(json.dumps({"kind": "unlock", "who": who, "from": str(holder)}).encode())
    except pulsar.PulsarException as problem:
        raise ClusterError(error("K542", "the lease could not be taken", f"{namespace}: {problem}")) from None
    return holder


def held_by(admin: Admin, namespace: NamespaceName) -> Holder | None:
    """Who holds the lease of a namespace, as the broker knows it; None: nobody. Raises ClusterError where it does not say."""
    return lock_holder(admin, namespace) or _publisher(admin, lease_topic(namespace))


def _publisher(admin: Admin, topic: str) -> Holder | None:
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
    return Holder(f"{metadata.get('holder', 'an unknown client')} ({address})", metadata.get("since", ""))
