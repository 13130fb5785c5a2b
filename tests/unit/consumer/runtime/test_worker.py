"""The worker under failures of its own: others' threads go on, and somebody is told."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import kodo_consumer
import pytest
from kodo_consumer.core.values.broker import Confirmed
from kodo_consumer.core.values.limit_policy import Concurrency
from kodo_consumer.message import Message
from kodo_consumer.runtime.async_executor import AsyncExecutor
from kodo_consumer.runtime.thread_executor import ThreadExecutor
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing import ManualClock, MemoryBroker

from kodoctl.errors import KodoctlError, error
from tests.native.compiled import INTERPRETED_ONLY
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import Bench, delivery, policy
from tests.unit.consumer.runtime.worker_place import Place

CALLS: dict[str, Callable[[Worker], Any]] = {
    "deliver": lambda worker: worker.deliver(0, [delivery()]),
    "room": lambda worker: worker.room(0),
    "on_disconnect": lambda worker: worker.on_disconnect(0),
    "receipts": lambda worker: worker.receipts([(1, Confirmed(""))]),
}


@INTERPRETED_ONLY
@pytest.mark.parametrize("name", CALLS)
def test_a_failure_of_the_worker_on_an_adapters_thread_ends_the_worker_and_not_that_thread_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, of = ManualClock(), policy()
    broker = MemoryBroker(clock)
    broker.create_for(of)
    worker = Worker(of, broker, ThreadExecutor(lambda message: None, 1), clock, Random(1))
    told: list[bool] = []
    worker.supervise(lambda: None, lambda: told.append(True))
    worker.open("w")

    def fail(*_: Any) -> None:
        raise RuntimeError(name)

    monkeypatch.setattr(worker.engine, name, fail)
    assert not CALLS[name](worker)
    assert (str(worker.problem), told) == (name, [True])
    worker.close()


def test_a_worker_whose_handlers_cannot_start_leaves_its_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, of = ManualClock(), policy()
    broker = MemoryBroker(clock)
    broker.create_for(of)
    runner = ThreadExecutor(lambda message: None, 1)

    def refuse(_: Any) -> None:
        raise KodoctlError(error("K741", "store cannot be asked", "down"))

    monkeypatch.setattr(runner, "start", refuse)
    worker = Worker(of, broker, runner, clock, Random(1))
    with pytest.raises(KodoctlError, match="store cannot be asked"):
        worker.open("w")
    assert not any(sub.lanes for found in broker._topics.values() for sub in found.subscriptions.values())
    assert not worker.opened


ROOT = Path(__file__).parents[4]


def test_waking_handlers_whose_loop_has_just_been_closed_is_harmless() -> None:
    async def handle(message: Message) -> None: ...

    runner = AsyncExecutor(handle, 1)
    runner.stop()
    runner._stopping = False  # as seen by a thread that asked just before the end
    runner.wake()
    runner.time_out(Bench(policy()).take_all())  # type: ignore[arg-type]


def test_a_short_time_out_is_kept_also_when_nothing_else_happens() -> None:
    place = Place(policy(handler_timeout=200, in_place=(), concurrency=1))
    place.gate.clear()
    place.send()
    place.service.start()
    try:
        eventually(lambda: place.worker.counts.timed_out, within=3)
    finally:
        place.gate.set()
        place.service.stop()
        place.pump.stop()


def test_a_worker_does_not_leave_before_what_is_over_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(policy(concurrency=1))
    place.service.start()
    about_to, go_on = threading.Event(), threading.Event()
    lane: Any = type(place.worker.reader(0))
    acknowledge = lane.acknowledge

    def slowly(reader: Any, tokens: Any) -> None:
        about_to.set()
        assert go_on.wait(10)
        acknowledge(reader, tokens)

    monkeypatch.setattr(lane, "acknowledge", slowly)
    place.send()
    assert about_to.wait(10)
    assert place.worker.busy
    go_on.set()
    eventually(lambda: not place.worker.busy)
    place.service.stop()
    place.pump.stop()


def test_the_watchdog_counts_those_at_a_gate_and_those_behind_their_key() -> None:
    bench = Bench(policy(limits=(Concurrency(None, 1, shared=False),)))
    bench.give(delivery(1), delivery(2))
    assert len(bench.take_all()) == 1
    assert bench.engine.check_invariants() == []
    next(iter(bench.engine.scheduler.shut)).waiters.clear()
    assert bench.engine.check_invariants() == ["1 limited by record, 0 by structure"]
    ordered = Bench(policy(ordered=True))
    ordered.give(delivery(1, key="k"), delivery(2, key="k"))
    assert ordered.engine.check_invariants() == []
    ordered.engine.lanes[0].key_queues = ordered.engine.lanes[3].key_queues = ordered.engine.lanes[4].key_queues = {}
    assert any("blocked_by_key by record" in problem for problem in ordered.engine.check_invariants())


def test_limits_are_shared_by_the_expected_workers_whatever_keeps_the_live_ones_from_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(policy(limits=(Concurrency(None, 4, shared=True),), expected_workers=3))
    shared: list[int] = []
    monkeypatch.setattr(place.worker, "share_limits", shared.append)
    monkeypatch.setattr(place.cluster, "stats", lambda *_: dict[str, Any]()["no such answer"])
    place.service.start()
    eventually(lambda: shared == [3])
    place.service.stop()
    place.pump.stop()


def test_what_is_over_is_no_error_and_what_needs_nobody_only_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kodo.consumer")
    worker = Worker(
        policy(), MemoryBroker(ManualClock()), ThreadExecutor(lambda message: None, 1), ManualClock(), Random(0)
    )
    told = worker.engine.context.effects
    told.alarm("stuck", "a")
    told.alarm("isolated", "b", severe=False)
    told.alarm("resumed", "c", good=True)
    for alarm in told.alarms:
        worker.alarms.write(alarm)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "INFO"]


def test_every_kind_of_alarm_is_in_the_how_to() -> None:
    root = Path(kodo_consumer.__file__).parent
    made = re.compile(r"""(?:Alarm|\.alarm)\(\s*"(\w+)\"""")
    kinds = {kind for file in root.rglob("*.py") for kind in made.findall(file.read_text(encoding="utf-8"))}
    told = (ROOT / "docs/how-to/alerts.md").read_text(encoding="utf-8").split("##")[0]
    assert {kind for kind in kinds if f"`{kind}`" not in told} == set()
    assert len(kinds) > 10
