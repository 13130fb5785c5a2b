"""The process pool, with real processes: what crosses the pipe, what a death costs, time-outs, start and end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kodo_consumer.core.payloads.codec import Payloads
from kodo_consumer.core.values.envelope import FRESH, Headers, Level, State
from kodo_consumer.core.values.lane_set import Bulkhead, LaneSet
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
)
from kodo_consumer.message import Check, Message
from kodo_consumer.runtime.handler_spec import HandlerSpec
from kodo_consumer.runtime.middleware import Hooks
from kodo_consumer.runtime.process_pool.channel import ProcessChannel
from kodo_consumer.runtime.process_pool.pool import ProcessRunner
from kodo_consumer.runtime.process_pool.worker_process import ProcessTask

from kodoctl.errors import ClusterError, KodoctlError, error
from tests.services.polling import eventually
from tests.unit.consumer import pool_handlers
from tests.unit.consumer.engine_bench import delivery, policy
from tests.unit.consumer.runtime.test_thread_executor import TestDesk

MODULE = "tests.unit.consumer.pool_handlers"


class Desk(TestDesk):
    """Messages by what their handler shall do."""

    given: list[Message]

    def give(self, *words: str, headers: Headers = FRESH, schema: str = "", **properties: str) -> list[Message]:
        of = policy()
        with self.lock:
            first = len(self.given) if hasattr(self, "given") else 0
            messages = [
                Message(
                    delivery(first + number, word.encode(), **properties)._replace(schema=schema),
                    of.lanes[0],
                    headers,
                    "u1",
                )
                for number, word in enumerate(words)
            ]
            self.given = [*getattr(self, "given", []), *messages]
            self.work += messages
            self.version += 1
        return messages

    def outcomes(self) -> dict[str, Outcome]:
        with self.lock:
            return dict(self.ended)


@contextmanager
def pool(
    size: int = 2, timeout: float = 60.0, function: str = "handle", check: Check | None = None
) -> Iterator[tuple[ProcessRunner, Desk]]:
    runner = ProcessRunner(ProcessTask(MODULE, function, policy().lanes, check), size, timeout)
    runner.launch()
    desk = Desk()
    runner.start(desk)
    try:
        yield runner, desk
    finally:
        runner.stop()
    assert desk.problems == []


def test_everything_is_handled_once_and_children_end_with_the_pool() -> None:
    with pool() as (runner, desk):
        desk.give(*["fine"] * 3_000)
        runner.wake()
        eventually(lambda: len(desk.ended) == 3_000)
        assert {outcome for _, outcome in desk.ended} == {DONE}
        assert len(desk.outcomes()) == 3_000
        children = [line.process.pid for line in runner._lines]
        assert len(children) == 2
        desk.give("fine")
        runner.wake()
        eventually(lambda: len(desk.ended) == 3_001)
    for pid in children:
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_verdict_comes_back_as_it_was_raised_and_any_other_exception_by_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = {
        "retry": RetryAsked(30_000, "asked to retry"), "pending": StateAsked(State.PENDING, "later"),
        "blocking": StateAsked(State.BLOCKING, "asked for blocking"), "dead": DeadLettered("bad"),
        "discard": Discarded("old"), "postpone": PostponeAsked(30_000, None, "closed"), "move": MoveAsked(Level.L2), "repeat": Repeated(),
        "down": DependencyUnavailable("bank"), "transfer": TransferAsked("other", b"new", {"a": "b"}, "k"),
        "fail:secret": Failed("ValueError"), "exit": Failed("SystemExit"), "fine": DONE, "unknown": Failed("KeyError"),
    }  # fmt: skip
    with pool() as (runner, desk), caplog.at_level(logging.WARNING):
        desk.give(*expected)
        runner.wake()
        eventually(lambda: len(desk.ended) == len(expected))
        assert list(dict(sorted(desk.ended, key=_number)).values()) == list(expected.values())
    assert "handler failed with ValueError (p/n/t:s, lane " in caplog.text
    assert "ValueError: secret" in caplog.text, "the traceback is for the log"
    assert "pool_handlers.py" in caplog.text


def test_what_a_handler_in_a_process_returns_is_judged_as_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    with pool(function="wrapped") as (runner, desk), caplog.at_level(logging.WARNING):
        desk.give("later", *["value"] * 20)
        runner.wake()
        eventually(lambda: len(desk.ended) == 21)
        outcomes = Counter(outcome for _, outcome in desk.ended)
        assert outcomes == {Failed("NotAwaitedError"): 1, DONE: 20}
        eventually(lambda: "which is ignored" in caplog.text)
    assert "pool_handlers:wrapped returned a coroutine that nobody awaits" in caplog.text
    assert caplog.text.count("pool_handlers:wrapped returned a value (str), which is ignored") == 1


def test_a_message_whose_schema_cannot_be_asked_for_waits() -> None:
    """Read by another schema it would die, because the broker's admin API was away for a moment."""
    is_away = True

    def schema_of(_version: str) -> dict[str, Any] | None:
        if is_away:
            raise ClusterError(error("K510", "admin API cannot be reached", ""))
        return {"type": "record", "name": "Order", "fields": [{"name": "note", "type": "string"}]}

    declared = {"type": "record", "name": "Order", "fields": []}
    with pool(1, function="read", check=Payloads("avro", declared, None, schema_of)) as (runner, desk):
        desk.give("\x02a", schema="L1:3")
        runner.wake()
        eventually(lambda: desk.ended)
        assert desk.ended[0][1] == DependencyUnavailable("schemas of the broker")
        is_away = False
        desk.give("\x02a", schema="L1:3")
        runner.wake()
        eventually(lambda: len(desk.ended) == 2)
        assert desk.ended[1][1] == DONE


