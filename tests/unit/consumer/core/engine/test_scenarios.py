"""A whole worker on the broker in memory, as a user's own tests would use it."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from kodo_consumer import (
    Blocking,
    Consumer,
    Dead,
    Discard,
    Message,
    MoveTo,
    Pending,
    Postpone,
    Retry,
    Transfer,
    Unavailable,
)
from kodo_consumer.core.values.broker import Rejected, Unconfirmed
from kodo_consumer.testing import Harness

from kodoctl.errors import UsageError
from tests.unit.consumer.topologies import DOUBLE, write


def _consumer(folder: Path, subscription: str = "billing", topics: str = DOUBLE, topic: str = "orders") -> Consumer:
    return Consumer.load(write(folder, topics), topic=topic, subscription=subscription, environ={})


def test_the_ten_lines_of_the_design_work(tmp_path: Path) -> None:
    consumer = _consumer(tmp_path)
    billed = []

    @consumer.handler
    async def bill(message: Message) -> None:
        order = message.json()
        if order["amount"] < 0:
            raise Dead("negative amount")
        billed.append(order["amount"])

    harness = Harness(consumer)
    harness.send({"amount": 5}, properties={"uid": "u1"})
    harness.send({"amount": -5}, properties={"uid": "u1"})
    harness.send(b"{", properties={"uid": "u1"})
    harness.run()
    assert billed == [5]
    assert [dead.properties["kodo-reason"] for dead in harness.dead_letters] == [
        "negative amount", "payload is not JSON",
    ]  # fmt: skip
    harness.close()


def test_a_message_goes_from_in_place_to_retrying_to_backup_to_dead(tmp_path: Path) -> None:
    consumer = _consumer(tmp_path)
    seen = []

    @consumer.handler
    def fail(message: Message) -> None:
        seen.append((round(harness.clock.now()), message.level.value, message.state.value))
        raise ValueError

    harness = Harness(consumer)
    harness.send("x", properties={"uid": "u"})
    harness.advance("30h")
    assert [place for _, *place in seen] == [["L1", "ready"]] * 4 + [["L1", "retrying"]] * 3 + [["B1", "ready"]] * 25
    moments = [moment for moment, *_ in seen]
    assert moments[:4] == [0, 2, 5, 10]
    assert 20 <= moments[4] <= 23
    (dead,) = harness.dead_letters
    assert dead.properties["kodo-reason"] == "ValueError"
    assert dead.properties["kodo-level"] == "B1"
    assert dead.properties["uid"] == "u"
    assert harness.worker.engine.check_invariants() == []


def test_two_subscriptions_never_run_each_others_escalations(tmp_path: Path) -> None:
    consumer, other = _consumer(tmp_path), _consumer(tmp_path, "audit-log")
    runs: Counter[str] = Counter()

    @consumer.handler
    def always_fails(message: Message) -> None:
        runs[f"billing {message.level}"] += 1
        raise ValueError

    @other.handler
    def works(message: Message) -> None:
        runs[f"audit-log {message.level}"] += 1

    harness = Harness(consumer)
    second = Harness(other, broker=harness.broker, clock=harness.clock)
    harness.send("x", properties={"uid": "u"})
    harness.send("big", properties={"uid": "u", "size": "200000"})
    for _ in range(60):
        harness.advance("30m")
        second.run()
    assert runs["audit-log L1"] == 2
    assert "audit-log B1" not in runs
    assert runs["billing B1"] == 50
    assert second.counts.finished["not_for_me"] == len(harness.broker.messages("persistent://p/n/orders-B1"))
    assert len(harness.dead_letters) == 2
    assert second.waiting("L1", "ready") == second.waiting("B1", "ready") == []


@pytest.mark.parametrize(
    ("verdict", "topic"),
    [
        (Retry("7s"), "orders-billing-RETRYING"), (Pending(), "orders-billing-PENDING"),
        (Blocking("full"), "orders-billing-BLOCKING"), (Dead(), "orders-billing-DLQ"), (Postpone("7s"), "orders-billing-PENDING"),
        (MoveTo("L2"), "orders-L2"),
        (Transfer("shipments", b"new"), "shipments"),
    ],
)  # fmt: skip
def test_what_a_handler_raises_is_where_the_message_goes(tmp_path: Path, verdict: Exception, topic: str) -> None:
    consumer = _consumer(tmp_path)

    @consumer.handler
    def handle(message: Message) -> None:
        if message.level == "L1":
            raise verdict

    harness = Harness(consumer)
    harness.send("x", properties={"uid": "u"})
    harness.run()
    assert len(harness.broker.messages(f"persistent://p/n/{topic}")) == 1
    assert harness.waiting("L1", "ready") == []


def test_a_limit_smaller_than_the_number_of_workers_is_told_whenever_that_changes(tmp_path: Path) -> None:
    consumer = _consumer(tmp_path)
    consumer.handler(lambda message: None)
    worker = Harness(consumer).worker
    worker.share_limits(10)
    assert worker.alarms.counts["limits"] == 0
    for workers in (11, 11, 12):
        worker.share_limits(workers)
    assert worker.alarms.counts["limits"] == 2


def test_a_postponed_message_comes_again_however_often_and_counts_no_attempt(tmp_path: Path) -> None:
    consumer = _consumer(tmp_path)
    seen: list[tuple[int, int, str, str]] = []

    @consumer.handler
    def handle(message: Message) -> None:
        seen.append((message.postponements, message.attempt, message.id, message.tenant))
        if message.postponements < 100:
            message.postpone(timedelta(minutes=1), "closed")

    harness = Harness(consumer)
    harness.send("x", properties={"uid": "u"}, id="order-1")
    for _ in range(101):
        harness.advance("2m")
    assert seen == [(count, 1, "order-1", "u") for count in range(101)]
    assert (harness.counts.finished["postponed"], harness.counts.failed, harness.dead_letters) == (100, {}, [])
    stored = harness.broker.messages("persistent://p/n/orders-billing-PENDING")[-1].properties
    assert {name: stored[name] for name in ("kodo-postponed", "kodo-reason", "kodo-hop")} == {
        "kodo-postponed": "100", "kodo-reason": "postponed: closed", "kodo-hop": "100",
    }  # fmt: skip
    assert not any(name.startswith("kodo-attempts") for name in stored)


@pytest.mark.parametrize("kind", ["async", "batch"])
def test_async_and_batch_handlers_postpone_single_messages(tmp_path: Path, kind: str) -> None:
    consumer = _consumer(tmp_path)
    if kind == "async":

        @consumer.handler
        async def handle(message: Message) -> None:
            if message.text() == "later":
                message.postpone("1m")

    else:

        @consumer.batch_handler(max=10)
        def handle_all(messages: list[Message]) -> list[Exception | None]:
            return [Postpone("1m") if message.text() == "later" else None for message in messages]

    harness = Harness(consumer)
    for text in (b"now", b"later"):
        harness.send(text, properties={"uid": "u"})
    harness.run()
    assert (harness.counts.done, harness.counts.finished) == (1, {"postponed": 1})
    (waiting,) = harness.waiting("L1", "pending")
    assert waiting.payload == b"later"


def test_the_log_says_when_a_postponed_message_comes_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    consumer = _consumer(tmp_path)
    consumer.handler(lambda message: message.postpone("1m"))
    harness = Harness(consumer)
    harness.send("x", properties={"uid": "u"}, id="order-1")
    with caplog.at_level(logging.DEBUG, "kodo.consumer"):
        harness.run()
    (text,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("postponed")]
    assert text.startswith("postponed: ")
    assert "message order-1, attempt 1; tried again in about 1 min from L1/pending" in text


def test_a_discarded_message_is_gone(tmp_path: Path) -> None:
    consumer = _consumer(tmp_path)

    @consumer.handler
    def handle(message: Message) -> None:
        raise Discard

    harness = Harness(consumer)
    harness.send(None, properties={"uid": "u"})
    harness.run()
    assert harness.waiting("L1", "ready") == harness.dead_letters == []


def test_while_a_dependency_is_down_messages_wait_and_do_not_run_hot(tmp_path: Path) -> None:
    consumer = _consumer(tmp_path)
    runs = 0

    @consumer.handler
    def handle(message: Message) -> None:
        nonlocal runs
        runs += 1
        if harness.clock.now() < 300:
            raise Unavailable("psp")

    harness = Harness(consumer)
    harness.send("x", properties={"uid": "u"})
    harness.advance("10m")
    assert 10 <= runs <= 20
    assert harness.waiting("L1", "ready") == harness.dead_letters == []
    assert harness.counts.failed == {}


@pytest.mark.simulated
def test_a_flood_over_its_rate_is_spread_and_the_law_holds(tmp_path: Path) -> None:
    consumer = _consumer(tmp_path)
    starts = []

    @consumer.handler
    def handle(message: Message) -> None:
        starts.append(harness.clock.now())

    harness = Harness(consumer)
    for _ in range(600):
        harness.send("x", properties={"uid": "noisy"})
    harness.advance("3m")
    assert len(starts) == 600
    for first in range(len(starts)):
        for last in range(first, len(starts), 7):
            assert last - first + 1 <= 10 + 10 * (starts[last] - starts[first]) + 1e-6
    assert harness.counts.finished["pending"] == 540
    assert len(starts) / (starts[-1] - 55) > 8


def test_lost_receipts_and_refusals_lose_nothing(tmp_path: Path) -> None:
    consumer = _consumer(tmp_path)
    runs = 0

    @consumer.handler
    def handle(message: Message) -> None:
        nonlocal runs
        runs += 1
        raise Retry("6s")

    harness = Harness(consumer)
    harness.send("x", properties={"uid": "u"})
    retrying = "persistent://p/n/orders-billing-RETRYING"
    harness.broker.fail_sends(retrying, Unconfirmed("Timeout"), Unconfirmed("Timeout"))
    harness.advance("2s")
    assert len(harness.broker.messages(retrying)) == 3
    harness.broker.fail_sends(retrying, *[Rejected("too big")] * 9)
    harness.advance("1m")
    assert runs == 4
    assert [dead.properties["kodo-reason"] for dead in harness.dead_letters] == ["refused by its target: too big"] * 3


def test_a_broker_that_does_not_delay_is_survived(tmp_path: Path) -> None:
    consumer = _consumer(tmp_path)
    moments = []

    @consumer.handler
    def handle(message: Message) -> None:
        moments.append(round(harness.clock.now()))
        raise Retry("30s")

    harness = Harness(consumer)
    harness.broker.ignore_delays = True
    harness.send("x", properties={"uid": "u"})
    harness.advance("1m")
    assert len(moments) == 2
    assert 30 <= moments[1] <= 33


def test_levels_on_their_way_out_are_read_and_drained(tmp_path: Path) -> None:
    topics = "  J: {draining: [L2], subscriptions: {s: {in_place: [], retrying: {delays: [1s]}}}}\n"
    consumer = _consumer(tmp_path, "s", topics, "J")

    @consumer.handler
    def handle(message: Message) -> None:
        if message.state == "ready":
            raise ValueError

    harness = Harness(consumer)
    with pytest.raises(UsageError, match=r"K709 .*J takes messages on L1, not on L2 \(it is draining\)"):
        harness.send("x", level="L2")
    harness.inject("x", level="L2")
    harness.advance("3s")
    assert harness.waiting("L2", "ready") == harness.waiting("L1", "retrying") == []
    assert len(harness.broker.messages("persistent://p/n/J-s-RETRYING")) == 1
    assert harness.broker.messages("persistent://p/n/J-L2-s-RETRYING") == []


def test_a_handler_is_needed_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="K707"):
        Harness(_consumer(tmp_path))
