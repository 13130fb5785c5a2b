"""The broker port: the same tests on the broker in memory and on the real one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from kodo_consumer.core.values.broker import Confirmed, LaneReader, Rejected
from kodo_consumer.core.values.envelope import Delivery, Outgoing

from kodoctl.errors import ClusterError
from tests.contract.worlds import NATIVE, MemoryWorld, PulsarWorld, Sink, World


@pytest.fixture(
    params=[
        "memory",
        pytest.param("pulsar", marks=pytest.mark.broker),
        pytest.param("native", marks=[pytest.mark.broker, NATIVE]),
    ]
)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        found: World = MemoryWorld()
    else:
        broker, namespace = request.getfixturevalue("broker"), request.getfixturevalue("namespace")
        found = PulsarWorld(broker, namespace, native=request.param == "native")
    yield found
    found.close()


def _numbered(topic: str, count: int, **fields: Any) -> list[Outgoing]:
    return [Outgoing(topic, b"%d" % number, {}, **fields) for number in range(count)]


def _stored(got: list[Delivery]) -> set[object]:
    """Which stored messages these are, however often each was delivered."""
    return {(delivery.entry, delivery.batch_index) for delivery in got}


def test_a_message_arrives_as_it_was_sent(world: World) -> None:
    topic = world.create("t", "s")
    sent = [
        Outgoing(topic, b"\x00\xff", {"a": "1", "ü": "ß"}, key="k", ordering_key="o", event_time=1_234),
        Outgoing(topic, b"", {}),
        Outgoing(topic, None, {}, key="gone"),
    ]
    world.publish(*sent)
    sink = Sink()
    world.open(topic, sink)
    world.until(lambda: len(sink.got) == 3)
    for message, got in zip(sent, sink.got, strict=True):
        assert (got.payload, dict(got.properties)) == (message.payload, dict(message.properties))
        assert (got.key, got.ordering_key, got.event_time) == (message.key, message.ordering_key, message.event_time)
        assert abs(got.publish_time - world.clock.wall()) < 60_000
        assert len(got.position.split(":")) == 4
    assert len(_stored(sink.got)) == len({got.position for got in sink.got}) == 3


def test_receipts_come_for_every_ticket_and_one_key_keeps_its_order(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(*_numbered(topic, 300, key="k"))
    assert sorted(ticket for ticket, _ in world.receipts) == list(range(300))
    assert all(isinstance(receipt, Confirmed) for _, receipt in world.receipts)
    sink = Sink()
    world.open(topic, sink)
    world.until(lambda: len(sink.got) == 300)
    assert sink.payloads == [b"%d" % number for number in range(300)]


def test_two_subscriptions_each_get_everything(world: World) -> None:
    topic = world.create("t", "s", "r")
    one, two = Sink(), Sink()
    world.open(topic, one)
    world.open(topic, two, "r")
    world.publish(*_numbered(topic, 20))
    world.until(lambda: len(one.got) == len(two.got) == 20)


def test_what_was_acknowledged_never_comes_again_and_the_rest_does(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(*_numbered(topic, 10))
    first, second = Sink(), Sink()
    lane = world.open(topic, first)
    world.until(lambda: len(first.got) == 10)
    lane.acknowledge([delivery.token for delivery in first.got if int(delivery.payload or b"0") % 2])
    lane.close()
    world.open(topic, second)
    world.until(lambda: len(second.got) == 5)
    world.for_a_while(0.3)
    assert sorted(second.payloads) == [b"0", b"2", b"4", b"6", b"8"]  # type: ignore[type-var]
    assert _stored(second.got) <= _stored(first.got)


def test_nothing_is_delivered_without_room_until_it_is_told(world: World) -> None:
    topic = world.create("t", "s")
    sink = Sink(room=0)
    lane = world.open(topic, sink)
    world.publish(*_numbered(topic, 5))
    world.for_a_while(0.3)
    assert sink.got == []
    sink.free = 100
    lane.resume()
    world.until(lambda: len(sink.got) == 5)


def test_a_delayed_message_comes_when_it_is_due_and_others_pass_it(world: World) -> None:
    topic = world.create("t", "s")
    sink = Sink()
    world.open(topic, sink)
    due = world.clock.wall() + 1_500
    world.publish(Outgoing(topic, b"later", {}, deliver_at=due), Outgoing(topic, b"now", {}))
    world.until(lambda: sink.payloads == [b"now"])
    world.until(lambda: len(sink.got) == 2)
    assert world.clock.wall() >= due


def test_where_one_lane_gets_all_in_order_a_delayed_message_comes_at_once(world: World) -> None:
    topic = world.create("t", "s")
    sink = Sink()
    world.open(topic, sink, kind="failover")
    world.publish(Outgoing(topic, b"later", {}, deliver_at=world.clock.wall() + 60_000))
    world.until(lambda: sink.payloads == [b"later"])


def test_what_the_broker_will_never_take_is_told_as_such(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(world.refused(topic))
    ((_, receipt),) = world.receipts
    assert receipt == Rejected("too big")
    world.publish(Outgoing(topic, b"x", {}))
    assert isinstance(world.receipts[-1][1], Confirmed)


@pytest.mark.parametrize(
    "wrong",
    [
        {"payload": "text"},
        {"payload": {"a": 1}},
        {"properties": {"n": 1}},
        {"properties": {1: "n"}},
        {"properties": {"a": "\ud800"}},
        {"properties": {"\ud800": "a"}},
        {"key": 5},
    ],
    ids=str,
)
def test_what_no_client_can_build_is_never_taken_and_holds_up_nothing(world: World, wrong: dict[str, Any]) -> None:
    topic = world.create("t", "s")
    world.publish(Outgoing(topic, b"x", {})._replace(**wrong))
    ((_, receipt),) = world.receipts
    assert isinstance(receipt, Rejected)
    world.publish(Outgoing(topic, b"x", {"a": "\u00e9\U0001f600"}))
    assert isinstance(world.receipts[-1][1], Confirmed)


def test_a_topic_that_is_missing_cannot_be_opened_nor_published_to(world: World) -> None:
    with pytest.raises(ClusterError):
        world.open(world.topic("missing"), Sink())
    with pytest.raises(ClusterError):
        world.publisher(world.topic("missing"))


def test_what_is_sent_to_a_part_of_a_topic_arrives(world: World) -> None:
    topic = world.create("t", "s")
    (part,) = world.port.partitions(topic)
    world.publish(Outgoing(part, b"x", {}))
    sink = Sink()
    world.open(topic, sink)
    world.until(lambda: sink.payloads == [b"x"])


def test_a_broken_connection_is_told_and_everything_unacknowledged_comes_again(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(*_numbered(topic, 10))
    sink = Sink()
    lane = world.open(topic, sink)
    world.until(lambda: len(sink.got) == 10)
    world.disconnect("t")
    world.until(lambda: sink.lost == 1)
    world.until(lambda: len(sink.got) == 20)
    assert _stored(sink.got[:10]) == _stored(sink.got[10:])
    lane.acknowledge([delivery.token for delivery in sink.got[10:]])
    lane.close()
    again = Sink()
    world.open(topic, again)
    world.for_a_while(0.5)
    assert again.got == []


def test_shared_lanes_divide_the_messages(world: World) -> None:
    topic = world.create("t", "s")
    one, two = Sink(), Sink()
    world.open(topic, one, name="one")
    world.open(topic, two, name="two")
    for number in range(40):
        world.publish(Outgoing(topic, b"%d" % number, {}))
    world.until(lambda: len(one.got) + len(two.got) == 40)
    assert one.got
    assert two.got
    assert not set(one.payloads) & set(two.payloads)


def test_key_shared_lanes_keep_a_key_together(world: World) -> None:
    topic = world.create("t", "s")
    one, two = Sink(), Sink()
    world.open(topic, one, kind="key_shared", name="one")
    world.open(topic, two, kind="key_shared", name="two")
    for number in range(60):
        world.publish(Outgoing(topic, b"%d" % number, {}, key=f"k{number % 20}"))
    world.until(lambda: len(one.got) + len(two.got) == 60)
    assert not {delivery.key for delivery in one.got} & {delivery.key for delivery in two.got}


def test_a_failover_lane_takes_over_when_the_other_leaves(world: World) -> None:
    topic = world.create("t", "s")
    one, two = Sink(), Sink()
    first = world.open(topic, one, kind="failover", name="a")
    world.open(topic, two, kind="failover", name="b")
    world.publish(*_numbered(topic, 5))
    world.until(lambda: len(one.got) + len(two.got) >= 5)
    assert not one.got or not two.got
    first.close()
    world.until(lambda: len(two.got) == 5)


def test_an_exclusive_subscription_takes_one_lane(world: World) -> None:
    topic = world.create("t", "s")
    world.open(topic, Sink(), kind="exclusive")
    with pytest.raises(ClusterError):
        world.open(topic, Sink(), kind="exclusive")


def test_a_stopped_lane_delivers_nothing_more_and_still_acknowledges(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(*_numbered(topic, 5))
    sink = Sink()
    lane = world.open(topic, sink)
    world.until(lambda: len(sink.got) == 5)
    lane.stop()
    world.publish(*_numbered(topic, 5))
    world.for_a_while(0.7)
    assert len(sink.got) == 5
    lane.acknowledge([delivery.token for delivery in sink.got])
    lane.close()
    rest = Sink()
    world.open(topic, rest)
    world.until(lambda: len(rest.got) == 5)
    world.for_a_while(0.3)
    assert len(rest.got) == 5


def test_the_messages_of_a_lane_that_is_left_go_to_others_until_it_is_joined(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(*_numbered(topic, 5))
    sink, other = Sink(), Sink()
    lane = world.open(topic, sink)
    world.until(lambda: len(sink.got) == 5)
    lane.acknowledge([sink.got[0].token])
    lane.leave(0.0)
    opened: list[LaneReader] = []

    def free() -> bool:
        with contextlib.suppress(ClusterError):
            opened.append(world.open(topic, other, kind="exclusive"))
        return bool(opened)

    world.until(free)
    (second,) = opened
    world.until(lambda: len(other.got) == 4)
    world.for_a_while(0.3)
    assert sink.got[0].payload not in other.payloads
    assert len(sink.got) == 5, "nothing comes here"
    second.acknowledge([other.got[0].token])
    second.close()
    lane.join()
    world.until(lambda: len(sink.got) == 8)


def test_a_publisher_starts_afresh_when_it_is_told(world: World) -> None:
    topic = world.create("t", "s")
    publisher = world.publisher(topic)
    publisher.publish([(1, Outgoing(topic, b"1", {}))])
    world.until(lambda: len(world.receipts) == 1)
    publisher.renew()
    publisher.publish([(2, Outgoing(topic, b"2", {}))])
    world.until(lambda: [ticket for ticket, _ in world.receipts] == [1, 2])


def _acknowledge(lane: LaneReader, sink: Sink) -> dict[int, Delivery]:
    """Acknowledges everything with tickets from 1 on, and returns the deliveries by ticket."""
    by_ticket = dict(enumerate(sink.got, 1))
    lane.acknowledge([delivery.token for delivery in by_ticket.values()], list(by_ticket))
    return by_ticket


def test_each_acknowledgement_is_confirmed_once_by_its_ticket(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(*_numbered(topic, 300))
    sink = Sink()
    lane = world.open(topic, sink, confirms=True)
    world.until(lambda: len(sink.got) == 300)
    world.for_a_while(0.3)
    assert not sink.confirmed, "nothing was acknowledged"
    by_ticket = _acknowledge(lane, sink)
    world.until(lambda: len(sink.confirmed) == 300)
    world.for_a_while(0.3)
    assert sorted(sink.confirmed) == sorted(by_ticket)
    assert not sink.unknown


def test_each_copy_that_is_acknowledged_has_a_result(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(*_numbered(topic, 1))
    sink = Sink()
    lane = world.open(topic, sink, confirms=True)
    world.until(lambda: len(sink.got) == 1)
    lane.acknowledge([sink.got[0].token] * 2, [7, 8])
    world.until(lambda: sorted(sink.confirmed) == [7, 8])


def test_a_lane_that_confirms_nothing_reports_no_results(world: World) -> None:
    topic = world.create("t", "s")
    world.publish(*_numbered(topic, 10))
    sink = Sink()
    lane = world.open(topic, sink)
    world.until(lambda: len(sink.got) == 10)
    lane.acknowledge([delivery.token for delivery in sink.got])
    world.for_a_while(0.5)
    assert (sink.confirmed, sink.unknown) == ([], [])


def test_a_connection_that_breaks_leaves_results_unknown_and_nothing_that_was_confirmed_comes_again(
    world: World,
) -> None:
    topic = world.create("t", "s")
    for number in range(50):  # no batches, of which all comes again
        world.publish(Outgoing(topic, b"%d" % number, {}))
    sink = Sink()
    lane = world.open(topic, sink, confirms=True)
    world.until(lambda: len(sink.got) == 50)
    by_ticket = _acknowledge(lane, sink)
    world.disconnect("t")
    world.until(lambda: len(sink.confirmed) + len(sink.unknown) == 50)
    world.until(lambda: sink.lost > 0)
    lane.close()
    again = Sink()
    world.open(topic, again)
    world.for_a_while(1.0)
    assert sorted(sink.confirmed + sink.unknown) == sorted(by_ticket)
    confirmed = [by_ticket[ticket] for ticket in sink.confirmed]
    assert not _stored(confirmed) & _stored(again.got)
