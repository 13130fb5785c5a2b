"""Writes to topics and their objects: create, add partitions, create missing partitions, policies, markers, schemas.

Every function carries out one change, and raises WriteFailedError with a reason for people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kodoctl.apply.policy_writer import write_policy
from kodoctl.apply.subscriptions import heal_subscription
from kodoctl.plan.changes import FieldUpdate, PolicyChange
from kodoctl.plan.field_diff import is_equal
from kodoctl.plan.policy_write_order import Changed, PolicyWrite, write_order
from kodoctl.protocol.properties import OWNER_PROPERTY
from kodoctl.pulsar.admin.admin import JSON, PARTITIONED, Admin, must, schema_path, topic_path
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError, delete, poll_until, write_confirmed
from kodoctl.pulsar.admin.topic_stats import read_topic
from kodoctl.pulsar.inventory.policy_json import is_set
from kodoctl.pulsar.inventory.policy_requests import BY_NAME, BY_SUBSCRIPTION, DELAYED_DELIVERY, topic_writes
from kodoctl.pulsar.inventory.schema_reader import read_schema
from kodoctl.pulsar.inventory.topic_policy_reader import read_subscription_rates
from kodoctl.topology.resources import SchemaResource, SubscriptionResource, TopicResource

if TYPE_CHECKING:
    from kodoctl.plan.policy_levels import PolicyLevels
    from kodoctl.topology.model.policies import PolicyValue
    from kodoctl.topology.names import TopicName

_MOMENT_S: Final = 2.0


def create_topic(admin: Admin, topic: TopicResource, owner: str, levels: PolicyLevels) -> None:
    """Creates a topic with the marker `owner` in one request, then sets its policies. For a plain topic the request may
    succeed although a client made the topic at the same moment, which then gets the marker in a second request. A topic
    that exists already is an error, unless it has the marker `owner`, or is an empty replica of another cluster's topic
    without a marker, which gets one. `levels`: policies from which the topic inherits. Raises WriteFailedError if
    somebody else created the topic, or if the broker refuses a request; ClusterError if the topic cannot be read, or no
    broker answers. After an error, the topic may exist.
    """

    def ours() -> bool:
        found = read_topic(admin, topic.name)
        return found is not None and found.marker == owner

    path, kind, properties = topic_path(topic.name), JSON, {OWNER_PROPERTY: owner}
    body: dict[str, object] = {**properties}
    if topic.partitions:
        path, kind, body = f"{path}/partitions", PARTITIONED, {"partitions": topic.partitions, "properties": properties}
    reply = write_confirmed(admin, "PUT", path, body, done=ours, content_type=kind, final=frozenset({409}))
    exists = reply is not None and reply.status == 409
    if (exists or not topic.partitions) and not ours():
        if exists and not _is_empty_replica(admin, topic, levels):
            raise WriteFailedError("somebody created it since the plan: plan again")
        mark_topic(admin, topic.name, owner, None)
    set_policies(admin, topic.name, {name: (None, value) for name, value in topic.policies.items()}, levels)


def _is_empty_replica(admin: Admin, topic: TopicResource, levels: PolicyLevels) -> bool:
    """True if the topic that appeared since the plan is an empty replica of another cluster's topic: as many
    partitions, no marker, no message and no subscription, in a namespace that replicates.
    """
    clusters = levels.effective("replication", topic.policies.get("replication"), after=True).value
    found = read_topic(admin, topic.name)
    return (
        isinstance(clusters, tuple | list)
        and len(clusters) > 1
        and found is not None
        and (found.partitions, found.marker, found.subscriptions) == (topic.partitions, None, ())
        and not (found.missing or found.facts.storage_bytes)
    )


def update_topic(
    admin: Admin, before: TopicResource, after: TopicResource, fields: tuple[FieldUpdate, ...], levels: PolicyLevels
) -> None:
    """Writes the changed fields of a topic, partitions before policies. If `partitions` or `missing_partitions` is
    among `fields`, sets the number of partitions (never a lower one) and creates missing ones again, and then at once
    creates each subscription, at the earliest message, on the partitions that lack it. Then writes the policies. Last,
    if a delayed-delivery value is to go, removes it and unloads the topic. `levels`: policies from which the topic
    inherits.

    Raises WriteFailedError if a policy in `fields` no longer has the value that the plan saw; then nothing is written,
    because added partitions cannot be removed. Also raises it if the broker refuses a request, or partitions are still
    missing afterwards. Raises ClusterError if something cannot be read, or no broker answers. After any other error
    than the first one, a part may be written. The caller has to read the result of the policies.
    """
    names = {field.name for field in fields}
    policies = {field.policy: (field.before, field.after) for field in fields if isinstance(field, PolicyChange)}
    for name, (old, _) in policies.items():
        if not _as_planned(admin, after.name, name, old):
            now = read_policy(admin, after.name, name, old)
            raise WriteFailedError(f"{name} changed since the plan: planned from {old}, now {now}; plan again")
    if names & {"partitions", "missing_partitions"}:
        _set_partitions(admin, before, max(after.partitions, before.partitions))
    set_policies(admin, after.name, policies, levels)
    if "delayed_delivery" in names:
        path = topic_path(after.name)
        delete(admin, f"{path}/{DELAYED_DELIVERY}", lambda: {} if _has_delayed_delivery(admin, after.name) else None)
        write_confirmed(admin, "PUT", f"{path}/unload", done=lambda: True)


def _as_planned(admin: Admin, topic: TopicName, name: str, planned: PolicyValue | None) -> bool:
    """True if a policy has its planned value. Reads it for up to 2 s, because a broker that shuts down may show a
    policy as unset for a moment (kodoctl.pulsar.inventory.topic_policy_reader).
    """
    return poll_until(lambda: is_equal(name, read_policy(admin, topic, name, planned), planned), seconds=_MOMENT_S)


def set_policies(admin: Admin, topic: TopicName, changed: Changed, levels: PolicyLevels) -> None:
    """Writes policies of one topic, one after the other, in an order that the broker accepts. `changed`: policy ->
    (value before, value after; None: unset); `levels`: policies from which the topic inherits. Raises the errors of
    `write_policy`; policies before that one in the order are then written. The caller has to read the result.
    """
    beneath = {name: levels.effective(name, None, after=True).value for name in ("retention", "backlog_quota")}
    for step in write_order(changed, beneath, by_time=True):

        def now(step: PolicyWrite = step) -> PolicyValue | None:
            return read_policy(admin, topic, step.name, step.before, step.after)

        write_policy(admin, topic_path(topic), step, topic_writes(step.name, step.after, step.before), now)


def read_policy(admin: Admin, topic: TopicName, name: str, *expected: PolicyValue | None) -> PolicyValue | None:
    """Reads one policy that is set on the topic itself; None if it is unset there. `expected`: values that it may have.
    The rates of the subscriptions that they name are read as well, because rates may be set for subscriptions that the
    topic does not have yet. Raises ClusterError.
    """
    codec = BY_NAME[name]
    if codec is BY_SUBSCRIPTION:
        there = must(admin.call("GET", f"{topic_path(topic)}/subscriptions"), f"reading {name} of {topic}")
        named = {subscription for value in expected if isinstance(value, dict) for subscription in value}
        raw = read_subscription_rates(admin, topic, {*there, *named})
        return codec.shape.decode(raw)
    raw = must(admin.call("GET", f"{topic_path(topic)}/{codec.bulk_name}"), f"reading {name} of {topic}")
    return codec.shape.decode(raw) if is_set(raw) else None


def _has_delayed_delivery(admin: Admin, topic: TopicName) -> bool:
    return is_set(
        must(admin.call("GET", f"{topic_path(topic)}/{DELAYED_DELIVERY}"), f"reading delayed delivery of {topic}")
    )


def _set_partitions(admin: Admin, before: TopicResource, count: int) -> None:
    """Sets the number of partitions; with the present number, creates missing partitions again. Then creates each
    subscription, at the earliest message, on the partitions that lack it, because Pulsar copies only the subscriptions
    of partition 0. Raises WriteFailedError, ClusterError.
    """

    def all_there() -> bool:
        found = read_topic(admin, before.name)
        return found is not None and found.partitions == count and not found.missing

    path = f"{topic_path(before.name)}/partitions"
    write_confirmed(admin, "POST", path, count, done=all_there)
    if not poll_until(all_there):
        raise WriteFailedError(f"{count} partitions were asked for and are not all there: apply again")
    reading = read_topic(admin, before.name)
    assert reading is not None
    for subscription in reading.subscriptions:
        if subscription.missing_on:
            heal_subscription(
                admin, SubscriptionResource(before.name, subscription.name), None, subscription.missing_on
            )


def mark_topic(admin: Admin, topic: TopicName, owner: str | None, planned: str | None) -> None:
    """Sets the marker of a topic to `owner`, or removes it (None); other properties stay. `planned`: the marker that
    the plan saw. Raises WriteFailedError if the topic now has a marker other than `planned` and `owner` (none is no
    error), if the topic is gone, or if the broker refuses; ClusterError if the topic cannot be read.
    """
    path = f"{topic_path(topic)}/properties"

    def is_marked() -> bool:
        found = read_topic(admin, topic)
        return found is not None and found.marker == owner

    if owner is not None:
        found = read_topic(admin, topic)
        if found is not None and found.marker not in (None, planned, owner):
            raise WriteFailedError(f"it belongs to {found.marker!r} since the plan: plan again")
        write_confirmed(admin, "PUT", path, {OWNER_PROPERTY: owner}, done=is_marked)
        return

    def look() -> Mapping[str, str] | None:
        found = read_topic(admin, topic)
        if found is None:
            raise WriteFailedError("it is gone since the plan: plan again")
        if found.marker not in (None, planned):
            raise WriteFailedError(f"it belongs to {found.marker!r} since the plan: plan again")
        return {"key": OWNER_PROPERTY} if found.marker else None

    delete(admin, path, look)


def upload_schema(admin: Admin, schema: SchemaResource, before: SchemaResource | None) -> None:
    """Uploads a new version of a schema. Raises WriteFailedError if the live version is neither `before` (None: no
    schema) nor the new one, or if the broker refuses the new one, such as an incompatible one; ClusterError if it
    cannot be read.
    """
    if (now := read_schema(admin, schema.topic)) not in (before, schema):
        difference = "somebody removed it" if now is None else "somebody uploaded another one"
        raise WriteFailedError(f"the schema changed since the plan: {difference}; plan again")
    path = f"{schema_path(schema.topic)}/schema"
    body = {"type": schema.type, "schema": schema.definition, "properties": {}}

    def there() -> bool:
        reply = admin.call("GET", path)
        return reply.ok and json.loads(reply.data.get("data") or "null") == json.loads(schema.definition)

    reply = write_confirmed(admin, "POST", path, body, done=there, final=frozenset({409, 422}))
    if reply is not None and not reply.ok:
        raise WriteFailedError(f"the broker refuses the schema: {reply.reason}")
