"""What every store promises: memory, SQLite and a real PostgreSQL, the same tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kodo_consumer.adapters.stores.memory_store import MemoryStore, Shelf
from kodo_consumer.adapters.stores.sql_store import SqlStore
from kodo_consumer.core.values.lease_protocol import ConcurrencySpec, LeaseRequest, QuotaSpec, RateSpec
from kodo_consumer.core.values.poison import CrashMark
from kodo_consumer.core.values.store import Exchange, LeaseStore, Store, StoreAnswer, name_of
from sqlalchemy.engine import make_url

Open = Callable[[str], Store]


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the store of a worker, by its run; all of them share one subscription."""
    opened: list[Store] = []
    shelf = Shelf()

    def open_store(run: str) -> Store:
        if request.param == "memory":
            store: Store = MemoryStore(run, shelf)
        else:
            file = f"sqlite:///{tmp_path}/store.db"
            url = file if request.param == "sqlite" else request.getfixturevalue("postgres_url")
            sql = SqlStore(make_url(url), "p/n/t:s", run)
            sql.create()
            store = sql
        opened.append(store)
        return store

    if request.param == "postgresql":
        request.getfixturevalue("postgres_url")
    yield open_store
    for store in opened:
        store.close()


def test_only_what_is_done_suppresses(store_of: Open) -> None:
    a, b = store_of("a"), store_of("b")
    assert a.exchange(Exchange(starting=["1", "2", "3"])) == StoreAnswer()
    assert a.exchange(Exchange(done=["1"], ended=["2"])) == StoreAnswer()
    known = b.exchange(Exchange(starting=["1", "2", "3", "4"]))
    assert known == StoreAnswer(frozenset({"1"}), {"3": CrashMark("a")})
    assert a.exchange(Exchange(starting=["2", "4"])).marks == {"2": CrashMark("b"), "4": CrashMark("b")}


def test_done_twice_is_no_error_and_nobody_takes_anothers_mark_away(store_of: Open) -> None:
    a, b = store_of("a"), store_of("b")
    a.exchange(Exchange(starting=["1", "2"]))
    b.exchange(Exchange(done=["1"], ended=["2"]))
    a.exchange(Exchange(done=["1"]))
    assert b.exchange(Exchange(starting=["1", "2"])) == StoreAnswer(frozenset({"1"}), {"2": CrashMark("a")})


def test_what_is_done_leaves_no_mark(store_of: Open) -> None:
    a, b = store_of("a"), store_of("b")
    a.exchange(Exchange(starting=["0"]))
    b.exchange(Exchange(done=["0"]))
    assert b.exchange(Exchange(starting=["0"])).done == {"0"}
    assert not b.take_over("0", CrashMark("a"), CrashMark("b"))
    a.exchange(Exchange(done=["1"]))
    a.exchange(Exchange(starting=["1"]))
    assert not b.take_over("1", CrashMark("a"), CrashMark("b"))


def test_many_at_once(store_of: Open) -> None:
    names = [str(number) for number in range(1_203)]
    a, b = store_of("a"), store_of("b")
    assert a.exchange(Exchange(starting=names)) == StoreAnswer()
    a.exchange(Exchange(done=names[:601]))
    known = b.exchange(Exchange(starting=names))
    assert (known.done, known.marks.keys()) == (frozenset(names[:601]), set(names[601:]))


def test_one_of_two_takes_a_mark_over(store_of: Open) -> None:
    a, b, c = store_of("a"), store_of("b"), store_of("c")
    a.exchange(Exchange(starting=["1"]))
    found = b.exchange(Exchange(starting=["1"])).marks["1"]
    assert b.take_over("1", found, CrashMark("b", alone=True, crashes=1))
    assert not c.take_over("1", found, CrashMark("c", alone=True, crashes=1))
    assert c.exchange(Exchange(starting=["1"])).marks == {"1": CrashMark("b", alone=True, crashes=1)}


def test_signs_of_life_are_counted_until_a_worker_leaves_with_its_marks(store_of: Open) -> None:
    a, b = store_of("a"), store_of("b")
    assert a.beat() == {"a": 1}
    assert b.beat() == {"a": 1, "b": 1}
    assert a.beat() == {"a": 2, "b": 1}
    a.exchange(Exchange(starting=["1"], done=["2"]))
    b.exchange(Exchange(starting=["3"]))
    a.leave()
    assert b.beat() == {"b": 2}
    known = store_of("c").exchange(Exchange(starting=["1", "2", "3"]))
    assert known == StoreAnswer(frozenset({"2"}), {"3": CrashMark("b")})


