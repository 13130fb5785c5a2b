"""The log of a failure: which message it was, of whom, and what happens to it next, however handlers run."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Dead
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.core.values.outcomes import DeadLettered, DependencyUnavailable, Failed, Outcome
from kodo_consumer.core.values.policy import ErrorTextPolicy
from kodo_consumer.message import Message
from kodo_consumer.runtime.failure_forecast import FailureForecast
from kodo_consumer.runtime.handler_errors import ExceptionReporter
from kodo_consumer.runtime.outcome_log import OutcomeLog
from kodo_consumer.runtime.supervisor import FailureTally
from kodo_consumer.testing import Harness, MemoryBroker

from kodoctl.topology.names import Level, State
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import Bench, delivery, policy
from tests.unit.consumer.pool_handlers import handle
from tests.unit.consumer.runtime.worker_place import MemoryCluster, Place
from tests.unit.consumer.topologies import write

TOPICS = """
  J:
    fair_by: uid
    message_properties: {uid: required}
    subscriptions: {s: {%s}}
"""


async def _later(message: Message) -> None:
    handle(message)


def _batch(messages: list[Message]) -> None:
    for message in messages:
        handle(message)


def _returned(messages: list[Message]) -> list[Exception]:
    return [ValueError("boom") for _ in messages]


DECLARE: dict[str, Callable[[Consumer], Any]] = {
    "threads": lambda consumer: consumer.handler(handle),
    "loop": lambda consumer: consumer.handler(_later),
    "batch": lambda consumer: consumer.batch_handler(max=2, wait=5.0)(_batch),
    "processes": lambda consumer: consumer.handler(process=1)(handle),
    "returned": lambda consumer: consumer.batch_handler(max=2, wait=5.0)(_returned),
}
RAISING = [kind for kind in DECLARE if kind != "returned"]


def _log_of_failure(kind: str, folder: Path, more: str, caplog: pytest.LogCaptureFixture) -> str:
    """Log of a consumer of which two messages of one tenant fail."""
    with caplog.at_level(logging.WARNING, "kodo.consumer"), _at_work(DECLARE[kind], folder, more) as (consumer, broker):
        _send(consumer, broker, 2, b"fail:boom")
        broker.step()
        eventually(lambda: "handler failed" in caplog.text and consumer.counts.failed["ValueError"] >= 2)
    return caplog.text


@contextmanager
def _at_work(
    declare: Callable[[Consumer], Any], folder: Path, more: str = ""
) -> Iterator[tuple[Consumer, MemoryBroker]]:
    """A consumer with a handler on a broker in memory; `more`: keys of its subscription."""
    policy = Consumer.load(write(folder, TOPICS % more), topic="J", subscription="s", environ={}).policy
    broker = MemoryBroker(SystemClock())
    broker.create_for(policy)
    consumer = Consumer(policy, lambda: (broker, MemoryCluster(policy)))
    declare(consumer)
    consumer.start()
    yield consumer, broker
    consumer.stop()


def _send(consumer: Consumer, broker: MemoryBroker, count: int, payload: bytes) -> None:
    for number in range(count):
        properties = {"uid": "acme", "kodo-id": f"m{number}"}
        broker.send(Outgoing(consumer.policy.lanes[0].topic, payload, properties))


@pytest.mark.parametrize("kind", RAISING)
def test_a_failure_names_the_message_its_tenant_and_what_happens_next(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed batch ended the worker: the text of its failure was that of one message."""
    said = _log_of_failure(kind, tmp_path, "", caplog)
    others = ", and 1 other message of its batch" if kind == "batch" else ""
    assert f"(p/n/J:s, lane L1/ready, tenant acme, message m0, attempt 1{others}" in said
    assert re.search(r"[;(] ?tried again in about \d", said), said
    assert said.count("ValueError: boom") == 1, "each kind of error once in 10 s"


