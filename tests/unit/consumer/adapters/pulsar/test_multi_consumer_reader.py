"""A lane read by several consumers: when there is one more, who acknowledges what, and when all is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.client_consumer import Subscriber
from kodo_consumer.adapters.pulsar.multi_consumer_reader import MultiConsumerReader, may_need_several
from kodo_consumer.core.values.broker import LaneRequest
from kodo_consumer.core.values.envelope import Delivery

from tests.services.polling import eventually
from tests.unit.consumer.client_library import Silent


class Held(Silent):
    """A consumer whose connection a test breaks."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.is_there = True

    def is_connected(self) -> bool:
        return self.is_there


class Client:
    """Gives out consumers, as long as it may."""

    def get_topic_partitions(self, topic: str) -> list[str]:
        return [topic]

    def __init__(self) -> None:
        self.consumers: list[Held] = []
        self.full = False
        self.gate = threading.Event()
        self.gate.set()

    def subscribe(self, *_: Any, **options: Any) -> Held:
        assert self.gate.wait(20)
        if self.full:
            raise pulsar.ConsumerBusy("full")
        self.consumers.append(Held(**options))
        return self.consumers[-1]


class Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.got: list[Delivery] = []
        self.lost = 0
        self.problems: list[BaseException] = []
        self.results: Any = None
        self.free = 0  # the consumers of most tests have nothing to say

    def deliver(self, deliveries: Any) -> None:
        self.got += deliveries

    def room(self) -> int:
        return self.free

    def on_disconnect(self, partition: str | None = None) -> None:
        self.lost += 1

    def on_acknowledged(self, confirmed: Sequence[int], unknown: Sequence[int]) -> None:
        self.results = confirmed, unknown

    def fail(self, problem: BaseException) -> None:
        self.problems.append(problem)


class Token(str):
    """What a message of a topic without partitions is acknowledged by."""

    __slots__ = ()

    def partition(self) -> int:  # type: ignore[override]
        return -1


class Stand:
    """One lane on a broker that lets a consumer hold 1,000 messages."""

    def __init__(self, sink: Sink | None = None, limit: int = 1_000) -> None:
        self.client, self.sink = Client(), sink or Sink()
        request = LaneRequest(
            "t", "s", "shared", "c", queue=400, batch=200, batch_bytes=9, max_unacked=9_000, limit=limit
        )
        self.lane = MultiConsumerReader(Subscriber(self.client), request, self.sink)

    def deliver(self, part: int, *tokens: str) -> None:
        """A consumer hands over messages."""
        sink = self.lane._parts[part]._sink
        sink.deliver([Delivery((7, token, -1), Token(token), b"", {}, "", "", 0, 0) for token in tokens])
        self.wait_for_consumers()

    def widen(self) -> None:
        """The broker says that the lane is blocked; waits until the lane has more consumers."""
        self.lane.add_consumers()
        self.wait_for_consumers()

    def wait_for_consumers(self) -> None:
        """Returns when no consumer is being opened."""
        eventually(lambda: not any(thread.name == "kodo-widen" for thread in threading.enumerate()), every=0.001)

    def numbers(self, count: int) -> list[str]:
        return [Token(number) for number in range(count)]


@pytest.fixture
def stand() -> Iterator[Stand]:
    found = Stand()
    yield found
    found.client.gate.set()
    found.lane.close()


def test_only_shared_lanes_whose_limit_is_small_or_unknown_are_spread() -> None:
    def request(**values: Any) -> LaneRequest:
        return LaneRequest(
            "t", "s", **({"type": "shared"} | values), consumer_name="c", queue=1, batch=1, batch_bytes=1
        )

    assert may_need_several(request(max_unacked=9_000, limit=0))
    assert may_need_several(request(max_unacked=9_500, limit=10_000)), "the last batch may go across the limit"
    assert not may_need_several(request(max_unacked=9_000, limit=10_000))
    assert not may_need_several(request(type="key_shared", max_unacked=9_000, limit=10))


