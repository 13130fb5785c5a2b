"""`message.defer()`: a token ends the message after its handler returned, once, in time, or not at all."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Dead, Deferral, Message, Retry
from kodo_consumer.adapters.stores.memory_store import Shelf
from kodo_consumer.core.engine.handler_runs import DeferralLimits
from kodo_consumer.core.state.worker_metrics import Meter
from kodo_consumer.core.values import deferral as deferrals
from kodo_consumer.core.values.deferral import new_deferral
from kodo_consumer.core.values.limit_policy import Concurrency
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.runtime.async_executor import AsyncExecutor
from kodo_consumer.runtime.drain import drain
from kodo_consumer.runtime.settings import Settings
from kodo_consumer.runtime.supervisor import DeferralNotice
from kodo_consumer.runtime.thread_executor import ThreadExecutor
from kodo_consumer.testing import Harness, ManualClock, message

from kodoctl.errors import UsageError
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import policy
from tests.unit.consumer.guarding import Bench as GuardedBench
from tests.unit.consumer.runtime.worker_place import Place
from tests.unit.consumer.topologies import write

TOPICS = """
  orders:
    fair_by: uid
    message_properties: {uid: optional}
    subscriptions:
      billing:
        concurrency: 2
        in_place: []
        retrying: {delays: [10s], attempts: 2}
        limits:
          - {kind: concurrency, by: uid, limit: 1}
"""


class Shop:
    """A consumer whose handler defers every message, in a harness."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.consumer = Consumer.load(write(folder, TOPICS), topic="orders", subscription="billing", environ={})
        self.consumer.settings = Settings(**settings)
        self.tokens: dict[str, Deferral] = {}
        self.seen: list[str] = []

        @self.consumer.handler
        def handle(message: Message) -> None:
            self.seen.append(message.text())
            self.tokens[message.text()] = message.defer()

        self.harness = Harness(self.consumer)

    def send(self, *names: str, uid: str = "") -> None:
        for name in names:
            self.harness.send(name.encode(), properties={"uid": uid or name})
        self.harness.run()

    @property
    def left(self) -> list[bytes]:
        return [one.payload for one in self.harness.waiting("L1", "ready")]


@pytest.fixture(autouse=True)
def _warnings_are_not_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferrals, "_QUIET", 0.0)


