"""The guard while its store is down: it pauses or goes on as it is told, loses nothing and says so."""

from __future__ import annotations

import logging

import pytest
from kodo_consumer.adapters.stores.memory_store import Shelf
from kodo_consumer.core.values.poison import CrashMark
from kodo_consumer.core.values.store import Exchange, StoreAnswer, StoreDownError
from kodo_consumer.runtime.store_session import PendingWrites

from tests.unit.consumer.guarding import Bench, names
from tests.unit.consumer.runtime.test_idempotency_guard import Log


def test_in_a_pause_nothing_starts_nothing_is_lost_and_nothing_counts(caplog: pytest.LogCaptureFixture) -> None:
    handler = Log()
    bench = Bench(handler).open()
    bench.store.down = True
    bench.send(*names(10))
    with caplog.at_level(logging.WARNING):
        bench.later(60)
        assert handler.seen == []
        assert bench.guard.session.down
        bench.store.down = False
        bench.later(3)
    assert sorted(handler.seen) == sorted(names(10))
    assert bench.left() == []
    assert not bench.worker.counts.failed
    told = [record.message for record in caplog.records]
    assert told == [
        "the store cannot be asked, nothing is started until it is back: told to be",
        "the store is back; meanwhile 0 started unmarked, 0 done were not saved",
    ]


def test_what_ends_as_the_store_goes_down_is_acknowledged_late_and_remembered_when_it_is_back() -> None:
    shelf = Shelf()
    bench = Bench(Log(), shelf=shelf).open()
    bench.runner.inner._handler = lambda _: setattr(bench.store, "down", True)
    bench.send("m1")
    bench.run()
    assert bench.left() == [b"m1"], "the store does not know of it yet"
    bench.later(4)
    assert bench.left() == [b"m1"]
    bench.later(2)
    assert bench.left() == []
    assert not shelf.done
    bench.store.down = False
    bench.later(1)
    assert list(shelf.done) == ["m1"]


def test_a_store_that_is_back_as_the_worker_ends_remembers_what_is_done() -> None:
    shelf = Shelf()
    bench = Bench(Log(), shelf=shelf).open()
    bench.runner.inner._handler = lambda _: setattr(bench.store, "down", True)
    bench.send("m1")
    bench.run()
    bench.store.down = False
    bench.runner.guard.leave()
    assert list(shelf.done) == ["m1"]


def test_going_on_handlers_run_unmarked_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    handler, shelf = Log(), Shelf()
    bench = Bench(handler, shelf=shelf, go_on=True)
    bench.store.down = True
    with caplog.at_level(logging.WARNING):
        bench.open()
        bench.send(*names(10))
        bench.run()
        assert sorted(handler.seen) == sorted(names(10))
        assert bench.left() == []
        bench.store.down = False
        bench.later(1)
    assert sorted(shelf.done) == sorted(names(10))
    assert "handlers go on without it" in caplog.text
    assert "meanwhile 10 started unmarked" in caplog.text


def test_in_a_pause_a_worker_does_not_begin_without_its_store() -> None:
    bench = Bench(Log())
    bench.store.down = True
    with pytest.raises(StoreDownError):
        bench.open()


@pytest.mark.parametrize("go_on", [False, True])
def test_a_store_that_fails_in_the_middle_of_a_suspicion_is_down(go_on: bool) -> None:
    handler, shelf = Log(), Shelf()
    shelf.marks["m1"] = CrashMark("gone")
    bench = Bench(handler, shelf=shelf, go_on=go_on).open()
    original = bench.store.exchange

    def exchange_and_fail(told: object) -> object:
        known = original(told)  # type: ignore[arg-type]
        bench.store.down = "m1" in known.marks
        return known

    bench.store.exchange = exchange_and_fail  # type: ignore[assignment, method-assign]
    bench.send("m1")
    bench.run()
    assert bench.guard.session.down
    bench.store.exchange = original  # type: ignore[method-assign]
    bench.store.down = False
    bench.later(3)
    assert (handler.seen, bench.left(), shelf.marks) == (["m1"], [], {})


def test_what_cannot_be_saved_is_bounded_and_counted() -> None:
    unsaved = PendingWrites()
    unsaved.add(done=[str(number) for number in range(100_001)])
    assert (len(unsaved.done), unsaved.done[0], unsaved.forgotten) == (100_000, "1", 1)
    assert unsaved


def test_news_that_come_while_others_are_sent_stay_until_they_are_sent_themselves() -> None:
    unsaved, most = PendingWrites(), 100_000
    unsaved.add(done=names(most), ended=names(most))
    done, ended = unsaved.copy()
    unsaved.add(done=["new", "newer"], ended=["new"])
    assert unsaved.forgotten == 2
    unsaved.remove(len(done), len(ended))
    assert (unsaved.done, unsaved.ended) == (["new", "newer"], ["new"])
    assert unsaved.forgotten == 0, "what was dropped is saved"


def test_more_news_than_were_sent_are_dropped_and_counted() -> None:
    unsaved, most = PendingWrites(), 100_000
    unsaved.add(done=["sent"], ended=["sent"])
    unsaved.copy()
    unsaved.add(done=names(most + 1), ended=names(most + 1))
    unsaved.remove(1, 1)
    assert (len(unsaved.done), unsaved.done[0], unsaved.forgotten) == (most, "m1", 1)
    assert (len(unsaved.ended), unsaved.ended[0]) == (most, "m1")


def test_when_the_store_is_back_nothing_is_removed_that_came_during_the_call() -> None:
    shelf = Shelf()
    bench = Bench(Log(), shelf=shelf, go_on=True)
    bench.store.down = True
    bench.open()
    session = bench.guard.session
    session.unsaved.add(done=names(100_000))
    original = bench.store.exchange

    def exchange(told: Exchange) -> StoreAnswer:
        session.unsaved.add(done=["new"])
        return original(told)

    bench.store.exchange = exchange  # type: ignore[method-assign]
    bench.store.down = False
    session.maintain()
    assert (len(shelf.done), session.unsaved.done) == (100_000, ["new"])
