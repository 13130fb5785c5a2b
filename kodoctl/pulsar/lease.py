"""One apply at a time: an exclusive producer on a namespace's lease topic.

Freed within 0.1 s of the holder's death; a frozen holder is fenced after 60 s and learns it at its next heartbeat
(pulsar-measured §4). Nothing to forget, nothing to clean up.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kodoctl.errors import ClusterError, LockedError, error
from kodoctl.pulsar.admin import Admin
from kodoctl.pulsar.client import BrokerClient
from kodoctl.pulsar.control import ensure_lease_topic
from kodoctl.topology.names import NamespaceName

HEARTBEAT_S: Final = 5.0  # a broker fences a silent holder after 60 s; nobody writes longer than this without asking
_RETRY_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease, for people."""

    who: str
    since: str

    def __str__(self) -> str:
        return f"{self.who}{f', since {self.since}' if self.since else ''}"


def _now() -> float:
    """Seconds that go on while the process is stopped or the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease:
    """Held leases of one command. `check` before writing; a lost lease raises LockedError and nothing more is written."""

    def __init__(self, producers: Mapping[NamespaceName, Any], clock: Callable[[], float] = _now) -> None:
        self._producers = producers
        self._clock = clock
        self._lock = threading.Lock()
        self._confirmed = clock()

    def check(self) -> None:
        """Asks the broker whether we still hold every lease, at most every HEARTBEAT_S seconds."""
        with self._lock:
            if self._clock() - self._confirmed < HEARTBEAT_S:
                return
            for namespace, producer in self._producers.items():
                _beat(producer, namespace)
            self._confirmed = self._clock()

    def write(self, namespace: NamespaceName, entry: Mapping[str, Any]) -> None:
        """An entry of the namespace's journal; returns with its receipt. Raises LockedError."""
        _send(self._producers[namespace], namespace, entry)


def _beat(producer: Any, namespace: NamespaceName, **entry: str) -> None:
    _send(producer, namespace, {"kind": "lease", **entry})


def _send(producer: Any, namespace: NamespaceName, entry: Mapping[str, Any]) -> None:
    import pulsar

    try:
        producer.send(json.dumps(entry).encode())
    except pulsar.PulsarException as problem:
        detail = (
            f"{namespace}: {problem}: another apply took over, or the broker was away; what was done so far is reported"
        )
        raise LockedError(error("K541", "the lease was lost", detail)) from None


@contextlib.contextmanager
def hold(
    admin: Admin, client: BrokerClient, namespaces: Sequence[NamespaceName], *, who: str, plan: str, timeout: float
) -> Iterator[Lease]:
    """Holds the lease of each namespace, taken in sorted order so that two commands never wait for each other.

    `timeout` in seconds, 0 = refuse at once. Raises LockedError naming the holder.
    """
    producers: dict[NamespaceName, Any] = {}
    deadline = _now() + timeout
    try:
        for namespace in sorted(namespaces):
            topic = ensure_lease_topic(admin, namespace)
            producers[namespace] = _acquire(admin, client, namespace, topic, who=who, deadline=deadline)
            _beat(producers[namespace], namespace, who=who, plan=plan)
        yield Lease(producers)
    finally:
        for producer in producers.values():
            with contextlib.suppress(Exception):  # the lease ends with the connection in any case
                producer.close()


def _acquire(
    admin: Admin, client: BrokerClient, namespace: NamespaceName, topic: str, *, who: str, deadline: float
) -> Any:
    import pulsar

    while True:
        try:
            since = time.strftime("%Y-%m-%d %H:%M:%S %z")
            return client.get().create_producer(
                topic,
                access_mode=pulsar.ProducerAccessMode.Exclusive,
                properties={"holder": who, "since": since},
                send_timeout_millis=15_000,
            )
        except (pulsar.ProducerFenced, pulsar.ProducerBusy):
            if _now() >= deadline:
                holder = read_holder(admin, topic)
                detail = f"{namespace} is being applied by {holder}; wait for it with --lock-timeout 10m; if it hangs: kodoctl unlock {namespace}"
                raise LockedError(error("K540", "another apply is running", detail)) from None
            time.sleep(_RETRY_S)
        except pulsar.PulsarException as problem:
            raise ClusterError(error("K542", "the lease could not be taken", f"{namespace}: {problem}")) from None


def break_lease(admin: Admin, client: BrokerClient, namespace: NamespaceName, who: str) -> Holder | None:
    """Takes a namespace's lease away from whoever holds it, and lets go of it; None: nobody held it. The holder learns it
    with its next entry or heartbeat, and writes nothing more.
    """
    import pulsar

    topic = ensure_lease_topic(admin, namespace)
    holder = read_holder(admin, topic)
    if not holder.since:
        return None
    try:
        producer = client.get().create_producer(topic, access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing)
        with contextlib.closing(producer):
            producer.send(json.dumps({"kind": "unlock", "who": who, "from": str(holder)}).encode())
    except pulsar.PulsarException as problem:
        raise ClusterError(error("K542", "the lease could not be taken", f"{namespace}: {problem}")) from None
    return holder


def read_holder(admin: Admin, topic: str) -> Holder:
    """Who holds the lease, as the broker knows it."""
    reply = admin.call("GET", f"{topic.replace('://', '/', 1)}/stats")
    publishers = reply.data.get("publishers") if reply.ok and isinstance(reply.data, dict) else None
    if not publishers:
        return Holder("somebody who has just ended", "")
    metadata = publishers[0].get("metadata") or {}
    address = str(publishers[0].get("address", "")).lstrip("/")
    return Holder(f"{metadata.get('holder', 'an unknown client')} ({address})", metadata.get("since", ""))
