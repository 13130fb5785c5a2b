"""Workers with lanes of their own, in virtual time: moves go on, each handles its own lanes, and what users are told."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from kodo_consumer import Consumer, Message, MoveTo, Pending, Retry
from kodo_consumer.cli.consumer_loading import ConsumerChoice, load_consumers
from kodo_consumer.cli.main import main
from kodo_consumer.consumer import _reloader
from kodo_consumer.core.payloads.schema_versions import SchemaVersions
from kodo_consumer.core.upkeep.override_state import paused_lanes, why_not_followed
from kodo_consumer.core.values.envelope import State
from kodo_consumer.core.values.lane_selection import LaneSelection, select_lanes
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.runtime.settings import read_settings
from kodo_consumer.runtime.topology_reload import structural
from kodo_consumer.testing import Harness

from kodoctl.errors import KodoctlError, UsageError
from kodoctl.protocol.overrides import Override, OverrideKind
from tests.brokers.workspace import this_process_goes_on
from tests.unit.consumer.engine_bench import policy
from tests.unit.consumer.topologies import write

SHOP = """
  orders:
    levels: double
    backup: true
    fair_by: uid
    message_properties: {uid: required, size: optional}
    subscriptions:
      billing:
        type: TYPE
        in_place: []
        retrying: {delays: [10s], attempts: 3}
        pending: {delays: [10s], attempts: 3}
        backup: {delays: [1s], attempts: 3}
        routes: [{when: {property: size, greater_than: 10}, to: B1}]
  shipments: {subscriptions: {tracking: {}}}
