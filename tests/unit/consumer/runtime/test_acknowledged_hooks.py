"""Hooks around acknowledged messages: called once it is confirmed, in every state, and never on a guess."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Blocking, Consumer, Dead, Deferral, Discard, Message, Pending, Postpone, Retry, Transfer
from kodo_consumer.core.state.observer import Acknowledged
from kodo_consumer.core.values.envelope import Outgoing
from kodo_consumer.runtime.acknowledged_hooks import AcknowledgedHooks, await_on
from kodo_consumer.runtime.drain import drain
from kodo_consumer.runtime.middleware import Hooks
from kodo_consumer.testing import Harness

from kodoctl.errors import UsageError
from tests.unit.consumer.topologies import write

TOPICS = """
  J:
    subscriptions:
      s: {in_place: [], retrying: {attempts: 3}, produces: [O]}
  O: {subscriptions: {s: {states: [], dead_letter: false}}}
"""
BATCHED = "  J: {subscriptions: {s: {in_place: [], retrying: {attempts: 3}}}}\n"
SIGNALS: dict[str, Any] = {
    "retry": Retry("60s"), "pending": Pending("60s"), "blocking": Blocking("60s"), "dead": Dead("no"),
    "discard": Discard("old"), "transfer": Transfer("O"), "postpone": Postpone("60s"), "fail": ValueError("no"),
}  # fmt: skip
both = pytest.mark.parametrize("later", [False, True], ids=["plain", "async"])


@pytest.fixture
def consumer(tmp_path: Path) -> Consumer:
    return Consumer.load(write(tmp_path, TOPICS), topic="J", subscription="s", environ={})


def _handled(consumer: Consumer, *, later: bool = False) -> None:
    def handle(message: Message) -> None:
        if (signal := SIGNALS.get(message.text())) is not None:
            raise signal

    async def handle_later(message: Message) -> None:
        await asyncio.sleep(0)
        handle(message)

    consumer.handler(handle_later if later else handle)


def _noted(consumer: Consumer, name: str = "", *, later: bool = False) -> list[Any]:
    """Texts and rules that a new hook is called with."""
    seen: list[Any] = []

    def note(message: Message, rule: str) -> None:
        seen.append((name + message.text(), rule))

    async def note_later(message: Message, rule: str) -> None:
        await asyncio.sleep(0)
        note(message, rule)

    consumer.middleware("acknowledged")(note_later if later else note)
    return seen


@both
def test_it_is_called_in_every_state_with_the_rule_by_which_the_message_ended(consumer: Consumer, later: bool) -> None:
    _handled(consumer, later=later)
    seen = _noted(consumer, later=later)
    harness = Harness(consumer)
    for payload in ("ok", *SIGNALS):
        harness.send(payload.encode())
    harness.run()
    assert dict(seen) == {
        "ok": "done", "retry": "retrying", "pending": "pending", "blocking": "blocking", "dead": "dead",
        "discard": "discarded", "transfer": "transferred", "postpone": "postponed", "fail": "retrying",
    }  # fmt: skip
    assert len(seen) == len(SIGNALS) + 1
    harness.advance("2m")
    assert ("retry", "retrying") in seen[len(SIGNALS) + 1 :], "on the lane of retries it is acknowledged as well"
    assert harness.worker.engine.check_invariants() == []


@both
def test_hooks_are_called_in_the_order_in_which_they_were_added_and_a_failing_one_stops_nothing(
    consumer: Consumer, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    _handled(consumer, later=later)
    seen: list[str] = []

    async def first(message: Message, rule: str) -> None:
        seen.append("first")
        raise asyncio.CancelledError

    def first_plain(message: Message, rule: str) -> None:
        seen.append("first")
        raise RuntimeError("no such queue")

    consumer.middleware("acknowledged")(first if later else first_plain)
    consumer.middleware("acknowledged")(lambda message, rule: seen.append("second"))
    harness = Harness(consumer)
    with caplog.at_level(logging.WARNING, "kodo.consumer"):
        harness.send(b"ok")
        harness.run()
    assert seen == ["first", "second"]
    assert harness.counts.done == 1
    assert "first" in caplog.text
    assert "the message goes its way" in caplog.text
    assert harness.waiting("L1", "ready") == []


def test_a_deferred_message_is_acknowledged_when_its_token_ends_it(consumer: Consumer) -> None:
    tokens: list[Deferral] = []

    @consumer.handler
    def handle(message: Message) -> None:
        tokens.append(message.defer())

    seen = _noted(consumer)
    harness = Harness(consumer)
    harness.send(b"ok")
    harness.run()
    assert seen == []
    tokens[0].done()
    harness.run()
    assert seen == [("ok", "done")]


def test_with_a_batch_handler_it_is_called_for_each_message(tmp_path: Path) -> None:
    consumer = Consumer.load(write(tmp_path, BATCHED), topic="J", subscription="s", environ={})

    @consumer.batch_handler
    def handle(messages: list[Message]) -> list[Exception | None]:
        return [None if message.text() == "ok" else Dead("no") for message in messages]

    seen = _noted(consumer)
    harness = Harness(consumer)
    harness.send(b"ok")
    harness.send(b"dies")
    harness.run()
    assert sorted(seen) == [("dies", "dead"), ("ok", "done")]


def test_without_a_confirmation_it_is_not_called_unless_a_copy_of_the_message_is_confirmed(consumer: Consumer) -> None:
    tokens: list[Deferral] = []

    @consumer.handler
    def handle(message: Message) -> None:
        if message.text() == "open":
            tokens.append(message.defer())

    seen = _noted(consumer)
    harness = Harness(consumer)
    broker, topic = harness.broker, harness.send(b"alone").message.topic
    broker.hold_receipts = True
    broker.send_batch([Outgoing(topic, b"ok", {}), Outgoing(topic, b"open", {})])
    harness.run()
    assert (harness.counts.done, seen) == (2, [])
    assert harness.worker.busy
    broker.disconnect(topic)
    broker.hold_receipts = False
    harness.run()
    assert seen == [("ok", "done")], "its batch came again, and it was acknowledged again"
    assert harness.counts.done == 2, "no handler ran for that"
    tokens[0].done()
    harness.run()
    assert seen[1:] == [("open", "done")]
    assert not harness.worker.busy, "of the message alone nobody will know"


def test_an_end_without_confirmations_says_so(consumer: Consumer, caplog: pytest.LogCaptureFixture) -> None:
    _handled(consumer)
    _noted(consumer)
    harness = Harness(consumer)
    harness.broker.hold_receipts = True
    harness.send(b"ok")
    harness.run()
    drain(harness.worker, 0.05)
    assert "drain time-out: not all acknowledgements are confirmed" in caplog.text


def test_the_thread_calls_hooks_until_it_is_closed_and_reports_what_ends_it() -> None:
    hooks, called, problems = Hooks(), threading.Event(), list[BaseException]()
    seen: list[Any] = []
    hooks.add("acknowledged", lambda message, rule: seen.append((message, rule, threading.current_thread().name)))
    thread = AcknowledgedHooks(hooks, await_on(None), problems.append)
    messages: Any = [("m", "done")]
    thread.on_acknowledged(messages, called.set)
    assert called.wait(60)
    assert seen == [("m", "done", "kodo-acknowledged")]
    assert thread.running_hook is None
    thread.close()
    thread.on_acknowledged(messages, lambda: None)
    assert len(seen) == 1
    assert problems == []

    def leave(message: Any, rule: str) -> None:
        raise SystemExit

    hooks.add("acknowledged", leave)
    thread = AcknowledgedHooks(hooks, await_on(None), problems.append)
    thread.on_acknowledged(messages, lambda: None)
    thread._thread.join(60)
    assert [type(problem) for problem in problems] == [SystemExit]


def test_async_hooks_run_on_the_loop_of_the_handlers_and_its_end_is_no_failure() -> None:
    hooks, called, problems = Hooks(), threading.Event(), list[BaseException]()
    loop = asyncio.new_event_loop()
    runs = threading.Thread(target=loop.run_forever)
    runs.start()
    seen: list[Any] = []

    async def hook(message: Any, rule: str) -> None:
        seen.append(asyncio.get_running_loop())
        if rule == "dead":
            await asyncio.sleep(60)

    hooks.add("acknowledged", hook)
    thread = AcknowledgedHooks(hooks, await_on(loop), problems.append)
    sent: list[list[Acknowledged]] = [[(rule, rule)] for rule in ("done", "dead")]  # type: ignore[list-item]
    thread.on_acknowledged(sent[0], called.set)
    assert called.wait(60)
    thread.on_acknowledged(sent[1], lambda: None)
    while len(seen) < 2:
        threading.Event().wait(0.01)
    assert seen == [loop, loop]
    running = thread.running_hook
    assert running is not None, "it hangs, and says which one and for how long"
    assert running[0].endswith("hook")
    assert running[1] >= 0
    thread._over = True  # as `close` does, which need not wait here
    loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
    thread.close()
    assert not thread._thread.is_alive()
    assert problems == []
    loop.call_soon_threadsafe(loop.stop)
    runs.join(60)
    loop.close()


def test_hooks_that_cannot_be_called_are_refused(consumer: Consumer) -> None:
    _handled(consumer)
    consumer.middleware("acknowledged")(lambda message: None)  # type: ignore[type-var]

    async def later(message: Message, rule: str) -> None: ...

    consumer.middleware("acknowledged")(later)
    with pytest.raises(UsageError) as refused:
        consumer.check_handler()
    text = str(refused.value)
    assert "around acknowledged is called with the message and the rule" in text
    assert "later around acknowledged is async, and the handler is a plain function" in text


def test_without_a_hook_nobody_asks_for_confirmations(consumer: Consumer) -> None:
    _handled(consumer)
    harness = Harness(consumer)
    assert harness.worker.engine.context.confirmations is None
    harness.send(b"ok")
    harness.run()
    assert harness.counts.done == 1
