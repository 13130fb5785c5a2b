"""Ordered subscriptions on the real broker: one key, one handler, in order; what a failure does; nothing moves aside."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from kodo_consumer import Consumer, Message, Producer

from tests.broker.test_consumer_real import Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, unload
from tests.services.polling import eventually
from tests.services.servers import Fault, Proxy

pytestmark = [pytest.mark.broker, pytest.mark.timed]


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path) -> Setting:
    return Setting(broker, tenant, tmp_path)


class Book:
    """Who handles what at which time, of all workers of a test."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: defaultdict[str, list[str]] = defaultdict(list)  # key -> workers
        self.started: defaultdict[str, list[int]] = defaultdict(list)  # key -> numbers
        self.most = 0
        self.twice_in_one = 0
        self.overlaps = 0

    def handler(self, worker: str, pause: float) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            key = message.key
            with self.lock:
                self.twice_in_one += worker in self.running[key]
                self.overlaps += bool(self.running[key])
                self.running[key].append(worker)
                self.most = max(self.most, len(self.running[key]))
                self.started[key].append(int(message.data))
            time.sleep(pause)
            with self.lock:
                self.running[key].remove(worker)

        return handle

    def handled(self) -> int:
        """Handler runs so far."""
        return sum(map(len, self.started.values()))

    def firsts(self) -> dict[str, list[int]]:
        """Numbers of each key in the order of their first start."""
        return {key: list(dict.fromkeys(numbers)) for key, numbers in self.started.items()}


