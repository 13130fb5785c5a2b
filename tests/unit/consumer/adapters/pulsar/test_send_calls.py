"""Messages reach the native border in bundles and in their order; what it cannot build goes by the binding, in its turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pulsar
from kodo_consumer.adapters.pulsar.schema_passthrough import Key
from kodo_consumer.adapters.pulsar.send_calls import NativeResults, NativeSendCalls, SendCalls
from kodo_consumer.core.values.broker import Receipt, Rejected
from kodo_consumer.core.values.envelope import Outgoing


class Producer:
    """A producer of the client library; what it sends goes into the same list as the border's."""

    def __init__(self, sent: list[Any]) -> None:
        self._producer = self
        self._sent = sent

    def send_async(self, payload: Any, callback: Callable[[Any, Any], None], **_: Any) -> None:
        if payload is None:
            raise TypeError("no bytes")
        self._sent.append((payload, "binding"))
        callback(pulsar.Result.Ok, "position")


class Place:
    """A position."""

    def __init__(self, ledger: int = 7) -> None:
        self.ledger = ledger

    def ledger_id(self) -> int:
        return self.ledger


PLACE, NOWHERE = Place(), Place(-1)


class Sender:
    """The border's sender: it takes what has a payload of one byte."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.results: list[tuple[int, int, int, Any]] = []
        self.calls = 0

    def publish(self, number: int, messages: list[tuple[int, Outgoing]], _local: bool) -> int:
        self.calls += 1
        for count, (ticket, message) in enumerate(messages):
            if len(message.payload or b"") != 1:
                return count
            self.sent.append((message.payload, number))
            self.results.append((number, ticket, 0, PLACE))
        return len(messages)

    def receipts(self, _wait: int, _gather: int) -> list[tuple[int, list[Any], list[Any]]]:
        """As the border gives them: by producer, what is stored somewhere apart from all else."""
        taken, self.results = self.results, []
        found: dict[int, tuple[list[Any], list[Any]]] = {}
        for number, ticket, result, place in taken:
            stored, others = found.setdefault(number, ([], []))
            if result == 0 and place is not None and place.ledger_id() >= 0:
                stored.append((ticket, place))
            else:
                others.append((ticket, result, place))
        return [(number, *both) for number, both in found.items()]

    def wake(self) -> None: ...


class Border:
    """The border, which refuses producers whose number is in `refused`."""

    def __init__(self) -> None:
        self.refused: set[int] = set()
        self.made = Sender()

    def sender(self) -> Sender:
        return self.made

    def producer(self, _producer: Any, number: int) -> int:
        if number in self.refused:
            raise RuntimeError("topic() differs")
        return number


class Stand:
    """Calls with what came of them: (ticket, topic, result, position)."""

    def __init__(self) -> None:
        self.border = Border()
        self.sent = self.border.made.sent
        self.results = NativeResults(self.border)  # type: ignore[arg-type]
        self.answers: list[tuple[int, str, Any, Any]] = []
        self.failures: list[tuple[int, str]] = []
        self.stored: list[tuple[str, list[int]]] = []
        self.calls = NativeSendCalls(self._result, self._stored, self._failure, self.results, local=False)
        self.producer = Producer(self.sent)

    def _result(self, ticket: int, key: Key, _producer: Any, result: Any, position: Any) -> None:
        self.answers.append((ticket, key.topic, result, position))

    def _stored(self, key: Key, stored: Sequence[tuple[int, Any]]) -> None:
        self.stored.append((key.topic, [ticket for ticket, _ in stored]))
        self.answers += [(ticket, key.topic, pulsar.Result.Ok, position) for ticket, position in stored]

    def _failure(self, ticket: int, receipt: Receipt, _: Key) -> None:
        assert isinstance(receipt, Rejected)
        self.failures.append((ticket, receipt.reason))

    def send(self, *payloads: bytes | None, topic: str = "t", producer: Any = None) -> None:
        for ticket, payload in enumerate(payloads):
            self.calls.send(ticket, Outgoing(topic, payload, {}), Key(topic), producer or self.producer)

    def take(self) -> None:
        self.results.take(self.results.wait(0.0, 0.0))


def test_messages_wait_for_the_flush_and_go_in_one_call() -> None:
    stand = Stand()
    stand.send(b"a", b"b", b"c")
    assert stand.sent == []
    stand.calls.flush()
    assert (stand.border.made.calls, stand.sent) == (1, [(b"a", 1), (b"b", 1), (b"c", 1)])
    stand.take()
    assert stand.answers == [(ticket, "t", pulsar.Result.Ok, PLACE) for ticket in range(3)]


def test_what_the_border_cannot_build_keeps_its_turn() -> None:
    stand = Stand()
    stand.send(b"a", b"long", b"b", b"more", None, b"c")
    stand.calls.flush()
    assert stand.sent == [(b"a", 1), (b"long", "binding"), (b"b", 1), (b"more", "binding"), (b"c", 1)]
    assert stand.failures == [(4, "TypeError")], "what it says may have what the message says"
    stand.take()
    assert sorted(answer[0] for answer in stand.answers) == [0, 1, 2, 3, 5]


def test_many_do_not_wait_for_the_flush() -> None:
    stand = Stand()
    stand.send(*[b"x"] * 1_100)
    assert len(stand.sent) == 1_024


def test_a_producer_that_the_border_does_not_know_takes_the_calls_of_the_binding() -> None:
    stand = Stand()
    stand.border.refused = {1}
    stand.send(b"a", b"b")
    stand.calls.flush()
    assert stand.sent == [(b"a", "binding"), (b"b", "binding")]


def test_a_producer_in_the_place_of_another_gets_no_message_of_its_and_the_first_is_forgotten_with_its_last_result() -> (
    None
):
    stand = Stand()
    stand.send(b"a")
    stand.send(b"b", producer=Producer(stand.sent))
    stand.calls.flush()
    assert stand.sent == [(b"a", 1), (b"b", 2)]
    assert set(stand.results._routes) == {1, 2}
    stand.take()
    assert len(stand.answers) == 2
    assert set(stand.results._routes) == {2}
    stand.calls.close()
    assert stand.results._routes == {}


def test_results_of_producers_that_are_given_up_still_come() -> None:
    stand = Stand()
    stand.send(b"a")
    stand.calls.flush()
    stand.send(b"never")
    stand.calls.close()
    stand.calls.flush()
    stand.take()
    assert [answer[0] for answer in stand.answers] == [0]
    assert stand.results._routes == {}


def test_a_result_without_a_name_is_an_unknown_error() -> None:
    stand = Stand()
    stand.send(b"a")
    stand.calls.flush()
    stand.border.made.results = [(1, 0, 12_345, None)]
    stand.take()
    assert stand.answers == [(0, "t", pulsar.Result.UnknownError, None)]


def test_several_are_sent_in_one_call_and_what_is_stored_is_told_in_one() -> None:
    stand = Stand()
    messages = [(ticket, Outgoing("t", b"x", {})) for ticket in range(5)]
    stand.calls.send_all(messages, Key("t"), stand.producer)
    stand.calls.flush()
    assert stand.border.made.calls == 1
    stand.border.made.results += [(1, 8, int(pulsar.Result.Timeout), None), (1, 9, 0, NOWHERE), (1, 10, 0, None)]
    stand.take()
    assert stand.stored == [("t", [0, 1, 2, 3, 4])]
    assert stand.answers[5:] == [
        (8, "t", pulsar.Result.Timeout, None),
        (9, "t", pulsar.Result.Ok, NOWHERE),
        (10, "t", pulsar.Result.Ok, None),
    ]


def test_without_the_border_several_are_sent_one_by_one() -> None:
    sent: list[Any] = []
    answers: list[int] = []
    calls = SendCalls(lambda ticket, *_: answers.append(ticket), lambda *_: None, local=False)
    calls.send_all([(1, Outgoing("t", b"a", {})), (2, Outgoing("t", b"b", {}))], Key("t"), Producer(sent))
    assert ([payload for payload, _ in sent], answers) == ([b"a", b"b"], [1, 2])
