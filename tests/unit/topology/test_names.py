"""Names: the one rule they follow, what Pulsar refuses, what would be ambiguous."""

import pytest
import urllib3
from hypothesis import example, given
from hypothesis import strategies as st

from kodoctl.pulsar.admin.admin import path_part, subscription_path, topic_path
from kodoctl.topology.names import (
    PLAIN,
    InvalidNameError,
    Level,
    NamespaceName,
    State,
    TopicName,
    audit_name,
    partition_name,
    partition_number,
    partition_numbers,
    produced_topic,
    ready_name,
    reserved_suffix,
    state_name,
    whole_topic,
    why_not_pulsar_name,
)

TRADE = NamespaceName("kodo", "trade")


def test_levels_are_ordered_from_s3_down_to_d1() -> None:
    assert list(Level) == ["S3", "S2", "S1", "L8", "L7", "L6", "L5", "L4", "L3", "L2", "L1", "B1", "B2", "B3", "D1"]
    assert sorted(Level, key=lambda level: level.rank) == list(Level)
    assert [level for level in Level if level.is_backup] == ["B1", "B2", "B3"]


@pytest.mark.parametrize(
    ("level", "state", "name"),
    [
        (Level.L1, State.READY, "orders"),
        (Level.L2, State.READY, "orders-L2"),
        (Level.B1, State.READY, "orders-B1"),
        (Level.L1, State.RETRYING, "orders-billing-RETRYING"),
        (Level.L2, State.PENDING, "orders-L2-billing-PENDING"),
        (Level.S1, State.BLOCKING, "orders-S1-billing-BLOCKING"),
        (Level.L2, State.DEAD, "orders-billing-DLQ"),
    ],
)
def test_a_name_is_ground_level_subscription_state(level: Level, state: State, name: str) -> None:
    assert state_name("orders", level, "billing", state) == name


def test_ready_topics_belong_to_the_topic_and_audit_to_a_subscription() -> None:
    assert ready_name("orders", Level.S3) == "orders-S3"
    assert audit_name("orders", "billing") == "orders-billing-AUDIT"


@pytest.mark.parametrize("text", ["persistent://kodo/trade/orders", "kodo/trade/orders"])
def test_topics_read_long_and_short(text: str) -> None:
    topic = TopicName.parse(text)
    assert topic == TopicName(TRADE, "orders")
    assert str(topic) == topic.full == "persistent://kodo/trade/orders"
    assert topic.partition(3) == "persistent://kodo/trade/orders-partition-3"
    assert {topic: 1}[TopicName(TRADE, "orders")] == 1


def test_a_plain_topic_counts_as_one_partition_that_has_its_name() -> None:
    assert [*partition_numbers(0)] == [PLAIN]
    assert [*partition_numbers(2)] == [0, 1]
    assert partition_name("persistent://kodo/trade/orders", PLAIN) == "persistent://kodo/trade/orders"
    assert [partition_number(name) for name in ("orders-partition-12", "orders", "orders-partition-x")] == [
        12,
        PLAIN,
        PLAIN,
    ]


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("persistent://kodo/trade/orders-partition-12", "persistent://kodo/trade/orders"),
        ("persistent://kodo/trade/orders", "persistent://kodo/trade/orders"),
        ("orders-partition-x", "orders-partition-x"),
        ("orders-partition-1-L2", "orders-partition-1-L2"),
        ("orders-partition-1\n", "orders-partition-1\n"),
        (f"orders-partition-{'9' * 5000}", f"orders-partition-{'9' * 5000}"),
    ],
)
def test_a_partition_belongs_to_its_whole_topic(name: str, whole: str) -> None:
    assert whole_topic(name) == whole


@pytest.mark.parametrize(
    "text", ["orders", "kodo/orders", "non-persistent://kodo/trade/orders", "a/b/c/d", "kodo//orders", ""]
)
def test_what_is_no_topic_says_how_one_looks(text: str) -> None:
    with pytest.raises(InvalidNameError, match="write persistent://TENANT/NAMESPACE/TOPIC"):
        TopicName.parse(text)