def test_the_last_ones_done_are_kept(store_of: Open) -> None:
    a = store_of("a")
    for number in range(30):
        a.exchange(Exchange(done=[str(number)]))
        threading.Event().wait(0.002)  # the database's clock counts milliseconds
    assert a.prune(100, 0) == 0
    assert a.prune(10, 0) == 20
    known = a.exchange(Exchange(starting=[str(number) for number in range(30)]))
    assert known.done == {str(number) for number in range(20, 30)}
    assert a.prune(0, 0) <= 10


def test_what_was_done_a_short_while_ago_is_kept_however_much_it_is(store_of: Open) -> None:
    """A copy of a message may wait as long as those before it: its id counts by time, too."""
    a = store_of("a")
    done = [f"m{number}" for number in range(2_100)]
    a.exchange(Exchange(done=done))
    threading.Event().wait(0.01)
    a.exchange(Exchange(done=["last"]))
    assert a.prune(1, 3600) == 0
    assert a.exchange(Exchange(starting=done)).done == set(done)
    assert a.prune(1, 0) == len(done)


def test_of_two_workers_with_one_message_one_starts(store_of: Open) -> None:
    """Both ask at the same time, again and again: never two starts, and what one has done the other sees."""
    stores = [store_of("a"), store_of("b")]
    starts: list[str] = []

    def work(store: Store) -> None:
        for number in range(60):
            name = f"m{number}"
            known = store.exchange(Exchange(starting=[name]))
            if name not in known.done and name not in known.marks:
                starts.append(name)
                store.exchange(Exchange(done=[name]))

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(starts) == sorted(f"m{number}" for number in range(60))


@pytest.mark.parametrize("identity", ["order-17", "日本", "1:2:3:-1"])
def test_short_identities_are_kept_as_they_are(identity: str) -> None:
    assert name_of(identity) == identity


@pytest.mark.parametrize("identity", ["x" * 201, "nul\0", "\ud800", "sha256:abc", "a\nb"])
def test_identities_that_databases_refuse_are_kept_as_digests(identity: str, store_of: Open) -> None:
    name = name_of(identity)
    assert name.startswith("sha256:")
    assert len(name) == 71
    store = store_of("a")
    store.exchange(Exchange(done=[name]))
    assert store.exchange(Exchange(starting=[name])).done == {name}


# ---- limits that workers share

CAP = ConcurrencySpec(3)


def _lease_store(store: Store) -> LeaseStore:
    assert isinstance(store, LeaseStore)
    return store


def test_what_one_has_borrowed_no_other_is_lent(store_of: Open) -> None:
    a, b = _lease_store(store_of("a")), _lease_store(store_of("b"))
    rate = RateSpec(1, 50)  # tokens of 50 s are kept: the machine may stall between two grants
    long = "rate::" + "x" * 500
    requests = [LeaseRequest("cap", CAP, 2), LeaseRequest(long, rate, 10)]
    mine, slots = a.grant(requests)
    assert (mine.name, mine.permits, slots.name) == ("cap", 2, long)
    others, others_slots = b.grant([LeaseRequest("cap", CAP, 2), LeaseRequest(long, rate, 10)])
    assert (others.permits, others_slots.sharers) == (1, 2)
    (first,), (second,) = slots.runs, others_slots.runs
    assert first.count == 10
    assert second.mark >= first.mark + 10 - 1e-6
    a.grant([LeaseRequest("cap", CAP, 0), LeaseRequest(long, rate, 0, back=(first.mark + 9,))])
    assert [grant.permits for grant in b.grant([LeaseRequest("cap", CAP, 3, in_use=1)])] == [3]
    assert b.grant([LeaseRequest(long, rate, 1)])[0].runs[0].mark == pytest.approx(first.mark + 9)
    assert list(a.grant([])) == []


def test_workers_that_borrow_at_the_same_time_are_lent_no_token_twice(store_of: Open) -> None:
    """Each asks for two accounts, in different orders: nobody waits for each other in a circle."""
    stores = [_lease_store(store_of(run)) for run in "abc"]
    quota = QuotaSpec(40, 3_600.0)
    leased: list[int] = []

    def work(store: LeaseStore, turned: bool) -> None:
        for _ in range(15):
            requests = [LeaseRequest("p", quota, 1), LeaseRequest("q", quota, 1)]
            grants = store.grant(requests[::-1] if turned else requests)
            leased.extend(run.count for grant in grants for run in grant.runs)

    threads = [threading.Thread(target=work, args=(store, store.run == "b")) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(leased) == 80
