"""Messages that are too large, on the real broker: refused by the producer with size and limit, and nothing is stuck afterwards."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from kodo_consumer.core.values.broker import Receipt, Rejected, Unconfirmed
from kodo_consumer.producer import Producer

from kodoctl.errors import ClusterError, UsageError
from tests.broker.test_consumer_real import Setting
from tests.brokers.broker import Broker
from tests.services.polling import eventually

pytestmark = pytest.mark.broker
U = {"uid": "u"}


def _cap(setting: Setting, size: int, **scope: str) -> None:
    path = setting.topic().replace("://", "/")
    assert setting.broker.admin("POST", f"{path}/maxMessageSize", size, **scope).ok
    eventually(lambda: setting.broker.admin("GET", f"{path}/maxMessageSize", **scope).text == str(size))


def _refused(producer: Producer, size: int, limit: int) -> None:
    """Whichever way it is sent; what is allowed is stored at once before and after."""
    said = rf"K729 .*J: {size // 1000}\d\d\d bytes with its properties; the topic takes {limit}"
    producer.send(b"x" * (limit - 1_000), properties=U)
    began = time.monotonic()
    with pytest.raises(UsageError, match=said):
        producer.send(b"x" * size, properties=U)
    with pytest.raises(UsageError, match=said):
        asyncio.run(producer.send_async(b"x" * size, properties=U))
    with pytest.raises(UsageError, match=said):
        producer.post(b"x" * size, lambda _: pytest.fail("nothing was sent"), properties=U)
    for _ in range(10):
        producer.post(b"y", properties=U)
    producer.flush()
    producer.send(b"z", properties=U)
    assert time.monotonic() - began < 25, "a send that waits for its connection to be cut takes longer"


@pytest.mark.parametrize("scope", [{}, {"isGlobal": "true"}], ids=["local", "global"])
def test_the_smaller_limit_counts_whether_the_file_or_the_broker_has_it(
    broker: Broker, tenant: str, tmp_path: Path, scope: dict[str, str]
) -> None:
    setting = Setting(broker, tenant, tmp_path)
    setting.declare("states: []", "fair_by: uid")
    _cap(setting, 70 << 10, **scope)  # the file says nothing of it
    with setting.producer() as producer:
        _refused(producer, 72_000, 70 << 10)
    setting.file.write_text(
        setting.file.read_text(encoding="utf-8").replace(
            "fair_by: uid", "fair_by: uid\n    policies: {max_message_size: 66KiB}"
        ),
        encoding="utf-8",
    )
    with setting.producer() as producer:
        _refused(producer, 68_000, 66 << 10)
    _cap(setting, 65 << 10, **scope)
    with setting.producer() as producer:
        _refused(producer, 67_000, 65 << 10)


def test_what_no_topic_of_the_broker_takes_is_told_by_every_way_and_nothing_is_stuck(
    broker: Broker, tenant: str, tmp_path: Path
) -> None:
    setting = Setting(broker, tenant, tmp_path)
    setting.declare("states: []", "fair_by: uid")
    size = 6 << 20
    said = rf"K729 .*J: {size} bytes of payload are more than the broker takes.*`maxMessageSize`.*was not stored"
    receipts: list[Receipt] = []
    with setting.producer() as producer:
        with pytest.raises(ClusterError, match=said):
            producer.send(b"x" * size, properties=U)
        with pytest.raises(ClusterError, match=said):
            asyncio.run(producer.send_async(b"x" * size, properties=U))
        producer.post(b"x" * size, receipts.append, properties=U)
        producer.send(b"y", properties=U)
        eventually(lambda: receipts == [Rejected("too big")])
        producer.post(b"x" * size, properties=U)
        with pytest.raises(ClusterError, match="too big"):
            producer.flush()
        producer.send(b"z", properties=U)


def test_a_role_that_may_not_ask_for_the_limit_gets_no_receipt_and_its_producer_goes_on(
    broker: Broker, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(broker, tenant, tmp_path)
    setting.declare("states: []", "fair_by: uid")
    _cap(setting, 66 << 10)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.cluster_admin.limits_now", lambda *_: (0, None))
    receipts: list[Receipt] = []
    with setting.producer() as producer:
        producer.send(b"y", properties=U)
        monkeypatch.setattr("kodo_consumer.sending.numbered_publisher.HANGS", 2.0)
        producer.post(b"x" * 72_000, receipts.append, properties=U)
        with pytest.raises(ClusterError, match=r"K715 .*J: no receipt in time; it may have been stored"):
            producer.send(b"behind it", properties=U)
        assert receipts == [Unconfirmed("no receipt in time")]
        monkeypatch.setattr("kodo_consumer.sending.numbered_publisher.HANGS", 60.0)
        producer.send(b"z", properties=U)
    _cap(setting, 1 << 20)  # the client that hangs can end
    eventually(lambda: "kodo-publish-closing" not in {thread.name for thread in threading.enumerate()})
