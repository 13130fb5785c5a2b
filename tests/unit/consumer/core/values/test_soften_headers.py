"""Taking over what the Go library left in its topics: its headers as attempts, due times, reasons and origins."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Message, Transfer
from kodo_consumer.core.values import soften_headers
from kodo_consumer.core.values.envelope import FRESH, BrokenHeadersError, Delivery, Headers, Level, Outgoing, State
from kodo_consumer.core.values.policy import Lane
from kodo_consumer.testing import Harness
from kodo_consumer.testing.manual_clock import START_WALL

from tests.unit.consumer.topologies import write

TOPICS = """
  orders:
    levels: double
    backup: true
    message_properties: {size: optional}
    subscriptions:
      billing:
        compat: soften
        in_place: []
        retrying: {delays: [10s], attempts: 3}
        produces: [shipments]
        routes: [{when: {property: size, greater_than: 10}, to: L2}]
      plain: {in_place: []}
  shipments:
    subscriptions: {tracking: {compat: soften, states: [retrying], in_place: []}}
"""
RETRYING = "persistent://p/n/orders-billing-RETRYING"


def stamp(after: float) -> str:
    """A moment so many seconds after the start, as the library writes it."""
    moment = datetime.fromtimestamp(START_WALL / 1000 + after, UTC)
    whole, fraction = moment.strftime("%Y%m%d%H%M%S"), f"{moment.microsecond // 1000:03}".rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def left_behind(**more: str) -> dict[str, str]:
    """What a message in RETRYING looks like after its first failure there."""
    return {
        "uid": "u1", "X-ORIGIN-MESSAGE-ID": "5:6:0", "X-ORIGIN-TOPIC": "persistent://p/n/orders-partition-0",
        "X-ORIGIN-PUBLISH-TIME": stamp(-3600), "X-ORIGIN-LEVEL": "L1", "X-ORIGIN-STATUS": "Ready",
        "X-Previous-Error": "card declined", "X-Message-Counter": "3:2:2", "X-Retrying-Message-Counter": "2:1:1",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }  # fmt: skip


def lane(state: State = State.RETRYING) -> Lane:
    return Lane(0, Level.L1, state, RETRYING, 1, 1.0, subscription="p/n/orders:billing")


def delivery(properties: dict[str, str]) -> Delivery:
    return Delivery((7, 8, 0), "(7,8,0,3)", b"x", properties, "k", "", 0, START_WALL, batch_index=3)


def harness(folder: Path, handler: Any, topic: str = "orders", subscription: str = "billing") -> Harness:
    consumer = Consumer.load(write(folder, TOPICS), topic=topic, subscription=subscription, environ={})
    consumer.handler(handler)
    return Harness(consumer)


# ---- what the headers say


def test_a_message_of_a_state_topic_brings_its_attempts_its_reason_and_where_it_came_from() -> None:
    assert soften_headers.read(delivery(left_behind(X_Consume_Time=stamp(30.25))), lane()) == Headers(
        retrying=2, hop=1, due=START_WALL + 30_250, reason="card declined", origin_id="7:8:0:3",
        origin_topic="persistent://p/n/orders", origin_time=START_WALL - 3_600_000,
    )  # fmt: skip


def test_messages_of_one_batch_do_not_get_one_identity_though_their_origin_id_is_the_same() -> None:
    one, other = (delivery(left_behind())._replace(batch_index=index) for index in (0, 1))
    assert soften_headers.read(one, lane()).origin_id != soften_headers.read(other, lane()).origin_id


@pytest.mark.parametrize(
    ("counter", "attempts"),
    [("", None), ("3", 1), ("3:2", 1), ("3:2:1", 2), ("3:2:0", 1), ("1:9:99", 100), ("a:b:c", None)],
)
def test_of_a_counter_the_part_counts_that_is_held_against_a_maximum(counter: str, attempts: int | None) -> None:
    found = delivery(left_behind(X_Retrying_Message_Counter=counter))
    if attempts is None:
        with pytest.raises(BrokenHeadersError, match="X-Retrying-Message-Counter"):
            soften_headers.read(found, lane())
    else:
        assert soften_headers.read(found, lane()).retrying == attempts


@pytest.mark.parametrize("text", ["2026", "20261301000000", "20260101000000.1234", "x", "2026010100000٠"])
def test_a_time_that_is_none_is_broken(text: str) -> None:
    with pytest.raises(BrokenHeadersError, match="X-Consume-Time"):
        soften_headers.read(delivery({"X-Consume-Time": text}), lane())


def test_the_next_wake_up_counts_where_no_time_to_consume_is_named() -> None:
    assert soften_headers.read(delivery({"X-Reentrant-Time": stamp(5)}), lane()).due == START_WALL + 5_000
    both = {"X-Reentrant-Time": stamp(5), "X-Consume-Time": stamp(60)}
    assert soften_headers.read(delivery(both), lane()).due == START_WALL + 60_000


def test_what_its_producer_sent_is_a_first_delivery() -> None:
    assert soften_headers.read(delivery({"X-Message-Counter": "1:0:0"}), lane(State.READY)) == FRESH
    assert soften_headers.read(delivery({"uid": "u1"}), lane()) == FRESH
    assert soften_headers.read(delivery({"X-Consume-Time": stamp(9)}), lane(State.READY)) == Headers(
        due=START_WALL + 9_000
    )


def test_control_properties_are_the_last_word() -> None:
    assert soften_headers.speaks(left_behind())
    assert not soften_headers.speaks(left_behind() | {"kodo-hop": "1"})
    assert not soften_headers.speaks({"uid": "u1"})


# ---- at work


def test_a_message_that_is_due_goes_on_from_where_it_stood(tmp_path: Path) -> None:
    seen: list[tuple[int, str | None, int]] = []

    def handle(message: Message) -> None:
        seen.append((message.attempt, message.reason, message.publish_time))
        raise ValueError

    place = harness(tmp_path, handle)
    place.broker.send(Outgoing(RETRYING, b"x", left_behind(X_Consume_Time=stamp(-1))))
    place.advance("60s")
    assert [attempt for attempt, _, _ in seen] == [3, 4, 4], "three attempts, then the backup level has it"
    assert [reason for _, reason, _ in seen] == ["card declined", "ValueError", "ValueError"]
    assert {origin for _, _, origin in seen} == {START_WALL - 3_600_000}
    moved = place.broker.messages("persistent://p/n/orders-B1")[0]
    assert moved.properties["X-Retrying-Message-Counter"] == "2:1:1", "untouched, and no longer read"
    assert moved.properties["kodo-attempts-retrying"] == "3"
    assert moved.properties["kodo-origin-topic"] == "persistent://p/n/orders"


def test_a_message_that_is_not_due_is_kept_by_the_broker_from_now_on_and_holds_nobody_up(tmp_path: Path) -> None:
    order: list[str] = []
    place = harness(tmp_path, lambda message: order.append(f"{message.text()} {message.attempt}"))
    place.broker.send(Outgoing(RETRYING, b"late", left_behind(X_Consume_Time=stamp(60))))
    place.broker.send(Outgoing(RETRYING, b"soon", left_behind(X_Consume_Time=stamp(2))))
    place.broker.send(Outgoing(RETRYING, b"now", left_behind()))
    place.run()
    assert order == ["now 3"]
    (_, _, _, adopted) = place.broker.messages(RETRYING)
    assert START_WALL + 60_000 <= (adopted.message.deliver_at or 0) <= START_WALL + 63_000
    assert place.counts.finished["adopted"] == 1
    place.advance("3s")
    assert order == ["now 3", "soon 3"]
    place.advance("62s")
    assert order == ["now 3", "soon 3", "late 3"], "waiting counted nothing"


def test_a_delay_that_a_producer_asked_for_is_kept_and_its_message_is_still_this_subscription_s_alone(
    tmp_path: Path,
) -> None:
    seen: list[str] = []
    place = harness(tmp_path, lambda message: seen.append(message.text()))
    place.inject(b"x", properties={"X-Consume-Time": stamp(60), "X-Message-Counter": "1:0:0"})
    place.advance("30s")
    assert seen == []
    (_, again) = place.broker.messages("persistent://p/n/orders")
    assert again.properties["kodo-for"] == "billing"
    place.advance("35s")
    assert seen == ["x"]


def test_routes_are_for_what_no_worker_of_either_kind_has_moved(tmp_path: Path) -> None:
    place = harness(tmp_path, lambda message: None)
    place.inject(b"new", properties={"size": "11", "X-Message-Counter": "1:0:0"})
    place.inject(b"moved", properties=left_behind(size="11"))
    place.run()
    assert place.counts.finished["routed"] == 1


def test_headers_that_nobody_wrote_so_are_dead_in_a_state_topic_and_no_headers_in_a_ready_one(tmp_path: Path) -> None:
    seen: list[int] = []
    place = harness(tmp_path, lambda message: seen.append(message.attempt))
    place.broker.send(Outgoing(RETRYING, b"x", left_behind(X_Consume_Time="tomorrow")))
    place.inject(b"x", properties=left_behind(X_Consume_Time="tomorrow"))
    place.run()
    assert [letter.properties["kodo-reason"] for letter in place.dead_letters] == [
        "broken control property X-Consume-Time"
    ]
    assert seen == [1]


def test_without_compat_they_are_properties_like_any(tmp_path: Path) -> None:
    seen: list[int] = []
    place = harness(tmp_path, lambda message: seen.append(message.attempt), subscription="plain")
    place.broker.send(Outgoing("persistent://p/n/orders-plain-RETRYING", b"x", left_behind(X_Consume_Time=stamp(60))))
    place.run()
    assert seen == [1]


def test_what_is_transferred_begins_anew_on_the_other_ground(tmp_path: Path) -> None:
    def handle(message: Message) -> None:
        raise Transfer("shipments")

    place = harness(tmp_path, handle)
    place.broker.create("persistent://p/n/shipments", ["tracking"])
    place.broker.send(Outgoing(RETRYING, b"x", left_behind()))
    place.run()
    (sent,) = place.broker.messages("persistent://p/n/shipments")
    assert {name: value for name, value in sent.properties.items() if not name.startswith("kodo-")} == {"uid": "u1"}
    assert {name for name in sent.properties if name.startswith("kodo-")} == {"kodo-id", "kodo-parent"}


def test_on_an_ordered_lane_nothing_is_put_off(tmp_path: Path) -> None:
    topics = "  J: {subscriptions: {s: {type: key_shared, compat: soften, in_place: []}}}\n"
    consumer = Consumer.load(write(tmp_path, topics), topic="J", subscription="s", environ={})
    seen: list[str] = []
    consumer.handler(lambda message: seen.append(message.text()))
    place = Harness(consumer)
    place.inject(b"x", key="k", properties={"X-Consume-Time": stamp(60)})
    place.run()
    assert seen == ["x"]
