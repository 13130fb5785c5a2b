"""Messages find their producer by topic, partition, schema and due time, and stay in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kodo_consumer.adapters.pulsar.producer_factory import ProducerFactory, ProducerOptions
from kodo_consumer.adapters.pulsar.schema_passthrough import Key, SchemaTopics
from kodo_consumer.adapters.pulsar.topic_routes import TopicRoutes
from kodo_consumer.core.values.envelope import Outgoing

if TYPE_CHECKING:
    import pytest

LATER = 1_800_000_000_000


def routes(**partitions: int) -> TopicRoutes:
    made = TopicRoutes(ProducerFactory(None, ProducerOptions()))
    for topic, count in partitions.items():
        made.learn(topic, [f"{topic}-partition-{number}" for number in range(count)])
    return made


def numbered(*messages: Outgoing) -> list[tuple[int, Outgoing]]:
    return list(enumerate(messages))


def test_messages_of_one_producer_are_together_and_in_their_order() -> None:
    messages = numbered(
        Outgoing("t", b"0", {}),
        Outgoing("t", b"1", {}, deliver_at=LATER),
        Outgoing("t", b"2", {}),
        Outgoing("u", b"", {}),
    )
    found, others = routes(t=1, u=1).keys(messages, 0.0)
    assert {key: [ticket for ticket, _ in its_own] for key, its_own in found.items()} == {
        Key("t-partition-0"): [0, 2], Key("t-partition-0", delayed=True): [1], Key("u-partition-0"): [3],
    }  # fmt: skip
    assert others == []


def test_a_key_stays_on_its_partition_and_each_message_has_the_producer_that_it_has_alone() -> None:
    known = routes(t=4)
    messages = numbered(*(Outgoing("t", b"", {}, key=f"k{number % 20}") for number in range(60)))
    found, _ = known.keys(messages, 0.0)
    assert len(found) == 4
    for key, its_own in found.items():
        assert {known.key(message, 0.0) for _, message in its_own} == {key}
        assert [ticket for ticket, _ in its_own] == sorted(ticket for ticket, _ in its_own)


def test_messages_of_several_schema_versions_have_one_producer_where_their_topic_has_no_schema() -> None:
    schemas = SchemaTopics(frozenset({"u"}), {}, lambda _: None)
    known = TopicRoutes(ProducerFactory(None, ProducerOptions(outlets=schemas)))
    for topic in ("t", "u"):
        known.learn(topic, [topic])
    versions = ("L1:0", "L1:1", "", "L1:0")
    messages = numbered(*(Outgoing(topic, b"", {}, schema=version) for topic in ("t", "u") for version in versions))
    found, others = known.keys(messages, 0.0)
    assert {key: [ticket for ticket, _ in its_own] for key, its_own in found.items()} == {
        Key("t"): [0, 1, 2, 3], Key("u", "L1:0"): [4, 7], Key("u", "L1:1"): [5], Key("u"): [6],
    }  # fmt: skip
    assert others == []


def test_topics_that_are_not_known_are_for_the_caller_and_so_is_what_has_no_key_that_is_a_text() -> None:
    messages = numbered(Outgoing("v", b"", {}), Outgoing("t", b"", {}, key=cast("Any", 3)), Outgoing("t", b"", {}))
    found, others = routes(t=2).keys(messages, 0.0)
    assert [ticket for ticket, _ in others] == [0, 1]
    assert [ticket for its_own in found.values() for ticket, _ in its_own] == [2]


def test_a_topic_is_asked_again_now_and_then_and_a_partition_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    known = routes(t=1)
    known.learn("p-partition-0", ["p-partition-0"])
    messages = numbered(Outgoing("t", b"", {}), Outgoing("p-partition-0", b"", {}))
    assert not known.is_stale("t", 159.0)
    assert [ticket for ticket, _ in known.keys(messages, 161.0)[1]] == [0]
    assert known.is_stale("t", 161.0)
    assert not known.is_stale("t", 162.0), "its caller asks"
    assert known.keys(messages, 162.0)[1] == []
    assert not known.is_stale("p-partition-0", 10**9)


def test_a_topic_gets_more_partitions_and_never_fewer() -> None:
    known = routes(t=1)
    assert "t" in known
    assert "u" not in known
    for names, expected in ((["a", "b"], 2), (["a"], 2)):
        known.learn("t", names)
        found, _ = known.keys(numbered(*(Outgoing("t", b"", {}, key=str(number)) for number in range(50))), 0.0)
        assert len(found) == expected