def test_versions_that_there_are_not_are_read_as_declared_and_kept_by_nobody() -> None:
    """Senders choose them."""
    declared = {"type": "record", "name": "Order", "fields": []}
    with pool(1, function="read", check=Payloads("avro", declared, None, lambda _: None)) as (runner, desk):
        for _ in range(2):
            for number in range(10):
                desk.give("", schema=f"L1:{number}")
        runner.wake()
        eventually(lambda: len(desk.ended) == 20)
        assert {outcome for _, outcome in desk.ended} == {DONE}
        assert runner._lines[0]._news._sent == set()


def test_a_message_is_the_same_in_a_process() -> None:
    headers = Headers(retrying=2, reason="ValueError", origin_id="9:9:9:9", hop=1)
    with pool(1) as (runner, desk):
        (message,) = desk.give("look", headers=headers, size="3")
        runner.wake()
        eventually(lambda: desk.ended)
        seen = message.properties, message.key, message.tenant, message.attempt, message.topic, message.reason
        assert desk.ended == [(message.id, DeadLettered(repr(seen)))]


def test_a_death_costs_nobody_else_anything_and_a_message_that_kills_thrice_is_dead(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    with pool() as (runner, desk):
        segfault, *_ = desk.give("segfault", *[f"note:{ledger}"] * 150, "os-exit", *[f"note:{ledger}"] * 150)
        runner.wake()
        eventually(lambda: len(desk.ended) == 302)
        found = desk.outcomes()
        assert found.pop(segfault.id) == DeadLettered("its handler ended its process 3 times, last by SIGSEGV")
        assert found.pop(desk.given[151].id) == DeadLettered("its handler ended its process 3 times, last by exit 7")
        assert set(found.values()) == {DONE}
        assert max(Counter(ledger.read_text().split()).values()) == 1, "neighbours ran once each"
        eventually(lambda: len(runner._lines) == 2)


def test_a_process_that_somebody_kills_is_replaced_and_only_its_message_runs_again(tmp_path: Path) -> None:
    with pool() as (runner, desk):
        messages = desk.give(f"once:{tmp_path / 'flag'}", f"memory:{tmp_path / 'too'}", *["fine"] * 50)
        runner.wake()
        eventually(lambda: len(desk.ended) == len(messages))
        assert set(desk.outcomes().values()) == {DONE}
        eventually(lambda: len(runner._lines) == 2)
        (idle, *_) = runner._lines
        assert idle.process.pid is not None
        os.kill(idle.process.pid, signal.SIGKILL)
        eventually(lambda: idle not in runner._lines and len(runner._lines) == 2)
        desk.give(*["fine"] * 50)
        runner.wake()
        eventually(lambda: len(desk.ended) == len(messages) + 50)


def test_a_handler_that_hangs_is_killed_in_time_and_nobody_waits_behind_it() -> None:
    with pool(2, timeout=2.0) as (runner, desk):
        desk.give(*["fine"] * 500)  # so that whole bundles are sent
        runner.wake()
        eventually(lambda: len(desk.ended) == 500)
        hanging, *others = desk.give("sleep:60", *["fine"] * 200)
        runner.wake()
        eventually(lambda: len(desk.ended) == 701)
        assert desk.ended[-1] == (hanging.id, TOOK_TOO_LONG), "the others did not wait for the one that hangs"
        assert {desk.outcomes()[message.id] for message in others} == {DONE}
        eventually(lambda: len(runner._lines) == 2)


def test_large_messages_pass_the_pipe() -> None:
    with pool(1) as (runner, desk):
        of = policy()
        big = [Message(delivery(number, b"fine:" + b"x" * (5 << 20)), of.lanes[0], FRESH, "u") for number in range(3)]
        with desk.lock:
            desk.work += big
            desk.version += 1
        runner.wake()
        eventually(lambda: len(desk.ended) == 3)
        assert {outcome for _, outcome in desk.ended} == {DONE}


def test_what_keeps_a_process_from_starting_is_told_at_once() -> None:
    for module, function, why in (
        ("tests.unit.consumer.broken_pool_handlers", "handle", "broken_pool_handlers.py:6: no licence on this machine"),
        (MODULE, "missing", "has no attribute 'missing'"),
    ):
        runner = ProcessRunner(ProcessTask(module, function, policy().lanes, None), 2, 60.0)
        with pytest.raises(KodoctlError, match=r"K751") as raised:
            runner.launch()
        assert why in str(raised.value)
        assert "Traceback" not in str(raised.value)
        assert "processes/child.py" not in str(raised.value), "our own lines help nobody"
        assert runner._lines == []


def test_stopping_lets_what_runs_end_and_kills_what_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kodo_consumer.runtime.process_pool.pool._END_WITHIN", 0.3)
    with pool(2) as (runner, desk):
        desk.give("sleep:60")
        runner.wake()
        eventually(lambda: desk.out == 1)
        began = time.monotonic()
    assert time.monotonic() - began < 45
    assert desk.ended == []


def test_a_worker_that_breaks_is_told() -> None:
    runner = ProcessRunner(ProcessTask(MODULE, "handle", policy().lanes, None), 1, 60.0)
    runner.launch()
    desk = Desk()
    desk.broken = True
    runner.start(desk)
    desk.give("fine")
    runner.wake()
    eventually(lambda: desk.problems)
    runner.stop()


def test_processes_end_when_their_worker_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(
        "import sys, time\n"
        "from kodo_consumer.runtime.process_pool.pool import ProcessRunner\n"
        "from kodo_consumer.runtime.process_pool.worker_process import ProcessTask\n"
        "def handle(message): pass\n"
        "if __name__ == '__main__':\n"
        "    runner = ProcessRunner(ProcessTask('__main__', 'handle', (), None), 2, 60.0)\n"
        "    runner.launch()\n"
        "    print(*[line.process.pid for line in runner._lines], flush=True)\n"
        "    time.sleep(60)\n",
        encoding="utf-8",
    )
    worker = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    pids = [int(pid) for pid in worker.stdout.readline().split()]
    assert len(pids) == 2
    worker.kill()
    worker.wait()
    worker.stdout.close()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_what_cannot_run_in_a_process_is_refused_with_everything_that_is_wrong() -> None:
    def inner(message: Message) -> None: ...

    class Thing:
        def __call__(self, message: Message) -> None: ...

    wrong: list[tuple[Any, str]] = [
        (lambda message: None, "lambda"),
        (inner, "function within a function"),
        (Thing(), "imports? a function by its name"),
        (pool_handlers.later, "is async"),
    ]
    for function, why in wrong:
        with pytest.raises(KodoctlError, match="K752") as raised:
            HandlerSpec(function, 2).check()
        assert why.replace("s?", "") in str(raised.value).replace("imports", "import")
    with pytest.raises(KodoctlError) as raised:
        HandlerSpec(lambda: None, 2).check()
    assert [finding.code for finding in raised.value.diagnostics] == ["K750", "K752"]


def test_a_declared_handler_becomes_a_pool() -> None:
    of = policy()
    handling = HandlerSpec(pool_handlers.handle, 2).check()
    assert handling.policy_for_worker(of, Hooks()).concurrency == 2
    slots = (Bulkhead(LaneSet((State.RETRYING,)), 8, 4),)
    fewer = handling.policy_for_worker(policy(concurrency=32, bulkheads=slots), Hooks())
    assert fewer.bulkheads == (Bulkhead(LaneSet((State.RETRYING,)), 1, 0),), "in proportion to processes"
    adaptive = policy(concurrency=128, adaptive=True, bulkheads=slots)
    assert handling.policy_for_worker(adaptive, Hooks()).bulkheads == slots, "there is no total to be in proportion to"
    runner = handling.runner(of, None, Hooks())
    assert isinstance(runner, ProcessRunner)
    runner.stop()


def _number(ended: tuple[str, Outcome]) -> int:
    return int(ended[0].split(":")[1])


@pytest.mark.parametrize(("code", "text"), [(-9, "SIGKILL"), (-40, "signal 40"), (3, "exit 3"), (None, "exit None")])
def test_the_end_of_a_process_has_a_text(code: int | None, text: str) -> None:
    channel = object.__new__(ProcessChannel)
    channel.process = cast("Any", SimpleNamespace(exitcode=code))
    assert channel.end == text
