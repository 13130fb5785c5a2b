"""Entries without a message that a follower passes are reported, also in an empty topic and after a failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

import pulsar

from kodoctl.errors import ClusterError, error
from kodoctl.pulsar.admin.admin import Reply
from kodoctl.pulsar.binary.deadlines import Patience
from kodoctl.pulsar.binary.message_reader import PartitionFacts, Unread
from kodoctl.pulsar.binary.topic_follower import TopicFollower
from kodoctl.pulsar.binary.undeliverable_entries import EntryRun
from kodoctl.pulsar.connection.native_border import NativeMessage
from kodoctl.pulsar.connection.wait_monitor import WaitMonitor
from kodoctl.topology.names import PLAIN, TopicName

TOPIC = TopicName.parse("acme/ns/orders")
STATS = {"lastConfirmedEntry": "7:9", "ledgers": [{"ledgerId": 5, "entries": 10}, {"ledgerId": 7, "entries": 0}]}


class Cluster:
    """One plain topic: `come` are the entries whose messages arrive, `failures` the next requests without an answer."""

    def __init__(self, *come: tuple[int, int], failures: int = 0) -> None:
        self.patience, self.failures, self.notices = Patience(WaitMonitor()), failures, list[str]()
        self.come = [
            NativeMessage((*one, PLAIN), pulsar.MessageId(PLAIN, *one, -1), b"", {}, "", "", 0, 0, -1, "", "")
            for one in come
        ]

    def call(self, method: str, path: str) -> Reply:
        self.failures -= 1
        if self.failures >= 0:
            raise ClusterError(error("K510", "no answer", path))
        return Reply(method, path, 200, STATS)

    @contextmanager
    def reader(self, *_: Any, **__: Any) -> Iterator[Any]:
        yield SimpleNamespace(arrivals=lambda: [self.come.pop(0)] if self.come else [], is_connected=True)

    def follow(self, stored: tuple[EntryRun, ...], count: int) -> Unread:
        """Follows the topic, in which these entries are stored at first, until `count` messages came."""
        me: Any = self
        unread = Unread(me, me)
        facts = PartitionFacts(TOPIC.full, PLAIN, -1, (-1, -1), deduplicates=False, cursors={}, ledgers=stored)
        with closing(TopicFollower(me, me, unread, self.notices.append).follow([(TOPIC, facts)])) as arrivals:
            for _ in range(count):
                next(arrivals)
        return unread


def test_entries_of_an_empty_topic_that_give_no_message_are_reported() -> None:
    cluster = Cluster((5, 0), (5, 3), (7, 1))
    assert cluster.follow((), 3).runs == {TOPIC.full: [EntryRun(5, 1, 2), EntryRun(7, 0, 0)]}
    assert len(cluster.notices) == 2
    assert Cluster((5, 2)).follow((), 1).runs == {TOPIC.full: [EntryRun(5, 0, 1)]}
    assert Cluster((5, 4), (5, 5)).follow((EntryRun(5, 0, 3),), 2).runs == {}


def test_following_goes_on_while_no_broker_says_what_is_stored_and_nothing_is_forgotten() -> None:
    cluster = Cluster((5, 2), (7, 0), failures=1)
    assert cluster.follow((EntryRun(5, 0, 0),), 2).runs == {TOPIC.full: [EntryRun(5, 1, 1)]}
    assert len(cluster.notices) == 1