def test_a_deferred_message_is_acknowledged_when_its_token_says_so_and_not_before(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.send("a", "b", "c")
    assert shop.seen == ["a", "b", "c"], "a deferred message keeps no slot"
    assert (len(shop.left), shop.harness.counts.done) == (3, 0)
    assert shop.tokens["b"].is_open
    assert shop.tokens["b"].done()
    assert (shop.left, shop.harness.counts.done) == ([b"a", b"c"], 1)
    assert not shop.tokens["b"].is_open
    assert shop.harness.worker.engine.check_invariants() == []


@pytest.mark.parametrize("second", ["done", "failed"])
def test_a_token_ends_its_message_once(tmp_path: Path, second: str, caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(tmp_path)
    shop.send("a")
    token = shop.tokens["a"]
    assert token.done()
    assert not (token.done() if second == "done" else token.failed(ValueError()))
    assert (shop.harness.counts.done, shop.harness.counts.failed) == (1, {})
    assert "it was used before" in caplog.text
    assert "it was used before" in repr(token)


@pytest.mark.parametrize(
    ("error", "lands"), [(Dead("gone"), "dead"), (Retry("1m"), "retrying"), (OSError(), "retrying")]
)
def test_a_failed_deferral_goes_the_way_of_what_the_handler_would_have_raised(
    tmp_path: Path, error: Exception, lands: str
) -> None:
    shop = Shop(tmp_path)
    shop.send("a")
    assert shop.tokens["a"].failed(error)
    shop.harness.run()
    assert shop.left == []
    assert len(shop.harness.dead_letters if lands == "dead" else shop.harness.waiting("L1", "retrying")) == 1


def test_only_an_exception_fails_a_deferral(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.send("a")
    with pytest.raises(TypeError, match="the exception that the handler would have raised"):
        shop.tokens["a"].failed("no")  # type: ignore[arg-type]
    assert shop.tokens["a"].is_open


def test_after_its_deadline_the_attempt_has_failed_and_the_token_is_void(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(tmp_path, defer_timeout=60_000)
    shop.send("a")
    shop.harness.advance("59s")
    assert shop.tokens["a"].is_open
    shop.harness.advance("2s")
    assert not shop.tokens["a"].is_open
    first = shop.tokens["a"]
    assert not first.done()
    assert "was deferred and did not end in 60 s: the attempt failed" in caplog.text
    assert "its deadline passed" in caplog.text
    assert shop.harness.counts.failed == {"deferred message not ended in time": 1}
    assert shop.left == []
    (waiting,) = shop.harness.waiting("L1", "retrying")
    assert waiting.properties["kodo-reason"] == "deferred message not ended in time"
    shop.harness.advance("15s")
    assert shop.seen == ["a", "a"]
    assert shop.tokens["a"].done()
    assert not first.done()
    assert shop.harness.waiting("L1", "retrying") == []


def test_a_handler_may_name_another_deadline(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    times: list[Any] = ["30s", timedelta(seconds=20), timedelta(seconds=-1)]
    tokens: list[Deferral] = []

    @shop.consumer.handler
    def handle(message: Message) -> None:
        tokens.append(message.defer(times[len(tokens)]))

    shop.harness = Harness(shop.consumer)
    shop.send("a", "b", "c")
    shop.harness.advance("1s")
    assert [token.is_open for token in tokens] == [True, True, False]
    shop.harness.advance("20s")
    assert [token.is_open for token in tokens] == [True, False, False]
    shop.harness.advance("10s")
    assert not any(token.is_open for token in tokens)


def test_a_deferred_message_keeps_the_concurrency_limit_of_its_tenant(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.send("a", "b", uid="one")
    shop.send("c", uid="two")
    assert shop.seen == ["a", "c"]
    shop.tokens["a"].done()
    shop.harness.run()
    assert shop.seen == ["a", "c", "b"]


def test_so_many_messages_are_deferred_and_no_more(tmp_path: Path) -> None:
    shop = Shop(tmp_path, max_deferred=3)
    shop.send("a", "b", "c", "d", "e")
    runs = shop.harness.worker.engine.runs
    assert (shop.seen, runs.has_room, len(runs.deferred)) == (["a", "b", "c"], False, 3)
    shop.tokens["b"].done()
    shop.harness.run()
    assert shop.seen == ["a", "b", "c", "d"]
    shop.harness.advance("10m")
    assert "e" in shop.seen


def test_a_token_may_be_used_before_its_handler_returns_and_what_the_handler_raises_counts_more(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path)

    @shop.consumer.handler
    def handle(message: Message) -> None:
        token = message.defer()
        assert message.defer() is token
        assert token.done()
        assert not token.done()
        if message.text() == "raises":
            raise ValueError

    shop.harness = Harness(shop.consumer)
    shop.send("well", "raises")
    assert shop.harness.counts.done == 1
    assert [one.payload for one in shop.harness.waiting("L1", "retrying")] == [b"raises"]


def test_a_handler_that_raises_voids_its_token(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    tokens: list[Deferral] = []

    @shop.consumer.handler
    def handle(message: Message) -> None:
        tokens.append(message.defer())
        raise ValueError

    shop.harness = Harness(shop.consumer)
    shop.send("a")
    assert not tokens[0].failed(Dead("no"))
    assert shop.harness.dead_letters == []


def test_async_handlers_defer_as_well(tmp_path: Path) -> None:
    shop = Shop(tmp_path)

    @shop.consumer.handler
    async def handle(message: Message) -> None:
        await asyncio.sleep(0)
        shop.tokens[message.text()] = message.defer()

    shop.harness = Harness(shop.consumer)
    shop.send("a")
    assert shop.left == [b"a"]
    assert shop.tokens["a"].done()
    assert shop.left == []


def test_after_a_restart_what_was_deferred_comes_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.send("a", "b")
    shop.tokens["a"].done()
    old = shop.tokens["b"]
    shop.harness.close()
    assert not old.done()
    again = Harness(shop.consumer, broker=shop.harness.broker, clock=shop.harness.clock)
    again.run()
    assert shop.seen == ["a", "b", "b"]
    assert not old.done()
    assert shop.tokens["b"].done()
    assert again.waiting("L1", "ready") == []


def test_a_message_that_no_token_can_end_refuses(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    kept: list[Message] = []
    refused: list[str] = []

    @shop.consumer.handler
    def keep(message: Message) -> None:
        kept.append(message)

    shop.harness = Harness(shop.consumer)
    shop.send("a")
    with pytest.raises(UsageError, match="the handler of this message has ended"):
        kept[0].defer()

    @shop.consumer.batch_handler
    def batch(messages: list[Message]) -> None:
        try:
            messages[0].defer()
        except UsageError as problem:
            refused.append(str(problem))

    shop.harness = Harness(shop.consumer)
    shop.send("b")
    assert "handlers in processes and of batches end theirs by returning" in refused[0]
    with pytest.raises(UsageError, match="only a worker or a Harness can keep a message"):
        message(b"x").defer()


def _runner(kind: str, tokens: list[Deferral]) -> Any:
    def handle(message: Message) -> None:
        tokens.append(message.defer())

    async def handle_later(message: Message) -> None:
        tokens.append(message.defer())

    return ThreadExecutor(handle, 2) if kind == "threads" else AsyncExecutor(handle_later, 2)


@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_tokens_end_messages_from_any_thread_and_what_waited_for_them_starts(kind: str) -> None:
    tokens: list[Deferral] = []
    place = Place(
        policy(concurrency=2, in_place=(), limits=(Concurrency(None, 1, shared=False),)), runner=_runner(kind, tokens)
    )
    place.worker.engine.runs.allow_deferral(DeferralLimits(10, 60.0))
    for _ in range(3):
        place.send()
    place.service.start()
    try:
        for number in range(3):
            eventually(lambda number=number: len(tokens) == number + 1)  # type: ignore[misc]
            thread = threading.Thread(target=tokens[number].done)
            thread.start()
            thread.join()
        eventually(lambda: place.worker.counts.done == 3)
        assert place.worker.engine.check_invariants() == []
    finally:
        place.service.stop()


def test_the_end_waits_for_deferred_messages_within_the_drain_time(caplog: pytest.LogCaptureFixture) -> None:
    tokens: list[Deferral] = []
    place = Place(policy(concurrency=2, in_place=()), runner=_runner("threads", tokens))
    place.worker.engine.runs.allow_deferral(DeferralLimits(10, 60.0))
    place.send()
    place.send()
    place.service.start()
    try:
        eventually(lambda: len(tokens) == 2)
        drain(place.worker, 0.05)
        assert "what still runs, and 2 deferred messages, is released" in caplog.text
        tokens[0].done()
        timer = threading.Timer(0.1, tokens[1].done)
        timer.start()
        drain(place.worker, 5.0)
        assert (place.worker.busy, place.worker.counts.done) == (False, 2)
    finally:
        place.service.stop()


def test_a_time_out_before_the_handler_returns_voids_the_token(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    answers: list[bool] = []

    @shop.consumer.handler
    def slow(message: Message) -> None:
        token = message.defer()
        shop.harness.clock.advance(3_600)
        shop.harness.worker.tick()
        answers.append(token.done())

    shop.harness = Harness(shop.consumer)
    shop.send("a")
    assert (answers, shop.harness.counts.timed_out, shop.harness.counts.done) == ([False], 1, 0)
    runs = shop.harness.worker.engine.runs
    assert (runs.running, runs.deferred) == ({}, {})


def test_with_a_store_a_deferred_message_is_recorded_when_it_ends_and_is_no_suspect_after_a_crash() -> None:
    tokens: list[Deferral] = []
    shelf = Shelf()
    bench = GuardedBench(lambda message: tokens.append(message.defer()), shelf=shelf).open()
    bench.worker.engine.runs.allow_deferral(DeferralLimits(100, 60.0))
    bench.send(*(f"m{number}" for number in range(6)))
    bench.run()
    assert (len(tokens), len(shelf.done), shelf.marks) == (6, 0, {}), "slots are free, and nothing is marked"
    assert tokens[0].done()
    assert tokens[1].failed(Dead("no"))
    bench.run()
    assert (len(shelf.done), len(bench.left())) == (1, 4)
    bench.later(61)
    assert not tokens[2].done()
    assert bench.worker.counts.failed == {"deferred message not ended in time": 4}
    assert not bench.guard.end(message(b"x"), deferrals.NOT_ENDED)
    assert not bench.guard.leave_open(message(b"x"), None)
    assert bench.worker.engine.check_invariants() == []


def test_with_a_store_the_first_outcome_of_a_deferred_message_counts() -> None:
    tokens: dict[Message, Deferral] = {}
    shelf = Shelf()
    bench = GuardedBench(lambda message: tokens.update({message: message.defer()}), shelf=shelf).open()
    bench.worker.engine.runs.allow_deferral(DeferralLimits(100, 60.0))
    bench.send("m")
    bench.run()
    [(deferred, token)] = tokens.items()
    assert token.failed(Dead("no"))
    assert not bench.guard.end(deferred, DONE)
    bench.run()
    assert (shelf.done, bench.left()) == ({}, [])
    assert bench.worker.counts.finished == {"dead": 1}


def test_metrics_count_a_deferred_message_once_it_is_done(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    from random import Random

    meter = Meter(shop.harness.policy, shop.harness.clock, Random(1))
    runs = shop.harness.worker.engine.runs
    runs.measure(meter)
    shop.send("a", "b")
    assert (meter.done[0], len(runs.deferred)) == (0, 2)
    shop.harness.clock.advance(5)
    assert runs.oldest_deferred(shop.harness.clock.now()) == 5
    shop.tokens["a"].done()
    shop.tokens["b"].failed(ValueError())
    assert meter.done[0] == 1
    assert runs.oldest_deferred(shop.harness.clock.now()) == 0


def test_the_log_says_how_many_are_deferred_and_since_when(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kodo.consumer")
    shop = Shop(tmp_path)
    notice = DeferralNotice(shop.harness.worker)
    shop.send("a", "b")
    notice.tick(0)
    assert "deferred" not in caplog.text
    shop.harness.clock.advance(90)
    for now in (90, 100):
        notice.tick(now)
    assert caplog.text.count("p/n/orders:billing: 2 messages deferred, the oldest for 90 s") == 1


def test_the_breaker_hears_of_the_return_of_a_handler(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.harness.worker.engine.scheduler.throttle.wants_all_outcomes = True
    shop.send("a")
    shop.tokens["a"].done()
    assert shop.harness.counts.done == 1


def test_a_message_outside_of_its_worker_cannot_be_left_open() -> None:
    clock = ManualClock()
    bench = GuardedBench(lambda message: None, clock=clock).open()
    assert not bench.worker.engine.runs.leave_open(message(b"x"), None, clock.now())
    assert not bench.worker.end(message(b"x"), deferrals.NOT_ENDED)


def test_a_message_that_was_left_open_without_a_token_ends_at_its_deadline() -> None:
    bench = GuardedBench(lambda message: None).open()
    runs = bench.worker.engine.runs
    runs.allow_deferral(DeferralLimits(10, 5.0))
    bench.send("m")
    bench.broker.step()
    taken = bench.worker.next(None, None)
    assert taken is not None
    assert bench.worker.leave_open(taken, None)
    runs.abandon()
    bench.clock.advance(5)
    bench.worker.tick()
    assert (runs.deferred, bench.worker.counts.failed.total()) == ({}, 1)


def test_of_tokens_that_are_used_in_vain_the_log_has_one_in_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deferrals, "_QUIET", 10.0)
    monkeypatch.setattr(deferrals, "_warned", [float("-inf")])
    shop = Shop(tmp_path)
    shop.send("a")
    assert [shop.tokens["a"].done() for _ in range(3)] == [True, False, False]
    assert caplog.text.count("used in vain") == 1


@pytest.mark.parametrize("timeout", [5, [], 0.5])
def test_a_time_that_is_none_is_named(timeout: Any) -> None:
    with pytest.raises(TypeError, match="timeout is a timedelta or a text"):
        new_deferral(None, {}, timeout)


def test_a_time_longer_than_a_timedelta_is_a_time() -> None:
    assert new_deferral(None, {}, "99999999999d")._timeout == 99_999_999_999 * 86_400
