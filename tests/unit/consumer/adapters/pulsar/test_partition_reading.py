"""Messages of a partition are delivered in order and in batches, those included for which the client library calls nobody."""

from __future__ import annotations

from typing import Any, Literal

import pulsar
import pytest

from tests.services.polling import eventually
from tests.unit.consumer.adapters.pulsar.lane_stand import Message, Stand


def test_each_partition_has_its_part_of_the_receiver_queue(stand: Stand) -> None:
    stand.open()
    assert [one["receiver_queue_size"] for one in stand.client.options] == [99, 99, 99], "one more each is on its way"


def test_a_backlog_comes_in_batches(stand: Stand) -> None:
    stand.open()
    stand.client.of(0).come(*range(300))
    eventually(lambda: len(stand.sink.got) == 300)
    assert stand.sink.numbers(0) == list(range(300)), "in order"
    assert stand.client.of(0).batches


@pytest.mark.parametrize("type_", ["shared", "key_shared"])
def test_a_message_that_nobody_is_called_for_is_delivered_and_so_is_the_next(
    stand: Stand, type_: Literal["shared", "key_shared"]
) -> None:
    """The client library calls nobody whose wait began while a message was on its way into its queue."""
    stand.open(type_=type_)
    consumer = stand.client.of(0)
    consumer.come_silently(1)
    eventually(lambda: stand.sink.numbers(0) == [1])
    consumer.come(2)
    eventually(lambda: stand.sink.numbers(0) == [1, 2])


@pytest.mark.parametrize("behind", [0, 2])
def test_where_order_is_kept_a_message_that_nobody_was_called_for_is_before_the_one_of_the_call(
    stand: Stand, behind: int
) -> None:
    stand.open(type_="key_shared")
    consumer = stand.client.of(0)
    consumer.come_silently(1)
    eventually(lambda: consumer._asked)
    asked = consumer._asked.pop()
    consumer.there += [Message(0, 3 + number) for number in range(behind)]
    asked(pulsar.Result.Ok, Message(0, 2))
    eventually(lambda: len(stand.sink.got) == 2 + behind)
    assert stand.sink.numbers(0) == list(range(1, 3 + behind))


def test_where_order_is_kept_a_message_that_was_found_waits_for_a_call_that_is_on_its_way(stand: Stand) -> None:
    stand.open(type_="key_shared")
    consumer = stand.client.of(0)
    eventually(lambda: consumer._asked)
    asked = consumer._asked.pop()  # the call for 1 is on its way, 2 is in the queue
    consumer.there.append(Message(0, 2))
    eventually(lambda: not consumer.there)
    assert stand.sink.numbers(0) == []
    asked(pulsar.Result.Ok, Message(0, 1))
    eventually(lambda: stand.sink.numbers(0) == [1, 2])


def test_what_a_consumer_that_is_closed_meanwhile_raises_at_a_look_harms_nobody(stand: Stand) -> None:
    stand.open()
    consumer: Any = stand.client.of(0)
    looks = list[int]()

    def receive(milliseconds: int) -> Message:
        looks.append(milliseconds)
        raise pulsar.AlreadyClosed("closed")

    consumer.receive = receive
    eventually(lambda: len(looks) > 1)
    stand.client.of(1).come(7)
    eventually(lambda: stand.sink.numbers(1) == [7])
