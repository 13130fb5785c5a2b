"""The inbox: what is acknowledged is stored, what is stored is handled, and nothing is accepted twice."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import kodo_consumer.inbox
import pytest
from kodo_consumer import Consumer, Dead, Message
from kodo_consumer.core.state.observer import Observers
from kodo_consumer.core.values.broker import LaneRequest
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.envelope import Delivery, Level, Outgoing, State
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.inbox import TABLE, Inbox, inbox_table
from kodo_consumer.inbox.inbox_broker import InboxBroker
from kodo_consumer.inbox.inbox_filter import InboxFilter, InboxStatus
from kodo_consumer.inbox.inbox_rows import InboxRows
from kodo_consumer.inbox.inbox_store import InboxStore
from kodo_consumer.message import parts_of
from kodo_consumer.runtime.acknowledged_hooks import InlineAcknowledgedHooks, await_on
from kodo_consumer.runtime.middleware import Hooks
from kodo_consumer.runtime.settings import Settings
from kodo_consumer.runtime.thread_executor import ThreadExecutor
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing import Harness, MemoryBroker
from sqlalchemy import (
    Engine,
    MetaData,
    NullPool,
    create_engine,
    create_mock_engine,
    event,
    inspect,
    make_url,
    select,
    update,
)
from sqlalchemy.exc import OperationalError

from kodoctl.errors import KodoctlError, UsageError
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import delivery, policy, topic
from tests.unit.consumer.pump import Pump
from tests.unit.consumer.runtime.worker_place import MemoryCluster
from tests.unit.consumer.topologies import write
from tests.unit.consumer.watching import get

READY = topic(Level.L1, State.READY)


def _store(engine: Engine, lasts: int = 60_000) -> InboxStore:
    return InboxStore(engine, "p/n/t:s", lasts)


def broker_of(worker: Worker) -> Any:
    """The inbox through which a worker gets its messages."""
    return worker._connections.broker


class Place:
    """A broker in memory, a database, and workers whose handler notes what it got."""

    def __init__(self, engine: Engine, of: Policy | None = None) -> None:
        self.engine, self.policy = engine, of or policy(in_place=(), concurrency=4)
        self.broker = MemoryBroker(SystemClock())
        self.broker.create_for(self.policy)
        self.seen: Counter[bytes] = Counter()
        self.gate = threading.Event()
        self.gate.set()
        self.store = InboxStore(engine, self.policy.lanes[0].subscription, 60_000)

    def send(self, *names: str, **properties: str) -> None:
        for name in names:
            self.broker.send(Outgoing(READY, name.encode(), {"kodo-id": name, **properties}))

    def handle(self, message: Message) -> None:
        self.gate.wait(30)
        self.seen[message.data] += 1
        if message.data == b"fails" and message.state is State.READY:
            raise ValueError
        if message.data == b"dies":
            raise Dead("no")

    @contextmanager
    def worker(self, lasts: int = 60_000, observers: Observers | None = None) -> Iterator[Worker]:
        broker: Any = Inbox(self.engine).open(self.broker, self.policy)
        broker._store = InboxStore(self.engine, self.policy.lanes[0].subscription, lasts)
        executor = ThreadExecutor(self.handle, self.policy.concurrency)
        worker = Worker(self.policy, broker, executor, SystemClock(), Random(1), observers=observers)
        worker.open("w")
        try:
            yield worker
        finally:
            worker.drain()
            worker.close()
            broker.close()

    @contextmanager
    def pumped(self) -> Iterator[None]:
        pump = Pump(self.broker)
        try:
            yield
        finally:
            pump.stop()

    @property
    def left(self) -> int:
        return self.broker.left(READY, "s")


def test_messages_go_through_the_table_to_their_handler(engine: Engine) -> None:
    place = Place(engine)
    names = [f"m{number}" for number in range(300)]
    place.send(*names, "fails", "dies", "m1")
    with place.pumped(), place.worker() as worker:
        eventually(lambda: place.left == 0, within=20)
        eventually(lambda: place.store.counts()["done"] >= 302, within=20)
        eventually(lambda: worker.counts.done == 300)
        assert worker.counts.finished["dead"] == 1
        assert worker.engine.check_invariants() == []
    assert set(place.seen) == {name.encode() for name in (*names, "fails", "dies")}
    assert max(place.seen.values()) == 1, "the second m1 was a repeat"
    (retried,) = place.broker.messages(topic(Level.L1, State.RETRYING))
    assert (retried.payload, retried.properties["kodo-hop"]) == (b"fails", "1")


def test_hooks_of_acknowledged_messages_are_called_once_the_database_has_the_result(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, seen = Place(engine), Counter[tuple[bytes, str]]()
    hooks = Hooks()
    hooks.add("acknowledged", lambda message, rule: seen.update([(message.data, rule)]))
    observers = Observers(acknowledged=InlineAcknowledgedHooks(hooks, await_on(None)))
    place.send("ok", "fails", "dies")
    with place.pumped(), place.worker(observers=observers) as worker:
        eventually(lambda: sum(seen.values()) == 4, within=20)
        assert set(seen) == {(b"ok", "done"), (b"fails", "retrying"), (b"fails", "done"), (b"dies", "dead")}
        eventually(lambda: not worker.busy)
        monkeypatch.setattr(InboxStore, "finish", lambda _, tokens: list(tokens))
        place.send("taken")
        eventually(lambda: place.seen[b"taken"], within=20)
        eventually(lambda: not worker.busy)
    assert (b"taken", "done") not in seen, "another worker had claimed its row"


def test_workers_that_share_a_table_handle_each_message_once(engine: Engine) -> None:
    place = Place(engine)
    place.send(*(f"m{number}" for number in range(200)))
    with place.pumped(), place.worker() as one, place.worker() as two:
        eventually(lambda: place.store.counts() == {"waiting": 0, "claimed": 0, "done": 200}, within=30)
        eventually(lambda: one.counts.done + two.counts.done == 200)  # counted behind the commit
    assert set(place.seen.values()) == {1}


def test_what_a_worker_leaves_behind_others_take_over_at_once_and_finish(engine: Engine) -> None:
    place = Place(engine)
    place.send(*(f"m{number}" for number in range(50)))

    place.gate.clear()
    with place.pumped(), place.worker():
        eventually(lambda: place.store.counts()["claimed"] == 50, within=20)
        assert place.left == 0
    assert place.store.counts() == {"waiting": 50, "claimed": 0, "done": 0}
    place.gate.set()
    with place.pumped(), place.worker():
        eventually(lambda: place.store.counts() == {"waiting": 0, "claimed": 0, "done": 50}, within=20)
    assert len(place.seen) == 50
    assert sum(place.seen.values()) <= 50 + place.policy.concurrency, "what ran at the end runs again"


def test_a_worker_whose_database_is_gone_acknowledges_nothing_and_goes_on_when_it_is_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(engine)
    is_gone = [True]
    accept = InboxStore.accept

    def maybe(self: InboxStore, *given: Any, **options: Any) -> None:
        if is_gone[0]:
            raise OperationalError("insert", {}, Exception("gone"))
        accept(self, *given, **options)

    monkeypatch.setattr(InboxStore, "accept", maybe)
    place.send("a", "b")
    with place.pumped(), place.worker() as worker:
        eventually(lambda: worker.alarms.counts["inbox"], within=10)
        assert (place.left, place.seen) == (2, {})
        assert broker_of(worker).trouble.startswith("the database")
        is_gone[0] = False
        eventually(lambda: place.left == 0 and len(place.seen) == 2, within=20)
        eventually(lambda: worker.alarms.counts["resumed"] == 1)


@pytest.mark.parametrize("is_taken", [True, False])
def test_no_message_starts_while_another_worker_may_have_its_row(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_taken: bool
) -> None:
    """A worker that had no database for longer than its claims started rows that another worker had taken over."""
    place = Place(engine, policy(in_place=(), concurrency=1))
    place.gate.clear()
    place.send("a", "b", "c")
    with place.pumped(), place.worker(3_000) as worker:
        eventually(lambda: place.store.counts()["claimed"] == 3 and worker.counts.started == 1, within=20)
        (first,) = (parts_of(message)[0].position for message in worker.engine.runs.running)
        renew, is_gone = InboxStore.renew, [True]

        def maybe(self: InboxStore, claims: Any, ordered: Any) -> set[int]:
            if is_gone[0]:
                raise OperationalError("update", {}, Exception("gone"))
            return renew(self, claims, ordered)

        monkeypatch.setattr(InboxStore, "renew", maybe)
        (lane,) = (lane for lane in worker.engine.lanes if lane.in_flight)
        ends = worker.engine.scheduler.queues.starts_until
        eventually(lambda: ends[lane.lane.index] < time.monotonic(), within=10)
        if is_taken:
            eventually(lambda: len(place.store.claim(READY, "other", 9)) == 3, within=10)
        else:
            place.gate.set()
            eventually(lambda: place.seen[b"a"] == 1, within=10)
        time.sleep(0.2)
        assert worker.counts.started == 1, "the claims have lapsed"
        is_gone[0] = False
        if is_taken:
            eventually(lambda: "handled twice, because they have started here: " in caplog.text, within=40)
            assert "this worker no longer has 3 rows: the claim lapsed, or a person discarded or" in caplog.text
            assert f"started here: {first}\n" in caplog.text
            place.gate.set()
            eventually(lambda: not worker.busy, within=10)
            assert place.seen == {b"a": 1}
            assert lane.in_flight == 0
        else:
            eventually(lambda: place.store.counts() == {"waiting": 0, "claimed": 0, "done": 3}, within=40)
            assert place.seen == {b"a": 1, b"b": 1, b"c": 1}
        assert worker.engine.check_invariants() == []


def test_rows_are_handled_again_or_discarded_as_people_ask(engine: Engine) -> None:
    place = Place(engine)
    place.send("dies", "well")
    rows = InboxRows(engine)

    def counts(**expected: int) -> None:
        eventually(lambda: rows.counts() == expected, within=20)

    with place.pumped(), place.worker():
        counts(dead=1, done=1)
        (dead,) = rows.status("p/n/t:s")[0]["dead"]
        assert (dead["cause"], dead["rows"]) == ("no", 1)
        assert rows.retry(InboxFilter(cause="no"), limit=9) == 1
        eventually(lambda: place.seen[b"dies"] == 2, within=20)
        counts(dead=1, done=1)
    place.send("dies", "more")
    place.gate.clear()
    with place.pumped(), place.worker():
        counts(dead=1, done=1, claimed=1)  # "dies" is a repeat
    assert rows.discard(InboxFilter(tenant="(none)"), "not wanted", limit=9) == (1, 0)
    counts(dead=1, done=1, discarding=1)
    with place.pumped(), place.worker() as worker:
        counts(dead=1, done=1, discarded=1)
        assert worker.counts.finished["discarded"] == 1
    assert place.seen == {b"dies": 2, b"well": 1}
    (row,) = rows.rows(InboxFilter(statuses=(InboxStatus.DISCARDED,)), 9)
    assert row["reason"] == "not wanted"


def test_a_lane_that_is_left_lets_its_claims_lapse(engine: Engine) -> None:
    place = Place(engine)
    broker: Any = Inbox(engine).open(place.broker, place.policy)

    class Sink:
        """A sink that drops everything, as a worker that left the lane."""

        def __init__(self) -> None:
            self.got: list[Delivery] = []

        def room(self) -> int:
            return 10

        def deliver(self, deliveries: list[Delivery]) -> None:
            self.got.extend(deliveries)

        def on_disconnect(self, partition: str | None = None) -> None: ...

        def start_until(self, moment: float) -> None: ...

        def withdraw(self, tokens: Collection[object]) -> Sequence[object]:
            raise AssertionError(tokens)

        def fail(self, problem: BaseException) -> None:
            raise problem

    lane = broker.open(LaneRequest(READY, "s", "shared", "w", 10, 10, 1_000), sink := Sink())
    place.send("a")
    place.broker.step()
    eventually(lambda: len(sink.got) == 1, within=10)
    before = lane.claim
    lane.leave(0.0)
    assert lane.claim != before
    lane.join()
    place.store.renew([lane.claim])
    with engine.connect() as connection:
        assert connection.execute(select(TABLE.c.claimed_by)).scalar_one() == before
    lane.add_consumers()
    lane.on_disconnect()
    lane.reconnect(0.0, 0.0)
    assert (lane.disconnected_topics, lane.long_connected(1.0), lane.seconds_since_empty()) == (
        (),
        frozenset(),
        {"-1": 0.0},
    )
    with pytest.raises(RuntimeError):
        lane.fail(RuntimeError("ended"))
    lane.close()
    broker.close()
    assert broker.border == place.broker.border
    assert broker.partitions(READY) == [READY]


def test_the_log_says_what_is_to_do_and_since_when(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kodo.consumer")
    store = _store(engine)
    store.accept("a", [delivery(number, b"x") for number in range(3)])
    store.claim("a", "one", 1)
    with engine.begin() as connection:
        connection.execute(update(TABLE).values(received_at=TABLE.c.received_at - 90_000))
    broker = InboxBroker(MemoryBroker(SystemClock()), store, keep=60_000)
    broker._last["log"] -= 60
    assert not broker.turn()
    assert (broker.backlog.waiting, broker.backlog.claimed, broker.trouble) == (2, 1, "")
    assert 90 <= broker.backlog.oldest < 150
    assert "inbox: 3 rows to do, the oldest received 9" in caplog.text
    broker.close()


# ---- what is refused


def test_an_inbox_that_cannot_work_is_refused_at_the_start(tmp_path: Path) -> None:
    inbox = Inbox(f"sqlite:///{tmp_path / 'shop.db'}")
    with pytest.raises(KodoctlError, match=r"K771.*has no table kodo_inbox: call `create_table\(\)`"):
        inbox.open(MemoryBroker(SystemClock()), policy())
    inbox.create_table()
    inbox.create_table()
    assert inbox.counts("p/n/t:s") == {"waiting": 0, "claimed": 0, "done": 0}
    for address in (
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file::memory:?cache=shared&uri=true",
        "sqlite:///file:rows%3Fmode=memory?uri=true",
    ):
        with pytest.raises(UsageError, match="a database in memory ends with the process"):
            Inbox(address).open(MemoryBroker(SystemClock()), policy())
    with pytest.raises(UsageError, match="a database in memory ends with the process"):
        Inbox(create_engine("sqlite:///file:rows?mode=memory&cache=shared&uri=true", poolclass=NullPool)).check()
    Inbox(f"sqlite:///file:{tmp_path / 'shop.db'}?mode=rw&uri=true").check()
    other: Any = create_mock_engine("mysql://", lambda *_: None)
    other.url = make_url("mysql://")
    strange = Inbox("sqlite://")
    strange._engine = other
    with pytest.raises(UsageError, match="K743"):
        strange.check()
    with pytest.raises(UsageError, match="claim: 1s is less than 5s"):
        Inbox("sqlite://", claim="1s")
    with pytest.raises(UsageError, match="keep: "):
        Inbox("sqlite://", keep="long")
    with pytest.raises(KodoctlError, match="K721"):
        Inbox("mysql://x/y")
    gone = Inbox(f"sqlite:///{tmp_path / 'no' / 'shop.db'}")
    for call in (gone.create_table, lambda: gone.counts("x"), lambda: gone.open(MemoryBroker(SystemClock()), policy())):
        with pytest.raises(KodoctlError, match="K721"):
            call()


def test_processes_that_start_together_create_the_table_once(tmp_path: Path) -> None:
    """The other one is first with everything, between this one's check and its statement."""
    file = tmp_path / "shop.db"

    def rush(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "CREATE" in statement and "IF NOT EXISTS" not in statement:
            with closing(sqlite3.connect(file)) as other:
                other.execute(statement)

    engine = create_engine(f"sqlite:///{file}")
    event.listen(engine, "before_cursor_execute", rush)
    Inbox(engine).create_table()
    assert {index["name"] for index in inspect(engine).get_indexes(TABLE.name)} == {one.name for one in TABLE.indexes}
    engine.dispose()


def test_a_handler_names_its_inbox_and_migrations_find_the_table(tmp_path: Path) -> None:
    consumer = Consumer.load(
        write(tmp_path, "  orders: {subscriptions: {billing: {states: [], in_place: []}}}\n"), environ={}
    )
    inbox = Inbox("sqlite://")

    @consumer.handler(inbox=inbox)
    def handle(message: Message) -> None: ...

    assert consumer.handling.inbox is inbox
    metadata = MetaData()
    inbox_table(metadata)
    assert list(metadata.tables) == ["kodo_inbox"]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = kodo_consumer.inbox.nothing


def test_a_consumer_starts_with_its_inbox_shows_it_and_without_a_table_not_at_all(tmp_path: Path) -> None:
    of = policy(in_place=(), concurrency=4)
    place = Place(create_engine("sqlite://"), of)
    cluster: Any = MemoryCluster(of)
    consumer = Consumer(of, lambda: (place.broker, cluster), settings=Settings(port=0))
    inbox = Inbox(f"sqlite:///{tmp_path / 'shop.db'}")

    @consumer.handler(inbox=inbox)
    def handle(message: Message) -> None:
        place.seen[message.data] += 1

    with pytest.raises(KodoctlError, match="has no table kodo_inbox"):
        consumer.start()
    inbox.create_table()
    consumer.start()
    try:
        with place.pumped():
            place.send("a", "b")
            eventually(lambda: len(place.seen) == 2, within=20)
        text = get(str(consumer.address), "/metrics")[1]
        assert 'kodo_consumer_inbox_rows{namespace="p/n"' in text
        assert "kodo_consumer_inbox_oldest_seconds{" in text
        assert consumer.problems == []
    finally:
        consumer.stop()
    assert inbox.counts("p/n/t:s")["done"] == 2


def test_a_batch_handler_gets_its_messages_from_the_inbox(tmp_path: Path) -> None:
    of = policy(in_place=(), concurrency=4)
    place = Place(create_engine("sqlite://"), of)
    cluster: Any = MemoryCluster(of)
    consumer = Consumer(of, lambda: (place.broker, cluster), settings=Settings())
    inbox = Inbox(f"sqlite:///{tmp_path / 'shop.db'}")
    inbox.create_table()

    @consumer.batch_handler(max=10, wait="100ms", inbox=inbox)
    def handle(messages: list[Message]) -> list[Dead | None]:
        place.seen.update(message.data for message in messages)
        return [Dead("no") if message.data == b"dies" else None for message in messages]

    consumer.start()
    try:
        with place.pumped():
            place.send(*(f"m{number}" for number in range(30)), "dies")
            eventually(lambda: inbox.counts("p/n/t:s")["done"] == 31, within=20)
    finally:
        consumer.stop()
    assert (len(place.seen), max(place.seen.values())) == (31, 1)
    rows = InboxRows(create_engine(f"sqlite:///{tmp_path / 'shop.db'}"))
    assert rows.counts() == {"done": 30, "dead": 1}
    rows.close()


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_a_harness_has_its_messages_go_through_the_inbox(tmp_path: Path, kind: str) -> None:
    shape = "states: [retrying], in_place: [], retrying: {delays: [10s], attempts: 2}"
    if kind == "key_shared":
        shape = "type: key_shared, states: [], in_place: [5s], on_failure: block"
    topics = f"  orders: {{subscriptions: {{billing: {{{shape}}}}}}}\n"
    consumer = Consumer.load(write(tmp_path, topics), environ={})
    seen: list[bytes] = []

    @consumer.handler
    def handle(message: Message) -> None:
        seen.append(message.data)
        if seen == [b"a"]:
            raise ValueError

    inbox = Inbox(f"sqlite:///{tmp_path / 'test.db'}")
    inbox.create_table()
    harness = Harness(consumer, inbox=inbox)
    for name in ("a", "b", "c"):
        harness.send(name.encode(), key="k")
    harness.run()
    assert seen == ([b"a", b"b", b"c"] if kind == "shared" else [b"a"])
    assert not harness.waiting("L1", "ready"), "all are in the table"
    harness.advance("15s")
    assert seen == ([b"a", b"b", b"c", b"a"] if kind == "shared" else [b"a", b"a", b"b", b"c"])
    harness.advance("10d")
    harness.send(b"d", key="k")
    harness.run()
    assert seen[-1] == b"d"
    harness.close()
    counts = inbox.counts(consumer.policy.lanes[0].subscription)
    assert counts == {"waiting": 0, "claimed": 0, "done": 5 if kind == "shared" else 4}
