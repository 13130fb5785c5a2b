"""Nothing that holds data or is in use goes unless a plan named it and somebody allowed it: on the real broker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pulsar
import pytest

from tests.brokers.broker import PULSAR
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

SMALL = "{subscriptions: {s: {states: [], dead_letter: false}}}"
KEEPS = "policies: {retention: {time: 1d, size: 100MiB}}, subscriptions: {s: {states: [], dead_letter: false}}"


def _words(text: str) -> str:
    """Text without its line breaks and indents."""
    return " ".join(text.split())


@contextlib.contextmanager
def _consuming(workspace: Workspace, topic: str, subscription: str = "s") -> Iterator[pulsar.Consumer]:
    """A client that is connected to this topic, or to this one partition."""
    with workspace.client() as client:
        yield client.subscribe(workspace.full(topic), subscription, consumer_type=pulsar.ConsumerType.Shared)


def _consume_all(workspace: Workspace, topic: str, number: int) -> None:
    with _consuming(workspace, topic) as consumer:
        for _ in range(number):
            consumer.acknowledge(consumer.receive(timeout_millis=10_000))


def _partitions(workspace: Workspace, local: str) -> int:
    """Partitions that are really there, counted by the broker's list of topics."""
    names = workspace.admin("GET", f"persistent/{workspace.namespace}")
    return sum(name.startswith(f"{workspace.full(local)}-partition-") for name in names)


def _backlog(workspace: Workspace, local: str) -> int:
    stats = workspace.admin("GET", f"{workspace.path(local)}/partitioned-stats", getPreciseBacklog="true")
    return int(stats["subscriptions"]["s"]["msgBacklog"])


@pytest.fixture
def two(workspace: Workspace) -> Workspace:
    """J, of four partitions, and K are applied; then the file no longer names J."""
    workspace.topology(f"J: {{partitions: 4, {KEEPS}}}\nK: {SMALL}")
    workspace.apply()
    workspace.topology(f"K: {SMALL}")
    return workspace


def _assert_j_is_whole(workspace: Workspace) -> None:
    assert workspace.topics() == {"J": 4, "K": 1}
    assert _partitions(workspace, "J") == 4
    assert workspace.subscriptions("J") == [{"s"}] * 4


# --- clients


def test_a_topic_with_a_client_on_one_partition_is_not_deleted_and_the_client_is_named(two: Workspace) -> None:
    with _consuming(two, "J-partition-2"):
        refused = two.apply(code=4)
        assert "K401" in refused.out
        assert "1 consumer connected" in refused.out
        assert f"--allow-destroy topic.{two.full('J')}" in _words(refused.out)
        _assert_j_is_whole(two)
    two.apply()
    assert two.topics() == {"K": 1}


def test_a_client_that_came_after_the_plan_stops_the_delete_before_any_partition_is_gone(two: Workspace) -> None:
    """Pulsar would drop the three idle partitions with everything in them, and then answer 412."""
    two.publish("J", 8)
    two.plan("--out", "plan.json", "--allow-destroy", f"topic.{two.full('J')}")
    with _consuming(two, "J-partition-2"):
        stopped = two.run("apply", "plan.json", code=1)
        assert "clients are connected on partition 2: stop them" in _words(stopped.out)
        assert "no request was sent" in _words(stopped.out)
        assert "0 done" in stopped.out
        _assert_j_is_whole(two)
    assert _backlog(two, "J") == 8
    two.apply("--allow-destroy", f"topic.{two.full('J')}")
    assert two.topics() == {"K": 1}


def test_clients_that_the_plan_named_are_cut_off_only_where_somebody_allowed_it(two: Workspace) -> None:
    with _consuming(two, "J-partition-2"):
        two.apply(code=4)
        applied = two.apply("--allow-destroy", f"topic.{two.full('J')}")
        assert "allowed" in applied.out
        assert two.topics() == {"K": 1}


