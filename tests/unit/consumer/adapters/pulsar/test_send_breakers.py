"""Circuit breakers of producers: when they open, who tries, and who waits."""

import pytest
from kodo_consumer.adapters.pulsar.send_breakers import LONG, SendBreaker
from kodo_consumer.core.values.envelope import Outgoing

LIMIT = 60.0
MESSAGE = Outgoing("t", b"", {})


def _lost_connection(breaker: SendBreaker, now: float, oldest: float | None = None) -> bool:
    """The producer is seen connected, then without connection."""
    first = now if oldest is None else oldest
    assert not breaker.look(connected=True, oldest=first, now=now)
    return breaker.look(connected=False, oldest=first, now=now)


def _waiting(*tickets: int, is_open: bool = True) -> SendBreaker:
    breaker = SendBreaker(is_open=is_open)
    for ticket in tickets:
        breaker.wait(ticket, MESSAGE, since=100.0)
    return breaker


def test_one_lost_connection_is_a_broker_that_died_and_two_without_a_receipt_are_not() -> None:
    breaker = SendBreaker()
    assert not _lost_connection(breaker, 1.0)
    assert not breaker.look(connected=False, oldest=1.0, now=30.0), "still the same one"
    breaker.stored()
    assert not _lost_connection(breaker, 40.0)
    assert _lost_connection(breaker, 41.0)


def test_one_is_enough_where_messages_had_waited_long_for_their_receipts() -> None:
    assert not _lost_connection(SendBreaker(), 10.0, oldest=10.0 - LONG)
    assert _lost_connection(SendBreaker(), 10.0, oldest=9.9 - LONG)


@pytest.mark.parametrize(
    ("tries", "expected"), [(0, [1, 2, 4, 4, 4, 4]), (1, [1, 2, 4, 4, 4, 4]), (2, [1, 2, 4, 8, 10, 10])]
)
def test_one_message_tries_after_a_pause_that_grows_and_longer_before_a_third_copy(
    tries: int, expected: list[int]
) -> None:
    breaker, pauses, now = SendBreaker(), [], 100.0
    for ticket in range(9):
        breaker.wait(ticket, MESSAGE, since=100.0, tries=tries)
    for _ in range(6):
        breaker.open(now)
        opened = now
        while breaker.next_trial(now, LIMIT) is None:
            now += 0.5
        assert breaker.next_trial(now + 99, LIMIT) is None, "one at a time"
        pauses.append(now - opened)
    assert pauses == expected


def test_a_breaker_that_is_open_from_the_beginning_lets_one_try_at_once() -> None:
    breaker = _waiting(1, 2)
    assert breaker.next_trial(100.0, LIMIT) is not None
    assert breaker.trial == 1


def test_the_one_tries_that_was_sent_least_often_and_has_time_left() -> None:
    breaker = SendBreaker(is_open=True)
    breaker.wait(1, MESSAGE, since=100.0, tries=2)
    breaker.wait(2, MESSAGE, since=50.0, tries=1)
    breaker.wait(3, MESSAGE, since=100.0, tries=1)
    breaker.wait(4, MESSAGE, since=100.0, tries=1)
    tried = []
    while (found := breaker.next_trial(100.0, LIMIT)) is not None:
        tried.append(found[0])
        breaker.trial = None
    assert tried == [3, 4, 1, 2]


@pytest.mark.parametrize(("ordered", "expected"), [(False, [2, 4, 5, 3, 1]), (True, [3, 5, 1, 2, 4])])
def test_where_order_is_kept_the_first_of_each_key_tries_whatever_was_sent_less_often(
    ordered: bool, expected: list[int]
) -> None:
    breaker = SendBreaker(is_open=True, ordered=ordered)
    for ticket, key, ordering_key, tries in (
        (5, "", "", 0),
        (2, "a", "", 0),
        (4, "b", "a", 0),
        (1, "a", "", 3),
        (3, "", "", 1),
    ):
        breaker.wait(ticket, MESSAGE._replace(key=key, ordering_key=ordering_key), since=100.0, tries=tries)
    tried = []
    while (found := breaker.next_trial(100.0, LIMIT)) is not None:
        tried.append(found[0])
        breaker.trial = None
    assert tried == expected


def test_a_receipt_of_what_was_sent_before_lets_the_next_one_try_at_once() -> None:
    breaker = _waiting(1)
    breaker.open(100.0)
    assert breaker.next_trial(100.5, LIMIT) is None
    breaker.stores_again(100.5)
    assert breaker.next_trial(100.5, LIMIT) is not None
    assert breaker.is_open


def test_a_message_that_was_not_sent_leaves_no_copy_so_the_next_one_tries_soon() -> None:
    breaker = _waiting(1, 2)
    for _ in range(5):
        breaker.open(100.0)
    assert breaker.next_trial(110.0, LIMIT) is not None
    breaker.not_tried(110.0)
    assert breaker.next_trial(110.9, LIMIT) is None
    assert breaker.next_trial(111.0, LIMIT) is not None


def test_a_receipt_lets_all_go_in_order_and_the_next_doubt_begins_anew() -> None:
    breaker = _waiting(3, 1, 2)
    breaker.open(100.0)
    assert breaker.in_doubt
    breaker.stored()
    assert not breaker.in_doubt
    assert [ticket for ticket, _ in breaker.released()] == [1, 2, 3]
    assert breaker.released() == []
    breaker.open(200.0)
    breaker.wait(1, MESSAGE, since=200.0)
    assert breaker.next_trial(201.0, LIMIT) is not None


def test_nobody_waits_longer_than_the_limit() -> None:
    breaker = _waiting(1)
    breaker.wait(2, MESSAGE, since=130.0)
    assert list(breaker.expired(159.9, LIMIT)) == []
    assert list(breaker.expired(160.0, LIMIT)) == [1]
    assert list(breaker.waiting) == [2]