class Quick(Sink):
    """While it is quick, all it gets is acknowledged before it has been handed over, as handlers on other threads may."""

    lane: MultiConsumerReader
    quick = True

    def deliver(self, deliveries: Any) -> None:
        super().deliver(deliveries)
        if self.quick:
            self.lane.acknowledge([delivery.token for delivery in deliveries])


def test_what_is_acknowledged_while_it_is_handed_over_is_not_counted_as_held() -> None:
    stand = Stand(sink := Quick())
    sink.lane = stand.lane
    try:
        stand.deliver(0, *stand.numbers(500))
        sink.quick = False
        stand.deliver(0, *stand.numbers(400))
        assert len(stand.client.consumers) == 1, "it holds 400 of the 1,000 it may"
    finally:
        stand.lane.close()


def test_copies_of_what_one_consumer_lost_are_not_counted_twice(stand: Stand) -> None:
    stand.deliver(0, *stand.numbers(501))
    assert len(stand.client.consumers) == 2
    for _ in range(10):
        stand.client.consumers[0].is_there = False
        stand.lane.check_connection()
        stand.client.consumers[0].is_there = True
        stand.lane.check_connection()
        stand.deliver(0, *stand.numbers(501))
    assert len(stand.client.consumers) == 2, "two hold 501 of the 2,000 they may"


def test_there_is_one_more_whenever_those_there_are_hold_half_of_what_they_may(stand: Stand) -> None:
    stand.deliver(0, *stand.numbers(500))
    assert len(stand.client.consumers) == 1
    stand.deliver(0, "501")
    assert len(stand.client.consumers) == 2
    stand.lane.acknowledge(stand.numbers(400))
    stand.deliver(1, *stand.numbers(899))
    assert len(stand.client.consumers) == 2
    stand.deliver(1, "x")
    assert len(stand.client.consumers) == 3
    for _ in range(100):
        stand.deliver(0, *stand.numbers(1_000))
    assert len(stand.client.consumers) == 20, "20 of them hold the 10,000 it takes, each half of what it may"


def test_the_receiver_queue_is_shared_out(stand: Stand) -> None:
    for _ in range(100):
        stand.deliver(0, *stand.numbers(1_000))
    queues = [consumer.options["receiver_queue_size"] for consumer in stand.client.consumers]
    assert queues == [199] + [9] * 19, "of each one more message is on its way to the thread that reads"
    assert sum(queues) + 20 <= 400


def test_each_message_is_acknowledged_by_the_consumer_that_received_it(stand: Stand) -> None:
    stand.widen()
    stand.deliver(0, "a")
    stand.deliver(1, "(1,2,3,4)")
    first, second = (delivery.token for delivery in stand.sink.got)
    assert str(second) == "(1,2,3,4)", "it is named as ever"
    stand.lane.acknowledge([first, second])
    assert [consumer.acked for consumer in stand.client.consumers] == [["a"], ["(1,2,3,4)"]]


