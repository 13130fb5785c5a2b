"""Deletes of topics, subscriptions and namespaces: of all partitions or none, and never of objects that nobody
reviewed.

Each DELETE is sent by `kodoctl.pulsar.admin.confirmed_write.delete`, which reads the object before every single
request: the object must still have its planned owner; it may have messages only if a user allowed their loss, and
clients only if the plan showed some as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kodoctl.errors import ClusterError
from kodoctl.protocol.properties import LEDGER_PREFIX
from kodoctl.pulsar.admin.admin import Admin, must, namespace_path, subscription_path, topic_path
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError, delete, is_done, poll_until
from kodoctl.pulsar.admin.topic_stats import SubscriptionReading, TopicReading, read_same_kind, read_topic
from kodoctl.pulsar.inventory.functions import read_functions
from kodoctl.pulsar.values.live_objects import NO_WORKER
from kodoctl.text.formatting import many
from kodoctl.topology.resources import FUNCTION_KINDS, SubscriptionResource, TopicResource

if TYPE_CHECKING:
    from kodoctl.plan.changes import Delete
    from kodoctl.topology.names import NamespaceName

_REFUSED = frozenset({404, 412})


def delete_topic(admin: Admin, change: Delete, *, marker: str | None, allowed: bool) -> None:
    """Deletes a topic with all its partitions. It is no error if the topic no longer exists, or if a plain topic is in
    the place of a partitioned one or the reverse, which stays.

    `marker`: its marker when the plan was checked, None: it had none; `allowed`: a user allowed the loss of its
    messages. Every partition is read before each request, because with a client on any partition Pulsar answers 412
    *after* it deleted the others. Clients, also some that the plan did not show, are disconnected (`force`) if
    `allowed` and the plan showed any. Raises WriteFailedError if the topic has another marker, messages without
    `allowed`, or clients that are not to be disconnected, or if it is not deleted (some partitions may be gone);
    ClusterError if it cannot be read, or if no broker answers.
    """
    topic = change.before
    assert isinstance(topic, TopicResource)

    def look() -> Mapping[str, str] | None:
        reading = read_same_kind(admin, topic)
        if reading is None:
            return None
        refuse_stranger(reading.marker, marker)
        _refuse_surprises(reading, change, allowed=allowed)
        return {"force": "true"} if reading.facts.busy_partitions else {}

    path = topic_path(topic.name)
    try:
        reply = delete(admin, f"{path}/partitions" if topic.partitions else path, look, final=_REFUSED)
    except WriteFailedError as problem:
        raise WriteFailedError(f"{problem}; {what_is_left(admin, topic)}") from None
    if reply is not None and not reply.ok and not poll_until(lambda: read_same_kind(admin, topic) is None):
        raise WriteFailedError(f"the broker did not delete it; {what_is_left(admin, topic)}; it said: {reply.reason}")


def refuse_stranger(marker: str | None, planned: str | None) -> None:
    """Raises WriteFailedError if the marker of an object now (`marker`) is not the one that the plan saw (`planned`):
    somebody marked the object since, or created it anew under the same name. None: no marker.
    """
    if marker != planned:
        raise WriteFailedError(
            f"it belongs to {marker or 'nobody'} since the plan, to {planned or 'nobody'} before: plan again"
        )


def _refuse_surprises(reading: TopicReading, change: Delete, *, allowed: bool) -> None:
    """Raises WriteFailedError if clients are connected that the plan did not show, or if there are messages whose loss
    nobody allowed.
    """
    facts = reading.facts
    if facts.busy_partitions and not _reviewed_clients(change, allowed=allowed):
        where = f" on partition {', '.join(map(str, facts.busy_partitions))}" if reading.partitions else ""
        raise WriteFailedError(f"clients are connected{where}: stop them, or plan again and allow it")
    if (facts.backlog_bytes or facts.storage_bytes) and not allowed:
        raise WriteFailedError("it holds messages that nobody allowed to destroy: plan again")


def _reviewed_clients(change: Delete, *, allowed: bool) -> bool:
    """True if `force` may disconnect clients: the plan showed some, and a user allowed the loss."""
    return allowed and bool(change.about.evidence.get("clients"))


def what_is_left(admin: Admin, topic: TopicResource) -> str:
    """Reads a topic that should be deleted, and returns a text for the error: the topic is gone, the numbers of the
    partitions that are gone, or all are still there; or the reason why this cannot be read. Raises no ClusterError.
    """
    try:
        reading = read_same_kind(admin, topic)
    except ClusterError as problem:
        return f"what is left of it cannot be read: {problem.diagnostics[0].detail}"
    if reading is None:
        return "the topic is gone"
    if not reading.partitions:
        return "the topic is still there"
    gone = ", ".join(map(str, reading.missing))
    return f"partitions {gone} are gone, the others are there" if gone else "all partitions are still there"


def delete_subscription(admin: Admin, change: Delete, *, marker: str | None, allowed: bool) -> None:
    """Deletes a subscription on all partitions; one that no longer exists is no error. `marker`, `allowed`: as in
    `delete_topic`. Raises WriteFailedError if the subscription has another marker, unread messages without `allowed`,
    or consumers that are not to be disconnected, or if it is not deleted (it may be gone from some partitions);
    ClusterError if its topic cannot be read, or if no broker answers.

    Consumers, also some that the plan did not show, are disconnected (`force`) if `allowed` and the plan showed any.
    Without `force`, a consumer on any partition makes Pulsar delete the cursors of the other partitions and answer 412.
    """
    subscription = change.before
    assert isinstance(subscription, SubscriptionResource)

    def find_subscription() -> SubscriptionReading | None:
        reading = read_topic(admin, subscription.topic)
        return next((s for s in reading.subscriptions if s.name == subscription.name), None) if reading else None

    def look() -> Mapping[str, str] | None:
        now = find_subscription()
        if now is None:
            return None
        refuse_stranger(now.marker, marker)
        if now.facts.consumers and not _reviewed_clients(change, allowed=allowed):
            raise WriteFailedError("consumers are connected: stop them, or plan again and allow it")
        if now.facts.backlog_entries and not allowed:
            entries = many(now.facts.backlog_entries, "unread entry", "unread entries")
            raise WriteFailedError(f"it holds {entries} that nobody allowed to destroy: plan again")
        return {"force": "true"} if now.facts.consumers else {}

    path = subscription_path(subscription.topic, subscription.name)
    with admin.waits.during(f"{subscription.address} is still on a partition") as wait:
        while True:
            reply = delete(admin, path, look, final=_REFUSED)
            if reply is None or reply.ok or poll_until(lambda: is_done(lambda: find_subscription() is None)):
                return
            # 404: an earlier try took it from one partition, and another had no broker: whichever answered first
            if not reply.missing or not wait.again(f"{reply}"):
                raise WriteFailedError(f"the broker refused: {reply.reason}; {_where_left(find_subscription())}")


def _where_left(subscription: SubscriptionReading | None) -> str:
    """Text for an error: the partitions that still have a subscription that should be deleted."""
    if subscription is None:
        return "the subscription is gone"
    gone = ", ".join(map(str, subscription.missing_on))
    return f"it is gone from partitions {gone}, the others have it" if gone else "all partitions have it"


def why_still_there(reading: TopicReading | None, subscription: SubscriptionResource, owner: str) -> str:
    """Text for an error about a deleted subscription that still exists; "" if it is gone, or if the one that exists
    counts as a new one: it has a marker other than `owner`, or it has consumers and no marker, because clients that
    were disconnected made it again.

    `reading`: the topic, read after the delete; None: the topic is gone. `owner`: owner of the deleted subscription.
    """
    found = next((one for one in reading.subscriptions if one.name == subscription.name), None) if reading else None
    if found is None or (found.marker != owner and (found.marker is not None or found.facts.consumers)):
        return ""
    return f"the broker did not delete it; {_where_left(found)}"


def delete_namespace(admin: Admin, name: NamespaceName, topologies: frozenset[str], *, allowed: bool) -> None:
    """Deletes an empty namespace, and waits up to 10 s until the broker does not show it any more; one that no longer
    exists is no error.

    Raises WriteFailedError if the namespace has topics (`force` is never sent), if it has functions or connectors,
    which Pulsar would leave without their namespace, or if that is not known without `allowed`, if it has no ownership
    ledger, or one of a topology that is not in `topologies` (another owner may have made a new namespace of the same
    name), or if it is not deleted; ClusterError if it cannot be read, or if no broker answers.

    Args:
        topologies: names of the topologies whose ledgers may be there.
        allowed: a user allowed the deletion even if it is not known whether functions or connectors are there.
    """
    path = namespace_path(name)

    def look() -> Mapping[str, str] | None:
        reply = admin.call("GET", path)
        if reply.missing:
            return None
        properties = must(reply, f"reading namespace {name}").get("properties") or {}
        living = {key.removeprefix(LEDGER_PREFIX) for key in properties if key.startswith(LEDGER_PREFIX)}
        if strangers := sorted(living - topologies):
            raise WriteFailedError(f"{', '.join(strangers)} lives there since the plan: plan again")
        if not living:
            raise WriteFailedError("no ledger says any more that kodoctl made it: plan again")
        for kind, key in FUNCTION_KINDS.items():
            found, unread = read_functions(admin, kind, name)
            why = unread.pop(f"{kind}.{name}", NO_WORKER)
            if why != NO_WORKER and not allowed:
                raise WriteFailedError(f"whether {key} live there is not known: {why}")
            if left := ", ".join(sorted({*unread, *(one.resource.address for one in found)})):
                raise WriteFailedError(f"{key} live there, and would lose their namespace: {left}")
        return {}

    delete(admin, path, look, final=frozenset({404}))
    if not poll_until(lambda: is_done(lambda: admin.call("GET", path).missing)):
        raise WriteFailedError("the broker confirmed the request, and still shows it: apply again")