"""
ROUTES = "        routes: [{when: {property: size, greater_than: 10}, to: B1}]\n"


class Pair:
    """Two workers of one subscription with lanes of their own: what each of them handled, by lane."""

    def __init__(self, folder: Path, first: str, second: str, kind: str = "shared") -> None:
        text = SHOP if kind == "shared" else SHOP.replace(ROUTES, "")  # which order keepers may not have
        self.path = write(folder, text.replace("TYPE", kind))
        self.seen: dict[str, list[str]] = {first: [], second: []}
        self.first = self.harness(first, None)
        self.second = self.harness(second, self.first)

    def harness(self, lanes: str, beside: Harness | None) -> Harness:
        consumer = Consumer.load(self.path, topic="orders", subscription="billing", lanes=lanes, environ={})

        @consumer.handler
        def handle(message: Message) -> None:
            self.seen[lanes].append(f"{message.level}/{message.state} {message.text()}")
            if (message.level, message.state) == ("L1", "ready") and message.text() in ("retry", "pending", "up"):
                raise {"retry": Retry(), "pending": Pending(), "up": MoveTo(level="L2")}[message.text()]

        shared = {} if beside is None else {"broker": beside.broker, "clock": beside.clock}
        return Harness(consumer, **shared)  # type: ignore[arg-type]

    def send(self, *texts: str, level: str = "L1", key: str = "", **properties: str) -> None:
        for text in texts:
            self.first.send(text.encode(), level=level, key=key, properties={"uid": "u", **properties})

    def run(self) -> None:
        for one in (self.first, self.second, self.first):
            one.run()


def test_each_worker_handles_its_lanes_and_moves_go_to_those_of_the_other(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "ready,!B1", "retrying,pending,B1")
    pair.send("plain", "retry", "pending")
    pair.send("routed", size="11")
    pair.run()
    assert pair.seen == {
        "ready,!B1": ["L1/ready plain", "L1/ready retry", "L1/ready pending"],
        "retrying,pending,B1": ["B1/ready routed"],
    }
    pair.first.advance("15s")
    pair.run()
    assert pair.seen["retrying,pending,B1"][1:] == ["L1/retrying retry", "L1/pending pending"]
    assert not any(pair.first.waiting(lane.level, lane.state) for lane in pair.first.policy.every_lane)


def test_a_lane_that_nobody_reads_keeps_what_is_moved_there(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "L1/ready", "L2")
    pair.send("retry", "up")
    pair.run()
    pair.first.advance("5m")
    pair.run()
    assert [stored.payload for stored in pair.first.waiting("L1", "retrying")] == [b"retry"]
    assert pair.seen == {"L1/ready": ["L1/ready retry", "L1/ready up"], "L2": ["L2/ready up"]}


def test_a_worker_that_drains_leaves_its_lanes_to_others_of_the_same_lanes(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "L1", "L2")
    pair.send("one")
    pair.first.close()
    pair.second.run()
    assert pair.seen["L2"] == []
    assert len(pair.second.waiting("L1", "ready")) == 1
    pair.harness("L1", pair.second).run()
    assert pair.seen["L1"] == ["L1/ready one"]


@pytest.mark.parametrize("kind", ["key_shared", "failover", "exclusive"])
def test_the_order_of_a_key_is_that_of_its_lane_whichever_worker_reads_it(tmp_path: Path, kind: str) -> None:
    pair = Pair(tmp_path, "L1", "!L1", kind)
    for number in range(20):
        pair.send(f"{number}", key="k")
        pair.send(f"{number}", key="k", level="L2")
    pair.run()
    pair.run()
    assert pair.seen["L1"] == [f"L1/ready {number}" for number in range(20)]
    assert pair.seen["!L1"] == [f"L2/ready {number}" for number in range(20)]


def test_turns_are_those_of_the_read_lanes_alone(tmp_path: Path) -> None:
    path = write(tmp_path, SHOP.replace("TYPE", "shared"))
    whole = Consumer.load(path, topic="orders", subscription="billing", environ={})
    some = Consumer.load(path, topic="orders", subscription="billing", lanes="L1/retrying,B1", environ={})
    retrying, backup = (
        next(one for one in whole.policy.lanes if one.name == name) for name in ("L1/retrying", "B1/ready")
    )
    assert [lane.share for lane in some.policy.lanes] == pytest.approx(
        [part / (retrying.weight + backup.weight) for part in (retrying.weight, backup.weight)]
    )
    lines = some.lanes()
    assert len(lines) == 9
    assert all(line.endswith("  not read here") for line in lines[2:])


def test_an_order_about_a_lane_of_others_is_no_mistake_and_pauses_nothing_here(tmp_path: Path) -> None:
    path = write(tmp_path, SHOP.replace("TYPE", "shared"))
    here = Consumer.load(path, topic="orders", subscription="billing", lanes="ready", environ={}).policy
    order = Override(OverrideKind.PAUSE, 0, 1, "me", "", lane="L1/retrying")
    assert why_not_followed(order, here) == ""
    assert paused_lanes(here, [order]) == frozenset()


def test_a_file_with_other_lanes_is_structure_also_where_others_read_them(tmp_path: Path) -> None:
    def read(text: str) -> Consumer:
        path = write(tmp_path, text.replace("TYPE", "shared"))
        return Consumer.load(path, topic="orders", subscription="billing", lanes="L1/ready", environ={})

    before = read(SHOP).policy
    weights = SHOP.replace("in_place: []", "in_place: []\n        level_weights: {L2: 9, L1: 1, B1: 1}")
    assert structural(before, read(weights).policy) == []
    assert "levels or states" in structural(before, read(SHOP.replace("levels: double", "levels: single")).policy)


def test_a_file_that_changes_is_followed_with_the_lanes_of_the_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, SHOP.replace("TYPE", "shared"))
    consumer = Consumer.load(path, topic="orders", subscription="billing", lanes="retrying", environ={})
    consumer.handler(lambda message: None)

    class Service:
        def __init__(self) -> None:
            self.followed: list[Policy] = []

        def apply_policy(self, policy: Policy) -> None:
            self.followed.append(policy)

    service = Service()
    chosen = LaneSelection.parse("retrying")
    reloader = _reloader(consumer._source, chosen, lambda policy: policy, consumer.policy, service)  # type: ignore[arg-type]
    assert reloader is not None
    write(tmp_path, SHOP.replace("TYPE", "shared").replace("10s", "20s"))
    reloader.reload()
    assert [lane.name for lane in service.followed[0].lanes] == ["L2/retrying", "L1/retrying"]
    assert service.followed[0].waits[State.RETRYING].delays == (20_000,)
    write(tmp_path, "  orders: {subscriptions: {billing: {states: [pending]}}}\n")
    reloader.reload()
    assert len(service.followed) == 1
    assert "no level, state or lane is named 'retrying'" in caplog.text


def test_avro_versions_are_those_of_every_ready_topic_also_of_lanes_of_others() -> None:
    asked: list[tuple[str, int]] = []

    class Versions:
        def schema(self, topic: str, version: int) -> dict[str, object]:
            asked.append((topic, version))
            return {}

        def latest_schema(self, topic: str) -> int:
            return 3

    of = select_lanes(policy(), LaneSelection.parse("L1/retrying"))
    assert SchemaVersions(of, Versions()).definition("L2:3") == {}  # type: ignore[arg-type]
    assert asked == [("persistent://p/n/t-L2-ready", 3)]


def test_lanes_come_from_the_call_else_the_variable_else_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, SHOP.replace("TYPE", "shared"))
    monkeypatch.chdir(tmp_path)

    def names(**options: object) -> list[str]:
        found = Consumer.load(path, topic="orders", subscription="billing", **options)  # type: ignore[arg-type]
        return [lane.name for lane in found.policy.lanes]

    assert len(names(environ={})) == 9
    (tmp_path / "kodo-consumer.toml").write_text('lanes = ["retrying", "!L2"]\n', encoding="utf-8")
    assert names(environ={}) == ["L1/retrying"]
    variable = {"KODO_CONSUMER_LANES": "L2/ready"}
    assert names(environ=variable) == ["L2/ready"]
    assert names(environ=variable, lanes="B1") == ["B1/ready"]
    assert len(names(environ=variable, lanes="all")) == 9
    with pytest.raises(UsageError, match=r"K708.*lanes: a name is missing"):
        read_settings({"KODO_CONSUMER_LANES": "L1,"}, tmp_path)
    with pytest.raises(KodoctlError, match=r"K764.*'L8' of orders billing: no level, state or lane is named 'L8'"):
        names(environ={"KODO_CONSUMER_LANES": "L8"})


OWN = """
from kodo_consumer import Consumer, Message

