"""Messages without a receipt: who waits, who tries, who has an answer."""

from __future__ import annotations

from typing import Any

import pytest
from kodo_consumer.adapters.pulsar.pending_sends import PendingSends
from kodo_consumer.adapters.pulsar.schema_passthrough import Key
from kodo_consumer.core.values.broker import Receipt, Unconfirmed
from kodo_consumer.core.values.envelope import Outgoing

KEY = Key("t", None)
MESSAGE = Outgoing("t", b"", {})


class Producer:
    """Connected or not, as is said."""

    def __init__(self) -> None:
        self.connected = True

    def is_connected(self) -> bool:
        return self.connected


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Sending:
    """Pending with one producer, as the thread that sends uses it."""

    def __init__(self, clock: Clock, **given: Any) -> None:
        self.clock = clock
        self.producers: dict[Key, Producer] = {KEY: Producer()}
        self.sent: list[int] = []
        self.answers: dict[int, Receipt] = {}
        self.closed = 0
        self.pending = PendingSends(self.producers, self._close, self.send, self._answer, lambda: None, **given)

    def send(self, ticket: int, message: Outgoing = MESSAGE, key: Key = KEY) -> None:
        if self.pending.admits(ticket, message, key):
            self.producers.setdefault(key, Producer())
            self.sent.append(ticket)
            self.pending.add(ticket, message, key)

    def look(self, seconds: float = 0.1) -> None:
        self.clock.now += seconds
        self.pending.look()

    def fence(self) -> None:
        """The connection ends twice without a receipt; what the producer has comes back."""
        for connected in (False, True, False):
            self.producers[KEY].connected = connected
            self.look()
        for ticket in self.sent:
            self.pending.lost(ticket, "AlreadyClosed")
        self.look()

    def _close(self, key: Key) -> None:
        del self.producers[key]
        self.closed += 1

    def _answer(self, ticket: int, receipt: Receipt) -> None:
        self.pending.forget(ticket)
        self.answers[ticket] = receipt


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.pending_sends.time", found)
    return found


def test_what_the_client_gives_up_is_lost_where_nothing_says_that_its_topic_stores_nothing(clock: Clock) -> None:
    sending = Sending(clock)
    sending.send(1)
    assert sending.pending
    sending.pending.lost(1, "NotConnected")
    sending.look()
    assert sending.answers == {1: Unconfirmed("NotConnected")}
    assert not sending.pending
    sending.pending.lost(1, "AlreadyClosed")
    assert sending.answers == {1: Unconfirmed("AlreadyClosed")}, "of one that nobody knows"


def test_a_fenced_topic_closes_its_producer_and_keeps_the_messages(clock: Clock) -> None:
    sending = Sending(clock)
    for ticket in (1, 2, 3):
        sending.send(ticket)
    sending.fence()
    assert sending.closed == 1
    sending.send(4)
    assert sending.sent == [1, 2, 3]
    sending.look(1.0)
    assert sending.sent == [1, 2, 3, 4], "the one that was never sent tries"
    sending.pending.stored([4], KEY)
    sending.look()
    assert sending.sent == [1, 2, 3, 4, 1, 2, 3]
    assert sending.answers == {}


def _doubted(sending: Sending) -> None:
    """Three messages are with a producer that is being closed, and a fourth waits."""
    for ticket in (1, 2, 3):
        sending.send(ticket)
    for connected in (False, True, False):
        sending.producers[KEY].connected = connected
        sending.look()
    assert sending.closed == 1
    sending.send(4)


def test_nobody_tries_before_everything_came_back_that_was_sent_before(clock: Clock) -> None:
    sending = Sending(clock, ordered={"t"})
    _doubted(sending)
    sending.pending.lost(2, "AlreadyClosed")
    sending.look(1.0)
    assert sending.sent == [1, 2, 3], "1 and 3 are still with the client"
    sending.pending.lost(1, "AlreadyClosed")
    sending.pending.lost(3, "AlreadyClosed")
    sending.look()
    assert sending.sent == [1, 2, 3, 1]
    sending.pending.stored([1], KEY)
    sending.look()
    assert sending.sent == [1, 2, 3, 1, 2, 3, 4]