def test_each_ticket_goes_with_its_token_and_results_come_from_each_consumer(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.widen()
    stand.deliver(0, "a", "b")
    stand.deliver(1, "c")
    given: list[tuple[list[str], list[int]]] = []
    for part in stand.lane._parts:
        monkeypatch.setattr(part, "acknowledge", lambda tokens, tickets: given.append(([*map(str, tokens)], tickets)))
    first, second, third = (delivery.token for delivery in stand.sink.got)
    stand.lane.acknowledge([third, first, second], [7, 8, 9])
    assert given == [(["c"], [7]), (["a", "b"], [8, 9])]
    stand.lane._parts[1]._sink.on_acknowledged([7], [9])
    assert stand.sink.results == ([7], [9])


def test_nothing_is_let_go_of_before_all_are_lost(stand: Stand) -> None:
    stand.client.consumers[0].is_there = False
    stand.lane.check_connection()
    assert stand.sink.lost == 1, "there is but one"
    stand.client.consumers[0].is_there = True
    stand.lane.check_connection()
    stand.widen()
    stand.client.consumers[0].is_there = False
    stand.lane.check_connection()
    assert (stand.sink.lost, stand.lane.connected) == (1, False), (
        "the broker will not send again what the other one holds"
    )
    stand.client.consumers[1].is_there = False
    stand.lane.check_connection()
    assert stand.sink.lost == 2


def test_after_all_was_lost_counting_begins_anew(stand: Stand) -> None:
    stand.deliver(0, *stand.numbers(450))
    stand.client.consumers[0].is_there = False
    stand.lane.check_connection()
    stand.deliver(0, *stand.numbers(450))
    assert len(stand.client.consumers) == 1


def test_to_connect_anew_all_of_them_leave_at_the_same_moment_and_come_back(stand: Stand) -> None:
    stand.widen()
    stand.sink.free = 1
    stand.lane.resume()
    stand.lane.reconnect(0.0, 0.05)
    stand.lane.check_connection()
    eventually(lambda: len(stand.client.consumers) == 4)
    assert [consumer.closed.is_set() for consumer in stand.client.consumers] == [True, True, False, False]


def test_where_the_limit_is_not_known_each_alarm_doubles_them() -> None:
    stand = Stand(limit=0)
    stand.deliver(0, *stand.numbers(100_000))
    assert [consumer.options["receiver_queue_size"] for consumer in stand.client.consumers] == [399]
    for expected in (2, 4, 8, 16, 32, 64, 64):
        stand.widen()
        assert len(stand.client.consumers) == expected
    stand.lane.stop()
    stand.lane.close()


def test_whoever_says_that_the_lane_is_blocked_does_not_wait_for_a_silent_broker(stand: Stand) -> None:
    stand.client.gate.clear()
    stand.lane.add_consumers()
    assert len(stand.client.consumers) == 1
    stand.client.gate.set()
    eventually(lambda: len(stand.client.consumers) == 2)


def test_one_that_cannot_be_had_is_tried_again_later(stand: Stand) -> None:
    stand.client.full = True
    stand.widen()
    stand.client.full = False
    stand.widen()
    assert len(stand.client.consumers) == 1
    stand.lane._not_before = float("-inf")
    stand.widen()
    assert len(stand.client.consumers) == 2


def test_one_that_comes_when_the_lane_was_closed_leaves_again(stand: Stand) -> None:
    stand.client.gate.clear()
    stand.lane.add_consumers()
    eventually(lambda: stand.lane._opening)
    stand.lane.add_consumers()
    stand.lane.close()
    stand.client.gate.set()
    stand.wait_for_consumers()
    assert len(stand.client.consumers) == 2
    assert stand.client.consumers[1].closed.is_set()
    assert stand.lane._parts[0] is stand.lane._parts[-1]
    stand.lane.resume()


def test_a_lane_that_is_left_is_left_by_all_and_no_further_one_comes_until_it_is_joined(stand: Stand) -> None:
    stand.widen()
    stand.lane.leave(0.0)
    stand.lane.check_connection()
    eventually(lambda: all(consumer.closed.is_set() for consumer in stand.client.consumers))
    stand.widen()
    assert len(stand.client.consumers) == 2
    stand.lane.join()
    eventually(lambda: len(stand.client.consumers) == 4)
    stand.widen()
    eventually(lambda: len(stand.client.consumers) == 6)


def test_one_that_comes_when_the_lane_is_left_leaves_as_well_and_comes_back_with_the_others(stand: Stand) -> None:
    stand.client.gate.clear()
    stand.lane.add_consumers()
    eventually(lambda: stand.lane._opening)
    stand.lane.leave(0.0)
    stand.lane.check_connection()
    stand.client.gate.set()
    stand.wait_for_consumers()
    first, second = stand.client.consumers
    assert first.closed.wait(20)
    assert second.closed.wait(20)
    stand.lane.join()
    eventually(lambda: len(stand.client.consumers) == 4)
    assert not any(consumer.closed.is_set() for consumer in stand.client.consumers[2:])
