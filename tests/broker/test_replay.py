"""Replays on the real broker: handled messages come again, exactly those of the plan, and an undo takes them back."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pulsar
import pytest
from kodo_consumer import Consumer, Message

from kodoctl.errors import ClusterError, error
from kodoctl.recall.send.lane_pause import LanePause
from tests.broker.replays import TOPICS, Replays, moment, published
from tests.brokers.wire_producer import WireProducer, binary, numeric, wire_metadata
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually
from tests.services.servers import Answer, Proxy, Request, answer_json

pytestmark = pytest.mark.broker


def test_a_plan_counts_what_runs_again_and_changes_nothing(replays: Replays) -> None:
    replays.send(range(10))
    time.sleep(0.1)
    since = moment()
    replays.send(range(10, 30))
    replays.send(range(100, 103), kodo_for="shipping")
    assert replays.take(keep={12, 13}) == Counter({**Counter(range(30)), **Counter(range(100, 103))})
    plan = replays.plan("--from", since, "--rate", "10/s")
    assert (plan["summary"]["again"], plan["summary"]["unfinished"]) == (18, 2)
    assert plan["duration"]["ms"] == 2_000 or plan["duration"]["arriving"], "what is for others stays done"
    assert sum(row["messages"] for row in plan["partitions"]) == 18
    assert plan["summary"]["others"] == 3
    assert plan["gone"] == []
    assert replays.plan("--from", "1h")["gone"], "whether there was more cannot be known"
    text = replays.workspace.run(
        "replay", "plan", "topologies", "--topic", "orders", "--subscription", "billing", "--from", since
    ).out
    assert all(len(line) <= 80 for line in text.splitlines())
    assert replays.take() == Counter({12, 13})


def test_exactly_the_messages_of_a_plan_come_again_whatever_was_handled_since(replays: Replays) -> None:
    replays.send(range(10))
    time.sleep(0.1)
    since = moment()
    replays.send(range(10, 30))
    time.sleep(0.1)
    until = moment()
    replays.send(range(30, 40))
    replays.take(keep={12, 13})
    assert replays.plan("--from", since, "--until", until)["summary"]["again"] == 18
    replays.send(range(40, 60))
    assert replays.take(keep={13, 50}) == Counter({12, 13, *range(40, 60)})
    report = replays.apply()
    assert (report["complete"], report["entries"], report["problems"]) == (True, 18, [])
    assert not replays.is_paused()
    assert replays.take() == Counter({*range(10, 30), 50} - {12}), "12 was handled since the plan"
    assert "was applied already" in replays.workspace.run("replay", "apply", "p.json", code=4).text


def test_an_undo_takes_back_what_has_not_come_again(replays: Replays) -> None:
    replays.send(range(30))
    replays.take(keep={7})
    replays.plan("--from", "1h")
    replays.apply()
    replays.send(range(30, 35))
    again = replays.take(keep={*range(20, 30), 7})
    assert set(again) == set(range(35))
    report = replays.undo()
    assert (report["complete"], report["entries"], report["again_done"]) == (True, 10, 19)
    assert replays.take() == Counter({7}), "what was open before the replay, and nothing else"
    listed = replays.workspace.run("replay", "list", replays.workspace.namespace, "--format", "json").json()
    assert [one["state"] for one in listed["replays"]] == ["undone"]
    assert (
        "undone already"
        in replays.workspace.run("replay", "undo", "last", replays.workspace.namespace, "--auto-approve", code=64).text
    )
    replays.workspace.run("history", replays.workspace.namespace)


@pytest.mark.parametrize("store", [pytest.param("", marks=pytest.mark.full), "sqlite"])
def test_workers_leave_the_lane_and_handle_again_what_their_store_does_not_know(
    replays: Replays, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.supervisor.POLL_EVERY", 0.2)
    url = f"sqlite:///{replays.workspace.folder}/done.db" if store else ""
    handled: Counter[int] = Counter()
    place = replays.workspace.broker

    def worker(environ: dict[str, str]) -> Consumer:
        consumer = Consumer.load(
            str(replays.workspace.folder / "topologies/trade.yaml"), topic="orders", subscription="billing",
            admin_url=place.admin_url, broker_url=place.broker_url, environ=environ,
        )  # fmt: skip

        @consumer.handler
        def handle(message: Message) -> None:
            handled[message.json()["n"]] += 1

        consumer.start()
        return consumer

    replays.send(range(20))
    first = worker({})
    eventually(lambda: len(handled) == 20)
    first.stop()
    replays.send(range(20, 50))
    second = worker({"KODO_CONSUMER_STORE": url} if store else {})
    try:
        eventually(lambda: len(handled) == 50)
        named = ["--store", url] if store else []
        eventually(lambda: replays.plan("--from", "1h", *named)["summary"]["unfinished"] == 0)
        summary = replays.plan("--from", "1h", *named)["summary"]
        assert (summary["again"], summary["done"]) == ((20, 30) if store else (50, 0))
        assert replays.apply("--wait", "30s")["complete"]
        expected = Counter([*range(50), *range(20 if store else 50)])
        eventually(lambda: handled == expected, within=30)
        replays.send(range(50, 55))
        eventually(lambda: set(range(50, 55)) <= set(handled), within=30)
        assert handled == expected + Counter(range(50, 55))
    finally:
        second.stop()


def test_a_lane_that_is_read_by_others_is_not_moved(replays: Replays) -> None:
    replays.send(range(10))
    replays.take()
    replays.plan("--from", "1h")
    with replays.workspace.client() as client:
        client.subscribe(replays.workspace.full("orders"), "billing", pulsar.ConsumerType.Shared)
        refused = replays.workspace.run("replay", "apply", "p.json", "--wait", "1s", code=4)
        assert "still read" in refused.text
        assert not replays.is_paused()
    assert replays.take() == Counter()


def test_a_replay_that_ended_in_the_middle_is_continued(replays: Replays, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every call that changes something, one attempt after the other."""
    from kodoctl.recall.send import replay_run

    replays.send(range(20))
    replays.take(keep={1, 2})
    replays.plan("--from", "1h")
    replays.send(range(20, 30))
    replays.take(keep={1, 2})
    real_move, real_acknowledge = replay_run._move, replay_run._acknowledge
    moves: list[Any] = []

    def move(*given: Any) -> None:
        real_move(*given)
        moves.append(given)
        raise KeyboardInterrupt

    def acknowledge(*given: Any) -> None:
        real_acknowledge(*given)
        if given[2]:
            moves.append("acknowledged")
            raise KeyboardInterrupt

    monkeypatch.setattr(replay_run, "_move", move)
    replays.apply(code=130)
    assert replays.is_paused()
    monkeypatch.setattr(replay_run, "_acknowledge", acknowledge)
    for _ in range(10):
        if replays.apply(code=None).get("complete"):
            break
    else:
        pytest.fail("never complete")
    assert len([one for one in moves if one != "acknowledged"]) == 2, "each cursor moves once"
    assert not replays.is_paused()
    assert replays.take() == Counter(range(20))
    assert replays.undo()["complete"]


