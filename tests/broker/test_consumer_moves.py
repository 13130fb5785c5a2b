"""Moves of tenants by hand and exclusive levels on the real broker: followed within seconds, by what waits as well."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kodo_consumer import Consumer, Message, MoveTo, Pending, Producer, Retry
from kodo_consumer.adapters.pulsar import PulsarBroker
from kodo_consumer.cli.main import main
from kodo_consumer.core.checks.message_validation import NewMessage

from kodoctl.pulsar.connection.connection import Connection
from tests.brokers.workspace import Workspace, this_process_goes_on
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
TOPICS = """
J:
  levels: [L1, L2, S1]
  backup: true
  fair_by: uid
  message_properties: {uid: required}
  %s
  subscriptions:
    s:
      concurrency: 2
      in_place: []
      audit: true
      retrying: {delays: [%s], attempts: 9}
      pending: {delays: [%s], attempts: 9}
      routes: [{when: "tenant = 'low'", to: B1}]
K:
  levels: double
  fair_by: uid
  subscriptions: {s: {type: key_shared}}
M:
  subscriptions: {s: {}}
"""


class Setting:
    """A file with its topics on the broker, workers that note where each message was handled, and `kodo-consumer`."""

    def __init__(self, place: Workspace, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.options = place.broker.client_options
        self.handled: dict[str, list[str]] = {}
        self.gate = threading.Event()
        self.file = ""
        self._place, self._patch, self._capsys = place, patch, capsys
        self._lock = threading.Lock()
        patch.setenv("COLUMNS", "80")
        patch.setattr("kodo_consumer.runtime.supervisor.POLL_EVERY", 0.2)

    def apply(self, exclusive: str = "", delay: str = "1s") -> None:
        self.file = str(self._place.topology(TOPICS % (exclusive, delay, delay)))
        self._place.apply(self.file)

    def run(self, command: str, *arguments: str, code: int = 0, topic: str = "J") -> str:
        of = [self.file, *arguments, "--topic", topic, "--subscription", "s", *self._place.connection()]
        self._patch.setattr(sys, "argv", ["kodo-consumer", command, *of])
        with pytest.raises(SystemExit) as end, this_process_goes_on():
            main()
        captured = self._capsys.readouterr()
        assert (end.value.code or 0) == code, captured
        return " ".join((captured.out + captured.err).split())

    def _handle(self, message: Message) -> None:
        name = message.text()
        with self._lock:
            self.handled.setdefault(name, []).append(f"{message.level}/{message.state}")
        if name.startswith("block"):
            self.gate.wait(60)
        if name.startswith("out"):
            raise MoveTo("L1")
        if len(self.handled[name]) == 1 and name.startswith("fail"):
            raise Retry
        if len(self.handled[name]) == 1 and name.startswith("pend"):
            raise Pending("busy")

    @contextmanager
    def workers(self, count: int) -> Iterator[list[Consumer]]:
        made = [Consumer.load(self.file, topic="J", subscription="s", **self.options) for _ in range(count)]
        for one in made:
            one.handler(self._handle)
            one.start()
        try:
            yield made
        finally:
            self.gate.set()
            for one in made:
                one.stop()

    def follow(self, workers: list[Consumer], count: int) -> float:
        """Seconds until all have so many orders in force."""
        begin = time.monotonic()
        eventually(lambda: all(one._running and len(one._running.worker.orders) == count for one in workers))
        return time.monotonic() - begin

    def producer(self, level: str = "L1") -> Producer:
        return Producer.load(self.file, topic="J", level=level, **self.options)

    def foreign_producer(self, suffix: str = "") -> Producer:
        """One that knows no routes."""
        broker = PulsarBroker(Connection(self.options["admin_url"], self.options["broker_url"]))
        return Producer(f"persistent://{self._place.namespace}/J{suffix}", broker)


@pytest.fixture
def setting(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Setting:
    return Setting(workspace, monkeypatch, capsys)


def test_a_tenant_is_moved_up_with_what_waits_and_back_with_two_workers(setting: Setting, workspace: Workspace) -> None:
    setting.apply()
    with setting.workers(2) as workers, setting.producer() as producer:
        for number in range(4):  # all slots, so that what follows is queued in the workers
            producer.send(f"block {number}".encode(), properties={"uid": f"b{number}"})
        eventually(lambda: len(setting.handled) == 4)
        for number in range(40):
            producer.post(f"queued {number}".encode(), properties={"uid": "u7"})
        producer.flush()
        shown = setting.run("move", "--tenant", "u7", "--to", "S1", "--for", "2h", "--why", "their sale")
        assert "tenant u7 moved to S1 until 20" in shown
        assert "their sale" in shown
        assert "That is up: where all lanes have messages, S1 has 46% of the slot time" in shown
        assert setting.follow(workers, 1) < 5
        producer.send(b"after", properties={"uid": "u7"})
        producer.send(b"other", properties={"uid": "u8"})
        setting.gate.set()
        eventually(lambda: len(setting.handled) == 46, within=60)
        places = {name: found for name, found in setting.handled.items() if not name.startswith("block")}
        assert places.pop("other") == ["L1/ready"]
        assert set(map(tuple, places.values())) == {("S1/ready",)}
        assert "tenant u7 moved to S1" in workspace.run("plan", setting.file).text
        assert "No live orders" in setting.run("move", "--tenant", "u7", "--back")
        shown = setting.run("steer", "--history")
        assert "No live orders: everything is as the file says. History, the oldest first: 20" in shown
        assert "taken back, by" in shown
        workspace.apply(setting.file)
        assert shown == setting.run("steer", "--history"), "an apply keeps it"
        assert [one["back"] for one in json.loads(setting.run("steer", "--history", "--json"))["history"]] == [
            False,
            True,
        ]
        setting.follow(workers, 0)
        producer.send(b"back", properties={"uid": "u7"})
        eventually(lambda: setting.handled.get("back") == ["L1/ready"])


@pytest.mark.parametrize("waiting", ["move", "stay"])
def test_what_waits_in_a_state_moves_as_it_comes_out_or_stays(setting: Setting, waiting: str) -> None:
    setting.apply(delay="8s")
    with setting.workers(1) as workers, setting.producer() as producer:
        for name in ("fail", "pend"):
            producer.send(name.encode(), properties={"uid": "u7"})
        eventually(lambda: len(setting.handled) == 2)
        setting.run("move", "--tenant", "u7", "--to", "L2", "--waiting", waiting)
        setting.follow(workers, 1)
        producer.send(b"new", properties={"uid": "u7"})
        eventually(lambda: sum(map(len, setting.handled.values())) == 5, within=60)
    assert setting.handled["new"] == ["L2/ready"]
    came = {name: found[-1] for name, found in setting.handled.items()}
    if waiting == "move":
        assert (came["fail"], came["pend"]) == ("L2/ready", "L2/ready")
    else:
        assert (came["fail"], came["pend"]) == ("L1/retrying", "L1/pending")


def test_a_move_wins_over_a_route_and_why_says_so(setting: Setting) -> None:
    setting.apply()
    setting.run("move", "--tenant", "low", "--to", "L2", "--for", "2h", "--why", "paid for it")
    with setting.workers(1), setting.producer() as producer:
        name = producer.send(b"low", properties={"uid": "low"})
        eventually(lambda: setting.handled.get("low") == ["L2/ready"], within=60)
    found = setting.run("why", name)
    assert "moved on to L2/ready by rule routed: moved by hand by" in found
    assert ": paid for it" in found
    assert "tenant low moved to L2 until 20" in found
    assert "this counts before routes of the file" in found


def test_an_order_that_cannot_be_followed_is_refused(setting: Setting) -> None:
    setting.apply("exclusive_levels: {S1: [vip]}")
    for topic, arguments, said in (
        ("J", ("--tenant", "u7", "--to", "L8"), "J has no level L8; there is S1, L2, L1, B1"),
        ("J", ("--tenant", "u7", "--to", "L99"), "J has no level L99; there is S1, L2, L1, B1"),
        ("J", ("--tenant", "u7", "--to", "X"), "J has no level X; there is S1, L2, L1, B1"),
        ("J", ("--tenant", "u7", "--to", "S1"), "S1 admits only vip: `exclusive_levels` of the file says so"),
        ("J", ("--tenant", "u7"), "name --to, or --back"),
        ("J", ("--tenant", "u7", "--back"), "there is no such order"),
        ("K", ("--tenant", "u7", "--to", "L2"), "s is key_shared: on another level a message would overtake"),
        (
            "M",
            ("--tenant", "u7", "--to", "L2"),
            "there are no tenants: the ground topic has no fair_by; M has no level",
        ),
    ):
        found = setting.run("move", *arguments, topic=topic, code=64)
        assert said in found
        assert "[K780]" in found
    assert "No live orders" in setting.run("steer")


def test_an_exclusive_level_has_its_tenants_and_nobody_else(setting: Setting) -> None:
    setting.apply("exclusive_levels: {S1: [vip]}")
    forged = {"kodo-hop": "3", "kodo-for": "s", "kodo-routes": "1"}
    with (
        setting.workers(2),
        setting.producer() as usual,
        setting.producer("S1") as high,
        setting.foreign_producer() as plain,
        setting.foreign_producer("-S1") as intruder,
    ):
        usual.send(b"sent", properties={"uid": "vip"})
        usual.send(b"fail vip", properties={"uid": "vip"})
        usual.send(b"out vip", properties={"uid": "vip"})
        high.send(b"turned away", properties={"uid": "u1"})
        plain.send(b"received", properties={"uid": "vip"})
        intruder.send(b"sent out", properties={"uid": "u1"})
        for way, uid in ((intruder, "u1"), (plain, "vip")):
            name = f"f {uid}"  # what any client may write, past what Producer allows
            way._sender.publish(NewMessage(name, f"forged {uid}".encode(), {"uid": uid, **forged}), print)
        eventually(lambda: len(setting.handled) == 8 and len(setting.handled["fail vip"]) == 2, within=60)
        time.sleep(1)
    assert setting.handled == {
        "sent": ["S1/ready"],
        "fail vip": ["S1/ready", "S1/retrying"],
        "out vip": setting.handled["out vip"],
        "turned away": ["L1/ready"],
        "received": ["S1/ready"],
        "sent out": ["L1/ready"],
        "forged u1": ["L1/ready"],
        "forged vip": ["S1/ready"],
    }
    assert {place.split("/")[0] for place in setting.handled["out vip"]} == {"S1"}