def test_an_exception_that_a_batch_handler_returns_is_logged_as_if_it_was_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It failed in silence: only counts told of it."""
    said = _log_of_failure("returned", tmp_path, "", caplog)
    failed = "handler failed with ValueError (p/n/J:s, lane L1/ready, tenant acme, message m0, attempt 1; tried again in about "
    assert failed in said
    assert said.count("ValueError: boom") == 1, "each kind of error once in 10 s"


@pytest.mark.parametrize("kind", RAISING)
def test_a_tenant_stays_out_of_the_log_where_texts_are_redacted(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = _log_of_failure(kind, tmp_path, "error_text: {redact: [boom]}", caplog)
    assert "lane L1/ready, message m0, attempt 1" in said
    assert "acme" not in said
    assert "boom" not in said


@pytest.mark.parametrize(
    ("state", "used", "changes", "outcome", "says"),
    [
        (State.READY, 0, {}, Failed("E"), "tried again in about 2 s"),
        (State.READY, 0, {}, DependencyUnavailable("bank"), "tried again in about 1 s"),
        (State.RETRYING, 1, {}, Failed("E"), "tried again in about 1 min from L1/retrying"),
        (State.RETRYING, 99, {}, Failed("E"), "tried again from B1/ready"),
        (State.RETRYING, 99, {"levels": (Level.L1,)}, Failed("E"), "becomes a dead letter"),
        (State.RETRYING, 99, {"levels": (Level.L1,), "dead": False}, Failed("E"), "tried again in about 5 s"),
    ],
)
def test_a_forecast_is_the_decision_of_the_state_machine(
    state: State, used: int, changes: dict[str, Any], outcome: Outcome, says: str
) -> None:
    bench = Bench(policy(**changes))
    bench.give(delivery(kodo_attempts_retrying=used), state=state)
    message = bench.take_one()
    forecast = FailureForecast(lambda: bench.policy)
    assert forecast(message, outcome) == says
    bench.engine.finish(message, Failed("E"))
    assert forecast(message, outcome) == "", "it is no longer the handler's, and what it says may be wrong"


def test_what_waits_for_the_infrastructure_says_what_for_and_when_it_is_tried_again() -> None:
    said: list[str] = []
    bench = Bench(policy())
    bench.give(delivery())
    reporter = ExceptionReporter(None, lambda text, _, __: said.append(text), FailureForecast(lambda: bench.policy))
    reporter.outcome(OSError(errno.ENOSPC, "No space left on device"), bench.take_one())
    (line,) = said
    assert line.endswith("; tried again in about 1 s), its messages wait for: machine (No space left on device)")


def test_ten_failures_of_a_kind_have_an_entry_the_first_with_its_traceback() -> None:
    entries: list[tuple[str, BaseException | None, Mapping[str, object]]] = []
    bench = Bench(policy(fair_by="uid"))
    reporter = ExceptionReporter(None, lambda *entry: entries.append(entry), FailureForecast(lambda: bench.policy))
    bench.give(delivery(uid="acme"))
    message = bench.take_one()
    for _ in range(12):
        reporter.outcome(ValueError("boom"), message)
    reporter.outcome(KeyError("x"), message)
    assert [str(problem) if problem else "" for _, problem, _ in entries] == ["boom", *[""] * 9, "'x'"]
    (text, _, fields), *_ = entries
    assert fields == {
        "error": "ValueError", "subscription": "p/n/t:s", "lane": "L1/ready", "tenant": "acme",
        "message_id": message.id, "attempt": 1, "next_step": "tried again in about 2 s",
    }  # fmt: skip
    assert f"message {message.id}, attempt 1; tried again in about 2 s)" in text


def test_failures_are_counted_by_cause_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    worker = Place(policy()).worker
    tally, failed = FailureTally(worker), worker.counts.failed
    with caplog.at_level(logging.WARNING, "kodo.consumer"):
        tally.tick(100.0)
        failed["ValueError"] += 1
        tally.tick(109.0)
        failed.update({"ValueError": 2, "KeyError": 5} | {f"E{number:02}": 1 for number in range(9)})
        tally.tick(110.0)
        failed["KeyError"] += 1
        tally.tick(120.0)
        tally.tick(130.5)
    (record,) = caplog.records
    causes = "KeyError 5, ValueError 3, " + ", ".join(f"E{number:02} 1" for number in range(8))
    assert record.message == f"p/n/t:s: failed in 10 s: {causes} and 1 other cause"
    assert vars(record)["failed"]["ValueError"] == 3


def _give_up(message: Message) -> None:
    raise Dead(f"no price for\n{message.data.decode()}")


async def _give_up_later(message: Message) -> None:
    _give_up(message)


def _give_up_batch(messages: list[Message]) -> list[Exception]:
    return [Dead(f"no price for\n{message.data.decode()}") for message in messages]


def _defer(message: Message) -> None:
    deferral = message.defer()
    deferral.failed(Dead(f"no price for\n{message.data.decode()}"))


GIVING_UP: dict[str, Callable[[Consumer], Any]] = {
    "threads": lambda consumer: consumer.handler(_give_up),
    "loop": lambda consumer: consumer.handler(_give_up_later),
    "batch": lambda consumer: consumer.batch_handler(max=2, wait=5.0)(_give_up_batch),
    "processes": lambda consumer: consumer.handler(process=1)(handle),
    "deferred": lambda consumer: consumer.handler(_defer),
}


@pytest.mark.parametrize("kind", GIVING_UP)
def test_a_message_that_a_handler_gives_up_is_logged_with_the_reason(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only counts said so: an incident of ten thousand dead letters had no line in the log."""
    with caplog.at_level(logging.WARNING, "kodo.consumer"), _at_work(GIVING_UP[kind], tmp_path) as (consumer, broker):
        _send(consumer, broker, 12, b"dead" if kind == "processes" else b"acme")
        eventually(lambda: broker.step() is not None and consumer.counts.finished["dead"] == 12, every=0.01)
    given_up = [record for record in caplog.records if record.message.startswith("given up")]
    assert len(given_up) == 10, "the others are counted"
    following = "" if kind == "deferred" else "; becomes a dead letter"
    reason = "bad" if kind == "processes" else r"no price for\nacme"
    line = re.escape(f"given up ({reason}): p/n/J:s, lane L1/ready, tenant acme, message m#, attempt 1{following}")
    line = line.replace(re.escape("#"), r"\d+")
    assert all(re.fullmatch(line, record.message) for record in given_up), given_up[0].message
    assert vars(given_up[0])["reason"] == reason


