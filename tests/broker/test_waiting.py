"""Waiting messages on the real broker: listed without being consumed; released, moved and discarded, each once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import pairwise

import pulsar
import pytest
from kodo_consumer import Consumer, Message

from tests.broker.waiting_messages import HOUR, TOPIC_OF, Waits
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = pytest.mark.broker


@pytest.fixture
def waits(workspace: Workspace) -> Waits:
    """Applied topics without messages."""
    return Waits(workspace)


def test_what_waits_is_listed_by_lane_cause_tenant_and_due_time_and_nothing_is_consumed(waits: Waits) -> None:
    waits.put("L1/retrying", range(12))
    waits.put("L2/pending", range(12, 16), delay=2_000)
    waits.put("B1/ready", range(20, 23), delay=0)
    waits.put("B1/ready", range(30, 33), kodo_for="shipping")
    found = waits.listed()
    counted = {(one["subscription"], one["lane"]): one["messages"] for one in found["lanes"]}
    assert {lane: count for lane, count in counted.items() if count} == {
        ("billing", "L1/retrying"): 12, ("billing", "L2/pending"): 4, ("billing", "B1/ready"): 3, ("shipping", "B1/ready"): 3,
    }  # fmt: skip
    assert found["read"] == found["matched"] == 22
    some = waits.listed(
        "--lane", "L1/retrying", "--subscription", "billing", "--by", "cause", "--where", "tenant = 'u1'"
    )
    assert [(one["cause"], one["messages"], one["due"]) for one in some["groups"]] == [
        ("ConnectionError", 2, None), ("over its limit", 2, None),
    ]  # fmt: skip
    assert (some["read"], some["matched"]) == (12, 4)
    text = waits.waiting("list", "topologies").out
    assert all(len(line) <= 80 for line in text.splitlines())
    assert waits.left("L1/retrying") == Counter(range(12))


def test_released_messages_come_to_workers_now_with_their_counters_and_the_others_wait_on(waits: Waits) -> None:
    waits.put("L1/retrying", range(20))
    assert waits.delivered("L1/retrying", 2.0) == Counter(), "the broker keeps what is not due"
    plan = waits.plan("L1/retrying", "reason = 'ConnectionError'")
    assert (plan["action"], plan["lane"], plan["summary"]["chosen"]) == ("release", "L1/retrying", 10)
    assert waits.left("L1/retrying") == Counter(range(20)), "planning consumes nothing"
    report = waits.apply()
    assert (report["sent"], report["acknowledged"], report["complete"]) == (10, 10, True)
    chosen = {n for n in range(20) if n % 2}
    assert waits.delivered("L1/retrying", 4.0) == Counter(chosen)
    assert waits.left("L1/retrying") == Counter(range(20)), "nothing lost, nothing twice"
    assert waits.orders() == (), "the pause has ended"
    for one in waits.stored("L1/retrying")[20:]:
        n = int(one.event_time) - 1_000
        assert dict(one.properties) == {
            "uid": f"u{n % 3}", "kodo-id": f"id-{n}", "kodo-reason": "ConnectionError", "kodo-attempts-retrying": "3",
            "kodo-hop": "4", "kodo-origin-id": f"9:{n}:0:-1", "kodo-release": one.properties["kodo-release"],
        }  # fmt: skip
        assert one.key == f"k{n % 5}"
    again = waits.apply()
    assert (again["sent"], again["already"], again["complete"]) == (0, 10, True)
    third = waits.plan("L1/retrying")
    assert (third["summary"]["chosen"], third["summary"]["left_out"]) == (10, {"due": 10})


def test_messages_move_to_a_level_and_to_another_waiting_lane(waits: Waits) -> None:
    waits.put("L1/blocking", range(10))
    waits.plan("L1/blocking", "payload.n < 4", "--action", "move", "--to", "L2")
    waits.apply()
    assert waits.left("L2/ready") == Counter(range(4))
    assert {one.properties["kodo-for"] for one in waits.stored("L2/ready")} == {"billing"}
    assert all("kodo-due" not in one.properties for one in waits.stored("L2/ready"))
    waits.plan("L1/blocking", "payload.n < 7", "--action", "move", "--to", "L2/pending")
    waits.apply()
    assert waits.left("L2/pending") == Counter(range(4, 7))
    assert waits.left("L1/blocking") == Counter(range(7, 10))
    assert waits.delivered("L2/pending", 2.0) == Counter(), "they go on waiting there"
    now = int(time.time() * 1000)
    assert all(now < int(one.properties["kodo-due"]) <= now + HOUR + 10 for one in waits.stored("L2/pending"))


def test_discarded_messages_are_gone_and_need_the_hash(waits: Waits) -> None:
    waits.put("L1/retrying", range(9))
    plan = waits.plan("L1/retrying", "tenant = 'u0'", "--action", "discard", "--because", "a test")
    assert "K539" in waits.waiting("apply", "p.json", code=64).err
    report = waits.apply("--hash", plan["seal"][:12])
    assert (report["discarded"], report["acknowledged"]) == (3, 3)
    assert waits.left("L1/retrying") == Counter(n for n in range(9) if n % 3)


def test_backup_messages_of_another_subscription_are_left_alone(waits: Waits) -> None:
    waits.put("B1/ready", range(4))
    waits.put("B1/ready", range(10, 14), kodo_for="shipping")
    assert waits.plan("B1/ready")["summary"]["read"] == 4
    waits.apply()
    assert waits.left("B1/ready") == Counter([*range(4), *range(10, 14)])
    shipping = waits.left("B1/ready", "shipping")
    assert shipping == Counter([*range(4), *range(4), *range(10, 14)]), "it skips copies that name another subscription"
    copies = [one for one in waits.stored("B1/ready") if "kodo-release" in one.properties]
    assert {one.properties["kodo-for"] for one in copies} == {"billing"}


def test_a_lane_that_is_read_is_refused_with_the_names_of_its_readers_and_resumed(waits: Waits) -> None:
    waits.put("L1/retrying", range(3))
    waits.plan("L1/retrying")
    with waits.workspace.client() as client:
        client.subscribe(
            waits.workspace.full(TOPIC_OF["L1/retrying"]),
            "billing",
            pulsar.ConsumerType.Shared,
            consumer_name="worker-7",
        )
        refused = waits.waiting("apply", "p.json", "--wait", "2s", code=4)
    assert "K582" in refused.err
    assert "worker-7" in refused.err
    assert waits.orders() == ()
    assert len(waits.stored("L1/retrying")) == 3


def test_an_apply_waits_until_the_last_reader_has_left(waits: Waits) -> None:
    waits.put("L1/retrying", range(3))
    waits.plan("L1/retrying")
    with waits.workspace.client() as client:
        consumer = client.subscribe(
            waits.workspace.full(TOPIC_OF["L1/retrying"]), "billing", pulsar.ConsumerType.Shared
        )
        leaves = threading.Timer(3.0, consumer.close)
        leaves.start()
        assert waits.apply("--wait", "30s")["sent"] == 3
        leaves.join()


def test_the_pause_of_a_person_stays(waits: Waits) -> None:
    waits.put("L1/retrying", range(3))
    waits.plan("L1/retrying")
    waits.pause("L1/retrying", 60_000)
    assert "K583" in waits.waiting("apply", "p.json", code=4).err
    mine = waits.pause("L1/retrying", HOUR)
    assert waits.apply()["sent"] == 3
    assert waits.orders() == (mine,)


def test_workers_leave_the_lane_of_a_plan_handle_each_message_once_and_come_back(
    waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.supervisor.POLL_EVERY", 0.2)
    handled: Counter[int] = Counter()
    place = waits.workspace.broker
    consumer = Consumer.load(
        str(waits.workspace.folder / "topologies/trade.yaml"), topic="orders", subscription="billing",
        admin_url=place.admin_url, broker_url=place.broker_url, environ={},
    )  # fmt: skip

    @consumer.handler
    def handle(message: Message) -> None:
        time.sleep(0.05)
        handled[message.json()["n"]] += 1

    consumer.start()
    try:
        waits.put("L1/retrying", range(200, 300), delay=1_000)  # they run and queue while the lane is paused
        waits.put("L1/retrying", range(60))
        waits.plan("L1/retrying", "payload.n < 40")
        report = waits.apply("--wait", "30s")
        assert (report["sent"], report["complete"]) == (40, True)
        eventually(lambda: len(handled) == 140, within=30)
        waits.put("L1/retrying", range(100, 105), delay=0)
        eventually(lambda: set(range(100, 105)) <= set(handled), within=30)
    finally:
        consumer.stop()
    assert handled == Counter([*range(40), *range(100, 105), *range(200, 300)])
    assert waits.left("L1/retrying") == Counter(range(40, 60))


def test_plans_of_dead_letters_and_of_waiting_messages_are_not_taken_for_each_other(waits: Waits) -> None:
    waits.put("L1/retrying", range(2))
    waits.plan("L1/retrying")
    assert "kodoctl waiting apply" in " ".join(waits.workspace.run("recall", "apply", "p.json", code=4).err.split())
    named = ["topologies", "--topic", "orders", "--subscription", "billing", "--where", "true", "--out", "r.json"]
    waits.workspace.run("recall", "plan", *named)
    assert "kodoctl recall apply" in " ".join(waits.waiting("apply", "r.json", code=4).err.split())


def test_a_released_message_that_dies_is_recalled_as_any_other(waits: Waits) -> None:
    """It is no message that died again after a recall."""
    path = waits.workspace.full("orders-billing-DLQ")
    with waits.workspace.client() as client:
        producer = client.create_producer(path)
        producer.send(b'{"n": 1}', properties={"uid": "u", "kodo-release": "a" * 32, "kodo-reason": "x"})
    named = ["topologies", "--topic", "orders", "--subscription", "billing", "--where", "true", "--format", "json"]
    eventually(lambda: waits.workspace.run("recall", "plan", *named).json()["summary"]["chosen"] == 1)


def test_steps_of_positions_rise(waits: Waits) -> None:
    """Copies keep the order of what they are copies of."""
    waits.put("L1/retrying", range(6))
    waits.plan("L1/retrying")
    waits.apply()
    times = [one.event_time for one in waits.stored("L1/retrying")[6:]]
    assert all(first < second for first, second in pairwise(times))