@pytest.mark.parametrize("kind", ["key_shared", pytest.param("failover", marks=pytest.mark.full)])
def test_across_hand_overs_a_key_overlaps_for_one_run_at_most_and_its_order_stays(setting: Setting, kind: str) -> None:
    """Two workers; one leaves while it works and one comes, and the topic is unloaded twice under running handlers."""
    setting.declare(f"type: {kind}, concurrency: 4, in_place: []")
    book, count, keys = Book(), 480, 8
    with setting.producer() as producer:
        for number in range(count):
            producer.post(b"%d" % number, key=f"k{number % keys}", properties={"uid": "u"})
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        first.enter_context(setting.worker(book.handler("a", 0.02)))
        stack.enter_context(setting.worker(book.handler("b", 0.02)))

        def started() -> int:
            return sum(map(len, book.started.values()))

        eventually(lambda: started() > count // 8)
        unload(setting.broker, setting.topic())
        eventually(lambda: started() > count // 3)
        first.close()  # drains and leaves
        stack.enter_context(setting.worker(book.handler("c", 0.02)))
        eventually(lambda: started() > count // 2)
        unload(setting.broker, setting.topic())
        eventually(lambda: not backlog(setting.broker, setting.topic(), "s"), within=60)
    print(f"{book.overlaps} overlapping runs, {sum(map(len, book.started.values())) - count} repeats")  # noqa: T201
    assert book.twice_in_one == 0
    assert book.most <= 2
    assert book.overlaps <= 3 * keys, "one run for each key and hand-over"
    assert book.firsts() == {f"k{key}": list(range(key, count, keys)) for key in range(keys)}


def _read_to_the_end(setting: Setting, topic: str) -> bool:
    return not backlog(setting.broker, topic, "s")


def _handled(book: Book, least: int) -> bool:
    return book.handled() >= least


@pytest.mark.parametrize("kind", ["key_shared", "failover"])
def test_workers_of_different_lanes_keep_the_order_of_each_lane(setting: Setting, kind: str) -> None:
    """Two workers read L1, one L2, one only what waits: it is never the active consumer of a ready lane."""
    setting.declare(
        f"type: {kind}, concurrency: 4, in_place: [], states: [retrying], expected_workers: 4",
        "levels: double\n    partitions: 2",
    )
    book, count, keys = Book(), 320, 8
    levels = {"k": "L1", "m": "L2"}  # a key has one level: between lanes there is no order
    for prefix, level in levels.items():
        with Producer.load(setting.file, topic="J", level=level, **setting.place) as producer:
            for number in range(count):
                producer.post(b"%d" % number, key=f"{prefix}{number % keys}")
    with ExitStack() as stack:
        for name, lanes in (("a", "L1"), ("b", "L1/ready"), ("c", "L2/ready"), ("d", "retrying")):
            consumer = Consumer.load(setting.file, topic="J", subscription="s", lanes=lanes, **setting.place)
            consumer.handler(book.handler(name, 0.02))
            consumer.start()
            stack.callback(consumer.stop)
        for topic in (setting.topic(), setting.topic("-L2")):
            eventually(partial(_read_to_the_end, setting, topic), within=90)
    print(f"{book.handled() - 2 * count} repeats, {book.overlaps} overlapping runs")  # noqa: T201
    assert book.overlaps == 0 or kind == "key_shared", "those of a hand-over"
    assert book.twice_in_one == 0
    expected = [list(range(key, count, keys)) for key in range(keys)]
    assert book.firsts() == {f"{prefix}{key}": expected[key] for prefix in levels for key in range(keys)}


def test_failover_workers_that_come_and_go_never_handle_a_key_together(setting: Setting) -> None:
    """Each joins while another holds the whole backlog, so that the broker sends all of it once more. Runs are far shorter than a
    hand-over: none may meet another of its key.
    """
    setting.declare("type: failover, concurrency: 4, in_place: [], states: [], expected_workers: 2", "partitions: 2")
    book, count, keys = Book(), 1_600, 8
    with setting.producer() as producer:
        for number in range(count):
            producer.post(b"%d" % number, key=f"k{number % keys}", properties={"uid": "u"})
    with ExitStack() as stack:
        workers = {name: stack.enter_context(ExitStack()) for name in "abc"}
        for name, leaves in (("a", ""), ("b", ""), ("c", ""), ("", "a"), ("", "b")):
            if name:
                workers[name].enter_context(setting.worker(book.handler(name, 0.02)))
            else:
                workers[leaves].close()
            least = min(count, book.handled() + 200)
            eventually(partial(_handled, book, least))
        eventually(lambda: not backlog(setting.broker, setting.topic(), "s"), within=60)
    print(f"{book.handled() - count} repeats")  # noqa: T201
    assert book.overlaps == 0
    assert book.firsts() == {f"k{key}": list(range(key, count, keys)) for key in range(keys)}


def test_a_failover_worker_that_could_not_ask_who_is_active_handles_nothing_that_another_did_meanwhile(
    setting: Setting,
) -> None:
    """Another joins, handles what the first one holds, and leaves again: the broker then names the first one, as ever, and sends
    it what is left.
    """
    setting.declare("type: failover, concurrency: 4, in_place: [], states: [], expected_workers: 2", "partitions: 2")
    book, count, keys = Book(), 600, 8
    away, usual, slow = threading.Event(), book.handler("a", 0.02), book.handler("a", 0.2)

    def handle(message: Message) -> None:
        """Handles less while the admin API is away: enough is left for the other worker, however late the alarm is."""
        (slow if away.is_set() else usual)(message)

    proxy = Proxy(setting.broker.admin_url, lambda _: Fault.UNAVAILABLE_AFTER if away.is_set() else None)
    with setting.producer() as producer:
        for number in range(count):
            producer.post(b"%d" % number, key=f"k{number % keys}", properties={"uid": "u"})
    with closing(proxy):
        direct = setting.place.copy()
        setting.place["admin_url"] = proxy.url
        with setting.worker(handle) as first:
            setting.place = direct
            eventually(lambda: book.handled() >= 50)
            away.set()
            assert first._running is not None
            alarms = first._running.worker.alarms.counts
            eventually(lambda: alarms["active"])
            before = book.handled()
            with setting.worker(book.handler("b", 0.0)):
                eventually(lambda: book.handled() >= before + 100)
            away.clear()
            eventually(lambda: not backlog(setting.broker, setting.topic(), "s"), within=60)
    assert book.handled() == count, "none twice"
    assert book.overlaps == 0
    assert book.firsts() == {f"k{key}": list(range(key, count, keys)) for key in range(keys)}


def _numbers(worker: Consumer) -> Counter[str]:
    assert worker._running is not None
    return worker._running.worker.counts.finished


def test_a_parked_key_waits_in_memory_then_its_message_dies_and_the_key_goes_on(setting: Setting) -> None:
    setting.declare("type: key_shared, in_place: [100ms], retrying: {delays: [200ms], attempts: 2}, states: [retrying]")
    seen: list[bytes] = []

    def handle(message: Message) -> None:
        seen.append(message.data)
        if message.data == b"bad":
            raise ValueError

    with setting.producer() as producer, setting.worker(handle):
        for payload, key in ((b"a1", "a"), (b"bad", "a"), (b"a2", "a"), (b"b1", "b"), (b"b2", "b")):
            producer.send(payload, key=key, properties={"uid": "u"})
        eventually(lambda: not backlog(setting.broker, setting.topic(), "s"))
    assert [data for data in seen if data not in (b"b1", b"b2")] == [b"a1", *[b"bad"] * 4, b"a2"]
    assert [data for data in seen if data in (b"b1", b"b2")] == [b"b1", b"b2"]
    eventually(lambda: backlog(setting.broker, setting.topic("-s-RETRYING"), "s") == 0)
    assert setting.broker.admin("GET", _stats(setting, "-s-DLQ")).json()["msgInCounter"] == 1


def test_a_blocked_key_waits_without_end_with_an_alarm_and_holds_up_no_other(setting: Setting) -> None:
    retrying = "in_place: [], retrying: {delays: [200ms], attempts: 1}"
    setting.declare(f"type: key_shared, on_failure: block, {retrying}")
    seen: list[bytes] = []
    helped = threading.Event()

    def handle(message: Message) -> None:
        seen.append(message.data)
        if message.data == b"bad" and not helped.is_set():
            raise ValueError

    with setting.producer() as producer, setting.worker(handle) as worker:
        for payload, key in ((b"bad", "a"), (b"a1", "a"), (b"b1", "b")):
            producer.send(payload, key=key, properties={"uid": "u"})
        eventually(lambda: seen.count(b"bad") >= 5)
        assert worker._running is not None
        eventually(lambda: worker._running.worker.alarms.counts)  # type: ignore[union-attr]
        assert b"a1" not in seen
        assert b"b1" in seen
        helped.set()
        eventually(lambda: not backlog(setting.broker, setting.topic(), "s"))
        assert _numbers(worker)["dead"] == 0
    assert seen[-1] == b"a1"


def test_a_message_that_leaves_gives_its_order_up_and_only_its_own(setting: Setting) -> None:
    retrying = "in_place: [], retrying: {delays: [1s], attempts: 3}"
    setting.declare(f"type: key_shared, on_failure: leave, states: [retrying], {retrying}")
    seen: list[tuple[bytes, str]] = []

    def handle(message: Message) -> None:
        seen.append((message.data, message.state))
        if message.data == b"bad" and message.state == "ready":
            raise ValueError

    with setting.producer() as producer, setting.worker(handle):
        for payload in (b"a1", b"bad", b"a2", b"a3"):
            producer.send(payload, key="a", properties={"uid": "u"})
        eventually(lambda: len(seen) == 5)
    ready = [(b"a1", "ready"), (b"bad", "ready"), (b"a2", "ready"), (b"a3", "ready")]
    assert seen == [*ready, (b"bad", "retrying")]


def test_limits_isolation_and_routes_move_no_ordered_message(setting: Setting) -> None:
    setting.declare(
        "type: failover, concurrency: 4, states: [pending, blocking], in_place: [], lookahead: {messages: 1200},"
        " backup: {delays: [1s, 5s], attempts: 3}, isolate: {min: 50},\n"
        "          # kodoctl: allow K204 because they have to stay where they are\n"
        "          routes: [{when: {property: uid, exists: true}, to: L2}],\n         "
        " limits: [{kind: rate, by: uid, limit: 40/s, burst: 10}, {kind: quota, by: uid, limit: 100/m},"
        " {kind: concurrency, by: uid, limit: 2}]",
        "fair_by: uid\n    levels: double\n    backup: true",
    )
    book, count = Book(), 240
    with setting.producer() as producer:
        for number in range(count):
            producer.post(b"%d" % number, key=f"k{number % 4}", properties={"uid": "u"})
    with setting.worker(book.handler("a", 0.0)) as worker:
        eventually(lambda: sum(map(len, book.started.values())) == 100, within=60)
        time.sleep(2)  # whoever would move them has time to
        assert set(_numbers(worker)) <= {"not_for_me"}, "only a mark of the producer"
        assert worker._running is not None
        assert sum(1 for lane in worker._running.worker.engine.lanes for _ in lane) == count - 100
    assert sum(map(len, book.started.values())) == 100, "the quota is kept"
    assert book.started == book.firsts(), "none twice"
    assert all(numbers == sorted(numbers) for numbers in book.started.values())
    assert backlog(setting.broker, setting.topic(), "s") > 0
    for suffix in ("-s-PENDING", "-s-BLOCKING", "-L2", "-B1"):
        found = setting.broker.admin("GET", _stats(setting, suffix))
        assert (found.status_code, found.json().get("msgInCounter")) == (200, 0), suffix


def _stats(setting: Setting, suffix: str) -> str:
    return f"{setting.topic(suffix).replace('://', '/')}/partitioned-stats"
