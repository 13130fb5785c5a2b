"""What only the real broker can show: quiet tenants beside a flood, order, delays, refusals, several workers."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kodo_consumer import Consumer, Message, Producer, Retry

from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, create_topics, unload
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]


class Setting:
    """One ground topic `J` with one subscription `s` on the real broker."""

    def __init__(self, broker: Broker, tenant: str, folder: Path) -> None:
        self.broker, self.tenant, self.folder = broker, tenant, folder
        assert broker.admin("PUT", f"namespaces/{tenant}/ns").ok
        self.file = folder / "t.yaml"
        self.place = broker.client_options

    def declare(self, subscription: str, ground: str = "fair_by: uid", comment: str = "") -> None:
        text = f"version: 1\nname: r\ntenant: {self.tenant}\nnamespace: ns\ntopics:\n  J:\n    {ground}\n"
        self.file.write_text(f"{text}    subscriptions: {{s: {{{subscription}}}}}{comment}\n", encoding="utf-8")
        create_topics(self.broker, str(self.file))

    def producer(self) -> Producer:
        return Producer.load(self.file, topic="J", **self.place)

    @contextmanager
    def worker(self, handler: Callable[[Message], None]) -> Iterator[Consumer]:
        consumer = Consumer.load(self.file, topic="J", subscription="s", **self.place)
        consumer.handler(handler)
        consumer.start()
        try:
            yield consumer
        finally:
            consumer.stop()

    def delete(self, suffix: str) -> None:
        path = self.topic(suffix).replace("://", "/")
        assert self.broker.admin("DELETE", f"{path}/partitions", force="true").ok

    def topic(self, suffix: str = "") -> str:
        return f"persistent://{self.tenant}/ns/J{suffix}"


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path) -> Setting:
    return Setting(broker, tenant, tmp_path)


def test_a_noisy_tenant_does_not_delay_quiet_ones(setting: Setting) -> None:
    setting.declare("concurrency: 8")
    stored: dict[bytes, float] = {}
    handled: dict[bytes, float] = {}
    over, numbers, counts = threading.Event(), itertools.count(), defaultdict[str, int](int)

    def post(producer: Producer, tenant: str) -> None:
        """Notes when the broker has stored the message: how long a flood keeps its sender waiting is no tenant's delay."""
        name = f"{tenant} {next(numbers)}".encode()

        def on_stored(_: object) -> None:
            stored[name] = time.monotonic()

        producer.post(name, on_stored, properties={"uid": tenant})

    def handle(message: Message) -> None:
        time.sleep(0.005)
        handled[message.data] = time.monotonic()
        counts[message.tenant] += 1

    def flood() -> None:
        """Ten thousand noisy messages wait until the quiet ones were handled, however slow the machine is."""
        with setting.producer() as producer:
            while not over.is_set():
                if len(stored) - len(handled) > 10_000:
                    over.wait(0.05)
                else:
                    post(producer, "noisy")

    def delays(tenant: bytes) -> list[float]:
        return sorted(
            end - stored[name] for name, end in dict(handled).items() if name.startswith(tenant) and end > began
        )

    noise = threading.Thread(target=flood)
    with setting.producer() as producer, setting.worker(handle):
        noise.start()
        try:
            eventually(lambda: counts["noisy"] > 4_000 and len(stored) - len(handled) > 5_000)
            began = time.monotonic()
            for _ in range(40):
                for tenant in range(5):
                    post(producer, f"quiet{tenant}")
                producer.flush()
            eventually(lambda: sum(counts.values()) - counts["noisy"] == 200)
            waiting = len(stored) - len(handled)
        finally:
            over.set()
            noise.join()
        assert waiting > 2_000, "the quiet ones came beside a flood"
        quiet, noisy = delays(b"quiet"), delays(b"noisy")
        assert quiet[len(quiet) // 2] < noisy[len(noisy) // 2] / 4, "a busy machine slows the way to the worker, too"
        assert quiet[-3] < noisy[-3] / 3


@pytest.mark.parametrize("kind", ["key_shared", "failover", "exclusive"])
def test_one_key_is_handled_in_order_through_failures_and_moves(setting: Setting, kind: str) -> None:
    setting.declare(
        f"type: {kind}, concurrency: 8, in_place: [50ms], retrying: {{delays: [100ms], attempts: 50}}", "partitions: 2"
    )
    lock, running, seen = threading.Lock(), set[str](), defaultdict[str, list[int]](list)
    failed = set[bytes]()

    def handle(message: Message) -> None:
        with lock:
            assert message.key not in running
            running.add(message.key)
        try:
            number = int(message.data)
            with lock:
                first = message.data not in failed
                failed.add(message.data)
            if number % 7 == 0 and first:
                raise ValueError
            seen[message.key].append(number)
        finally:
            with lock:
                running.discard(message.key)

    with setting.producer() as producer:
        for number in range(600):
            producer.post(b"%d" % number, key=f"k{number % 12}")
    with setting.worker(handle) as consumer:
        eventually(lambda: sum(map(len, seen.values())) >= 200)
        unload(setting.broker, setting.topic())
        eventually(lambda: not backlog(setting.broker, setting.topic(), "s"))
        assert "AssertionError" not in str(consumer.summary())
    for numbers in seen.values():
        assert list(dict.fromkeys(numbers)) == sorted(set(numbers))
    assert {number for numbers in seen.values() for number in numbers} == set(range(600))


def test_declared_delays_are_kept_and_never_early(setting: Setting) -> None:
    setting.declare("in_place: [], retrying: {delays: [1s, 7s]}")
    moments = []

    def handle(message: Message) -> None:
        moments.append(time.time())
        if len(moments) < 3:
            raise ValueError

    with setting.producer() as producer, setting.worker(handle):
        producer.send(b"x", properties={"uid": "u"})
        eventually(lambda: len(moments) == 3)
    first, second, third = moments
    assert 1.0 <= second - first < 3.0
    assert 7.0 <= third - second < 13.0


def test_what_no_topic_takes_is_parked_and_the_worker_goes_on(setting: Setting) -> None:
    setting.declare("in_place: []")
    seen = []

    def handle(message: Message) -> None:
        seen.append(len(message.data))
        if len(message.data) > 100:
            raise Retry("1s")

    almost_too_big = random.Random(7).randbytes((5 << 20) - 230)
    with setting.producer() as producer, setting.worker(handle) as consumer:
        producer.send(almost_too_big, properties={"uid": "u"})
        eventually(lambda: any("parked" in line or consumer._running.worker.counts.parked for line in ["x"]))  # type: ignore[union-attr]
        producer.send(b"small", properties={"uid": "u"})
        eventually(lambda: 5 in seen)
        eventually(lambda: backlog(setting.broker, setting.topic(), "s") == 1)  # a producer that closes adds a mark
    assert seen.count(len(almost_too_big)) == 1


def test_a_topic_deleted_under_a_worker_is_read_again_when_it_is_back(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting.declare("in_place: []")
    seen = []

    def handle(message: Message) -> None:
        seen.append(message.data)

    with setting.worker(handle):
        with setting.producer() as producer:
            producer.send(b"before", properties={"uid": "u"})
        eventually(lambda: seen == [b"before"])
        setting.delete("")
        eventually(lambda: "subscribing again" in caplog.text)
        create_topics(setting.broker, str(setting.file))
        with setting.producer() as producer:
            producer.send(b"after", properties={"uid": "u"})
        eventually(lambda: seen == [b"before", b"after"], within=60)


def test_while_a_target_is_missing_messages_are_kept_and_then_go_on(setting: Setting) -> None:
    setting.declare("in_place: [], retrying: {delays: [1s]}")
    seen = []

    def handle(message: Message) -> None:
        seen.append(message.state)
        if message.state == "ready":
            raise ValueError

    with setting.producer() as producer, setting.worker(handle) as consumer:
        setting.delete("-s-RETRYING")
        producer.send(b"x", properties={"uid": "u"})
        eventually(lambda: consumer._running.worker.counts.republished)  # type: ignore[union-attr]
        assert backlog(setting.broker, setting.topic(), "s") == 1
        create_topics(setting.broker, str(setting.file))
        eventually(lambda: seen == ["ready", "retrying"], within=60)
        eventually(lambda: not backlog(setting.broker, setting.topic(), "s"))


def test_several_workers_divide_the_work_and_share_a_limit(setting: Setting) -> None:
    limit = "limits: [{kind: concurrency, limit: 4}], expected_workers: 1, concurrency: 8"
    setting.declare(limit)
    lock, at_once, most, names = threading.Lock(), 0, 0, defaultdict[str, int](int)

    def handler(name: str) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            nonlocal at_once, most
            with lock:
                at_once += 1
                most = max(most, at_once) if time.monotonic() > settled else 0
                names[name] += 1
            time.sleep(0.005)
            with lock:
                at_once -= 1

        return handle

    settled = float("inf")
    with setting.worker(handler("a")) as one, setting.worker(handler("b")) as two:
        running = [consumer._running for consumer in (one, two)]
        limiters = [at.worker.engine.scheduler.limits.limiters_of({}, "")[0] for at in running if at]
        eventually(lambda: [limiter.limit for limiter in limiters] == [2, 2], within=30)  # type: ignore[attr-defined]
        settled = time.monotonic()
        with setting.producer() as producer:
            for _ in range(8):
                for _ in range(50):
                    producer.post(b"x", properties={"uid": "u"})
                producer.flush()  # a batch goes to one worker as a whole
        eventually(lambda: not backlog(setting.broker, setting.topic(), "s"))
    assert sum(names.values()) == 400
    assert len(names) == 2
    assert most <= 4


def test_partitioned_topics_survive_a_move_without_losses(setting: Setting) -> None:
    setting.declare("in_place: [], concurrency: 8, retrying: {delays: [1s], attempts: 3}", "partitions: 3")
    lock, runs = threading.Lock(), defaultdict[int, int](int)

    def handle(message: Message) -> None:
        number = int(message.data)
        time.sleep(0.001)
        with lock:
            runs[number] += 1
            first = runs[number] == 1
        if number % 20 == 0 and first:
            raise ValueError

    with setting.producer() as producer:
        for number in range(6_000):
            producer.post(b"%d" % number)
    with setting.worker(handle), setting.worker(handle):
        eventually(lambda: len(runs) > 1_500)
        for suffix in ("", "-s-RETRYING"):
            unload(setting.broker, setting.topic(suffix))
        eventually(
            lambda: (
                not backlog(setting.broker, setting.topic(), "s")
                + backlog(setting.broker, setting.topic("-s-RETRYING"), "s")
            ),
            within=60,
        )
    assert set(runs) == set(range(6_000))
