"""A producer with numbers of the caller's: each message gets one answer, and no number falls."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pulsar
from kodo_consumer.adapters.pulsar.sequenced_producers import DROPPED, SequencedProducer
from kodo_consumer.core.values.broker import Rejected, Unconfirmed
from kodo_consumer.core.values.envelope import Outgoing


class Library:
    """The client library's producer, of a broker that had number 7. `result`: its answer to every message."""

    def __init__(self) -> None:
        self.sent: list[int | None] = []
        self.result: Any = pulsar.Result.Ok
        self.ledger = 3

    def last_sequence_id(self) -> int:
        return 7

    def send_async(self, _: bytes, done: Callable[[Any, Any], None], sequence_id: int | None = None, **__: Any) -> None:
        self.sent.append(sequence_id)
        done(self.result, SimpleNamespace(ledger_id=lambda: self.ledger))


def _answers(library: Library, *numbers: int | None) -> list[Unconfirmed | Rejected | None]:
    producer, answers = SequencedProducer(library), []
    assert (producer.is_stored(7), producer.is_stored(8)) == (True, False)
    for number in numbers:
        producer.send(number, Outgoing("t", b"x", {}), number, lambda _, answer: answers.append(answer))
    return answers


def test_a_number_that_does_not_rise_is_rejected_and_not_sent() -> None:
    """The broker would drop its message, and whoever opens the producer next would take it for stored."""
    library = Library()
    answers = _answers(library, 8, 10, 9, 10, None, 11)
    assert library.sent == [8, 10, None, 11]
    assert [type(one) for one in answers] == [type(None), type(None), Rejected, Rejected, type(None), type(None)]
    assert isinstance(answers[2], Rejected)
    assert answers[2].reason.startswith("its number 9 is not above 10")


def test_an_answer_says_stored_only_with_a_position() -> None:
    library = Library()
    library.ledger = -1
    assert _answers(library, 8) == [DROPPED]
    library.result = pulsar.Result.AlreadyClosed
    assert _answers(library, 8) == [Unconfirmed("AlreadyClosed")]
    library.result = pulsar.Result.MessageTooBig
    assert [type(one) for one in _answers(library, 8)] == [Rejected]
