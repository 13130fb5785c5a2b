"""`kodoctl peek --follow` on the real broker: each message once, through unloads, new partitions and lost connections."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager

import pytest
from kodo_consumer import Producer

from kodoctl.errors import UsageError
from kodoctl.pulsar.binary import topic_follower
from kodoctl.pulsar.binary.message_reader import ReadMessage, Unread, partitions_of, read_facts
from kodoctl.pulsar.binary.topic_follower import TopicFollower
from kodoctl.pulsar.connection.connection import Connection
from kodoctl.pulsar.session import Session
from kodoctl.topology.names import TopicName
from tests.brokers.topics import unload
from tests.brokers.wire_producer import WireProducer, numeric, wire_metadata
from tests.brokers.workspace import Workspace

pytestmark = pytest.mark.broker


def send(workspace: Workspace, topic: str, *payloads: str, uid: str = "u") -> None:
    """Stores messages, those of one call in one batch for each partition."""
    (workspace.folder / "lines").write_text("\n".join(payloads), encoding="utf-8")
    workspace.run("send", workspace.full(topic), "--lines", "--file", "lines", "--property", f"uid={uid}")


@contextmanager
def following(workspace: Workspace, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that follows; the body begins when it has shown what was there."""
    process = workspace.process("peek", "--follow", *arguments)
    assert process.stderr is not None
    line = ""
    while "Ctrl-C ends it" not in line:
        line = process.stderr.readline()
        assert line, process.communicate()
    yield process
    process.kill()


def previews(process: subprocess.Popen[str], count: int) -> list[str]:
    """Payloads of the next lines of JSON."""
    assert process.stdout is not None
    return [json.loads(process.stdout.readline())["preview"] for _ in range(count)]


def test_json_is_a_line_for_each_message_that_was_there_or_comes_and_meets_the_condition(workspace: Workspace) -> None:
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    workspace.make_topic("orders", 3)
    workspace.make_topic("bills")
    send(workspace, "orders", "a", "b", "c")
    send(workspace, "bills", "x")
    send(workspace, "bills", "no", uid="other")
    topics = [workspace.full("orders"), workspace.full("bills")]
    with following(workspace, *topics, "--json", "--where", "properties['uid'] = 'u'") as process:
        assert sorted(previews(process, 4)) == ["a", "b", "c", "x"]
        for number in range(3):
            send(workspace, "orders", "no", uid="other")
            send(workspace, "orders", f"{number}")
            assert previews(process, 1) == [f"{number}"]
            unload(workspace.broker, workspace.full("orders"))
        send(workspace, "bills", "y")
        assert previews(process, 1) == ["y"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, "")
        assert "Traceback" not in err
    for topic in ("orders", "bills"):
        assert workspace.subscriptions(topic) == [set()] * workspace.topics()[topic], "nothing was consumed"


def test_text_is_a_block_for_each_message_without_marks_of_producers(workspace: Workspace) -> None:
    file = workspace.topology("orders: {subscriptions: {billing: {states: [], dead_letter: false}}}")
    workspace.apply(str(file))
    place = workspace.broker.client_options
    with Producer.load(file, topic="orders", **place) as producer:
        producer.send(b"before")
    with following(workspace, workspace.full("orders"), "--limit", "5") as process:
        with Producer.load(file, topic="orders", **place) as producer:
            producer.send(b"during")
        send(workspace, "orders", "after")
        seen = ""
        while "  after" not in seen:
            assert process.stdout is not None
            seen += process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    assert [line for line in seen.splitlines() if line in ("  before", "  during", "  after")] == [
        "  before", "  during", "  after",
    ]  # fmt: skip
    assert "1 message of 1 read; beside them 1 mark of producers. Nothing was consumed." in seen
    assert "nobody handles it" not in seen
    assert max(map(len, seen.splitlines())) <= 80


