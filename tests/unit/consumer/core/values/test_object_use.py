"""Use of what applications hold where it cannot work: one error, at once, and no message without a word about it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kodo_consumer import Consumer, Message, Producer, run_all
from kodo_consumer.core.values.broker import Confirmed, Receipt, Unconfirmed
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.object_use import ObjectUse
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.dedup import advance, forget, issue_token, take_token
from kodo_consumer.outbox import TABLE, Outbox
from kodo_consumer.testing import Harness, MemoryBroker, message
from sqlalchemy import create_engine

from kodoctl.errors import ClusterError, UsageError
from tests.services.polling import eventually
from tests.unit.consumer.pump import Pump
from tests.unit.consumer.runtime.worker_place import MemoryCluster
from tests.unit.consumer.topologies import write

TOPIC = "persistent://p/n/orders"
TOPICS = "  orders: {subscriptions: {s: {states: [], in_place: [], dead_letter: false}}}\n"
AT_ONCE = 45.0  # seconds: a receipt is awaited for 90


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    found = MemoryBroker(SystemClock())
    found.create(TOPIC, ["billing"])
    pump = Pump(found)
    yield found
    pump.stop()


@pytest.fixture
def producer(broker: MemoryBroker) -> Iterator[Producer]:
    found = Producer(TOPIC, broker)
    yield found
    found.close(timeout=1)


@pytest.fixture
def consumer(tmp_path: Path) -> Iterator[Consumer]:
    policy = Consumer.load(write(tmp_path, TOPICS), topic="orders", subscription="s", environ={}).policy
    found = Consumer(policy, lambda: (_broker_for(policy), MemoryCluster(policy)))
    found.handler(_handle)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    consumer = Consumer.load(write(tmp_path, TOPICS), topic="orders", subscription="s", environ={})
    consumer.handler(_handle)
    found = Harness(consumer)
    yield found
    found.close()


def _handle(_: Message) -> None: ...


def _broker_for(policy: Policy) -> MemoryBroker:
    found = MemoryBroker(SystemClock())
    found.create_for(policy)
    return found


def _calls_of_producer(producer: Producer) -> dict[str, Callable[[], Any]]:
    return {
        "send": lambda: producer.send(b"x"),
        "send_async": lambda: asyncio.run(producer.send_async(b"x")),
        "post": lambda: producer.post(b"x"),
        "flush": producer.flush,
        "reload": producer.reload,
        "watch": producer.watch,
    }


def _calls_of_consumer(consumer: Consumer) -> dict[str, Callable[[], Any]]:
    return {
        "start": consumer.start,
        "handler": lambda: consumer.handler(_handle),
        "handler again": lambda: consumer.batch_handler(_handle),  # type: ignore[type-var]
        "take_handler": lambda: consumer.take_handler(_handle),
        "middleware": lambda: consumer.middleware(_handle),  # type: ignore[type-var]
    }


def _calls_of_harness(harness: Harness) -> dict[str, Callable[[], Any]]:
    return {
        "send": lambda: harness.send(b"x"),
        "inject": lambda: harness.inject(b"x"),
        "run": harness.run,
        "step": harness.step,
        "leap": harness.leap,
        "run at once": lambda: harness.advance("1s"),
    }


def _refused(calls: dict[str, Callable[[], Any]], why: str) -> None:
    for name, call in calls.items():
        start = time.monotonic()
        with pytest.raises(UsageError, match=rf"K731 .*{name.split()[0]}: .*{why}"):
            call()
        assert time.monotonic() - start < AT_ONCE, name


def _in_child(work: Callable[[], object]) -> str:
    """Runs it in a forked process; what went wrong there."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        told = b"it did not end"
        try:
            work()
            told = b""
        except BaseException as problem:  # noqa: BLE001 - the parent tells it
            told = repr(problem).encode()
        finally:
            os.write(writing, told)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = pipe.read().decode()
    os.waitpid(child, 0)
    return found


def test_what_was_closed_says_so(producer: Producer, harness: Harness) -> None:
    producer.close()
    producer.close()
    _refused(_calls_of_producer(producer), "this producer is closed")
    harness.close()
    harness.close()
    _refused(_calls_of_harness(harness), "this harness is closed")
    assert harness.dead_letters == []


def test_what_needs_its_threads_says_so_in_a_forked_process(producer: Producer, consumer: Consumer) -> None:
    waiting: dict[str, Callable[[], Any]] = {"wait": partial(consumer.wait, 0), "reload": consumer.reload}
    calls = (_calls_of_producer(producer), _calls_of_consumer(consumer) | waiting)
    assert (
        _in_child(lambda: [_refused(one, "was made in another process; make one after the fork") for one in calls])
        == ""
    )
    assert producer.send(b"x"), "the one who made it goes on"
    assert not consumer.wait(0)


def test_leaving_is_no_error_in_a_forked_process_and_ends_nothing_there(producer: Producer, consumer: Consumer) -> None:
    assert _in_child(lambda: (producer.close(), consumer.stop())) == ""
    assert producer.send(b"x")
    assert not consumer.wait(0)


def test_what_holds_no_connection_works_in_a_forked_process(harness: Harness, tmp_path: Path) -> None:
    outbox = Outbox()

    def work() -> None:
        engine = create_engine(f"sqlite:///{tmp_path}/app.db")
        TABLE.create(engine)
        with engine.begin() as connection:
            assert outbox.add(connection, topic="orders", payload=b"x")
        harness.send(b"x")
        harness.run()
        assert harness.counts.done == 1

    assert _in_child(work) == ""