consumer = Consumer.load("t.yaml", topic="orders", subscription="billing", lanes="retrying")


@consumer.handler
def bill(message: Message) -> None: ...


def plain(message: Message) -> None: ...
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The topology, and a module whose consumer reads retrying lanes."""
    path = write(tmp_path, SHOP.replace("TYPE", "shared"))
    name = f"lanes_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OWN, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    return path, name


def test_a_command_reads_the_lanes_it_names_else_those_of_the_handlers_consumer(app: tuple[str, str]) -> None:
    path, name = app
    topics, subscriptions, handlers = (
        ("orders", "shipments"),
        ("billing", "tracking"),
        (f"{name}:bill", f"{name}:plain"),
    )

    def read(*lanes: str) -> list[list[str]]:
        choice = ConsumerChoice.of([path], topics, subscriptions, handlers, lanes)
        return [[lane.name for lane in one.policy.lanes] for one in load_consumers(choice, {})]

    everything = ["L1/ready", "L1/retrying", "L1/pending", "L1/blocking"]
    assert read() == [["L2/retrying", "L1/retrying"], everything]
    assert read("L1/ready") == [["L1/ready"], ["L1/ready"]]
    assert read("B1", "all") == [["B1/ready"], everything]
    with pytest.raises(UsageError, match=r"K759.*3 --lanes, 2 --handler: one --lanes for all, or one for each"):
        read("L1", "L1", "L1")


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["kodo-consumer", *arguments])
    with pytest.raises(SystemExit) as end, this_process_goes_on():
        main()
    return end.value.code


def test_every_wrong_name_of_every_handler_is_told_at_once(
    app: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, name = app
    asked = ["run", path, "--topic", "orders", "--topic", "shipments", "--subscription", "billing"]
    asked += ["--subscription", "tracking", "--handler", f"{name}:bill", "--handler", f"{name}:plain"]
    assert _run(monkeypatch, *asked, "--lanes", "B1,nope") == 64
    said = " ".join(capsys.readouterr().err.split())
    assert "'B1,nope' of orders billing: no level, state or lane is named 'nope'" in said
    assert "'B1,nope' of shipments tracking: no level, state or lane is named 'B1', 'nope'" in said
    assert "its lanes are L1/ready, L1/retrying, L1/pending, L1/blocking" in said
    assert _run(monkeypatch, "check", path, "--lanes", "!L1,!L2,!B1", "--admin-url", "http://127.0.0.1:1") == 64
    said = " ".join(capsys.readouterr().err.split())
    assert "of orders billing: no lane is left" in said
    assert "of shipments tracking: no level, state or lane is named 'L2', 'B1'" in said
    assert _run(monkeypatch, *asked, "--lanes", "L1,,") == 64
    assert "a name is missing in 'L1,,'" in capsys.readouterr().err


def _billing(path: str, name: str, *lanes: str) -> list[Consumer]:
    return load_consumers(ConsumerChoice.of([path], ["orders"], ["billing"], [f"{name}:plain"], lanes), {})


def test_a_worker_with_lanes_of_its_own_says_how_many_when_it_is_ready(
    app: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    from kodo_consumer.core.values.broker import BorderStatus
    from kodo_consumer.running.running_worker import _log_ready

    caplog.set_level(logging.INFO, "kodo.consumer")
    path, name = app
    (consumer,) = _billing(path, name, "L1,!blocking")
    _log_ready(consumer.policy, BorderStatus(native=False, detail="why"))
    (line,) = caplog.messages
    assert line.startswith(
        "ready: orders/billing, 3 of 9 lanes (reads L1/ready, L1/retrying, L1/pending; other workers have to read L2"
    )
    caplog.clear()
    (consumer,) = _billing(path, name)
    _log_ready(consumer.policy, BorderStatus(native=False, detail="why"))
    (line,) = caplog.messages
    assert line.startswith("ready: orders/billing, 9 lanes, ")
