"""Batches of `kodoctl send`: the outcome of each message where some are refused, in doubt, or never sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kodo_consumer.cli import message_batch
from kodo_consumer.cli.message_batch import (
    EncodedMessage,
    MessageArguments,
    encode_messages,
    send_messages,
    size_findings,
)
from kodo_consumer.cli.typed_messages import TypedMessage
from kodo_consumer.core.values.broker import TOO_BIG, Receipt, Rejected, Unconfirmed
from kodo_consumer.core.values.send_target import SendTarget
from kodo_consumer.producer import Producer
from kodo_consumer.testing import MemoryBroker

from kodoctl.errors import ClusterError, UsageError, error
from tests.unit.consumer.pump import pumped

TOPIC = "persistent://p/n/orders"
MESSAGES = [EncodedMessage(line, f"id{line}", b"x") for line in (1, 2, 3, 4)]
AVRO = {"type": "record", "name": "O", "fields": [{"name": "n", "type": "int"}]}


def test_findings_are_about_all_messages_or_about_lines() -> None:
    target = SendTarget(TOPIC, {"required": ["n"]}, {"uid": "required"}, by_key=False, ordered=False)
    lines = [TypedMessage(1, b'{"n": 1}'), TypedMessage(2, b"{}"), TypedMessage(3, b"{")]
    messages, findings = encode_messages(target, lines, MessageArguments({"x": "1"}))
    assert [(one.line, one.payload) for one in messages] == [(1, b'{"n": 1}')]
    assert [(line, one.code) for line, one in findings] == [(0, "K717"), (0, "K717"), (2, "K716"), (3, "K716")]
    messages, findings = encode_messages(target, lines[:1], MessageArguments({"uid": "u"}, id="mine"))
    assert (messages, findings) == ([EncodedMessage(1, "mine", b'{"n": 1}')], [])


def test_payloads_of_an_avro_topic_are_typed_as_json() -> None:
    target = SendTarget(TOPIC, AVRO, {}, by_key=False, ordered=False, payload_type="avro")
    messages, findings = encode_messages(
        target,
        [TypedMessage(1, b'{"n": 5}'), TypedMessage(2, b'{"n": "5"}'), TypedMessage(3, b"5 5")],
        MessageArguments({}),
    )
    assert [one.payload for one in messages] == [b"\x0a"]
    assert [line for line, _ in findings] == [2, 3]
    assert "write it as JSON" in findings[1][1].detail


def test_messages_are_as_large_as_with_their_properties_and_identity() -> None:
    target = SendTarget(TOPIC, None, {}, by_key=False, ordered=False)
    large = [*MESSAGES, EncodedMessage(5, "id5", b"x" * 500)]
    assert [line for line, _ in size_findings(target, large, MessageArguments({"a": "b"}), 400)] == [5]
    assert size_findings(target, large, MessageArguments({}), 0) == []


class Failing(Producer):
    """A producer in memory whose posts end as a list says: a receipt, or an exception."""

    def __init__(self, broker: MemoryBroker, ends: Sequence[Receipt | BaseException]) -> None:
        super().__init__(TOPIC, broker, numbered=False)
        self.ends = iter(ends)

    def post(self, payload: Any, on_receipt: Callable[[Receipt], None] | None = None, **_: Any) -> str:
        end = next(self.ends)
        if isinstance(end, BaseException):
            raise end
        assert on_receipt is not None
        on_receipt(end)
        return ""


def outcomes(*ends: Receipt | BaseException) -> tuple[list[str], list[str], bool]:
    with pumped(TOPIC) as broker:
        found, interrupted = send_messages(Failing(broker, ends), MESSAGES, MessageArguments({}))
    assert [one.message for one in found] == MESSAGES
    return (
        [one.status.value for one in found],
        [one.finding.detail if one.finding else "" for one in found],
        interrupted,
    )


def test_a_refused_message_stops_no_other_and_one_without_receipt_is_in_doubt() -> None:
    refused = UsageError(error("K729", "message too large", "too large"))
    statuses, reasons, interrupted = outcomes(
        Unconfirmed("away"), refused, Rejected(TOO_BIG), Rejected("not authorised")
    )
    assert (statuses, interrupted) == (["in_doubt", "not_stored", "not_stored", "not_stored"], False)
    assert reasons[0] == f"{TOPIC}: away; it may have been stored"
    assert reasons[1] == "too large"
    assert reasons[3] == f"{TOPIC}: not authorised; it was not stored"


def test_after_an_error_of_the_cluster_nothing_more_is_sent() -> None:
    failed = ClusterError(error("K714", "cannot publish", "no such topic"))
    statuses, reasons, interrupted = outcomes(Unconfirmed("away"), failed)
    assert (statuses, interrupted) == (["in_doubt", *["not_stored"] * 3], False)
    assert reasons[1:] == ["no such topic", *["not sent: an earlier one failed"] * 2]


def test_after_an_interrupt_the_message_on_its_way_is_in_doubt_and_nothing_more_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_batch, "_LATE_CALLBACK", 0.01)
    statuses, reasons, interrupted = outcomes(Unconfirmed("away"), KeyboardInterrupt())
    assert (statuses, interrupted) == (["in_doubt", "in_doubt", "not_stored", "not_stored"], True)
    assert reasons[1] == f"{TOPIC}: no receipt in time; it may have been stored"
    assert reasons[2] == "not sent: interrupted"
