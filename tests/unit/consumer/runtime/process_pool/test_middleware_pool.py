"""Hooks around handlers in processes: real ones; the hooks stay in the worker and see what came of each call."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from kodo_consumer import Dead, HandlerFailedError, Message
from kodo_consumer.core.values.envelope import Level, State
from kodo_consumer.core.values.outcomes import (
    DONE,
    TOOK_TOO_LONG,
    DeadLettered,
    DependencyUnavailable,
    Discarded,
    Failed,
    MoveAsked,
    Outcome,
    PostponeAsked,
    Repeated,
    RetryAsked,
    StateAsked,
    TransferAsked,
    error_of,
)
from kodo_consumer.core.values.policy import ErrorTextPolicy
from kodo_consumer.runtime.handler_spec import HandlerSpec
from kodo_consumer.runtime.middleware import Hooks
from kodo_consumer.runtime.process_pool.middleware_pool import HandlerCalls, MiddlewareExecutor

from tests.services.polling import eventually
from tests.unit.consumer import pool_handlers
from tests.unit.consumer.engine_bench import policy
from tests.unit.consumer.runtime.process_pool.test_processes import Desk

_VERDICTS: dict[str, Outcome] = {
    "retry": RetryAsked(30_000, "asked to retry"), "pending": StateAsked(State.PENDING, "later"),
    "blocking": StateAsked(State.BLOCKING, "asked for blocking"), "dead": DeadLettered("bad"),
    "discard": Discarded("old"), "postpone": PostponeAsked(30_000, None, "closed"), "move": MoveAsked(Level.L2), "repeat": Repeated(),
    "down": DependencyUnavailable("bank"), "transfer": TransferAsked("other", b"new", {"a": "b"}, "k"),
    "fail:secret": Failed("ValueError"), "exit": Failed("SystemExit"), "fine": DONE, "unknown": Failed("KeyError"),
    "sleep:60": TOOK_TOO_LONG, "os-exit": DeadLettered("its handler ended its process 3 times, last by exit 7"),
}  # fmt: skip


def started(hooks: Hooks, size: int = 2) -> tuple[MiddlewareExecutor, Desk]:
    handling = HandlerSpec(pool_handlers.handle, size).check()
    runner = handling.runner(policy(handler_timeout=1_000), None, hooks)
    assert isinstance(runner, MiddlewareExecutor)
    desk = Desk()
    runner.start(desk)
    return runner, desk


def test_what_comes_of_a_message_passes_its_hooks_unchanged() -> None:
    hooks, seen = Hooks(), dict[str, BaseException | None]()
    hooks.add("handle", _calls)
    hooks.add("decide", lambda message, raised: seen.update({message.text(): raised}))
    runner, desk = started(hooks)
    try:
        given = desk.give(*_VERDICTS)
        runner.wake()
        eventually(lambda: len(desk.ended) == len(_VERDICTS))
    finally:
        runner.stop()
    found = desk.outcomes()
    assert {message.text(): found[message.id] for message in given} == _VERDICTS
    assert found[given[-2].id] is TOOK_TOO_LONG, "counted as a time-out"
    names = {word: "" if raised is None else type(raised).__name__ for word, raised in seen.items()}
    assert names == {
        "retry": "Retry", "pending": "Pending", "blocking": "Blocking", "dead": "Dead", "discard": "Discard",
        "move": "MoveTo", "postpone": "Postpone", "repeat": "Repeat", "down": "Unavailable", "transfer": "Transfer", "fine": "",
        "fail:secret": "HandlerFailedError", "exit": "HandlerFailedError", "unknown": "HandlerFailedError",
        "sleep:60": "HandlerFailedError", "os-exit": "Dead",
    }  # fmt: skip
    assert desk.problems == []


def test_hooks_run_in_the_worker_and_may_try_again_or_say_otherwise() -> None:
    hooks, places = Hooks(), list[Any]()

    def again(message: Message, handle: Any) -> None:
        places.append((os.getpid(), threading.current_thread().name))
        try:
            handle(message)
        except HandlerFailedError:
            handle(message)

    hooks.add("handle", again)
    hooks.add("decide", lambda message, raised: raised and Dead(f"{type(raised).__name__}: {raised}"))
    runner, desk = started(hooks)
    try:
        fine, fails, *_ = desk.give("fine", "fail:x", *["fine"] * 300)
        runner.wake()
        eventually(lambda: len(desk.ended) == 302)
    finally:
        runner.stop()
    found = desk.outcomes()
    assert (found.pop(fails.id), found[fine.id]) == (DeadLettered("HandlerFailedError: ValueError"), DONE)
    assert set(found.values()) == {DONE}
    assert set(places) <= {(os.getpid(), "kodo-handler")}
    assert desk.problems == []


def test_what_still_runs_at_the_end_is_let_go_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.process_pool.pool._END_WITHIN", 0.1)
    hooks = Hooks()
    hooks.add("handle", _calls)
    handling = HandlerSpec(pool_handlers.handle, 1).check()
    runner = handling.runner(policy(), None, hooks)
    desk = Desk()
    runner.start(desk)
    desk.give("sleep:60")
    runner.wake()
    eventually(lambda: runner._calls._open)  # type: ignore[attr-defined]
    runner.stop()
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "kodo-handler"])
    assert desk.ended == []
    assert desk.problems == []


def test_a_pool_that_breaks_is_told_and_nobody_waits_for_it() -> None:
    hooks = Hooks()
    hooks.add("handle", _calls)
    runner, desk = started(hooks, 1)
    problem = RuntimeError("pool")
    runner._calls.fail(problem)
    runner.stop()
    assert desk.problems == [problem]
    with pytest.raises(HandlerFailedError, match="the worker has left"):
        runner._calls(desk.give("fine")[0])


def test_a_handler_is_called_with_its_message_once_at_a_time() -> None:
    calls = HandlerCalls(dict)
    with pytest.raises(TypeError, match="not with 'x'"):
        calls("x")  # type: ignore[arg-type]
    (message,) = Desk().give("fine")
    thread = threading.Thread(target=calls, args=(message,))
    thread.start()
    eventually(lambda: calls.version)
    with pytest.raises(RuntimeError, match="being handled already"):
        calls(message)
    assert calls.next(None, None) is message
    assert calls.next(message, DONE) is None
    thread.join()


def test_the_worker_gives_up_hooks_that_hang_longer_than_any_run_takes() -> None:
    hooks, handling = Hooks(), HandlerSpec(pool_handlers.handle, 2)
    of = policy(handler_timeout=30_000)
    assert handling.policy_for_worker(of, hooks).handler_timeout > 10**9
    hooks.add("decide", lambda message, raised: None)
    assert handling.policy_for_worker(of, hooks).handler_timeout == 3 * (30_000 + 60_000)


def _calls(message: Message, handle: Any) -> None:
    handle(message)


def test_what_processes_say_of_errors_is_redacted_in_the_worker_and_is_in_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for hooked in (True, False):
        caplog.clear()
        hooks = Hooks()
        if hooked:
            hooks.add("redact", lambda text: text.replace("secret", "[redacted]"))
        of = ErrorTextPolicy(500, 500, () if hooked else ("secret",))
        handling = HandlerSpec(pool_handlers.handle, 1).check()
        runner = handling.runner(policy(handler_timeout=1_000, error_text=of), None, hooks)
        assert isinstance(runner, MiddlewareExecutor) is hooked
        desk = Desk()
        runner.start(desk)
        try:
            desk.give("fail:secret")
            runner.wake()
            eventually(desk.outcomes)
        finally:
            runner.stop()
        error = error_of(next(iter(desk.outcomes().values())))
        assert error is not None
        assert error.text.endswith("[redacted]")
        assert error.stack.rpartition(":")[0] == "tests.unit.consumer.pool_handlers.handle"
        assert "secret" not in caplog.text
        eventually(lambda: "handler failed with ValueError (p/n/t:s, lane " in caplog.text)
