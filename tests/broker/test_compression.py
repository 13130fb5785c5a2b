"""Compression on the real broker: every sender of a family uses the file's algorithm, by what the broker stored."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from kodo_consumer import Consumer, Dead, Message, Pending, Producer, Retry, Transfer
from kodo_consumer.inbox import Inbox
from kodo_consumer.outbox import TABLE, Outbox
from kodo_pipeline.recall.send_job import SendTask
from sqlalchemy import create_engine

from kodoctl.cli.letters.recall_apply import _read_plan
from kodoctl.errors import UsageError
from kodoctl.pulsar.connection.connection import Connection
from tests.broker.recalling import Recalls
from tests.brokers.topics import algorithms
from tests.brokers.workspace import Workspace
from tests.services.polling import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timed]
BILLING = "audit: true, produces: [shipments], in_place: [], retrying: {delays: [1s]}, pending: {delays: [1h]}"
TOPICS = f"""
orders:
  compression: lz4
  levels: double
  subscriptions: {{billing: {{{BILLING}}}}}
shipments:
  compression: snappy
  subscriptions: {{tracking: {{states: [], dead_letter: false}}}}
plain:
  subscriptions: {{reading: {{states: [], dead_letter: false}}}}
"""
LIMITED = """
orders:
  compression: {}
  policies: {{max_message_size: 66KiB}}
  state_policies: {{max_message_size: 72KiB}}
  subscriptions: {{billing: {{dead_letter: {{max_message_size: 72KiB}}}}}}
"""
NAMES = ("retry", "pending", "dead", "transfer")
PAD = "x" * 2_000
NOISE = random.Random(7).randbytes(66 << 10)  # no compression makes it smaller
RELAY = "from kodo_consumer.cli.main import main; main()"


def stored(workspace: Workspace, local: str) -> Counter[str]:
    """Algorithm -> entries that the broker stored with it in the topic's only partition."""
    return algorithms(workspace.broker, f"{workspace.path(local)}-partition-0")


def file_of(workspace: Workspace) -> Path:
    return workspace.folder / "topologies/trade.yaml"


def handle(message: Message) -> None:
    """What a message asks for, once in each lane."""
    payload = bytes(message.data)
    if b"retry" in payload and message.state == "ready":
        raise Retry("1s")
    if b"pending" in payload and message.state == "ready":
        raise Pending("1h")
    if b"dead" in payload:
        raise Dead
    if b"transfer" in payload:
        raise Transfer("shipments")


@contextmanager
def worker(workspace: Workspace, inbox: Inbox | None = None) -> Iterator[Consumer]:
    consumer = Consumer.load(
        file_of(workspace), topic="orders", subscription="billing", **workspace.broker.client_options
    )
    consumer.handler(inbox=inbox)(handle)
    consumer.start()
    try:
        yield consumer
    finally:
        consumer.stop()


def relay(workspace: Workspace) -> None:
    """A row goes through the outbox: its relay is a process of its own."""
    url = f"sqlite:///{workspace.folder}/outbox.db"
    engine = create_engine(url)
    TABLE.create(engine)
    with engine.begin() as connection:
        Outbox.load(file_of(workspace), app="test", environ={}).add(connection, topic="orders", payload={"pad": PAD})
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            RELAY,
            "outbox",
            "run",
            str(file_of(workspace)),
            "--until-empty",
            *workspace.connection(),
        ],
        env={**os.environ, "KODO_CONSUMER_OUTBOX_URL": url, "KODOCTL_ENV": ""},
        cwd=workspace.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_sender_of_a_family_compresses_as_the_file_says(workspace: Workspace) -> None:
    recalls = Recalls(workspace, TOPICS)
    file, place = file_of(workspace), workspace.broker.client_options
    with Producer.load(file, topic="orders", **place) as producer:
        producer.send({"do": "nothing", "pad": PAD})
        producer.send_many([{"do": name, "pad": PAD} for name in NAMES])
        producer.send(b"dead" + b"z" * 6_000_000)
    with Producer.load(file, topic="orders", level="L2", **place) as producer:
        producer.send({"do": "retry", "pad": PAD})
    with Producer.load(file, topic="plain", **place) as producer:
        producer.send({"pad": PAD})
    relay(workspace)
    workspace.run("send", "orders", f'{{"pad": "{PAD}"}}', "--topology", str(file))
    with worker(workspace):
        eventually(lambda: len(recalls.stored("orders-billing-DLQ")) == 2)
        for local in ("shipments", "orders-billing-PENDING", "orders-billing-RETRYING", "orders-L2-billing-RETRYING"):
            eventually(partial(recalls.stored, local))
    for local in ("orders", "orders-L2", "orders-billing-RETRYING", "orders-L2-billing-RETRYING"):
        assert set(stored(workspace, local)) == {"LZ4"}, local
    for local in ("orders-billing-PENDING", "orders-billing-DLQ", "orders-billing-AUDIT"):
        assert set(stored(workspace, local)) == {"LZ4"}, local
    assert set(stored(workspace, "shipments")) == {"SNAPPY"}
    assert set(stored(workspace, "plain")) == {"NONE"}
    _recalled(recalls)


