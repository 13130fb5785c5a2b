"""Errors of public calls: without the frames of our modules, and with the file in the command that helps."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from kodo_consumer import Consumer, Producer
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.outbox import Outbox
from kodo_consumer.producer import Draft, SendManyError
from kodo_consumer.runtime.readable_errors import ReadableErrors
from kodo_consumer.testing import MemoryBroker

from kodoctl.errors import ClusterError, KodoctlError, UsageError, error
from tests.unit.consumer.topologies import write

TOPIC = "persistent://p/n/J"


def _raised(call: Callable[[], object]) -> KodoctlError:
    with pytest.raises(KodoctlError) as raised:
        call()
    return raised.value


def _frames(problem: BaseException) -> list[str]:
    """Names of the functions in a traceback, without those of the test."""
    names = [frame.name for frame in traceback.extract_tb(problem.__traceback__)]
    return names[names.index("<lambda>") + 1 :]


def _producer() -> Producer:
    broker = MemoryBroker(SystemClock())
    broker.create(TOPIC)
    return Producer(TOPIC, broker)


def test_the_advised_command_names_the_file_where_it_is_known() -> None:
    def fail(file: str | None) -> None:
        with ReadableErrors(file):
            raise ClusterError(error("K710", "topic not found", "a: `kodoctl apply FILE` creates it"))

    assert "`kodoctl apply shop.yaml` creates it" in str(_raised(lambda: fail("shop.yaml")))
    assert "`kodoctl apply shop.yaml` creates it" in _raised(lambda: fail("shop.yaml")).diagnostics[0].detail
    assert "`kodoctl apply FILE` creates it" in str(_raised(lambda: fail(None)))


def test_other_errors_keep_their_frames() -> None:
    def fail() -> None:
        with ReadableErrors("shop.yaml"):
            int("x")

    with pytest.raises(ValueError, match="invalid literal") as raised:
        fail()
    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)][1:] == ["fail"]


def test_a_load_and_a_start_that_fail_show_no_frames_of_ours(tmp_path: Path) -> None:
    path = write(tmp_path, "  J: {subscriptions: {s: {}}}\n")
    consumer = Consumer.load(path, admin_url="http://127.0.0.1:1", environ={})
    consumer.handler(lambda message: None)
    for call in (
        lambda: consumer.start(),  # noqa: PLW0108  # the frame of the caller
        lambda: Consumer.load(tmp_path / "none.yaml", environ={}),
        lambda: Producer.load(tmp_path / "none.yaml", environ={}),
        lambda: Outbox.load(tmp_path / "none.yaml", environ={}),
    ):
        problem = _raised(call)
        assert _frames(problem) == []
        assert problem.__suppress_context__


def test_a_message_that_is_refused_shows_the_line_that_sent_it_and_nothing_of_ours() -> None:
    producer = _producer()
    refused = object()
    for call in (
        lambda: producer.send(refused),
        lambda: producer.post(refused),
        lambda: producer.send_many([refused]),
    ):
        problem = _raised(call)
        assert _frames(problem) == []
        assert "K716" in str(problem)

    async def send() -> None:
        await producer.send_async(refused)

    problem = _raised(lambda: asyncio.run(send()))
    assert _frames(problem)[-1] == "send", "the caller of send_async"
    producer.close()
    problem = _raised(lambda: producer.flush())  # noqa: PLW0108
    assert _frames(problem) == []


def test_send_many_keeps_the_error_of_each_message_and_the_cause() -> None:
    producer = _producer()

    def messages() -> Any:
        yield object()
        raise OSError("file ends here")

    problem = _raised(lambda: producer.send_many(messages()))
    assert isinstance(problem, SendManyError)
    assert list(problem.failures) == [0]
    assert isinstance(problem.__cause__, OSError)


def test_a_row_that_is_refused_shows_the_line_that_added_it_and_nothing_of_ours() -> None:
    outbox, engine = Outbox(), sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection:
        added = _raised(lambda: outbox.add(connection, topic="J", payload=object()))
    stated = _raised(lambda: outbox.statement("oracle", topic="J", payload=b""))
    assert (_frames(added), _frames(stated)) == ([], [])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("delai", "has no option delai; did you mean delay?"),
        ("zz", "has no option zz; there is key, ordering_key, properties, event_time, delay, deliver_at, id"),
    ],
)
def test_an_option_that_does_not_exist_is_named_with_the_call(name: str, text: str) -> None:
    producer = _producer()
    options: Any = {name: 1}
    for call, start in (
        (lambda: producer.send(b"", **options), "K730 error not an argument of a message: send() "),
        (lambda: producer.post(b"", **options), "K730 error not an argument of a message: post() "),
        (lambda: producer.send_many([b""], **options), "K730 error not an argument of a message: send_many() "),
        (
            lambda: asyncio.run(producer.send_async(b"", **options)),
            "K730 error not an argument of a message: send_async() ",
        ),
    ):
        assert str(_raised(call)) == start + text
    problem = _raised(lambda: producer.send_many([Draft(b"", **options)]))
    assert isinstance(problem, SendManyError)
    assert f"[0] K730 error not an argument of a message: send_many() {text}" in str(problem)


def test_a_closed_producer_names_the_call() -> None:
    producer = _producer()
    producer.close()
    with pytest.raises(UsageError, match="send: this producer is closed"):
        producer.send(b"")
    with pytest.raises(UsageError, match="post: this producer is closed"):
        producer.post(b"")
