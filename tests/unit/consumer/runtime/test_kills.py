"""`kodo_consumer.testing.kills`: a handler that does its work twice after a crash is found, one that does not passes."""

from __future__ import annotations

import gc
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
from kodo_consumer import Consumer, Dead, Message
from kodo_consumer.testing import kills

from tests.unit.consumer.topologies import write

pytestmark = pytest.mark.usefixtures("few_objects")  # behind each kill garbage is collected
TOPICS = """
  orders:
    subscriptions:
      billing: {in_place: [], retrying: {delays: [10s], attempts: 2}}
"""


@pytest.fixture
def consumer(tmp_path: Path) -> Consumer:
    return Consumer.load(write(tmp_path, TOPICS), topic="orders", subscription="billing", environ={})


def test_a_handler_that_pays_first_and_notes_it_afterwards_pays_twice(consumer: Consumer) -> None:
    paid: list[int] = []
    noted: set[int] = set()

    @consumer.handler
    def pay(message: Message) -> None:
        order = message.json()["id"]
        if order in noted:
            return
        paid.append(order)
        noted.add(order)

    twice = []
    for kill in kills(consumer, {"id": 1}, {"id": 2}):
        assert set(paid) == {1, 2}, kill
        assert max(kill.runs.values()) <= 2
        if len(paid) > 2:
            twice.append(str(kill))
        paid.clear()
        noted.clear()
    assert len(twice) == 2
    assert all(text.startswith("killed at test_kills.py:") and text.endswith(", in pay") for text in twice)


def test_a_handler_that_remembers_its_messages_is_run_anew_for_every_kill(consumer: Consumer) -> None:
    paid: list[int] = []
    noted: set[str] = set()

    @consumer.handler
    def pay(message: Message) -> None:
        if message.id not in noted:
            noted.add(message.id)
            paid.append(message.json()["id"])

    effects = []
    for kill in kills(consumer, {"id": 1}):
        effects.append((str(kill), list(paid)))
        paid.clear()
        noted.clear()
    assert effects[0] == ("not killed", [1])
    assert effects[1] == ("killed when the broker had been heard: messages, receipts", [1])
    assert [kill for kill, done in effects if not done], "noted before it is paid: killed between, it is never paid"


def test_one_transaction_for_effect_and_note_pays_once_wherever_it_is_killed(
    consumer: Consumer, tmp_path: Path
) -> None:
    file = tmp_path / "ledger.db"
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE paid (id INTEGER)")
    database.execute("CREATE TABLE noted (id TEXT PRIMARY KEY)")

    @consumer.handler
    def pay(message: Message) -> None:
        connection = sqlite3.connect(file)
        try:
            with connection:
                connection.execute("INSERT INTO noted VALUES (?)", (message.id,))
                connection.execute("INSERT INTO paid VALUES (?)", (message.json()["id"],))
        except sqlite3.IntegrityError:
            return

    steps = Counter[str]()
    for kill in kills(consumer, {"id": 1}, {"id": 2}):
        assert sorted(database.execute("SELECT id FROM paid")) == [(1,), (2,)], kill
        steps[kill.step.partition(" at ")[0].split(":")[0]] += 1
        with database:
            database.execute("DELETE FROM paid")
            database.execute("DELETE FROM noted")
    database.close()
    assert sum(steps.values()) >= 2 * 6
    assert {"before the handler", "after the handler, before its outcome is told", "between two messages"} <= set(steps)


def test_async_handlers_retries_and_dead_letters_are_killed_too(consumer: Consumer) -> None:
    @consumer.handler
    async def fail(message: Message) -> None:
        try:
            if message.attempt == 3:
                raise Dead("third time")
            raise ValueError
        finally:
            assert message.attempt

    seen = []
    for kill in kills(consumer, b"x", key="k", properties={"uid": "u"}):
        assert len(kill.dead_letters) in (1, 2), kill  # killed after it was published: once more
        assert kill.dead_letters[0].properties["uid"] == "u"
        assert 3 <= kill.runs[b"x"] <= 6, kill
        seen.append(kill.step)
    assert any("in fail" in step for step in seen)


def test_nothing_of_a_killed_handler_goes_on_in_except_and_finally(consumer: Consumer) -> None:
    done: list[str] = []

    def work() -> None:
        try:
            done.append("work")
            done.append("more work")
        finally:
            note("cleared up")

    def note(what: str) -> None:
        done.append(what)

    @consumer.handler
    async def handle(message: Message) -> None:
        try:
            try:
                work()
            except BaseException:
                note("failed")
                raise
        finally:
            done.append("ended")

    whole = ["work", "more work", "cleared up", "ended"]
    killed = 0
    for kill in kills(consumer, b"x"):
        first = done[: len(done) - len(whole)]
        assert done == first + whole, kill
        assert first == whole[: len(first)], kill
        killed += kill.step.startswith("at test_kills.py:")
        done.clear()
    assert killed >= 8
    assert sys.getprofile() is None


class Billing:
    def __call__(self, message: Message) -> None:
        assert message.attempt


def bill(message: Message, at: int) -> None:
    assert message.attempt < at


@pytest.mark.parametrize(
    "handler", [Billing(), Billing().__call__, partial(bill, at=9)], ids=["object", "method", "partial"]
)
def test_every_kind_of_handler_is_killed_at_its_lines(consumer: Consumer, handler: Callable[[Message], None]) -> None:
    consumer.handler(handler)
    assert any(kill.step.startswith("at test_kills.py:") for kill in kills(consumer, b"x"))


@pytest.mark.filterwarnings("error")
def test_lifespans_end_with_their_process(consumer: Consumer, caplog: pytest.LogCaptureFixture) -> None:
    opened: list[str] = []
    ended: list[str] = []

    @consumer.lifespan
    async def connection() -> AsyncIterator[None]:
        opened.append("")
        yield
        ended.append("")

    @consumer.handler
    async def handle(message: Message) -> None:
        assert message.attempt

    for kill in kills(consumer, b"x"):
        assert (len(opened), len(ended)) == (2 if kill.step else 1, 1), kill
        opened.clear()
        ended.clear()
        gc.collect()
    assert not caplog.records


def test_batches_are_killed_as_a_whole(consumer: Consumer) -> None:
    done: Counter[bytes] = Counter()

    @consumer.batch_handler(max=2)
    def handle(messages: list[Message]) -> None:
        for message in messages:
            done[message.data] += 1

    for kill in kills(consumer, b"1", b"2", b"3"):
        assert set(done) == {b"1", b"2", b"3"}, kill
        assert max(done.values()) <= 2, kill
        done.clear()


def test_what_never_ends_is_said_to_be_endless(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    from kodo_consumer import Unavailable

    monkeypatch.setattr("kodo_consumer.testing.crash_injection._MOST_LEAPS", 20)

    @consumer.handler
    def wait(message: Message) -> None:
        raise Unavailable("psp")

    with pytest.raises(AssertionError, match=r"killed nowhere, and it never comes to an end: .*orders': 1"):
        list(kills(consumer, b"x"))