def test_a_late_receipt_lets_nothing_overtake_what_is_still_to_come_back(clock: Clock) -> None:
    sending = Sending(clock, ordered={"t"})
    _doubted(sending)
    sending.pending.stored([1], KEY)
    sending.look()
    assert sending.sent == [1, 2, 3], "2 and 3 are still with the client"
    for ticket in (2, 3):
        sending.pending.lost(ticket, "AlreadyClosed")
    sending.look()
    assert sending.sent == [1, 2, 3, 2], "at once, for something was stored"
    sending.pending.stored([2], KEY)
    sending.look()
    assert sending.sent == [1, 2, 3, 2, 3, 4]
    assert sending.answers == {}


def test_what_comes_back_together_with_a_receipt_goes_on_with_the_others(clock: Clock) -> None:
    sending = Sending(clock)
    _doubted(sending)
    sending.pending.stored([1], KEY)
    for ticket in (2, 3):
        sending.pending.lost(ticket, "AlreadyClosed")
    sending.look()
    assert sending.sent == [1, 2, 3, 2, 3, 4]
    assert sending.answers == {}


def test_nobody_tries_while_a_producer_is_opened_for_earlier_messages(clock: Clock) -> None:
    opening = True
    sending = Sending(clock, opens=lambda _: opening, cautious=True)
    sending.send(1)
    sending.look(1.0)
    assert sending.sent == []
    opening = False
    sending.look()
    assert sending.sent == [1]


def test_a_producer_that_cannot_be_opened_lets_the_next_one_try_soon(clock: Clock) -> None:
    sending = Sending(clock)
    assert not sending.pending.takes_back(1, MESSAGE, KEY, "why"), "no doubt: it has its answer at once"
    sending.send(1)
    sending.fence()
    sending.look(1.0)
    sending.pending.forget(1)  # its producer is being opened, and is not
    assert sending.pending.takes_back(1, MESSAGE, KEY, "why")
    sending.look(1.0)
    assert sending.sent == [1, 1, 1]
    assert sending.answers == {}


def test_a_message_that_the_library_had_before_may_be_stored_by_that_try(clock: Clock) -> None:
    sending = Sending(clock)
    sending.send(1)
    assert not sending.pending.was_sent(1), "it has its first try"
    sending.fence()
    sending.look(1.0)
    assert sending.pending.was_sent(1)
    sending.pending.forget(1)
    assert not sending.pending.was_sent(1)


def test_a_message_whose_producer_cannot_be_opened_for_a_minute_has_its_answer(clock: Clock) -> None:
    sending = Sending(clock, cautious=True)
    sending.pending.admits(1, MESSAGE, KEY)
    opened: list[int] = []
    sending.pending._send = lambda ticket, message, key: opened.append(ticket)
    sending.look()
    assert opened == [1]
    clock.now += 60
    assert sending.pending.takes_back(1, MESSAGE, KEY, "its producer could not be opened")
    assert sending.answers == {1: Unconfirmed("its producer could not be opened")}


def test_a_try_that_hangs_ends_after_a_minute_like_any_other_send(clock: Clock) -> None:
    sending = Sending(clock, cautious=True)
    sending.send(1)
    sending.look()
    assert sending.sent == [1]
    sending.look(61.0)
    assert sending.closed == 1
    sending.pending.lost(1, "AlreadyClosed")
    sending.look()
    assert sending.answers == {1: Unconfirmed("AlreadyClosed")}
    sending.send(2)
    sending.look(10.0)
    assert sending.sent == [1, 2]


def test_a_send_that_is_given_up_after_a_minute_says_that_nothing_is_stored(clock: Clock) -> None:
    sending = Sending(clock)
    sending.send(1)
    clock.now += 60
    sending.pending.lost(1, "Timeout")
    sending.look()
    assert sending.answers == {1: Unconfirmed("Timeout")}
    sending.send(2)
    assert sending.sent == [1]
    sending.look(1.0)
    assert sending.sent == [1, 2]


def test_what_waits_for_a_minute_has_its_answer(clock: Clock) -> None:
    sending = Sending(clock, cautious=True)
    for ticket in (1, 2):
        sending.send(ticket)
    sending.look()
    assert sending.sent == [1]
    sending.look(61.0)
    assert sending.answers == {2: Unconfirmed("nothing was stored there for 60 s")}


def test_there_is_nothing_to_look_at_without_messages_and_doubt(clock: Clock) -> None:
    sending = Sending(clock)
    assert sending.pending.next_look is None
    sending.send(1)
    assert sending.pending.next_look == 0.05
    sending.fence()
    assert not sending.pending
    assert sending.pending.next_look == 0.05
