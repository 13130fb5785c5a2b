"""Writes to subscriptions: create one, create it on partitions that lack it, set its marker.

A broker makes a subscription at the end of its topic and moves it to its start position in a second step. If that step
fails, because the topic moves or no bookie stores the position, the subscription stays at the end, and does not read
the earlier messages of the topic (measured: 30 of 30). So only a first reply without an error proves the position;
after any other the subscription is moved to its start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from kodoctl.protocol.properties import OWNER_PROPERTY
from kodoctl.pulsar.admin.admin import Admin, must, subscription_path
from kodoctl.pulsar.admin.confirmed_write import WriteFailedError, read_modify_write, write_confirmed
from kodoctl.pulsar.admin.topic_stats import SubscriptionReading, TopicReading, read_topic
from kodoctl.topology.names import partition_numbers

if TYPE_CHECKING:
    from kodoctl.topology.resources import SubscriptionResource

_EARLIEST: Final = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
_LATEST: Final = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1}


def create_subscription(admin: Admin, subscription: SubscriptionResource, owner: str) -> None:
    """Creates a subscription with the marker `owner` on every partition, at `subscription.start`: before the earliest
    message or behind the latest one. Raises WriteFailedError if the broker refuses, if another client created the
    subscription since the plan, or if it is not known whether every partition has the subscription, at its start;
    ClusterError if it cannot be read, or if no broker answers.
    """
    if _put(admin, subscription, owner):
        return
    topic = read_topic(admin, subscription.topic)
    found = _find(topic, subscription)
    if topic is None or found is None or found.marker != owner:
        raise WriteFailedError("somebody created it since the plan: plan again")
    _move_to_start(admin, subscription, partition_numbers(topic.partitions))


def heal_subscription(
    admin: Admin, subscription: SubscriptionResource, owner: str | None, lacking: Collection[int]
) -> None:
    """Creates a subscription on the partitions that lack it (`lacking`: their numbers), at `subscription.start`. On all
    other partitions it keeps its position and its marker. `owner`: owner for the marker on the new ones, None: no
    marker there. Raises WriteFailedError if the broker refuses, or if it is not known whether every partition has the
    subscription, at its start; ClusterError if it cannot be read, or if no broker answers.
    """
    if not _put(admin, subscription, owner):
        _move_to_start(admin, subscription, lacking)


def _put(admin: Admin, subscription: SubscriptionResource, owner: str | None) -> bool:
    """Creates the subscription on every partition that lacks it. Returns True if the first request did this without an
    error, so that the start position is certain.
    """
    body: dict[str, Any] = dict(_LATEST if subscription.start == "latest" else _EARLIEST)
    if owner is not None:
        body["properties"] = {OWNER_PROPERTY: owner}
    is_clean = True

    def everywhere() -> bool:
        nonlocal is_clean
        is_clean = False  # asked only behind an answer that leaves something open
        found = _find(read_topic(admin, subscription.topic), subscription)
        return found is not None and not found.missing_on

    path = subscription_path(subscription.topic, subscription.name)
    with admin.waits.during(f"{subscription.address} is not on every partition yet") as wait:
        while True:
            try:
                reply = write_confirmed(admin, "PUT", path, body, done=everywhere, final=frozenset({409}))
            except WriteFailedError as problem:
                if is_clean:
                    raise
                raise _unknown_start(subscription, f"{problem}") from None
            if reply is None or reply.status != 409:
                return is_clean
            if everywhere():
                return False
            # of its partitions one has it and another has no broker now: the answer is of whichever was first
            if not wait.again(f"{subscription.address} is not on every partition yet"):
                raise _unknown_start(subscription, f"not every partition has it, and {reply}: apply again")


def _move_to_start(admin: Admin, subscription: SubscriptionResource, partitions: Collection[int]) -> None:
    """Moves the subscription to the first message of these partitions, if its start is the earliest one. Messages that
    were read there meanwhile are read once more.
    """
    if subscription.start == "latest":
        return
    for index in partitions:
        path = f"{subscription_path(subscription.topic, subscription.name, index)}/resetcursor"
        try:
            write_confirmed(admin, "POST", path, _EARLIEST, done=lambda: False)  # to send it twice does no harm
        except WriteFailedError as problem:
            raise _unknown_start(subscription, f"{problem}") from None


def _unknown_start(subscription: SubscriptionResource, problem: str) -> WriteFailedError:
    """The error for a subscription that may begin at the end: the problem, and the command that moves the
    subscription.
    """
    if subscription.start == "latest":
        return WriteFailedError(problem)
    command = f"pulsar-admin topics reset-cursor {subscription.topic}-partition-0 -s {subscription.name} -m earliest"
    return WriteFailedError(
        f"{problem}\npartitions that have it now may begin behind the messages they hold; for each of them"
        f" (a plain topic has no -partition-0): {command}"
    )


def _find(topic: TopicReading | None, subscription: SubscriptionResource) -> SubscriptionReading | None:
    """The live subscription; None if it or its topic does not exist."""
    return next((one for one in topic.subscriptions if one.name == subscription.name), None) if topic else None


def mark_subscription(admin: Admin, subscription: SubscriptionResource, owner: str | None, planned: str | None) -> None:
    """Sets the marker of a subscription to `owner`, or removes the marker (None). Does nothing if the subscription does
    not exist or a partition lacks it; a change that creates it there sets the marker. `planned`: the marker that the
    plan saw. Raises WriteFailedError if the subscription now has a marker other than `planned` and `owner` (none is no
    error), or if the broker refuses; ClusterError if the properties cannot be read, or if no broker answers.

    The request replaces all properties, so the others, such as live orders, are sent again as they were read just
    before: what another client changes between the two requests is lost.
    """
    path = f"{subscription_path(subscription.topic, subscription.name)}/properties"

    def look() -> Mapping[str, str] | None:
        reply = admin.call("GET", path)
        if reply.missing:
            return None  # a partition lacks it: healing it, which the plan has too, marks it
        found = must(reply, f"reading properties of {subscription.address}") or {}
        properties = {str(key): str(value) for key, value in found.items()}
        if (marker := properties.get(OWNER_PROPERTY)) not in (None, planned, owner):
            raise WriteFailedError(f"it belongs to {marker!r} since the plan: plan again")
        wanted = {key: value for key, value in properties.items() if key != OWNER_PROPERTY}
        if owner is not None:
            wanted[OWNER_PROPERTY] = owner
        return wanted if wanted != properties else None

    read_modify_write(admin, path, look)