def test_moves_out_of_an_inbox_are_compressed_as_the_file_says(workspace: Workspace) -> None:
    recalls = Recalls(workspace, TOPICS)
    with Producer.load(file_of(workspace), topic="orders", **workspace.broker.client_options) as producer:
        producer.send_many([{"do": name, "pad": PAD} for name in NAMES])
    inbox = Inbox(f"sqlite:///{workspace.folder}/inbox.db")
    inbox.create_table()
    with worker(workspace, inbox):
        for local in ("shipments", "orders-billing-PENDING", "orders-billing-RETRYING", "orders-billing-DLQ"):
            eventually(partial(recalls.stored, local))
    for local in ("orders-billing-PENDING", "orders-billing-RETRYING", "orders-billing-DLQ"):
        assert set(stored(workspace, local)) == {"LZ4"}, local
    assert set(stored(workspace, "shipments")) == {"SNAPPY"}


def _recalled(recalls: Recalls) -> None:
    """Letters go back by one process and by a task of Spark's, and a waiting message is released."""
    workspace = recalls.workspace
    before = stored(workspace, "orders-billing-RETRYING").total()
    recalls.plan("payload.do = 'dead'")
    assert recalls.apply()["sent"] == 1
    recalls.plan(file="rest.json")
    broker = workspace.broker
    task = SendTask(
        _read_plan(str(workspace.folder / "rest.json"), waiting=False),
        Connection(admin_url=broker.admin_url, broker_url=broker.broker_url),
        str(workspace.folder / "ledger"),
        None,
        1_000.0,
        "test",
        None,
        compression={workspace.full("orders-billing-RETRYING"): "lz4"},
    )
    assert task.run().sent == 1
    assert stored(workspace, "orders-billing-RETRYING") == Counter({"LZ4": before + 2})
    lane = ["topologies", "--topic", "orders", "--subscription", "billing", "--lane", "L1/pending", "--where", "true"]
    workspace.run("waiting", "plan", *lane, "--out", "w.json")
    workspace.run("waiting", "apply", "w.json")
    assert stored(workspace, "orders-billing-PENDING") == Counter({"LZ4": 2})


@pytest.mark.parametrize("algorithm", ["lz4", "zlib", "zstd", "snappy"])
def test_a_maximum_of_the_topics_own_counts_for_what_is_stored(workspace: Workspace, algorithm: str) -> None:
    """What is larger uncompressed goes by zlib, and noise that compression makes larger goes as it is."""
    recalls = Recalls(workspace, LIMITED.format(algorithm))
    tight = NOISE[: (66 << 10) - 400]
    payloads = [b"dead small", b"dead" + b"z" * 200_000, b"dead" + tight, b"dead" + NOISE[:40_000]]
    with Producer.load(file_of(workspace), topic="orders", **workspace.broker.client_options) as producer:
        producer.send_many(payloads)
        with pytest.raises(UsageError, match="K729"):
            producer.send(NOISE)
        producer.send(b"dead last")
    with worker(workspace):
        eventually(lambda: len(recalls.stored("orders-billing-DLQ")) == 5, within=60)
    letters = [one.payload for one in recalls.stored("orders-billing-DLQ")]
    assert sorted(map(bytes, letters)) == sorted([*payloads, b"dead last"])  # type: ignore[arg-type]
    found, name = stored(workspace, "orders"), algorithm.upper()
    assert found["NONE"] == 1
    assert found["ZLIB"] >= 1
    assert found[name] >= 3
    assert set(found) == {name, "ZLIB", "NONE"}
