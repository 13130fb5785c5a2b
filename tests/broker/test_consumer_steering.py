"""Live orders on the real broker: followed within seconds, kept by apply, shown by plan and status, never lost to one another."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from random import Random

import pytest
from kodo_consumer import Consumer, Message, Producer
from kodo_consumer.cli.main import main

from kodoctl.errors import ClusterError
from kodoctl.protocol.overrides import Override, OverrideKind, with_override
from kodoctl.pulsar.admin.admin_http import HttpAdmin
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.control.override_store import OverrideStore
from tests.brokers.workspace import Workspace, this_process_goes_on
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
TOPICS = """
orders:
  fair_by: uid
  levels: double
  subscriptions:
    billing: {in_place: [], limits: [{kind: rate, by: uid, limit: 1000/s}]}
"""


class Console:
    """`kodo-consumer` in this process."""

    def __init__(self, place: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.file = str(place.topology(TOPICS))
        self._place, self._patch, self._capsys = place, monkeypatch, capsys

    def run(self, command: str, *arguments: str, code: int = 0) -> str:
        of = [self.file, *arguments, "--topic", "orders", "--subscription", "billing", *self._place.connection()]
        self._patch.setattr(sys, "argv", ["kodo-consumer", command, *of])
        with pytest.raises(SystemExit) as end, this_process_goes_on():
            main()
        captured = self._capsys.readouterr()
        assert (end.value.code or 0) == code, captured
        return captured.out + captured.err


@pytest.fixture
def console(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Console:
    monkeypatch.setenv("COLUMNS", "80")
    made = Console(workspace, monkeypatch, capsys)
    workspace.apply(made.file)
    return made


def test_workers_follow_orders_and_plan_and_status_tell_of_them(
    console: Console, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.supervisor.POLL_EVERY", 0.2)
    place = workspace.broker.client_options
    consumer = Consumer.load(console.file, topic="orders", subscription="billing", **place)
    handled: Counter[str] = Counter()

    @consumer.handler
    def handle(message: Message) -> None:
        handled[message.tenant] += 1

    assert "there are no tenants" not in console.run("pause", "--tenant", "u1", "--for", "1h", "--why", "psp is down")
    shown = console.run("limit", "--kind", "rate", "--by", "uid", "--value", "u2", "--to", "5/s")
    assert "tenant u1 paused\n" in shown
    assert "rate limit of uid u2 5/s\n" in shown
    assert max(map(len, shown.splitlines())) <= 80
    consumer.start()
    try:
        with Producer.load(console.file, topic="orders", **place) as producer:
            eventually(lambda: consumer._running and consumer._running.worker.orders)
            for number in range(60):
                producer.post(b"x", properties={"uid": f"u{number % 3}"})
        eventually(lambda: handled["u0"] == 20)
        assert handled["u1"] == 0
        assert handled["u2"] < 20, "it is slowed down"
        planned = workspace.run("plan", console.file)
        assert "steered until" in planned.text
        assert "tenant u1 paused" in planned.text
        assert "No changes" in planned.text
        workspace.apply(console.file)
        assert "steered until" in workspace.run("status", console.file).text
        orders = json.loads(console.run("steer", "--json"))["orders"]
        assert [(order["what"], order["why"]) for order in orders] == [("pause", "psp is down"), ("limit", "")]
        console.run("resume", "--tenant", "u1")
        eventually(lambda: handled["u1"] == 20)
        assert "No live orders" in console.run("resume", "--all")
        eventually(lambda: handled["u2"] == 20)
    finally:
        consumer.stop()


def test_orders_that_cannot_be_are_refused_with_what_there_is(console: Console, workspace: Workspace) -> None:
    for arguments, said in {
        ("pause", "--lane", "L7/ready"): "no lane L7/ready; there is L2/ready",
        ("pause",): "name a lane or a tenant",
        ("pause", "--tenant", "u1", "--for", "soon"): "'soon' is not a duration",
        ("pause", "--tenant", "u1", "--for", "90d"): "30 days at most",
        ("limit", "--kind", "quota", "--to", "1/h"): "there is rate by uid",
        ("limit", "--kind", "rate", "--by", "uid"): "name --to, or --back",
        ("weight", "--tenant", "u1", "--to", "0"): "a weight from 1 to 1000",
        ("resume", "--lane", "L1/ready"): "there is no such order",
        ("resume",): "name one of --lane, --tenant and --all",
    }.items():
        found = " ".join(console.run(*arguments, code=64).split())
        assert said in found
        assert "[K780]" in found
    path = f"persistent/{workspace.namespace}/orders/subscription/billing/properties"
    workspace.broker.admin("PUT", path, {"kodo-steer": "garbage", "kodoctl": "trade"})
    assert "orders cannot be read [K781]" in console.run("steer", code=1)
    assert "workers cannot read" in " ".join(workspace.run("plan", console.file).text.split())
    console.run("resume", "--all")
    assert workspace.broker.admin("GET", path).json() == {"kodoctl": "trade"}, "only our property goes"


def test_slots_of_some_lanes_change_while_workers_run(
    console: Console, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.supervisor.POLL_EVERY", 0.2)
    place = workspace.broker.client_options
    consumer = Consumer.load(console.file, topic="orders", subscription="billing", **place)
    running, most, lock, done = 0, 0, threading.Lock(), Counter[str]()

    @consumer.handler
    def handle(message: Message) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.2)
        with lock:
            running -= 1
            done[message.tenant] += 1

    shown = console.run("concurrency", "--in", "L2", "--max", "2", "--why", "the bank is slow")
    assert "slots of L2 max 2\n" in shown
    refused = " ".join(console.run("concurrency", "--in", "L1", "--min", "99", code=64).split())
    assert "levels.L1 99: 99 slots are kept of 32" in refused
    assert "no state, level or lane L9" in console.run("concurrency", "--in", "L9", "--max", "1", code=64)
    assert "max 40 of 32 slots changes nothing" in " ".join(
        console.run("concurrency", "--in", "L1", "--max", "40").split()
    )
    assert "slots of L2 max 2" in " ".join(workspace.run("status", console.file).text.split())
    consumer.start()
    try:
        with Producer.load(console.file, topic="orders", level="L2", **place) as producer:
            for number in range(30):
                producer.post(b"x", properties={"uid": f"u{number}"})
        eventually(lambda: len(done) >= 10)
        assert most == 2
        console.run("concurrency", "--in", "L2", "--back")
        eventually(lambda: most > 2)
        eventually(lambda: len(done) == 30)
    finally:
        consumer.stop()


def test_orders_of_several_people_at_once_do_not_lose_one_another(console: Console, workspace: Workspace) -> None:
    admin = HttpAdmin(Connection(workspace.broker.admin_url))
    now = time.time_ns() // 1_000_000
    problems: list[Exception] = []

    def give(number: int) -> None:
        book = OverrideStore(admin, f"{workspace.namespace}/orders", "billing", Random(number))
        order = Override(OverrideKind.PAUSE, now, now + 3_600_000, f"p{number}", tenant=f"u{number}")
        try:
            book.change(lambda orders: with_override(orders, order), now)
        except ClusterError as problem:
            problems.append(problem)

    people = [threading.Thread(target=give, args=(number,)) for number in range(4)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    admin.close()
    assert not problems
    assert {order["tenant"] for order in json.loads(console.run("steer", "--json"))["orders"]} == {
        "u0",
        "u1",
        "u2",
        "u3",
    }