def test_a_subscription_in_use_on_one_partition_is_kept_on_all(workspace: Workspace) -> None:
    workspace.topology(
        "J: {partitions: 3, subscriptions: {s: {states: [], dead_letter: false}, t: {states: [], dead_letter: false}}}"
    )
    workspace.apply()
    workspace.topology("J: {partitions: 3, subscriptions: {s: {states: [], dead_letter: false}}}")
    workspace.plan("--out", "plan.json", "--allow-destroy", f"subscription.{workspace.full('J')}/t")
    with _consuming(workspace, "J-partition-1", "t"):
        assert "K401" in workspace.apply(code=4).out
        stopped = workspace.run("apply", "plan.json", code=1)
        assert "consumers are connected: stop them" in _words(stopped.out)
        assert "no request was sent" in _words(stopped.out)
        assert workspace.subscriptions("J") == [{"s", "t"}] * 3
    workspace.apply()
    assert workspace.subscriptions("J") == [{"s"}] * 3


# --- messages


def test_unread_messages_are_counted_not_their_batches_and_refuse_the_delete(two: Workspace) -> None:
    with two.client() as client:
        producer = client.create_producer(
            two.full("J-partition-0"), batching_enabled=True, batching_max_publish_delay_ms=500
        )
        for _ in range(50):
            producer.send_async(b"x", None)
        producer.flush()
        producer.close()
    assert _backlog(two, "J") < 50
    refused = two.apply(code=4)
    assert "50 unread messages" in refused.out
    _assert_j_is_whole(two)
    two.topology(f"K: {SMALL}", f"allow_destroy: ['topic.{two.full('J')}']\n")  # the way that travels through review
    two.apply()
    assert two.topics() == {"K": 1}


def test_messages_that_came_after_the_plan_refuse_it_before_anything_is_written(two: Workspace) -> None:
    two.plan("--out", "plan.json")
    two.publish("J", 3)
    refused = two.run("apply", "plan.json", code=4)
    assert "K401" in refused.err
    assert "3 unread messages" in refused.err
    _assert_j_is_whole(two)
    assert _backlog(two, "J") == 3


def test_a_subscription_with_unread_messages_is_not_dropped_unless_it_is_allowed(workspace: Workspace) -> None:
    both = "{subscriptions: {s: {states: [], dead_letter: false}, t: {states: [], dead_letter: false}}}"
    workspace.topology(f"J: {both}")
    workspace.apply()
    workspace.publish("J", 2)
    workspace.topology(f"J: {SMALL}")
    refused = workspace.apply(code=4)
    assert "2 unread messages" in refused.out
    assert workspace.subscriptions("J") == [{"s", "t"}]
    workspace.apply("--allow-destroy", f"subscription.{workspace.full('J')}/t")
    assert workspace.subscriptions("J") == [{"s"}]
    assert _backlog(workspace, "J") == 2


def test_kept_messages_and_a_publish_of_today_count_as_data_too(two: Workspace) -> None:
    two.publish("J", 3)
    _consume_all(two, "J", 3)
    eventually(lambda: _backlog(two, "J") == 0)
    refused = two.apply(code=4)
    assert "of kept messages" in refused.out
    assert ("last publish" in refused.out) == (PULSAR >= (4, 2))  # 4.0 does not tell
    _assert_j_is_whole(two)


def test_destroy_asks_for_every_address_that_holds_data(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}\nK: {SMALL}")
    workspace.apply()
    workspace.publish("J", 1)
    refused = workspace.run("destroy", "topologies", "--auto-approve", code=4)
    assert f"--allow-destroy topic.{workspace.full('J')}" in _words(refused.out)
    assert workspace.topics() == {"J": 1, "K": 1}
    workspace.run("destroy", "topologies", "--auto-approve", "--allow-destroy", f"topic.{workspace.full('J')}")
    assert workspace.admin("GET", f"namespaces/{workspace.tenant}") == [f"{workspace.tenant}/kodoctl"]


# --- values that would drop data