def test_a_consumer_that_runs_takes_nothing_that_it_would_not_use(consumer: Consumer) -> None:
    _refused(_calls_of_consumer(consumer), "runs already; do it before it starts")
    consumer.stop()
    consumer.stop()
    assert consumer.wait(0)
    consumer.handler(_handle)
    consumer.start()


def test_a_consumer_that_was_never_started_cannot_be_awaited_nor_stopped(tmp_path: Path) -> None:
    idle = Consumer.load(write(tmp_path, TOPICS), topic="orders", subscription="s", environ={})
    _refused({"stop": idle.stop, "wait": idle.wait}, "was not started")
    idle.reload()


def test_only_the_main_thread_may_run_for_signals_reach_no_other(consumer: Consumer) -> None:
    found: list[BaseException] = []

    def work() -> None:
        for run in (consumer.run, partial(run_all, consumer)):
            try:
                run()
            except UsageError as problem:
                found.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [str(one).count("K731 ") for one in found] == [1, 1]


def test_nobody_waits_in_a_callback_for_what_only_its_thread_can_bring(producer: Producer) -> None:
    problems: list[str] = []
    posted = threading.Event()

    def on_receipt(_: Receipt) -> None:
        for call in (lambda: producer.send(b"x"), producer.flush, producer.close):
            try:
                call()
            except UsageError as problem:
                problems.append(str(problem))
        producer.post(b"more", lambda _: posted.set())

    start = time.monotonic()
    producer.post(b"x", on_receipt)
    assert posted.wait(AT_ONCE), "posting is allowed there"
    assert time.monotonic() - start < AT_ONCE
    assert len(problems) == 3
    assert all("K731 " in one and "would wait for itself" in one for one in problems)
    producer.flush()


def test_every_message_has_its_call_when_the_producer_closes(broker: MemoryBroker) -> None:
    broker.hold_receipts = True
    producer, calls = Producer(TOPIC, broker), dict[int, list[Receipt]]()
    for number in range(5):
        producer.post(b"%d" % number, calls.setdefault(number, []).append)
    waiting = threading.Thread(target=lambda: calls.setdefault(5, []).append(_outcome(producer)))
    waiting.start()
    eventually(lambda: producer.backpressure.pending == 6)
    with pytest.raises(ClusterError, match="6 messages"):
        producer.close(timeout=0.01)
    waiting.join(AT_ONCE)
    assert [calls[number] for number in range(5)] == [[Unconfirmed("no receipt in time")]] * 5
    assert "K715 " in str(calls[5][0])


def _outcome(producer: Producer) -> Any:
    try:
        return producer.send(b"x")
    except ClusterError as problem:
        return problem


def test_a_callback_that_ends_its_thread_costs_no_other_its_call(producer: Producer) -> None:
    found: list[Receipt] = []

    def leave(_: Receipt) -> None:
        raise SystemExit

    producer.post(b"x", leave)
    for _ in range(20):
        producer.post(b"x", found.append)
    producer.flush()
    assert [type(one) for one in found] == [Confirmed] * 20


def test_a_message_that_waited_for_room_while_the_producer_closed_is_not_sent(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.sending.pending_messages.MOST", 1)
    broker.hold_receipts = True
    producer, found = Producer(TOPIC, broker), list[UsageError]()
    producer.post(b"x")

    def wait() -> None:
        with pytest.raises(UsageError) as raised:
            producer.post(b"y")
        found.append(raised.value)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: producer._sender._out._lock._waiters)  # type: ignore[attr-defined]
    with pytest.raises(ClusterError):
        producer.close(timeout=0.01)
    thread.join(AT_ONCE)
    assert "K731 " in str(found[0])
    assert "closed meanwhile; the message was not sent" in str(found[0])


@pytest.mark.parametrize("session", [None, "sqlite://", create_engine("sqlite://"), SimpleNamespace(execute=print)])
def test_what_is_no_session_is_an_error_of_usage(session: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: Outbox().add(session, topic="orders", payload=b"x"),
        lambda: message(b"x").once(session),
        lambda: advance(session, TABLE, {"id": 1}, version=1, values={}),
        lambda: issue_token(session),
        lambda: take_token(session, "t"),
        lambda: forget(session, timedelta(1)),
    ]
    for call in calls:
        with pytest.raises(
            UsageError, match=r"K730 .*session is of type .*, not a session or a connection of SQLAlchemy"
        ):
            call()


def test_a_lane_that_there_is_not_is_an_error_of_usage(harness: Harness) -> None:
    for call in (lambda: harness.inject(b"x", level="L9"), lambda: harness.waiting("L1", "retryed")):
        with pytest.raises(UsageError, match=r"K730 .* is none of its lanes: L1/ready"):
            call()


def test_an_object_without_threads_works_anywhere_until_it_is_closed() -> None:
    use = ObjectUse("thing", anywhere=True)
    assert not use.is_elsewhere
    use.check("call")
    assert use.end()
    assert not use.end()


def test_an_object_of_another_process_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    use = ObjectUse("producer")
    monkeypatch.setattr(os, "getpid", lambda: 0)
    assert use.is_elsewhere
    with pytest.raises(UsageError, match=r"K731 .*send: this producer was made in another process"):
        use.check("send")
