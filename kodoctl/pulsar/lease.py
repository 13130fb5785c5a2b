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
from kodoctl.pulsar.admin import Admin
from kodoctl.pulsar.client import BrokerClient
from kodoctl.pulsar.control import ensure_lease_topic, lease_topic
from kodoctl.pulsar.lock import Holder, break_lock, lock_holder, take_lock
from kodoctl.topology.names import NamespaceName

HEARTBEAT_S: Final = 5.0  # a broker fences a silent holder after 60 s; nobody writes longer than this without asking
_RETRY_S: Final = 0.25
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
        _send(self._producer, self._namespace, entry)

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
    """Held leases of one command. `check` before writing; a lost lease raises LockedError and nothing more is written."""

    def __init__(self, holds: Mapping[NamespaceName, Hold], clock: Callable[[], float] = _now) -> None:
        self._holds = holds
        self._clock = clock
        self._lock = threading.Lock()
        self._confirmed = clock()

    def check(self) -> None:
        """Asks the broker whether we still hold every lease, at most every HEARTBEAT_S seconds."""
        with self._lock:
            if self._clock() - self._confirmed < HEARTBEAT_S:
                return
            for held in self._holds.values():
                held.beat()
            self._confirmed = self._clock()

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
    deadline = _now() + timeout
    try:
        for namespace in sorted(namespaces):
            holds[namespace] = held = _acquire(admin, client, namespace, who, deadline)
            held.write({"kind": "lease", "who": who, "plan": plan})
        yield Lease(holds)
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
            holder = held_by(admin, namespace) or "somebody who has just ended"
            detail = f"{namespace} is being applied by {holder}; wait for it with --lock-timeout 10m; if it hangs or has died: kodoctl unlock {namespace}"
            raise LockedError(error("K540", "another apply is running", detail))
        time.sleep(_RETRY_S)


def _try(admin: Admin, client: BrokerClient, namespace: NamespaceName, topic: str, who: str) -> Hold | None:
    """Its own kind first, then a look for the other: of two who do so at once at least one sees the other."""
    held = _exclusive(client, namespace, topic, who) if client.available else take_lock(admin, namespace, who)
    if held is None:
        return None
    other = lock_holder(admin, namespace) if client.available else _publisher(admin, topic)
    if other is None:
        return held
    held.close()
    return None


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
    if (locked := lock_holder(admin, namespace)) is not None:
        break_lock(admin, namespace)
    if (holder := _publisher(admin, topic)) is None:
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
    """Who holds the lease of a namespace, as the broker knows it; None: nobody."""
    return lock_holder(admin, namespace) or _publisher(admin, lease_topic(namespace))


def _publisher(admin: Admin, topic: str) -> Holder | None:
    reply = admin.call("GET", f"{topic.replace('://', '/', 1)}/stats")
    publishers = reply.data.get("publishers") if reply.ok and isinstance(reply.data, dict) else None
    if not publishers:
        return None
    metadata = publishers[0].get("metadata") or {}
    address = str(publishers[0].get("address", "")).lstrip("/")
    return Holder(f"{metadata.get('holder', 'an unknown client')} ({address})", metadata.get("since", ""))
