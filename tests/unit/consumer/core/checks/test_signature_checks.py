"""Forged and damaged control properties: a first delivery on ready topics, quarantine on state topics, never a crash or a loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kodo_consumer import Consumer, Message
from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.testing import Harness
from kodo_consumer.testing.memory_broker import StoredMessage

from kodoctl.errors import KodoctlError
from kodoctl.protocol.signing import Signer
from tests.unit.consumer.topologies import write

OLD, NEW = "old-key-0123456789", "new-key-0123456789"
TOPICS = """
  orders:
    fair_by: uid
    levels: double
    subscriptions:
      billing: {in_place: [], retrying: {delays: [10s], attempts: 2}, produces: [shipments], audit: true}
  shipments: {subscriptions: {tracking: {states: [], dead_letter: false}}}
"""
READY, RETRYING = "persistent://p/n/orders", "persistent://p/n/orders-billing-RETRYING"
FORGED = {
    "no number": {"kodo-attempts-retrying": "many"},
    "negative": {"kodo-hop": "-1"},
    "2^63": {"kodo-attempts-pending": str(2**63)},
    "not ASCII": {"kodo-hop": "１"},
    "empty": {"kodo-due": ""},
    "far future": {"kodo-due": str(10**15)},
    "beyond any clock": {"kodo-due": str(10**17)},
    "1 MiB": {"kodo-origin-id": "x" * (1 << 20)},
    "1 MiB of identity": {"kodo-id": "x" * (1 << 20)},
    "a place it is not in": {"kodo-level": "../B9", "kodo-state": "dead"},
    "used up": {"kodo-attempts-retrying": "1000000"},
    "circles": {"kodo-hop": "1000000"},
    "other case": {"Kodo-Hop": "x", "KODO-DUE": "x"},
    "handled already": {"kodo-recall": "r", "kodo-again": "1"},
    "signed by nobody": {"kodo-hop": "3", "kodo-signature": "1.abc"},
}


@pytest.fixture(params=["", f"{NEW},{OLD}"], ids=["unsigned", "signed"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    made = start(tmp_path, request.param)
    yield made
    made.close()


def start(folder: Path, keys: str, handled: list[str] | None = None) -> Harness:
    environ = {"KODO_CONSUMER_SIGNING_KEYS": keys} if keys else {}
    consumer = Consumer.load(write(folder, TOPICS), topic="orders", subscription="billing", environ=environ)

    @consumer.handler
    def handle(message: Message) -> None:
        if handled is not None:
            handled.append(message.id)
        if message.text() == "bad":
            raise ValueError

    return Harness(consumer)


def _ends(harness: Harness, within: str = "5m") -> None:
    """Everything comes to an end."""
    harness.advance(within)
    assert harness.worker.engine.check_invariants() == []
    for lane in harness.policy.lanes:
        assert harness.broker.backlog(lane.topic, "billing") == [], f"left in {lane.topic}"


@pytest.mark.simulated
@pytest.mark.parametrize("what", FORGED)
@pytest.mark.parametrize("text", ["good", "bad"])
def test_whatever_a_producer_writes_on_a_ready_topic_the_message_comes_to_an_end(
    harness: Harness, what: str, text: str
) -> None:
    harness.inject(text.encode(), properties={"uid": "u1", **FORGED[what]})
    _ends(harness)
    assert harness.counts.started >= 1, "it was handled"
    assert [letter.payload for letter in harness.dead_letters] == ([b"bad"] if text == "bad" else [])


@pytest.mark.parametrize("what", FORGED)
def test_whatever_comes_by_a_state_topic_comes_to_an_end(harness: Harness, what: str) -> None:
    harness.broker.send(Outgoing(RETRYING, b"good", {"uid": "u1", **FORGED[what]}))
    _ends(harness, "70m" if what == "far future" else "5m")
    if harness.policy.signer is not None:
        assert harness.counts.started == 0
        [letter] = harness.dead_letters
        assert letter.properties["kodo-reason"] == "control properties without a valid signature"
        assert letter.properties["uid"] == "u1"
        kept = {name for name, value in FORGED[what].items() if letter.properties.get(name) == value}
        assert kept <= {"Kodo-Hop", "KODO-DUE"}, "those are a user's"


def test_with_keys_forged_counters_are_a_first_delivery_and_ours_are_believed(tmp_path: Path) -> None:
    harness = start(tmp_path, OLD)
    again = {"kodo-recall": "r", "kodo-again": "1"}
    harness.inject(
        b"bad", properties={"kodo-attempts-retrying": "2", "kodo-id": "victim", "kodo-for": "other", **again}
    )
    harness.advance("5m")
    [letter] = harness.dead_letters
    assert harness.counts.started == 3, "first delivery and both retries: the forged counter was not believed"
    assert "kodo-id" not in letter.properties, "nor the identity, by which it would suppress another message"
    assert "kodo-again" not in letter.properties, "nor that a recall lets it be handled once more"
    assert harness.counts.unsigned == 1
    assert _signer(harness).genuine(harness.dead_letters[0].message.topic, letter.payload, letter.properties)
    harness.close()


def test_what_calls_itself_a_producers_mark_is_passed_over_on_a_ready_topic_and_quarantined_on_a_state_topic(
    tmp_path: Path,
) -> None:
    """Workers acknowledge marks unhandled: where only workers write, that would let a message go without a trace."""
    harness = start(tmp_path, OLD)
    mark = {"kodo-seq": "0123456789abcdef:0:high=9", "kodo-for": "(mark)"}
    harness.inject(b"good", properties=mark)
    harness.broker.send(Outgoing(RETRYING, b"good", mark))
    _ends(harness)
    [letter] = harness.dead_letters
    assert letter.properties["kodo-reason"] == "control properties without a valid signature"
    assert harness.counts.started == 0
    harness.close()


def test_a_signed_message_cannot_be_carried_elsewhere(tmp_path: Path) -> None:
    harness = start(tmp_path, OLD)
    harness.send(b"bad")
    harness.run()
    [moved] = harness.broker.messages(RETRYING)
    assert "kodo-signature" in moved.properties
    harness.broker.send(moved.message._replace(topic=READY))  # on another topic: a first delivery
    harness.broker.send(moved.message._replace(payload=b"good"))  # another payload: quarantine
    harness.advance("5m")
    reasons = sorted(letter.properties["kodo-reason"] for letter in harness.dead_letters)
    assert reasons == ["ValueError", "ValueError", "control properties without a valid signature"]
    harness.close()


def test_keys_are_rotated_without_losing_what_waits(tmp_path: Path) -> None:
    """Verify by both, then sign by the new one, then drop the old one when nothing signed by it waits any more."""
    waiting: list[StoredMessage] = []
    for number, keys in enumerate([OLD, f"{OLD},{NEW}", f"{NEW},{OLD}", NEW]):
        harness = start(tmp_path, keys)
        for one in waiting:
            harness.broker.send(one.message)
        harness.send(b"bad")
        harness.run()
        reasons = [letter.properties["kodo-reason"] for letter in harness.dead_letters]
        assert not reasons, f"step {number}"
        waiting = (
            harness.broker.messages(RETRYING)[len(waiting) :] if number != 2 else harness.broker.messages(RETRYING)[-1:]
        )
        harness.close()


def test_what_a_handler_transfers_and_what_is_recorded_is_signed(tmp_path: Path) -> None:
    from kodo_consumer import Transfer

    consumer = Consumer.load(
        write(tmp_path, TOPICS), topic="orders", subscription="billing", environ={"KODO_CONSUMER_SIGNING_KEYS": OLD}
    )

    @consumer.handler
    def handle(message: Message) -> None:
        raise Transfer("shipments")

    harness = Harness(consumer)
    harness.send(b"x")
    harness.advance("1s")
    assert harness.policy.audit is not None
    for topic in ("persistent://p/n/shipments", harness.policy.audit.topic):
        [stored] = harness.broker.messages(topic)
        assert _signer(harness).genuine(topic, stored.payload, stored.properties)
    harness.close()


def test_a_worker_without_keys_does_not_pass_a_signature_on_that_holds_no_more(tmp_path: Path) -> None:
    harness = start(tmp_path, "")
    harness.inject(b"bad", properties=Signer([OLD]).signed(READY, b"bad", {"kodo-id": "order-1"}))
    harness.run()
    [moved] = harness.broker.messages(RETRYING)
    assert "kodo-signature" not in moved.properties
    assert moved.properties["kodo-id"] == "order-1"
    harness.close()


@pytest.mark.parametrize("signs", [True, False], ids=["signed mark", "unsigned mark"])
def test_a_producers_mark_is_handled_by_nobody(harness: Harness, *, signs: bool) -> None:
    mark = {"kodo-seq": f"{'0' * 12}abc:0:high=7", "kodo-for": "(mark)"}
    harness.inject(b"", properties=Signer([OLD]).signed(READY, b"", mark) if signs else mark)
    _ends(harness)
    assert harness.counts.started == 0
    assert harness.dead_letters == []


def test_keys_that_cannot_be_taken_are_refused_without_being_shown(tmp_path: Path) -> None:
    with pytest.raises(KodoctlError) as refused:
        start(tmp_path, "hunter2")
    assert "KODO_CONSUMER_SIGNING_KEYS" in str(refused.value)
    assert "signing_keys: key 1 has fewer than 16 characters" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def _signer(harness: Harness) -> Signer:
    assert harness.policy.signer is not None
    return harness.policy.signer
