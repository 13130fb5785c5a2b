"""Delays on a broker with the settings Pulsar ships: messages come up to a second early, and equal delays pause a topic."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import platformdirs
import pytest
from kodo_consumer import Consumer, Message, Retry

from kodoctl.dev import node_config, service
from kodoctl.dev.instance import EngineName, Homes
from kodoctl.dev.resolve import UpFlags
from kodoctl.dev.up import up
from tests.broker.test_consumer_real import Setting
from tests.brokers.broker import Broker
from tests.services.polling import eventually
from tests.services.ports import unusual_ports

pytestmark = [pytest.mark.broker, pytest.mark.timed, pytest.mark.full]  # a broker of its own
SHIPPED = {
    "isDelayedDeliveryDeliverAtTimeStrict": "false",
    "delayedDeliveryTickTimeMillis": "1000",
    "delayedDeliveryFixedDelayDetectionLookahead": "50000",
}
EQUAL = 50_600


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of this module's own. The last of two lines with one key counts."""
    homes = Homes(tmp_path_factory.mktemp("shipped"), platformdirs.user_cache_path("kodoctl"))
    ours = "".join(f"\n{key}={value}" for key, value in SHIPPED.items())
    packaged = node_config.packaged_text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            node_config, "packaged_text", lambda name: packaged(name) + (ours if name == "standalone.conf" else "")
        )
        asked = UpFlags("shipped", "4.2", engine=EngineName.JAVA, preferred=unusual_ports())
        instance = up(homes, os.environ, asked).instance
    yield Broker(instance.admin_url, instance.broker_url)
    service.down(homes, os.environ, "shipped")


@pytest.fixture
def setting(shipped: Broker, tmp_path: Path) -> Setting:
    tenant = f"d{time.monotonic_ns()}"
    shipped.tenant(tenant)
    return Setting(shipped, tenant, tmp_path)


def test_what_comes_early_is_held_back_and_nothing_starts_before_its_time(setting: Setting) -> None:
    """Delays of 5.5 s and more are the broker's, here up to a second early; in each attempt the handler says when it ran."""
    setting.declare("in_place: [], retrying: {delays: [5500ms], attempts: 3}")
    moments: dict[str, list[float]] = defaultdict(list)

    def handle(message: Message) -> None:
        moments[message.id].append(time.time())
        if len(moments[message.id]) == 1:
            raise Retry

    with setting.producer() as producer, setting.worker(handle) as consumer:
        for number in range(200):
            producer.post(b"x", properties={"uid": "u"}, id=str(number))
            if number % 10 == 9:
                time.sleep(0.05)  # so that the dues lie everywhere within the broker's tick
        producer.flush()
        eventually(lambda: sum(len(runs) == 2 for runs in moments.values()) == 200, within=30)
        assert consumer._running is not None
        worker = consumer._running.worker
    early = worker.counts.waited["early"]
    waits = sorted(second - first for first, second in moments.values())
    print(f"{early} of 200 came early; waits {waits[0]:.3f} to {waits[-1]:.3f} s")  # noqa: T201
    assert early > 20, "this broker delivers early"
    assert waits[0] >= 5.5
    assert worker.alarms.counts["early"] == 0, "a tick is not long before time"
    assert worker.counts.failed == {"Retry": 200}, "once each, as they were told to"
    assert worker.counts.finished == {"retrying": 200}, "an early delivery counts nothing and moves nothing"


def test_a_topic_that_equal_delays_paused_goes_on_when_all_workers_have_left_for_a_moment(setting: Setting) -> None:
    setting.declare("states: [], concurrency: 4", "partitions: 1")
    seen: dict[bytes, float] = {}

    def handle(message: Message) -> None:
        seen[message.data] = time.monotonic()

    _many_equal_delays(setting)
    with ExitStack() as stack:
        consumers = [stack.enter_context(setting.worker(handle)) for _ in range(2)]
        eventually(lambda: _delayed(setting) >= 50_000, within=30)
        _send(setting, b"at once", None)
        _send(setting, b"soon", 3)
        began = time.monotonic()
        eventually(lambda: any(_still(one) for one in consumers), within=30)
        eventually(lambda: len(seen) == 2, within=50)
        assert sum(_alarms(one) for one in consumers) >= 1
        eventually(lambda: not any(_still(one) for one in consumers), within=20)
    took = {name.decode(): round(at - began, 1) for name, at in seen.items()}
    print(f"handled after {took} s, while {EQUAL} messages wait for 120 s")  # noqa: T201
    assert set(took) == {"at once", "soon"}
    assert max(took.values()) < 60


def _many_equal_delays(setting: Setting) -> None:
    """As somebody who is not of this platform sends them: spread over a few seconds, all 120 s away."""
    import pulsar

    client = pulsar.Client(setting.broker.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
    producer = client.create_producer(setting.topic(), block_if_queue_full=True, max_pending_messages=5_000)
    for _ in range(EQUAL):
        producer.send_async(b"later", lambda *_: None, deliver_at=int(time.time() * 1000) + 120_000)
    producer.flush()
    client.close()


def _send(setting: Setting, payload: bytes, delay: float | None) -> None:
    import pulsar

    client = pulsar.Client(setting.broker.broker_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
    producer = client.create_producer(setting.topic())
    producer.send(payload, deliver_at=None if delay is None else int((time.time() + delay) * 1000))
    client.close()


def _delayed(setting: Setting) -> int:
    path = setting.topic().replace("://", "/")
    answer = setting.broker.admin("GET", f"{path}/partitioned-stats").json()
    return int(answer["subscriptions"]["s"]["msgDelayed"])


def _still(consumer: Consumer) -> bool:
    assert consumer._running is not None
    still = consumer._running.service.still
    return still is not None and bool(still.lanes)


def _alarms(consumer: Consumer) -> int:
    assert consumer._running is not None
    return consumer._running.worker.alarms.counts["standstill"]