@pytest.mark.parametrize(
    ("before", "after", "read"),
    [
        ("retention: {time: 10d, size: 100MiB}", "retention: {time: 0s, size: 0B}", True),
        ("retention: {time: 10d, size: 100MiB}", "", True),
        ("ttl: unlimited", "ttl: 1s", False),
        ("inactive_topic: {delete: never}", "inactive_topic: {delete: caught_up, after: 1h}", False),
        pytest.param(
            "subscription_expiry: unlimited",
            "subscription_expiry: 1h",
            False,
            marks=pytest.mark.skipif(PULSAR < (4, 2), reason="Pulsar 4.0 has no expiry of a topic's own"),
        ),
    ],
    ids=["retention", "a value taken out", "ttl", "inactive topics", "expiry"],
)
def test_a_lowered_value_that_would_drop_what_is_stored_is_refused_until_it_is_allowed(
    workspace: Workspace, before: str, after: str, read: bool
) -> None:
    small = "subscriptions: {s: {states: [], dead_letter: false}}"
    workspace.topology(f"J: {{policies: {{{before}}}, {small}}}")
    workspace.apply()
    workspace.publish("J", 3)
    if read:
        _consume_all(workspace, "J", 3)
        eventually(lambda: _backlog(workspace, "J") == 0)
    workspace.topology(f"J: {{policies: {{{after}}}, {small}}}")
    eventually(lambda: workspace.run("plan", code=None).code == 4)  # once the messages are older than a second
    refused = workspace.apply(code=4)
    assert "K402" in refused.out
    assert "would drop" in _words(refused.out)
    address = f"topic.{workspace.full('J')}"
    assert f"--allow-destroy {address}" in refused.out
    workspace.apply("--allow-destroy", address)
    workspace.assert_settled()


def test_a_namespace_value_that_would_drop_a_topics_data_is_refused(workspace: Workspace) -> None:
    workspace.topology(f"J: {SMALL}", "namespace_policies: {inactive_topic: {delete: never}}\n")
    workspace.apply()
    workspace.publish("J", 3)
    lowered = "namespace_policies: {inactive_topic: {delete: no_subscriptions, after: 1h}}\n"
    workspace.topology(f"J: {SMALL}", lowered)
    refused = workspace.apply(code=4)
    assert "K402" in refused.out
    assert workspace.full("J") in _words(refused.out)
    assert workspace.dump()["inactive_topic_policies"]["deleteWhileInactive"] is False
    workspace.topology(f"J: {SMALL}", f"{lowered}allow_destroy: [namespace.{workspace.namespace}]\n")
    workspace.apply()
    assert workspace.dump()["inactive_topic_policies"]["deleteWhileInactive"] is True


def test_progress_counts_the_two_steps_of_a_namespace(workspace: Workspace) -> None:
    """The last line was 3/2: steps were counted against changes."""
    workspace.topology(f"J: {SMALL}", "namespace_policies: {retention: {time: 2d, size: 1GiB}}\n")
    workspace.apply()
    workspace.topology(f"J: {SMALL}", "namespace_policies: {retention: {time: 3d, size: 512MiB}}\n")
    *events, report = workspace.apply("--format", "json").lines_json()
    ended = [(one["number"], one["total"]) for one in events if one.get("status") != "started"]
    assert ended == [(1, 2), (2, 2)], report


def test_growing_an_ordered_topic_warns_and_goes_on(workspace: Workspace) -> None:
    ordered = "subscriptions: {s: {type: key_shared, states: [], dead_letter: false}}"
    workspace.topology(f"J: {{partitions: 1, {ordered}}}")
    workspace.apply()
    workspace.topology(f"J: {{partitions: 3, {ordered}}}")
    applied = workspace.apply()
    assert "K405" in applied.out
    assert "keys move to other partitions" in _words(applied.out)
    assert workspace.subscriptions("J") == [{"s"}] * 3
    workspace.assert_settled()
