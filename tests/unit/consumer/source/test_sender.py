"""What a sender of a source asks of the broker's numbers, and which numbers it gives away, against a library that keeps
the highest number of each name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pulsar
import pytest
from kodo_consumer.adapters.pulsar.sequenced_producers import SequencedProducer
from kodo_consumer.sending.environment import Environment
from kodo_consumer.source import sender as module
from kodo_consumer.source.identity import PartitionCopies, System
from kodo_consumer.source.positions import Position
from kodo_consumer.source.progress import OpenTransaction
from kodo_consumer.source.row_mapping import MappedMessage
from kodo_consumer.source.runner import EndedError
from kodo_consumer.source.sender import Numbering, SourceSender, UnconfirmedMessage

from kodoctl.errors import UsageError
from kodoctl.pulsar.binary.message_reader import ReadMessage
from kodoctl.topology.change_sources import change_sources
from tests.unit.consumer.topologies import write

TOPIC = "persistent://p/n/orders"
SOURCES = """
sources:
  db:
    database: URL
    tables:
      public.orders: {{topic: {topic}}}
"""
END = 1_000  # of the database's log, when the sender is opened


class Library:
    """The client library's producers, and the numbers of a broker by the name of the producer."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.payloads: list[bytes] = []

    def open(self, _partition: str, name: str | None, _target: object) -> SequencedProducer:
        def send(payload: bytes, done: Callable[[Any, Any], None], sequence_id: int = 0, **_: Any) -> None:
            self.payloads.append(payload)
            self.numbers[name or ""] = sequence_id
            done(pulsar.Result.Ok, SimpleNamespace(ledger_id=lambda: 3))

        return SequencedProducer(
            SimpleNamespace(
                last_sequence_id=lambda: self.numbers.get(name or "", -1), send_async=send, close=lambda: None
            )
        )

    def partitions(self, topic: str) -> list[str]:
        return [topic]

    def close(self) -> None:
        pass


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setattr(module, "SequencedClient", lambda _: library)
    monkeypatch.setattr(module, "is_deduplicating", lambda *_: True)
    monkeypatch.setattr("kodo_consumer.adapters.pulsar.cluster_admin.limits_now", lambda *_: (0, None))
    return library


def opened(folder: Path, settle: Callable[[], None] = lambda: None, topic: str = "orders") -> SourceSender:
    topology = Environment.of(environ={}).topology(write(folder, "  orders: {}\n", SOURCES.format(topic=topic)))
    [source] = change_sources(topology.spec)
    out: set[UnconfirmedMessage] = set()
    return SourceSender(
        connection=cast("Any", None),
        topology=topology,
        source=source,
        system=System("7", 1, END),
        numbering=Numbering(),
        signer=None,
        out=out,
        on_answer=lambda token, _: out.discard(token),
        settle=settle,
        keep_alive=lambda: None,
    )


def sent(sender: SourceSender, position: Position, payload: bytes = b"{}") -> bool:
    return sender.send(MappedMessage("orders", "k", {}, payload), position, 0, OpenTransaction())


def test_a_commit_after_one_with_millions_of_changes_is_sent(library: Library, tmp_path: Path) -> None:
    """Such a commit goes on under another name, and the name of before comes back with the sender's own last number."""
    sender = opened(tmp_path)
    for position in (Position(END + 1, 0), Position(END + 1, 1 << 22), Position(END + 2, 0)):
        assert sent(sender, position)
    assert len(library.payloads) == 3


def test_a_number_that_the_log_has_not_reached_when_the_source_starts_is_no_number_to_go_on_with(
    library: Library, tmp_path: Path
) -> None:
    sent(opened(tmp_path), Position(END + 5, 0))
    with pytest.raises(UsageError, match="the server was restored to an earlier time"):
        sent(opened(tmp_path), Position(END + 6, 0))
    assert len(library.payloads) == 1


def test_the_number_of_a_large_message_that_is_not_sent_is_void(library: Library, tmp_path: Path) -> None:
    """The wait before it may end with the source: without the number in a mark, readers would report a loss."""

    def end() -> None:
        raise EndedError

    sender = opened(tmp_path, settle=end)
    with pytest.raises(EndedError):
        sent(sender, Position(END + 1, 0), b"x" * (600 << 10))
    assert library.payloads == []
    [mark] = sender._home.sequencer.marks(end=True)
    assert (mark.high, mark.void) == (1, ((1, 1),))


def test_a_file_without_the_topics_of_its_tables_is_refused(library: Library, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"K790.*none of the topics"):
        opened(tmp_path, topic="nowhere")
    assert library.payloads == []


@pytest.mark.parametrize(("number", "position"), [(None, 900), (400, 400)])
def test_a_mark_beyond_the_broker_s_number_is_somebody_else_s(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None, position: int
) -> None:
    """It would hide that the slot was moved: a program of its own writes any name into its messages."""
    sender = opened(tmp_path)
    identity = sender._topics.identity
    name = identity.coverage_producer()
    if number is not None:  # the broker has not forgotten it
        library.numbers[name] = number
    marks = [identity.mark_properties(1, 400), identity.mark_properties(400, 900)]

    def read(partition: str, is_enough: Callable[[PartitionCopies, int], bool]) -> PartitionCopies:
        copies = PartitionCopies(identity, partition)
        for entry, properties in enumerate(marks):
            copies.add(ReadMessage(None, 0, 1, entry, -1, b"", properties, "", "", 0, 0, "", producer=name))
        is_enough(copies, 0)
        return copies

    monkeypatch.setattr(sender, "_read", read)
    sender.open_coverage()
    assert sender.read_coverage(1_000, END) == position
