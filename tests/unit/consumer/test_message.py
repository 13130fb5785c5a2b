"""What a handler is given."""

from __future__ import annotations

import pytest
from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.core.values.envelope import FRESH, Delivery, Headers, Level, State
from kodo_consumer.core.values.exceptions import InvalidPayloadError
from kodo_consumer.core.values.policy import Lane
from kodo_consumer.message import Message
from kodo_consumer.testing import message

from tests.unit.consumer.engine_bench import delivery

LANE = Lane(0, Level.L2, State.RETRYING, "persistent://p/n/t", 1, 1.0)


def _message(of: Delivery, headers: Headers = FRESH) -> Message:
    return Message(of, LANE, headers, "u1", Payloads("json", {"type": "integer"}))


def test_a_message_shows_its_place_and_history() -> None:
    headers = Headers(retrying=2, backup=1, reason="ValueError", origin_id="o", origin_time=5)
    message = _message(
        delivery(1, b"7", key="k", uid="u1", kodo_hop=3)._replace(event_time=9, ordering_key="ok"), headers
    )
    assert (message.level, message.state, message.topic) == ("L2", "retrying", "persistent://p/n/t")
    assert (message.tenant, message.key, message.id, message.attempt) == ("u1", "k", "o", 4)
    assert message.ordering_key == "ok"
    assert (message.reason, message.publish_time, message.event_time) == ("ValueError", 5, 9)
    assert message.properties == {"uid": "u1"}
    assert message.effect == "o"
    assert _message(delivery(1), Headers(origin_id="o", recall="r", again=True)).effect == "o again:r"
    assert (message.data, message.text(), message.json()) == (b"7", "7", 7)
    assert repr(message) == "Message(o on L2/retrying, tenant u1)"
    assert _message(delivery(1)).publish_time == delivery(1).publish_time


@pytest.mark.parametrize("payload", [b"{", b"\xff", b'"x"', b"[" * 100_000, b"", None])
def test_a_payload_that_is_not_what_was_declared_makes_the_message_die(payload: bytes | None) -> None:
    with pytest.raises(InvalidPayloadError):
        _message(delivery(1, payload)).json()


def test_a_tombstone_has_no_payload() -> None:
    assert _message(delivery(1, None)).is_tombstone
    assert _message(delivery(1, None)).data == b""
    assert not _message(delivery(1, b"")).is_tombstone


def test_text_is_utf_8() -> None:
    with pytest.raises(InvalidPayloadError):
        _message(delivery(1, b"\xff")).text()


def test_a_message_is_built_for_a_test_of_a_handler() -> None:
    built = message({"amount": 1}, key="k", properties={"uid": "u"}, place=("L2", "retrying"), attempt=3, tenant="u")
    assert (built.json(), built.key, built.properties, built.tenant) == ({"amount": 1}, "k", {"uid": "u"}, "u")
    assert (built.level, built.state, built.attempt) == ("L2", "retrying", 3)
    assert message(b"x").id != message(b"x").id
    with pytest.raises(InvalidPayloadError):
        message("text", schema={"type": "object"}).json()


def test_a_message_names_its_subscription_in_full() -> None:
    assert _message(delivery(1)).subscription == LANE.subscription
