"""The inbox: what is acknowledged is stored, what is stored is handled, and nothing is accepted twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import kodo_consumer.inbox
import pytest
from kodo_consumer import Consumer, Dead, Message
from kodo_consumer.core.values.broker import LaneRequest
from kodo_consumer.core.values.clock import SystemClock
from kodo_consumer.core.values.envelope import Delivery, Level, Outgoing, State
from kodo_consumer.core.values.policy import Policy
from kodo_consumer.inbox import TABLE, Inbox, inbox_table
from kodo_consumer.inbox.inbox_broker import InboxBroker
from kodo_consumer.inbox.inbox_row import InboxToken, delivery_of, head_of, name_of_row
from kodo_consumer.inbox.inbox_store import InboxStore
from kodo_consumer.runtime.settings import Settings
from kodo_consumer.runtime.thread_executor import ThreadExecutor
from kodo_consumer.runtime.worker import Worker
from kodo_consumer.testing import MemoryBroker
from sqlalchemy import Engine, MetaData, create_engine, create_mock_engine, make_url, select, update
from sqlalchemy.exc import OperationalError

from kodoctl.errors import KodoctlError, UsageError
from tests.services.polling import eventually
from tests.unit.consumer.engine_bench import delivery, policy, topic
from tests.unit.consumer.pump import Pump
from tests.unit.consumer.runtime.worker_place import MemoryCluster
from tests.unit.consumer.topologies import write
from tests.unit.consumer.watching import get

READY = topic(Level.L1, State.READY)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = create_engine(database_url)
    Inbox(made).create_table()
    yield made
    made.dispose()


def _store(engine: Engine, lasts: int = 60_000) -> InboxStore:
    return InboxStore(engine, "p/n/t:s", lasts)


def _names(found: list[Delivery]) -> list[bytes | None]:
    return [one.payload for one in found]


# ---- rows


@pytest.mark.parametrize("payload", [b"x", b"", None])
def test_a_row_gives_the_message_back_as_it_was_received(payload: bytes | None) -> None:
    given = delivery(7, payload, key="k\0", uid="ü\ud800")._replace(
        token="(3,7,1,2)", entry=(3, 7, 1), batch_index=2, event_time=5, ordering_key="o", schema="L1:3", broken="why"
    )
    found = delivery_of(9, "c", head_of(given), payload)
    assert found == given._replace(token=InboxToken(9, "c", "3:7:1:2"))
    assert (str(found.token), found.position) == ("(3,7,1,2)", given.position)
    assert head_of(given).isascii()


def test_repeats_of_first_deliveries_have_one_name_and_moved_copies_their_own() -> None:
    first, again = delivery(1, kodo_id="m"), delivery(2, kodo_id="m")
    assert name_of_row("t", first) == name_of_row("t", again) != name_of_row("other", first)
    for more in ({"kodo-hop": "1"}, {"kodo-recall": "r"}, {"kodo-hop": "x"}):
        properties = {"kodo-id": "m", **more}
        one, two = (delivery(number)._replace(properties=properties) for number in (1, 2))
        assert len({name_of_row("t", one), name_of_row("t", two), name_of_row("t", first)}) == 3
        assert name_of_row("t", one) == name_of_row("t", one)


# ---- the store, on SQLite and PostgreSQL


def test_rows_are_accepted_once_claimed_by_one_and_done_once(engine: Engine) -> None:
    store = _store(engine)
    store.accept("a", [delivery(number, b"%d" % number) for number in range(4)])
    store.accept("a", [delivery(number, b"%d" % number) for number in range(2, 6)])
    store.accept("b", [delivery(9, None)])
    first = store.claim("a", "one", 4)
    assert _names(first) == [b"0", b"1", b"2", b"3"]
    second = store.claim("a", "two", 4)
    assert _names(second) == [b"4", b"5"]
    assert _names(store.claim("b", "two", 4)) == [None]
    assert store.claim("a", "one", 4) == []
    assert store.counts() == {"waiting": 0, "claimed": 7, "done": 0}
    assert store.finish("one", [one.token.row for one in first]) == 0
    assert store.finish("one", [one.token.row for one in second]) == 2, "they are another's"
    assert store.finish("one", [first[0].token.row]) == 1, "it is done already"
    assert store.counts() == {"waiting": 0, "claimed": 3, "done": 4}
    assert InboxStore(engine, "p/n/t:other", 1).counts() == {"waiting": 0, "claimed": 0, "done": 0}


def test_claims_lapse_unless_they_are_renewed_and_end_when_they_are_released(engine: Engine) -> None:
    store, brief = _store(engine), _store(engine, 0)
    store.accept("a", [delivery(1, b"1")])
    assert _names(brief.claim("a", "one", 9)) == [b"1"]
    store.renew(["one"])
    assert store.claim("a", "two", 9) == []
    brief.renew(["one"])
    eventually(lambda: store.claim("a", "two", 9), within=5)
    store.release(["one"])
    assert store.claim("a", "three", 9) == [], "what others claimed since is theirs"
    store.release(["two"])
    assert _names(store.claim("a", "three", 9)) == [b"1"]


def test_a_claim_takes_no_row_that_it_has_already(engine: Engine) -> None:
    """After an outage longer than the claim, the rows of running handlers were delivered to the same worker again."""
    store, lapsed = _store(engine), _store(engine, 0)
    store.accept("a", [delivery(1, b"1"), delivery(2, b"2")])
    assert _names(lapsed.claim("a", "one", 1)) == [b"1"]
    eventually(lambda: store.claim("a", "one", 9), within=5)
    assert store.claim("a", "one", 9) == []
    assert _names(store.claim("a", "two", 9)) == [b"1"]


def test_claims_that_could_not_be_renewed_are_renewed_by_the_next_turn(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[int] = []

    def renew(self: InboxStore, claims: object) -> None:
        renewed.append(1)
        if len(renewed) == 1:
            raise OperationalError("update", {}, Exception("locked"))

    monkeypatch.setattr(InboxStore, "renew", renew)
    broker = InboxBroker(cast("Any", None), _store(engine), renew=1.0, keep=1_000)
    time.sleep(1.1)
    with pytest.raises(OperationalError):
        broker.turn()
    broker.turn()
    broker.turn()
    assert len(renewed) == 2


def test_done_rows_are_forgotten_after_a_while(engine: Engine) -> None:
    store = _store(engine)
    store.accept("a", [delivery(number, b"x") for number in range(5)])
    store.finish("one", [one.token.row for one in store.claim("a", "one", 4)])
    assert store.forget_done(60_000, 10) == 0
    with engine.begin() as connection:
        connection.execute(update(TABLE).where(TABLE.c.done_at.is_not(None)).values(done_at=1))
    assert (store.forget_done(60_000, 3), store.forget_done(60_000, 3)) == (3, 1)
    assert store.counts() == {"waiting": 1, "claimed": 0, "done": 0}


# ---- workers


def broker_of(worker: Worker) -> Any:
    """The inbox through which a worker gets its messages."""
    return worker._connections._broker


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
    def worker(self) -> Iterator[Worker]:
        broker: Any = Inbox(self.engine).open(self.broker, self.policy)
        worker = Worker(self.policy, broker, ThreadExecutor(self.handle, 4), SystemClock(), Random(1))
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

    def maybe(self: InboxStore, *given: Any) -> None:
        if is_gone[0]:
            raise OperationalError("insert", {}, Exception("gone"))
        accept(self, *given)

    monkeypatch.setattr(InboxStore, "accept", maybe)
    place.send("a", "b")
    with place.pumped(), place.worker() as worker:
        eventually(lambda: worker.alarms.counts["inbox"], within=10)
        assert (place.left, place.seen) == (2, {})
        assert broker_of(worker).trouble.startswith("the database")
        is_gone[0] = False
        eventually(lambda: place.left == 0 and len(place.seen) == 2, within=20)
        eventually(lambda: worker.alarms.counts["resumed"] == 1, within=5)


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
        {"0": 0.0},
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
    broker = InboxBroker(MemoryBroker(SystemClock()), store, renew=0.0, keep=60_000)
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
    with pytest.raises(UsageError, match="a database in memory ends with the process"):
        Inbox("sqlite://").open(MemoryBroker(SystemClock()), policy())
    other: Any = create_mock_engine("mysql://", lambda *_: None)
    other.url = make_url("mysql://")
    strange = Inbox("sqlite://")
    strange._engine = other
    with pytest.raises(UsageError, match="K743"):
        strange.check(policy())
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


def test_an_ordered_subscription_takes_no_inbox(tmp_path: Path) -> None:
    topics = """
  ledger:
    subscriptions:
      booking: {type: key_shared, states: [], in_place: [], on_failure: block}
"""
    consumer = Consumer.load(write(tmp_path, topics), topic="ledger", subscription="booking", environ={})
    with pytest.raises(UsageError, match="booking keeps the order of a key"):
        Inbox("sqlite://").open(MemoryBroker(SystemClock()), consumer.policy)


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
