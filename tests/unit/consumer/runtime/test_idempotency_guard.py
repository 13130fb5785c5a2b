"""The guard: what was done is not started again, a crash makes suspects, a store that is down is never passed over in silence."""

from __future__ import annotations

import pytest
from kodo_consumer.adapters.stores import memory_store
from kodo_consumer.adapters.stores.memory_store import MemoryStore, Shelf
from kodo_consumer.core.values.exceptions import Repeat
from kodo_consumer.core.values.outcomes import DONE
from kodo_consumer.core.values.poison import CrashMark
from kodo_consumer.core.values.store import KEEP_S, MOST_PRUNED, Exchange, StoreAnswer
from kodo_consumer.message import Message
from kodo_consumer.testing import ManualClock, MemoryBroker

from tests.unit.consumer.engine_bench import policy
from tests.unit.consumer.guarding import Bench, CrashError, names


class Log:
    """A handler that remembers; `fails` and `repeats` by payload."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.fails: set[str] = set()
        self.repeats: set[str] = set()

    def __call__(self, message: Message) -> None:
        self.seen.append(message.text())
        if message.text() in self.fails:
            raise ValueError
        if message.text() in self.repeats:
            raise Repeat


# ---- only done suppresses


def test_every_message_is_handled_once_and_leaves_no_mark() -> None:
    handler, shelf = Log(), Shelf()
    bench = Bench(handler, shelf=shelf).open()
    bench.send(*names(30))
    bench.run()
    assert sorted(handler.seen) == sorted(names(30))
    assert bench.left() == []
    assert (len(shelf.done), shelf.marks) == (30, {})


def test_what_was_done_is_acknowledged_unhandled_whoever_did_it() -> None:
    handler, shelf = Log(), Shelf()
    first = Bench(handler, shelf=shelf).open()
    first.send("m1", "m2")
    first.run()
    second = Bench(handler, shelf=shelf, run="b").open()
    second.send("m1", "m2", "m3")
    second.run()
    assert handler.seen.count("m1") == 1
    assert second.worker.counts.finished["repeated"] == 2
    assert (second.left(), handler.seen[-1]) == ([], "m3")


def test_failed_and_dead_do_not_suppress_and_a_repeat_of_the_handlers_own_does() -> None:
    handler, shelf = Log(), Shelf()
    handler.fails, handler.repeats = {"m1"}, {"m2"}
    bench = Bench(handler, shelf=shelf).open()
    bench.send("m1", "m2")
    bench.run()
    assert list(shelf.done) == ["m2"]
    assert shelf.marks == {}
    assert bench.worker.counts.finished["repeated"] == 1
    handler.fails.clear()
    bench.later(15)
    assert handler.seen.count("m1") == 2
    assert list(shelf.done) == ["m2", "m1"]


def test_what_was_done_is_handled_once_more_for_each_recall_that_says_again() -> None:
    handler, shelf = Log(), Shelf()
    bench = Bench(handler, shelf=shelf).open()
    bench.send("m1")
    bench.run()
    bench.send("m1", **{"kodo-recall": "r1"})
    bench.run()
    assert handler.seen == ["m1"], "a recall that does not say so sends a repeat"
    handler.fails = {"m1"}
    bench.send("m1", **{"kodo-recall": "r2", "kodo-again": "1"})
    bench.run()
    assert list(shelf.done) == ["m1"], "tried, not done"
    handler.fails = set()
    bench.later(15)  # it comes back from RETRYING, still that recall's
    assert handler.seen == ["m1"] * 3
    bench.send("m1", "m1", **{"kodo-recall": "r2", "kodo-again": "1"})
    bench.send("m1")
    bench.later(2)
    assert handler.seen == ["m1"] * 3, "copies of that recall are repeats, and so is the message itself"
    bench.send("m1", **{"kodo-recall": "r3", "kodo-again": "1"})
    bench.run()
    assert handler.seen == ["m1"] * 4
    assert (list(shelf.done), shelf.marks, bench.left()) == (["m1", "m1 again:r2", "m1 again:r3"], {}, [])


def test_what_only_such_a_recall_has_done_is_done() -> None:
    handler, shelf = Log(), Shelf()
    bench = Bench(handler, shelf=shelf).open()
    bench.send("m1", **{"kodo-recall": "r1", "kodo-again": "1"})
    bench.run()
    bench.send("m1")
    bench.run()
    assert handler.seen == ["m1"]
    assert set(shelf.done) == {"m1", "m1 again:r1"}, "whoever asks for it by its identity is told"


def test_two_copies_of_one_message_are_never_handled_at_once() -> None:
    bench = Bench(Log()).open()
    bench.send("m1", "m1")
    bench.broker.step()
    bench.guard.step()
    bench.guard.step()
    assert len(bench.guard.next_batch([], 4)) == 1
    assert bench.worker.counts.waited["not_started"] == 1


def test_a_message_another_worker_has_in_hand_waits_for_that_workers_word() -> None:
    handler, shelf = Log(), Shelf()
    shelf.marks["m1"] = CrashMark("other")
    shelf.beats["other"] = 1
    bench = Bench(handler, shelf=shelf).open()
    bench.send("m1", "m2")
    for _ in range(8):
        shelf.beats["other"] += 1
        bench.later(1)
    assert handler.seen == ["m2"]
    del shelf.marks["m1"]
    shelf.done["m1"] = shelf.clock()
    bench.later(2)
    assert (handler.seen, bench.left()) == (["m2"], [])


# ---- poison


def test_a_suspect_runs_alone_and_goes_on_as_if_nothing_had_been() -> None:
    handler, shelf = Log(), Shelf()
    for number in range(3):
        shelf.marks[f"m{number}"] = CrashMark("gone")
    bench = Bench(handler, shelf=shelf).open()
    alone: list[tuple[str, int]] = []
    bench.runner.inner._handler = lambda message: alone.append((message.text(), len(bench.guard._out)))
    bench.send(*names(6))
    bench.later(10)
    assert sorted(name for name, _ in alone) == names(6)
    assert {out for name, out in alone if name in {"m0", "m1", "m2"}} == {1}
    assert bench.left() == []
    assert shelf.marks == {}


def test_a_suspect_stays_alone_however_long_its_handler_runs() -> None:
    """Others started beside it after 30 s, and its crash then counted as one while alone."""
    shelf = Shelf()
    shelf.marks["m0"] = CrashMark("gone")
    bench = Bench(Log(), shelf=shelf, of=policy(concurrency=4, handler_timeout=300_000)).open()
    bench.runner.inner.stop()  # handlers are started and ended by hand
    bench.send("m0")
    bench.run()
    (suspect,) = bench.guard.next_batch([], 4)
    bench.send("m1", "m2", "m3", "m4")
    bench.later(120)
    assert bench.guard.next_batch([], 4) == []
    bench.guard.next_batch([(suspect, DONE)], 0)
    bench.run()
    assert len(bench.guard.next_batch([], 4)) == 4


def test_a_suspect_that_is_given_up_before_it_starts_is_not_waited_for() -> None:
    handler, shelf = Log(), Shelf()
    shelf.marks["m0"] = CrashMark("gone")
    bench = Bench(handler, shelf=shelf).open()
    exchange = bench.store.exchange

    def slow(told: Exchange) -> StoreAnswer:
        if told.starting:
            bench.clock.advance(31)
            bench.worker.tick()
        return exchange(told)

    bench.store.exchange = slow  # type: ignore[method-assign]
    bench.send("m0")
    bench.run()
    assert handler.seen == []
    assert bench.guard._suspects.room(0, bench.clock.now() + 31) == 4


def test_poison_dies_after_three_crashes_alone_and_its_neighbours_do_not() -> None:
    clock = ManualClock()
    broker, shelf = MemoryBroker(clock), Shelf()
    seen: list[str] = []

    def handler(message: Message) -> None:
        seen.append(message.text())
        if message.text() == "poison":
            raise CrashError

    run, crashes = 0, 0
    bench = Bench(handler, broker, shelf, "run0", clock=clock).open()
    bench.send("m0", "m1", "poison", "m2", "m3")
    while crashes < 10:
        try:
            bench.later(20)
        except CrashError:
            crashes += 1
            bench.crash()
            run += 1
            bench = Bench(handler, broker, shelf, f"run{run}", clock=clock).open()
            continue
        break
    assert crashes == 4, "once beside others, three times alone"
    assert bench.left() == []
    assert bench.policy.dead_letter is not None
    (dead,) = broker.messages(bench.policy.dead_letter.topic)
    assert dead.payload == b"poison"
    assert dead.properties["kodo-reason"] == "ended its worker 3 times while it ran alone"
    assert set(seen) == {"m0", "m1", "m2", "m3", "poison"}
    assert {"m0", "m1", "m2", "m3"} <= shelf.done.keys()
    assert "poison" in shelf.marks, "until it is surely dead"
    bench.later(61)
    assert shelf.marks == {}


def test_without_dead_letters_poison_stays_and_never_starts_again() -> None:
    handler, shelf = Log(), Shelf()
    shelf.marks["m1"] = CrashMark("gone", alone=True, crashes=2)
    bench = Bench(handler, shelf=shelf, of=policy(dead=False)).open()
    bench.send("m1")
    bench.later(400, every=2)
    assert handler.seen == []
    assert bench.left() == [b"m1"]
    assert bench.worker.counts.waited["stuck"] > 2


def test_a_mark_of_ones_own_whose_commit_was_not_confirmed_is_no_suspicion() -> None:
    handler, shelf = Log(), Shelf()
    shelf.marks.update({"m1": CrashMark("a"), "m2": CrashMark("a", alone=True, crashes=1)})
    bench = Bench(handler, shelf=shelf).open()
    bench.send("m1", "m2")
    bench.later(3)
    assert sorted(handler.seen) == ["m1", "m2"]
    assert (bench.left(), shelf.marks) == ([], {})


def test_a_suspect_that_another_worker_took_meanwhile_is_left_to_it() -> None:
    handler, shelf = Log(), Shelf()
    bench = Bench(handler, shelf=shelf).open()
    shelf.marks["m1"] = CrashMark("gone")
    bench.store.take_over = lambda *_: False  # type: ignore[method-assign]
    bench.send("m1")
    bench.later(3)
    shelf.marks["m1"] = CrashMark("gone", alone=True, crashes=2)
    bench.later(3)
    assert handler.seen == []
    assert bench.left() == [b"m1"]


def test_a_message_given_up_by_the_worker_has_no_mark_and_its_late_end_is_ignored() -> None:
    shelf = Shelf()
    bench = Bench(Log(), shelf=shelf).open()
    bench.send("m1", "m2")
    bench.broker.step()
    bench.guard.step()
    bench.guard.step()
    (hanging,) = bench.guard.next_batch([], 1)
    bench.clock.advance(31)
    bench.worker.tick()
    bench.guard.time_out(hanging)
    assert bench.guard.next(hanging, DONE) is None, "the other one was given up while it waited for its slot"
    bench.run()
    assert shelf.marks == {}


# ---- the end, and old ids


def test_a_clean_end_leaves_no_marks_and_no_sign_of_life() -> None:
    shelf = Shelf()
    bench = Bench(Log(), shelf=shelf).open()
    bench.send("m1", "m2")
    bench.broker.step()
    bench.guard.step()
    bench.guard.step()
    assert set(shelf.marks) == {"m1", "m2"}
    (first,) = bench.guard.next_batch([], 1)
    bench.guard.next_batch([(first, DONE)], 0)
    bench.worker.drain()
    bench.worker.close()
    assert (shelf.marks, shelf.beats) == ({}, {})
    assert list(shelf.done) == [first.id], "what ended last is known, too"
    assert bench.left() == [b"m2"]


def test_more_is_remembered_than_all_workers_can_hold() -> None:
    shelf = Shelf()
    bench = Bench(Log(), shelf=shelf, of=policy(lookahead_messages=500, expected_workers=2)).open()
    assert bench.guard.session.keep == 11_000
    shelf.beats.update({"b": 1, "c": 1})
    bench.later(1)
    assert bench.guard.session.keep == 11_500
    shelf.done.update(dict.fromkeys((f"old{number}" for number in range(12_000)), shelf.clock() - KEEP_S - 1))
    bench.send("m1")
    bench.run()
    bench.guard.session.maintain(prune=True)
    assert len(shelf.done) == 11_500
    bench.guard.session.maintain(prune=True)
    assert len(shelf.done) == 11_500


def test_many_old_ids_are_deleted_in_several_calls_so_that_signs_of_life_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call deleted all: above 200,000 ids it took longer than other workers wait for a sign of life."""
    bench = Bench(Log(), of=policy(lookahead_messages=500)).open()
    bench.send("m1")
    bench.run()
    deleted = [MOST_PRUNED, MOST_PRUNED + 1, 7]
    monkeypatch.setattr(bench.store, "prune", lambda _keep, _seconds: deleted.pop(0))
    bench.guard.session.maintain(prune=True)
    for _ in range(4):
        bench.guard.session.maintain()
    assert deleted == []


def test_what_was_done_within_the_hour_is_remembered_and_a_copy_of_it_is_none_to_handle() -> None:
    """The copy of a move waited behind 12,000 others."""
    shelf = Shelf()
    bench = Bench(Log(), shelf=shelf, of=policy(lookahead_messages=500)).open()
    bench.send("m1")
    bench.run()
    (done,) = shelf.done
    now = shelf.clock()
    shelf.done = {done: now - KEEP_S + 60, **dict.fromkeys((f"other{number}" for number in range(12_000)), now)}
    bench.send("m2")
    bench.run()
    bench.guard.session.maintain(prune=True)
    assert bench.store.exchange(Exchange(starting=[done])).done == {done}


def test_memory_keeps_a_million_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_store, "MOST", 20)
    store = MemoryStore("a")
    store.exchange(Exchange(done=[str(number) for number in range(30)]))
    assert store.prune(10, 3600) == 10
    assert store.exchange(Exchange(starting=["9", "10"])).done == {"10"}


def test_a_runner_that_breaks_ends_the_worker() -> None:
    bench = Bench(Log()).open()
    problem = ValueError("ours")
    bench.guard.fail(problem)
    assert bench.worker.problem is problem