def test_a_reader_of_its_output_that_leaves_ends_it_well(workspace: Workspace) -> None:
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    workspace.make_topic("orders")
    send(workspace, "orders", "a", "b")
    with following(workspace, workspace.full("orders"), "--json", "--limit", "1") as process:
        assert previews(process, 1) == ["a"]
        assert process.stdout is not None
        process.stdout.close()
        send(workspace, "orders", "c")
        assert process.wait(timeout=30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


class Followed:
    """A follower of one topic in this process, and what it told."""

    def __init__(self, workspace: Workspace, topic: str) -> None:
        connection = Connection(workspace.broker.admin_url, workspace.broker.broker_url)
        self.session, self.notices = Session(connection), list[str]()
        self.name = TopicName.parse(workspace.full(topic))
        self.unread = Unread(self.session.admin, self.session.client)

    def messages(self) -> Generator[tuple[TopicName, ReadMessage]]:
        admin = self.session.admin
        places = [(self.name, read_facts(admin, part)) for part in partitions_of(admin, self.name)]
        return TopicFollower(admin, self.session.client, self.unread, self.notices.append).follow(places)


def test_new_partitions_are_read_from_their_beginning_and_a_deleted_topic_ends_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_follower, "_GROWTH_EVERY", 0.2)
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    workspace.make_topic("orders")
    followed = Followed(workspace, "orders")
    with followed.session:
        messages = followed.messages()
        send(workspace, "orders", "old")
        assert next(messages)[1].payload == b"old", "stored after the facts were read"
        workspace.admin("POST", f"{workspace.path('orders')}/partitions", 3)
        send(workspace, "orders", *map(str, range(30)))
        found = {next(messages)[1].payload for _ in range(30)}
        assert found == {f"{number}".encode() for number in range(30)}
        assert sorted(followed.notices) == [
            f"New partition: {workspace.full('orders')}-partition-{index}" for index in (1, 2)
        ]
        workspace.admin("DELETE", f"{workspace.path('orders')}/partitions", force="true")
        with pytest.raises(UsageError, match="K560"):
            next(messages)


@pytest.mark.parametrize("limit", ["_LOST_AFTER", "_REPLACED_AFTER"])
def test_through_lost_connections_each_message_comes_once(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """A loss is told, and a reader that replaces another goes on behind the last message, also within a batch."""
    monkeypatch.setattr(topic_follower, limit, 0.0)
    monkeypatch.setattr(topic_follower, "_LOOK_EVERY", 0.01)
    opened = list[str]()
    open_ = TopicFollower._open
    monkeypatch.setattr(TopicFollower, "_open", lambda self, one: (opened.append(one.part), open_(self, one)))
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    workspace.make_topic("orders")
    send(workspace, "orders", "0", "1", "2")
    followed = Followed(workspace, "orders")
    with followed.session, closing(followed.messages()) as messages:
        for number in range(3, 60, 3):
            unload(workspace.broker, workspace.full("orders"))
            lines = [f"{number + more}" for more in range(3)]
            later = threading.Timer(0.5, send, (workspace, "orders", *lines))
            later.start()
            assert [next(messages)[1].payload for _ in range(3)] == [line.encode() for line in lines]
            later.join()
            if "Connected again" in "".join(followed.notices) or len(opened) > 1:
                break
    told = [
        f"{what}: {workspace.full('orders')}-partition-0"
        for what in ("Connection lost, waiting for a broker", "Connected again")
    ]
    assert followed.notices[:2] == (told if limit == "_LOST_AFTER" else [])
    assert (len(opened) > 1) is (limit == "_REPLACED_AFTER")
    assert followed.unread.runs == {}


def test_entries_that_cannot_be_read_are_told_when_they_are_passed_and_at_the_end(workspace: Workspace) -> None:
    workspace.admin("PUT", f"namespaces/{workspace.namespace}")
    workspace.make_topic("orders")
    topic = workspace.full("orders")
    send(workspace, "orders", "a")
    with following(workspace, topic, "--json") as process:
        assert previews(process, 1) == ["a"]
        with WireProducer(workspace.broker.broker_url, f"{topic}-partition-0") as producer:
            (ledger, entry) = producer.send(wire_metadata(numeric(8, 2) + numeric(9, 5)), b"no zlib")
        send(workspace, "orders", "b")
        assert previews(process, 1) == ["b"]
        assert process.stderr is not None
        told = f"{topic}-partition-0: 1 entry cannot be read by the client library: {ledger}:{entry}"
        assert process.stderr.readline() == f"{told}\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "messages cannot be read [K561]" in err
        assert told in " ".join(err.split())
