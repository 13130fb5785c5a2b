# adapter: reads the broker
"""Reader of the messages that come again when an apply puts back subscriptions that somebody deleted: a subscription
that begins at the earliest message gets everything that its topic stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from kodoctl.errors import KodoctlError, UsageError
from kodoctl.plan.changes import Change, Create, Update
from kodoctl.pulsar.binary.message_reader import partitions_of, read_facts
from kodoctl.topology.names import partition_number
from kodoctl.topology.resources import SubscriptionResource

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.admin import Admin


def returning_entries(admin: Admin, changes: Iterable[Change]) -> dict[str, int | None]:
    """Counts the stored entries that come to subscriptions which the changes create at the earliest message, on all
    partitions or on those that lack them, without partitions that are gone. Returns address of the subscription ->
    number of entries: 0 if the topic is gone as well; None if they cannot be counted. Blocks; raises no KodoctlError.
    """
    wanted = [(change.address, resource, lacking) for change in changes for resource, lacking in _returning(change)]

    def count(one: tuple[str, SubscriptionResource, tuple[int, ...] | None]) -> tuple[str, int | None]:
        address, resource, lacking = one
        try:
            parts = partitions_of(admin, resource.topic)
            chosen = [part for part in parts if lacking is None or partition_number(part) in lacking]
            return address, sum(_stored(admin, part) for part in chosen)
        except UsageError:  # there is no such topic, which is created again as well
            return address, 0
        except KodoctlError:
            return address, None

    with ThreadPoolExecutor(8, thread_name_prefix="returning") as pool:
        return dict(pool.map(count, wanted))


def _stored(admin: Admin, part: str) -> int:
    """The stored entries of a partition: 0 if it is gone, because it is created again, empty. Raises ClusterError."""
    try:
        return sum(run.entries for run in read_facts(admin, part).ledgers)
    except UsageError:
        return 0


def _returning(change: Change) -> list[tuple[SubscriptionResource, tuple[int, ...] | None]]:
    """The subscription that a change makes at the earliest message, with the partitions that lack it (None: all)."""
    match change:
        case Create(after=SubscriptionResource(start="earliest") as resource):
            return [(resource, None)]
        case Update(
            before=SubscriptionResource(missing_on=lacking), after=SubscriptionResource(start="earliest") as resource
        ) if lacking:
            return [(resource, lacking)]
        case _:
            return []
