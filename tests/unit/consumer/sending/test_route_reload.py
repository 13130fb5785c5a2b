"""Routes of a topology file that changes while senders run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kodo_consumer.core.checks.message_validation import MessageValidator
from kodo_consumer.core.values.broker import Receipt
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.send_target import SendTarget
from kodo_consumer.outbox.outbox_row import Row
from kodo_consumer.outbox.producers import Senders
from kodo_consumer.outbox.target_topics import OutboxTopics
from kodo_consumer.policy_builder import send_target_of
from kodo_consumer.producer import Producer
from kodo_consumer.runtime.topology_reload import contents
from kodo_consumer.sending.environment import Environment
from kodo_consumer.sending.route_reload import restart_reasons, route_reloader
from kodo_consumer.testing import MemoryBroker

from kodoctl.errors import UsageError
from tests.services.polling import eventually
from tests.unit.consumer.pump import Pump
from tests.unit.consumer.topologies import write

TOPIC = "persistent://p/n/orders"
TO_L2 = "routes: [{when: {property: uid, equals: vip}, to: L2}]"
TOPICS = """
  orders:
    levels: {levels}
    fair_by: uid
    subscriptions:
      billing: {{in_place: [], states: [], {settings}}}
"""


def _write(folder: Path, settings: str = "", levels: str = "double") -> Path:
    return Path(write(folder, TOPICS.format(settings=settings, levels=levels)))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryBroker]:
    found = MemoryBroker(SystemClock())
    for topic in (TOPIC, f"{TOPIC}-L2"):
        found.create(topic)
    monkeypatch.setattr(
        "kodo_consumer.producer.reach_send_target",
        lambda _connection, _send_target, *, native: (found, MessageValidator()),
    )
    monkeypatch.setattr(found, "close", lambda: None)
    pump = Pump(found)
    yield found
    pump.stop()


def _load(file: Path) -> Producer:
    environ = {"KODOCTL_ADMIN_URL": "http://localhost:1", "KODOCTL_BROKER_URL": "pulsar://localhost:1"}
    return Producer.load(file, topic="orders", environ=environ)


def _sent(broker: MemoryBroker) -> dict[str, list[bytes]]:
    """Payloads by topic, without marks."""
    return {
        topic.removeprefix(TOPIC): [one.payload for one in broker.messages(topic) if one.payload]
        for topic in (TOPIC, f"{TOPIC}-L2")
    }


def _send(producer: Producer, payload: bytes) -> None:
    producer.send(payload, properties={"uid": "vip"})


def test_a_producer_reads_routes_again_when_it_is_asked_to(tmp_path: Path, broker: MemoryBroker) -> None:
    with _load(_write(tmp_path)) as producer:
        _send(producer, b"1")
        _write(tmp_path, TO_L2)
        _send(producer, b"2")
        producer.reload()
        _send(producer, b"3")
        _write(tmp_path, TO_L2.replace("vip", "other"))
        producer.reload()
        _send(producer, b"4")
        _write(tmp_path)
        producer.reload()
        _send(producer, b"5")
    assert _sent(broker) == {"": [b"1", b"2", b"4", b"5"], "-L2": [b"3"]}


def test_a_producer_that_watches_follows_the_file_until_it_is_closed(tmp_path: Path, broker: MemoryBroker) -> None:
    producer = _load(_write(tmp_path))
    producer.watch()
    _write(tmp_path, TO_L2)

    def followed() -> list[bytes]:
        _send(producer, b"x")
        return _sent(broker)["-L2"]

    eventually(followed)
    producer.close()
    assert producer._routes is not None
    assert producer._routes._reloader is not None
    thread = producer._routes._reloader._thread
    assert thread is not None
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"levels": "[L1, L2, L3]"}, "is followed"),
        ({"settings": "routes: [{when: {property: uid}, to: L2}]"}, "is refused, everything stays as it was"),
        ({"settings": "type: key_shared"}, "restart for subscription types"),
        ({"levels": "single"}, "is refused, everything stays as it was"),
    ],
)
def test_other_changes_are_said_and_have_no_effect(
    tmp_path: Path, broker: MemoryBroker, changed: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    file = _write(tmp_path, TO_L2)
    with _load(file) as producer:
        if changed.get("levels") == "single":
            file.write_text(file.read_text().replace("orders:", "others:"), encoding="utf-8")
        else:
            _write(tmp_path, **{"settings": TO_L2, **changed})
        producer.reload()
        _send(producer, b"1")
    assert said in caplog.text
    assert _sent(broker) == {"": [], "-L2": [b"1"]}


def test_a_producer_without_a_file_has_nothing_to_read_again(broker: MemoryBroker) -> None:
    with Producer(TOPIC, broker) as producer:
        producer.reload()
        producer.watch()
        producer.follow_routes(None)


def test_a_message_that_comes_after_the_close_opens_no_level(tmp_path: Path, broker: MemoryBroker) -> None:
    producer = _load(_write(tmp_path, TO_L2))
    producer.close()
    routes, message = producer._routes, MessageValidator().accept(b"1", lambda: 0, properties={"uid": "vip"})
    assert routes is not None
    with pytest.raises(UsageError, match="closed meanwhile"):
        routes.choose(message)
    assert routes.open_senders == []


def test_the_relay_follows_routes_with_the_producers_that_are_open(tmp_path: Path, broker: MemoryBroker) -> None:
    file = _write(tmp_path)
    surroundings = Environment.of(environ={})
    text, loaded = contents(file), surroundings.topology(file)
    topics = OutboxTopics(loaded)
    senders = Senders(
        topics,
        lambda send_target: Producer.to(send_target, None, siblings=lambda level: topics.sibling(send_target, level)),  # type: ignore[arg-type]
    )
    reloader = route_reloader(
        file, surroundings, (loaded, text), lambda found: OutboxTopics(found).send_targets, senders.follow
    )

    def post(payload: bytes) -> None:
        stored: list[Receipt] = []
        row = Row(payload.decode(), 1, "orders", "", payload, '{"uid": "vip"}', "", 0)
        senders.post(row, stored.append)
        eventually(lambda: stored)

    post(b"1")
    _write(tmp_path, TO_L2)
    with reloader.watching():
        eventually(lambda: topics.send_target("orders").dispatch is not None)
    post(b"2")
    assert _sent(broker) == {"": [b"1"], "-L2": [b"2"]}
    senders.close()
    with pytest.raises(UsageError):
        topics.send_target("nowhere")


def test_what_needs_a_restart_is_named_in_words_of_the_file(tmp_path: Path) -> None:
    surroundings = Environment.of(environ={})
    old = OutboxTopics(surroundings.topology(_write(tmp_path))).send_targets
    new = OutboxTopics(surroundings.topology(_write(tmp_path, "type: key_shared", "[L1]"))).send_targets
    assert sorted(old) == ["orders", "orders-L2"]
    assert restart_reasons(old, old) == []
    assert set(restart_reasons(old, new)) == {"topics or levels", "subscription types"}


def test_a_limit_of_another_ground_topic_needs_no_restart(tmp_path: Path) -> None:
    limit = "\n    policies: {{max_message_size: {size}}}"

    def targets(own: str, other: str) -> dict[str, SendTarget]:
        sizes = f"  orders:\n    levels: double{limit.format(size=own)}\n  refunds:{limit.format(size=other)}\n"
        found = Environment.of(environ={}).topology(Path(write(tmp_path, sizes)))
        return {level: send_target_of(found, "orders", level) for level in ("L1", "L2")}

    old = targets("1MiB", "1MiB")
    assert old["L1"].largest == {TOPIC: 1 << 20, f"{TOPIC}-L2": 1 << 20}
    assert restart_reasons(old, targets("1MiB", "2MiB")) == []
    assert restart_reasons(old, targets("2MiB", "1MiB")) == ["max_message_size"]
