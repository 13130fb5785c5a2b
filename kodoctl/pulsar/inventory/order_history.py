"""Reader of the live orders that people gave and took back in a namespace, from the properties of its subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from kodoctl.errors import KodoctlError
from kodoctl.protocol.override_history import MAX_CHANGES, OverrideChange, parse_history
from kodoctl.protocol.overrides import InvalidOverridesError
from kodoctl.protocol.properties import STEER_HISTORY_PROPERTY
from kodoctl.pulsar.admin.admin_http import CONNECTIONS
from kodoctl.pulsar.admin.topic_stats import read_stats
from kodoctl.pulsar.inventory.live_inventory import list_topics
from kodoctl.topology.names import reserved_suffix

if TYPE_CHECKING:
    from kodoctl.pulsar.admin.admin import Admin
    from kodoctl.topology.names import NamespaceName, TopicName


@dataclass(frozen=True, slots=True)
class OrderHistory:
    """The last changes of the live orders of a subscription.

    Args:
        topic: local name of its ground topic, the topic that producers send to.
        subscription: its name; "" if nothing of the topic can be read.
        changes: orders that people gave and took back, oldest first.
        unread: reason why the changes cannot be read; "" if they were read.
    """

    topic: str
    subscription: str
    changes: tuple[OverrideChange, ...] = ()
    unread: str = ""

    @property
    def is_cut(self) -> bool:
        """True if there may have been older changes, which are not kept."""
        return len(self.changes) >= MAX_CHANGES


def read_order_history(admin: Admin, namespace: NamespaceName) -> list[OrderHistory]:
    """Reads the order history of each subscription of a namespace that has one, or that cannot be read. Requests the
    statistics of each ground topic once. Raises ClusterError if the topics cannot be listed.
    """
    names = [one for one in chain(*list_topics(admin, namespace)) if reserved_suffix(one.local) is None]
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="orders") as pool:
        return list(chain.from_iterable(pool.map(lambda topic: list(_of_topic(admin, topic)), names)))


def _of_topic(admin: Admin, topic: TopicName) -> Iterator[OrderHistory]:
    try:
        stats = read_stats(admin, topic) or {}
    except KodoctlError as problem:
        yield OrderHistory(topic.local, "", unread=problem.diagnostics[0].detail or problem.diagnostics[0].summary)
        return
    found: dict[str, str] = {}
    for part in (stats.get("partitions") or {}).values():
        for name, sub in (part.get("subscriptions") or {}).items():
            if (text := (sub.get("subscriptionProperties") or {}).get(STEER_HISTORY_PROPERTY)) is not None:
                found.setdefault(name, text)
    for name, text in found.items():
        try:
            yield OrderHistory(topic.local, name, parse_history(text))
        except InvalidOverridesError as problem:
            yield OrderHistory(topic.local, name, unread=f"{problem}")
