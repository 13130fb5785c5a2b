"""What the real broker allows less than the file declares: a worker keeps to it, says so at its start, and `check` says the same."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kodo_consumer import Message, Retry

from tests.broker.test_consumer_real import Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import backlog
from tests.brokers.workspace import run_consumer
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path) -> Setting:
    return Setting(broker, tenant, tmp_path)


def _check(setting: Setting) -> str:
    place = ["--admin-url", setting.broker.admin_url, "--broker-url", setting.broker.broker_url]
    found = run_consumer("check", str(setting.file), *place)
    assert (found.code, found.out) == (0, "J s: complete\n")
    return " ".join(found.err.split())


def _delays(setting: Setting, **policy: object) -> None:
    value = {"active": True, "tickTime": 100, "maxDeliveryDelayInMillis": 0, **policy}
    assert setting.broker.admin("POST", f"namespaces/{setting.tenant}/ns/delayedDelivery", value).ok


def _failing_once(seen: list[tuple[str, float]]) -> Callable[[Message], None]:
    def handle(message: Message) -> None:
        seen.append((message.state, time.monotonic()))
        if message.state == "ready":
            raise Retry("1h")

    return handle


def test_a_wait_beyond_the_brokers_maximum_is_cut_to_it(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    setting.declare("in_place: [], states: [retrying], retrying: {delays: [1m, 1h], attempts: 3}")
    _delays(setting, maxDeliveryDelayInMillis=4_000)
    seen: list[tuple[str, float]] = []
    with setting.producer() as producer, setting.worker(_failing_once(seen)):
        producer.send(b"x", properties={"uid": "u"})
        eventually(lambda: len(seen) == 2)
        eventually(lambda: not backlog(setting.broker, setting.topic("-s-RETRYING"), "s"))
    assert [state for state, _ in seen] == ["ready", "retrying"]
    assert 3.5 < seen[1][1] - seen[0][1] < 15
    for said in (caplog.text, _check(setting)):
        assert "waits beyond the broker's maximum [K726]" in said
        assert "keeps messages 4s at most" in said


def test_delayed_delivery_that_is_off_is_told(setting: Setting) -> None:
    setting.declare("in_place: [], states: [retrying]")
    assert "K727" not in _check(setting)
    _delays(setting, active=False)
    assert "delayed delivery is off [K727]" in _check(setting)


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_size_limit_that_the_file_does_not_declare_is_kept_to(
    setting: Setting, caplog: pytest.LogCaptureFixture, *, everywhere: bool
) -> None:
    setting.declare("in_place: [], states: [retrying], retrying: {delays: [1s, 6s], attempts: 2}")
    path = setting.topic("-s-RETRYING").replace("://", "/")
    scope = {"isGlobal": "true"} if everywhere else {}
    assert setting.broker.admin("POST", f"{path}/maxMessageSize", 66 << 10, **scope).ok
    eventually(lambda: setting.broker.admin("GET", f"{path}/maxMessageSize", **scope).text == str(66 << 10))
    seen: list[tuple[str, int]] = []

    def handle(message: Message) -> None:
        seen.append((message.state, len(message.data)))
        if message.state == "ready":
            raise Retry("1s")

    with setting.producer() as producer, setting.worker(handle):
        for size in (70_000, 10):
            producer.send(random.Random(7).randbytes(size), properties={"uid": "u"})
        eventually(lambda: ("retrying", 10) in seen)
        eventually(lambda: not backlog(setting.broker, setting.topic(), "s"))
    assert ("retrying", 70_000) not in seen
    dead = setting.topic("-s-DLQ").replace("://", "/")
    stats = setting.broker.admin("GET", f"{dead}/partitioned-stats", perPartition="false")
    assert stats.json()["msgInCounter"] == 1
    for said in (caplog.text, _check(setting)):
        assert "message size limit that is not the file's [K728]" in said
        assert "-s-RETRYING: messages of more than 67584 bytes are not sent there" in said