def test_namespaces_read_and_print() -> None:
    assert NamespaceName.parse("kodo/trade") == TRADE
    assert str(TRADE) == "kodo/trade"
    assert {TRADE: 1}[NamespaceName("kodo", "trade")] == 1


@pytest.mark.parametrize("text", ["kodo", "kodo/", "/trade", "kodo/trade/x", "ko do/trade"])
def test_what_is_no_namespace_says_how_one_looks(text: str) -> None:
    with pytest.raises(InvalidNameError, match="write TENANT/NAMESPACE"):
        NamespaceName.parse(text)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("orders", None),
        ("orders-2.0_x=y:z", None),
        ("", "it is empty"),
        ("or ders", "it holds ' '"),
        ("or/ders", "it holds '/'"),
        ("café", "it holds 'é'"),
        (".", "it is a relative path"),
        ("..", "it is a relative path"),
        ("a-partition-0", "-partition-<number>"),
        ("a-partition-x", None),
        ("__change_events", "Pulsar's own"),
    ],
)
def test_names_that_pulsar_refuses_say_why(name: str, reason: str | None) -> None:
    answer = why_not_pulsar_name(name)
    assert answer is None if reason is None else answer is not None and reason in answer


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("orders-L2", "-L2"), ("orders-B1", "-B1"), ("a-DLQ", "-DLQ"), ("a-RETRYING", "-RETRYING"), ("a-AUDIT", "-AUDIT"), ("a-L1", None), ("a-L9", None), ("aL2", None)],
)  # fmt: skip
def test_names_that_end_like_a_level_or_state_are_reserved(name: str, suffix: str | None) -> None:
    assert reserved_suffix(name) == suffix


@pytest.mark.parametrize(
    "text",
    [
        "../ns",
        "acme/..",
        "./ns",
        "acme/.",
        "acme/n?s",
        "acme/n#s",
        "acme/n%2fs",
        "acme/n s",
        "acme/n\\s",
        "acme/n\ns",
        "a/b/c",
    ],
)
def test_no_namespace_leads_elsewhere_in_a_path(text: str) -> None:
    with pytest.raises(InvalidNameError):
        NamespaceName.parse(text)
    with pytest.raises(InvalidNameError):
        TopicName.parse(f"persistent://{text}/t")


@given(st.text(max_size=30) | st.sampled_from([".", "..", "../x", "%2e%2e"]))
@example("\ud800")
@example("\xe9")
def test_whatever_a_name_is_it_stays_one_part_of_its_path(text: str) -> None:
    """A subscription named `..` made the delete of a subscription one of its topic."""
    try:
        topic = TopicName.parse(f"acme/ns/{text}")
    except InvalidNameError:
        assert text in ("", ".", "..") or "/" in text or any("\ud800" <= one <= "\udfff" for one in text)
    else:
        _assert_kept(topic_path(topic), 4)
        _assert_kept(subscription_path(topic, text), 6)
    if text in (".", ".."):
        _assert_kept(f"x/{path_part(text)}", 2)


def _assert_kept(path: str, parts: int) -> None:
    assert len(path.split("/")) == parts
    assert urllib3.util.parse_url(f"http://h/admin/v2/{path}").path == f"/admin/v2/{path}"


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("K", "persistent://kodo/trade/K"),
        ("x/y/z", "persistent://x/y/z"),
        ("persistent://x/y/z", "persistent://x/y/z"),
        ("x/y", "persistent://kodo/trade/x/y"),
    ],
)
def test_an_entry_of_produces_is_a_topic_here_or_a_full_name(text: str, full: str) -> None:
    assert produced_topic(NamespaceName("kodo", "trade"), text).full == full


@pytest.mark.parametrize("number", ["9" * 5000, "1\n"])
def test_a_name_that_a_client_made_up_is_no_partition(number: str) -> None:
    """Python converts at most 4,300 digits."""
    assert partition_number(f"persistent://kodo/trade/orders-partition-{number}") == PLAIN
