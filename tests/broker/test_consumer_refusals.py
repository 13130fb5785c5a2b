"""What a target will never take, on the real broker: too big, its schema, not authorised. It dies, with the reason."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pulsar
import pytest
from kodo_consumer import Message, Retry

from kodoctl.protocol.compression import TOO_LARGE
from tests.broker.test_consumer_real import Setting
from tests.brokers.broker import Broker
from tests.brokers.topics import backlog, messages, unload
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
STRING = {"type": "STRING", "schema": "", "properties": {}}
NOISE = random.Random(7).randbytes(7_000_000)  # no compression makes it smaller
TOO_SMALL = "  # kodoctl: allow K213 because this is about what does not fit"


@pytest.fixture
def setting(broker: Broker, tenant: str, tmp_path: Path) -> Setting:
    return Setting(broker, tenant, tmp_path)


def _dead(setting: Setting) -> list[tuple[int, str]]:
    """Size and reason of every dead letter."""
    letters = messages(setting.broker, setting.topic("-s-DLQ"))
    return [(len(letter.data()), letter.properties()["kodo-reason"]) for letter in letters]


def _cap(setting: Setting, suffix: str, size: int) -> None:
    """The broker takes no message beyond it, as `kodoctl apply` would have it."""
    path = setting.topic(suffix).replace("://", "/")
    assert setting.broker.admin("POST", f"{path}/maxMessageSize", size).ok
    eventually(lambda: setting.broker.admin("GET", f"{path}/maxMessageSize").json() == size)


def test_what_is_too_big_for_a_state_dies_and_the_next_ones_are_moved(setting: Setting) -> None:
    dead = "dead_letter: {max_message_size: 1MiB}"
    of_states = "state_policies: {max_message_size: 66KiB}"
    ground = f"fair_by: uid\n    {of_states}{TOO_SMALL}"
    setting.declare(f"in_place: [], retrying: {{delays: [1s]}}, {dead}", ground, TOO_SMALL)
    _cap(setting, "-s-RETRYING", 66 << 10)
    seen: list[tuple[int, str]] = []

    def handle(message: Message) -> None:
        seen.append((len(message.data), message.state))
        if message.state == "ready":
            raise Retry("1s")

    with setting.producer() as producer, setting.worker(handle):
        for payload in (NOISE[:70_000], NOISE[:10], NOISE[:66_000], b"z" * 80_000):
            producer.send(payload, properties={"uid": "u"})
        eventually(lambda: not backlog(setting.broker, setting.topic(), "s"))
        eventually(lambda: sorted(size for size, state in seen if state == "retrying") == [10, 66_000, 80_000])
    assert _dead(setting) == [(70_000, f"refused by its target: too big, {TOO_LARGE}")]


def test_what_a_producer_compressed_is_retried_and_dies_and_what_came_in_chunks_is_parked_with_the_reason(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """Both were parked, and handled again at each start."""
    setting.declare("in_place: [], retrying: {delays: [1s], attempts: 1}")
    seen: list[tuple[int, str]] = []

    def handle(message: Message) -> None:
        seen.append((len(message.data), message.state))
        raise ValueError

    client = pulsar.Client(setting.broker.broker_url)
    packs = client.create_producer(setting.topic(), compression_type=pulsar.CompressionType.ZSTD)
    packs.send(
        b"z" * 9_000_000, properties={"uid": "u", "ü": "ß"}, partition_key="k", ordering_key="o", event_timestamp=7
    )
    client.create_producer(setting.topic(), chunking_enabled=True).send(NOISE, properties={"uid": "u"})
    client.close()
    with setting.worker(handle) as consumer:
        eventually(lambda: consumer._running.worker.counts.parked == 1)  # type: ignore[union-attr]
        eventually(lambda: messages(setting.broker, setting.topic("-s-DLQ")))
    assert sorted(seen) == [(len(NOISE), "ready"), (9_000_000, "ready"), (9_000_000, "retrying")]
    [letter] = messages(setting.broker, setting.topic("-s-DLQ"))
    assert letter.data() == b"z" * 9_000_000
    assert (letter.partition_key(), letter.ordering_key(), letter.event_timestamp()) == ("k", "o", 7)
    assert {"uid": "u", "ü": "ß", "kodo-reason": "ValueError"}.items() <= letter.properties().items()
    assert f"will not take it: too big, {TOO_LARGE}; it stays unacknowledged" in caplog.text


def test_many_that_fit_one_by_one_are_not_too_big_together(setting: Setting) -> None:
    """The broker measures whole batches: one beyond the limit would have the client connect again for ever."""
    setting.declare(
        "in_place: [], states: [], concurrency: 16, dead_letter: {max_message_size: 66KiB}", comment=TOO_SMALL
    )
    _cap(setting, "-s-DLQ", 66 << 10)

    def handle(_: Message) -> None:
        raise ValueError

    with setting.producer() as producer:
        for _ in range(60):
            producer.post(b"x" * 20_000, properties={"uid": "u"})
    with setting.worker(handle):
        eventually(lambda: not backlog(setting.broker, setting.topic(), "s"), within=40)
    assert _dead(setting) == [(20_000, "ValueError")] * 60


def test_what_a_states_schema_refuses_dies_and_comes_back_no_more(setting: Setting) -> None:
    """Somebody puts a schema on a state topic while the worker runs: its producer cannot connect again."""
    setting.declare("in_place: [], retrying: {delays: [1s]}")
    seen: list[bytes] = []

    def handle(message: Message) -> None:
        seen.append(message.data)
        if message.data != b"good":
            raise ValueError

    path = setting.topic("-s-RETRYING").replace("://", "/")
    schema = path.replace("persistent/", "schemas/")
    with setting.producer() as producer, setting.worker(handle):
        producer.send(b"good", properties={"uid": "u"})
        eventually(lambda: seen == [b"good"])
        assert setting.broker.admin("POST", f"{schema}/schema", STRING).ok
        assert setting.broker.admin("POST", f"{path}/schemaValidationEnforced", True).ok
        eventually(lambda: setting.broker.admin("GET", f"{path}/schemaValidationEnforced").json() is True)
        unload(setting.broker, setting.topic("-s-RETRYING"))
        time.sleep(0.5)
        producer.send(b"bad", properties={"uid": "u"})
        eventually(lambda: not backlog(setting.broker, setting.topic(), "s"), within=60)
    assert _dead(setting) == [(3, "refused by its target: its schema does not fit")]