def test_a_pause_that_could_not_be_ended_is_ended_by_the_same_command(
    replays: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays.send(range(5))
    replays.take()
    replays.plan("--from", "1h")
    with monkeypatch.context() as broken:
        broken.setattr(LanePause, "_take_back", _unreachable)
        failed = replays.workspace.run("replay", "apply", "p.json", code=1)
    assert "L1/ready stays paused until" in failed.text
    assert replays.is_paused()
    assert "was applied already" in replays.workspace.run("replay", "apply", "p.json", code=4).text
    assert not replays.is_paused()
    assert replays.take() == Counter(range(5))


def _unreachable(*_: object) -> None:
    raise ClusterError(error("K510", "the broker refused a request", "gone"))


def test_batches_come_again_whole_and_a_message_names_the_begin(replays: Replays) -> None:
    replays.send(range(12), batched=True)
    assert replays.take() == Counter(range(12))
    looked = replays.workspace.run(
        "peek", f"{replays.workspace.namespace}/orders", "--format", "json", "--limit", "50"
    ).json()
    parts = {one["position"].split(":")[2] for one in looked["messages"]}
    first = next(one for one in looked["messages"] if one["position"].split(":")[2] == min(parts))
    plan = replays.plan("--message", first["position"])
    assert [row["partition"] for row in plan["partitions"]] == [int(min(parts))]
    assert replays.apply()["complete"]
    again = replays.take()
    assert sum(again.values()) == plan["summary"]["again"]
    assert set(again.values()) == {1}
    assert (
        "K594"
        in replays.workspace.run(
            "replay",
            "plan",
            "topologies",
            "--topic",
            "orders",
            "--subscription",
            "billing",
            "--message",
            "1:2:0:-1",
            code=64,
        ).text
    )


def test_a_replay_is_undone_once_so_that_a_later_one_stays(replays: Replays) -> None:
    replays.send(range(6))
    replays.take()
    first = replays.plan("--from", "1h")["run"]
    replays.apply()
    assert replays.undo(run=first)["entries"] == 6
    replays.plan("--from", "1h")
    replays.apply()
    again = replays.workspace.run("replay", "undo", first, replays.workspace.namespace, "--auto-approve", code=64)
    assert "is undone already" in " ".join(again.text.split())
    assert replays.take() == Counter(range(6))


def test_what_others_handle_between_two_attempts_stays_done(replays: Replays, monkeypatch: pytest.MonkeyPatch) -> None:
    from kodoctl.recall.send import replay_run

    replays.send(range(6))
    replays.take()
    replays.plan("--from", "1h")
    with monkeypatch.context() as killed:
        killed.setattr(replay_run, "_replay_partition", _interrupted)
        replays.apply(code=130)
    replays.send(range(6, 20))
    assert replays.take() == Counter(range(6, 20))
    assert replays.apply()["complete"]
    assert replays.take() == Counter(range(6))
    replays.plan("--from", "1h")
    with monkeypatch.context() as killed:
        killed.setattr(replay_run, "_replay_partition", _interrupted)
        replays.apply(code=130)
    report = replays.undo()
    assert (report["complete"], report["entries"], report["again_done"]) == (True, 0, 0), "nothing came again"


def test_a_killed_attempt_leaves_no_pause_when_its_plan_fits_no_more(
    replays: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays.send(range(6))
    replays.take()
    replays.plan("--from", "1h")
    with monkeypatch.context() as killed:
        killed.setattr(LanePause, "_wait_for_readers", _interrupted)
        killed.setattr(LanePause, "give_up", lambda _: "")
        replays.apply(code=130)
    assert replays.is_paused()
    path = f"{replays.workspace.path('orders')}-partition-0/subscription/billing/resetcursor/0"
    assert replays.workspace.broker.admin("POST", path).ok
    assert "K595" in replays.workspace.run("replay", "apply", "p.json", code=4).text
    assert not replays.is_paused()


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.full
def test_an_undo_without_a_topic_that_is_gone_is_complete_and_leaves_no_pause(workspace: Workspace) -> None:
    replays = Replays(workspace, TOPICS.replace("  fair_by: uid", "  fair_by: uid\n  levels: double"))
    replays.send(range(6))
    assert replays.take() == Counter(range(6))
    low, high = workspace.full("orders"), workspace.full("orders-L2")
    with workspace.client() as client:
        producer = client.create_producer(high)
        producer.send(b"{}", properties={"uid": "u1"})
        consumer = client.subscribe(high, "billing", pulsar.ConsumerType.Shared)
        consumer.acknowledge(consumer.receive(5_000))
        consumer.close()
    assert {row["topic"] for row in replays.plan("--from", "1h")["partitions"]} == {low, high}
    replays.apply()
    workspace.admin("DELETE", f"{workspace.path('orders-L2')}/partitions", force="true")
    report = replays.undo()
    assert (report["complete"], report["entries"], report["problems"]) == (True, 6, [])
    assert not replays.is_paused()


def test_messages_of_producers_whose_clock_is_late_or_early_come_again(replays: Replays) -> None:
    """The broker notes when it closes a ledger, and within a ledger most clocks are right."""
    part = f"{replays.workspace.full('orders')}-partition-0"
    replays.send(range(30))
    time.sleep(0.1)
    since = moment()
    with WireProducer(replays.workspace.broker.broker_url, part) as producer:
        for number in range(30, 33):
            published(producer, number, time.time() - 3 * 3600)
    replays.send(range(33, 63))
    with WireProducer(replays.workspace.broker.broker_url, part) as producer:
        published(producer, 63, time.time() + 300)
        published(producer, 64, time.time() - 300)
    replays.send(range(65, 80))
    assert replays.take() == Counter(range(80))
    plan = replays.plan("--from", since)
    assert (plan["clocks"], plan["summary"]["again"], plan["summary"]["by_place"]) == ("producers", 50, 4)
    replays.apply()
    assert replays.take() == Counter(range(30, 80))


def test_a_ledger_that_was_closed_before_the_span_is_left_out_whatever_its_publish_times_are(replays: Replays) -> None:
    """A ledger's closing time is the broker's: here all clocks are an hour late, and after that an hour early."""
    part = f"{replays.workspace.full('orders')}-partition-0"
    local = f"{replays.workspace.path('orders')}-partition-0"
    with WireProducer(replays.workspace.broker.broker_url, part) as producer:
        for number in range(5):
            published(producer, number, time.time() - 3600)
    replays.workspace.admin("PUT", f"{local}/unload")
    with WireProducer(replays.workspace.broker.broker_url, part) as producer:
        for number in range(5, 9):
            published(producer, number, time.time() + 3600)
    assert replays.take() == Counter(range(9))
    assert replays.plan("--from", "30m")["summary"]["again"] == 4


def test_where_closing_times_are_not_for_this_role_all_ledgers_are_read(workspace: Workspace, proxy: Proxy) -> None:
    replays = Replays(workspace)
    local = f"{workspace.path('orders')}-partition-0"
    replays.send(range(10))
    workspace.admin("PUT", f"{local}/unload")
    replays.send(range(10, 20))
    time.sleep(0.1)
    since = moment()
    replays.send(range(20, 30))
    assert replays.take() == Counter(range(30))

    def forbid(request: Request) -> Answer | None:
        return answer_json({"reason": "not yours"}, 403) if "internal-info" in request.path else None

    proxy.choose = forbid
    plan = replays.plan("--from", since)
    assert (plan["summary"]["again"], len(plan["unknown"])) == (10, 2)


def test_times_before_1970_and_plans_without_messages(replays: Replays) -> None:
    replays.send(range(3))
    assert replays.plan("--from", "99999d")["summary"]["unfinished"] == 3
    assert replays.apply()["complete"]


def test_what_is_no_longer_stored_refuses_the_plan_and_nothing_is_changed(workspace: Workspace) -> None:
    replays = Replays(workspace)
    replays.send(range(10))
    replays.take()
    replays.plan("--from", "1h")
    for number in range(2):
        workspace.admin("PUT", f"{workspace.path('orders')}-partition-{number}/unload")
    replays.send(range(10, 14))
    replays.take()
    workspace.admin("DELETE", f"{workspace.path('orders')}/truncate")
    refused = replays.workspace.run("replay", "apply", "p.json", code=4).text
    assert "no longer stored" in " ".join(refused.split())
    assert "K595" in refused
    assert not replays.is_paused()


def test_a_replay_beyond_the_backlog_quota_is_refused_and_what_would_expire_is_said(workspace: Workspace) -> None:
    replays = Replays(workspace)
    replays.send(range(10))
    replays.take()
    time.sleep(1.1)
    ttl = f"{workspace.path('orders')}/messageTTL"
    assert workspace.broker.admin("POST", ttl, messageTTL="1").ok
    plan = eventually(lambda: (found := replays.plan("--from", "1h"))["summary"]["expiring"] and found, within=20)
    assert plan["summary"]["expiring"] == plan["summary"]["again"]
    quota = {"limitSize": 20, "limitTime": -1, "policy": "producer_exception"}
    assert workspace.broker.admin("POST", f"{workspace.path('orders')}/backlogQuota", quota).ok

    def refused() -> Any:
        run = workspace.run(
            "replay",
            "plan",
            "topologies",
            "--topic",
            "orders",
            "--subscription",
            "billing",
            "--from",
            "1h",
            "--out",
            "p.json",
            code=None,
        )
        return run.code == 4 and run.text

    assert "backlog quota" in eventually(refused, within=20)
    assert "backlog quota" in replays.workspace.run("replay", "apply", "p.json", code=4).text


@pytest.mark.parametrize("native", ["true", pytest.param("false", marks=pytest.mark.full)])
@pytest.mark.parametrize("choice", ["--from", "--message"])
def test_a_message_in_chunks_comes_again_whole(
    replays: Replays, monkeypatch: pytest.MonkeyPatch, native: str, choice: str
) -> None:
    """Its first chunk is before the begin, its last one after it, and another message between them stays done."""
    monkeypatch.setenv("KODO_CONSUMER_NATIVE", native)
    part = f"{replays.workspace.full('orders')}-partition-0"
    other = [binary(1, b"kodo-for") + binary(2, b"shipping"), binary(1, b"uid") + binary(2, b"u1")]
    with WireProducer(replays.workspace.broker.broker_url, part) as producer:
        published(producer, 0, time.time() - 60)
        producer.send(chunk(0, time.time() - 60), b'{"n"')
        producer.send(wire_metadata(b"".join(binary(4, pair) for pair in other)), b'{"n": 9}')
        time.sleep(0.1)
        since = moment()
        last = producer.send(chunk(1, time.time()), b": 1}")
        published(producer, 2, time.time())
    assert replays.take() == Counter([0, 1, 2, 9])
    begin = since if choice == "--from" else f"{last[0]}:{last[1]}:0:-1"
    plan = replays.plan(choice, begin)
    assert plan["summary"]["again"] == 2
    assert plan["unread"] == []
    replays.apply()
    assert replays.take() == Counter([1, 2])


def chunk(number: int, at: float) -> bytes:
    """Metadata of one of two chunks of a message of 8 bytes, published at `at` (s since the epoch)."""
    return wire_metadata(
        numeric(3, int(at * 1000))
        + binary(4, binary(1, b"uid") + binary(2, b"u1"))
        + binary(26, b"wire-7") + numeric(27, 2) + numeric(28, 8) + numeric(29, number)
    )  # fmt: skip