def test_reason_and_tenant_stay_out_of_the_log_where_error_texts_may_be_redacted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(policy(fair_by="uid", error_text=ErrorTextPolicy(100, 100, ("[0-9]{13,16}",))))
    bench.give(delivery(uid="acme"))
    with caplog.at_level(logging.DEBUG, "kodo.consumer"):
        OutcomeLog().write(bench.take_one(), DeadLettered("card 4111111111111111 refused"), bench.policy)
    (record,) = caplog.records
    assert record.message.startswith("given up: p/n/t:s, lane L1/ready, message ")
    assert not {"reason", "tenant"} & vars(record).keys()


def test_a_message_that_is_given_up_too_late_has_no_entry(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(policy())
    bench.give(delivery())
    message = bench.take_one()
    bench.engine.finish(message, Failed("E"))
    OutcomeLog().write(message, DeadLettered("no price"), bench.policy)
    assert not caplog.records


def test_dead_letters_are_counted_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    worker = Place(policy()).worker
    tally, counts = FailureTally(worker), worker.counts
    with caplog.at_level(logging.WARNING, "kodo.consumer"):
        tally.tick(100.0)
        counts.finished["dead"] += 1
        tally.tick(110.0)
        counts.finished["dead"] += 4
        counts.failed["ValueError"] += 2
        tally.tick(120.0)
        tally.tick(130.0)
    assert [record.message for record in caplog.records] == [
        "p/n/t:s: 1 new dead letter in 10 s",
        "p/n/t:s: failed in 10 s: ValueError 2; 4 new dead letters",
    ]


def test_each_message_that_is_done_is_logged_at_debug(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, TOPICS % "")
    for batch in (False, True):
        consumer = Consumer.load(path, topic="J", subscription="s", environ={})
        (consumer.batch_handler if batch else consumer.handler)(lambda _: None)
        with caplog.at_level(logging.DEBUG, "kodo.consumer"):
            harness = Harness(consumer)
            harness.broker.send(Outgoing(harness.policy.lanes[0].topic, b"x", {"uid": "acme", "kodo-id": "m0"}))
            harness.run()
    done = [record for record in caplog.records if record.message.startswith("done")]
    assert {record.message for record in done} == {"done: p/n/J:s, lane L1/ready, tenant acme, message m0, attempt 1"}
    assert [vars(record)["message_id"] for record in done] == ["m0", "m0"]
