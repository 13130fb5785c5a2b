"""The three ways to have an effect once, on SQLite and a real PostgreSQL, sync and async."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Consumer, Message, Repeat, Retry, Unavailable
from kodo_consumer.adapters.stores.sql_store import SqlStore
from kodo_consumer.adapters.stores.sql_tables import DONE
from kodo_consumer.core.values.outcomes import DependencyUnavailable
from kodo_consumer.core.values.store import Exchange
from kodo_consumer.dedup import advance, create_tables, forget, issue_token, once, take_token
from kodo_consumer.testing import Harness, message
from sqlalchemy import (
    Column,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.unit.consumer.topologies import DOUBLE, write

own = MetaData()
EFFECTS = Table("effects", own, Column("number", Integer))
ACCOUNTS = Table(
    "accounts", own, Column("name", String(20), primary_key=True), Column("total", Integer), Column("version", Integer)
)


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"
    name: Mapped[str] = mapped_column(primary_key=True)
    total: Mapped[int]
    version: Mapped[int]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = create_engine(database_url)
    create_tables(made)
    own.create_all(made)
    yield made
    made.dispose()


def effects(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(EFFECTS)) or 0


def in_session(engine: Engine, handler: Callable[[Any], object]) -> None:
    with Session(engine) as session, session.begin():
        handler(session)


def in_connection(engine: Engine, handler: Callable[[Any], None]) -> None:
    with engine.begin() as connection:
        handler(connection)


Ways = pytest.mark.parametrize("transaction", [in_session, in_connection])


def _bill(session: Any, order: Message) -> None:
    order.once(session)
    session.execute(insert(EFFECTS).values(number=1))


# ---- a unique key in the handler's own transaction


@Ways
def test_a_message_has_its_effect_once(engine: Engine, transaction: Any) -> None:
    order, other = message(properties={"kodo-id": "o1"}), message(properties={"kodo-id": "o2"})
    transaction(engine, lambda session: _bill(session, order))
    with pytest.raises(Repeat):
        transaction(engine, lambda session: _bill(session, order))
    transaction(engine, lambda session: _bill(session, other))
    assert effects(engine) == 2


@Ways
def test_only_what_was_committed_suppresses(engine: Engine, transaction: Any) -> None:
    order = message(properties={"kodo-id": "o1"})

    def fail(session: Any) -> None:
        _bill(session, order)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        transaction(engine, fail)
    transaction(engine, lambda session: _bill(session, order))
    assert effects(engine) == 1


@Ways
def test_a_repeat_rolls_the_transaction_back_even_when_the_effect_came_first_and_nobody_lets_it_pass(
    engine: Engine, transaction: Any
) -> None:
    order = message(properties={"kodo-id": "o1"})
    transaction(engine, order.once)

    def swallow(session: Any) -> None:
        session.execute(insert(EFFECTS).values(number=1))
        with pytest.raises(Repeat):
            order.once(session)

    transaction(engine, swallow)
    assert effects(engine) == 0


def test_what_is_written_as_a_test_does_its_work(engine: Engine) -> None:
    """`if message.once(session):` is how most people write it: its body never ran, and the message counted as done."""
    order = message(properties={"kodo-id": "o1"})

    def as_a_test(session: Session) -> None:
        session.execute(insert(ACCOUNTS).values(name="a", total=0, version=7))
        token = issue_token(session)
        if order.once(session):
            session.execute(insert(EFFECTS).values(number=1))
        if advance(session, Account, {"name": "a"}, version=7, values={"total": 5}):
            session.execute(insert(EFFECTS).values(number=2))
        if take_token(session, token):
            session.execute(insert(EFFECTS).values(number=3))

    in_session(engine, as_a_test)
    assert effects(engine) == 3


def test_a_recall_that_says_again_has_its_effect_once_and_the_message_counts_as_done(engine: Engine) -> None:
    def recalled(*recall: str) -> None:
        effect = f"o1 again:{recall[0]}" if recall else None
        in_session(engine, lambda session: once(session, "p/n/t:s", "o1", effect))

    recalled("r1")
    recalled("r2")
    for more in ((), ("r1",), ("r2",)):
        with pytest.raises(Repeat):
            recalled(*more)
    with engine.connect() as connection:
        assert set(connection.scalars(select(DONE.c.identity))) == {"o1", "o1 again:r1", "o1 again:r2"}


def test_what_a_worker_forgets_is_not_what_a_handler_wrote(engine: Engine) -> None:
    """The promise of `once` has no end, also where the worker's store is the same database."""
    order = message(properties={"kodo-id": "o1"})
    in_session(engine, lambda session: once(session, "p/n/t:s", order.id))
    store = SqlStore(engine.url, "p/n/t:s", "a")
    store.exchange(Exchange(done=["o2", "o3"]))
    threading.Event().wait(0.01)
    store.exchange(Exchange(done=["o4"]))
    assert store.prune(1, 0) == 2
    assert store.exchange(Exchange(starting=["o1", "o2", "o4"])).done == {"o1", "o4"}, "a worker asks for both"
    store.close()
    with pytest.raises(Repeat):
        in_session(engine, lambda session: once(session, "p/n/t:s", order.id))


def test_old_ones_are_forgotten_where_the_owner_says_so(engine: Engine) -> None:
    for name in ("o1", "o2"):
        in_session(engine, partial(once, subscription="p/n/t:s", identity=name))
    with engine.begin() as connection:
        connection.execute(update(DONE).where(DONE.c.identity == "o1").values(at=DONE.c.at - 3_600_000))
    forgotten: list[int] = []
    in_session(engine, lambda session: forgotten.append(forget(session, timedelta(days=1))))
    in_connection(engine, lambda connection: forgotten.append(forget(connection, timedelta(minutes=59))))
    assert forgotten == [0, 1]
    with pytest.raises(Repeat):
        in_session(engine, lambda session: once(session, "p/n/t:s", "o2"))
    in_session(engine, lambda session: once(session, "p/n/t:s", "o1"))


def test_each_subscription_has_its_own_effects(engine: Engine) -> None:
    for subscription in ("p/n/t:billing", "p/n/t:audit"):
        in_session(engine, partial(once, subscription=subscription, identity="o1"))
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(DONE)) == 2


def test_of_two_at_the_same_time_one_waits_and_is_a_repeat(engine: Engine) -> None:
    order = message(properties={"kodo-id": "o1"})
    repeats, began = [], threading.Event()

    def second() -> None:
        began.set()
        with pytest.raises(Repeat):
            in_session(engine, lambda session: _bill(session, order))
        repeats.append(1)

    thread = threading.Thread(target=second)
    with Session(engine) as session, session.begin():
        _bill(session, order)
        thread.start()
        began.wait()
    thread.join()
    assert (repeats, effects(engine)) == ([1], 1)


def test_a_missing_table_is_no_failure_of_the_message_and_says_what_to_do(
    database_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders became dead letters within seconds, because somebody had forgotten a migration."""
    monkeypatch.setattr("kodo_consumer.dedup._complained", [float("-inf")])
    bare = create_engine(database_url)
    order = message(properties={"kodo-id": "o1"})
    for way in (order.once, lambda s: take_token(s, "t"), issue_token, lambda s: forget(s, timedelta(1))):
        with caplog.at_level(logging.WARNING), pytest.raises(Unavailable) as found:
            in_session(bare, way)
        assert str(found.value) == "database (K742 table not found)"
        assert found.value.outcome == DependencyUnavailable("database (K742 table not found)")
        assert found.value.__cause__ is None
    with pytest.raises(Unavailable, match="K742"):
        in_session(bare, lambda s: advance(s, ACCOUNTS, {"name": "a"}, version=1, values={"total": 5}))
    [told] = [record.getMessage() for record in caplog.records]
    assert "kodo_done" in told
    assert "create_tables(engine)" in told
    create_tables(bare)
    in_session(bare, order.once)
    bare.dispose()


def test_a_missing_table_stops_no_message_for_good(tmp_path: Path) -> None:
    """The same through a whole consumer: nothing dies, nothing is counted, and all is done once the table is there."""
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    own.create_all(engine)
    consumer = Consumer.load(write(tmp_path, DOUBLE), topic="orders", subscription="billing")

    @consumer.handler
    def bill(order: Message) -> None:
        in_session(engine, lambda session: _bill(session, order))

    harness = Harness(consumer)
    for number in range(3):
        harness.send({"order": number}, properties={"uid": "u"}, id=f"o{number}")
    harness.advance("10m")
    assert (harness.dead_letters, effects(engine)) == ([], 0)
    create_tables(engine)
    harness.advance("2m")
    assert (harness.dead_letters, effects(engine)) == ([], 3)
    engine.dispose()


@pytest.mark.parametrize("together", [True, False], ids=["one transaction", "one for each message"])
def test_a_repeat_in_a_batch_is_acknowledged_and_the_other_messages_are_handled(
    tmp_path: Path, *, together: bool
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    create_tables(engine)
    own.create_all(engine)
    consumer = Consumer.load(write(tmp_path, DOUBLE), topic="orders", subscription="billing")

    def bill(session: Any, orders: list[Message]) -> None:
        for order in orders:
            _bill(session, order)

    @consumer.batch_handler(max=10, wait="0s")
    def handle(orders: list[Message]) -> None:
        for part in [orders] if together else [[order] for order in orders]:
            in_session(engine, partial(bill, orders=part))

    harness = Harness(consumer)
    for number in (1, 1, 2, 3, 2):
        harness.send({"order": number}, properties={"uid": "u"}, id=f"o{number}")
    harness.run()
    assert (effects(engine), harness.dead_letters) == (3, [])
    assert harness.counts.done + harness.counts.finished["repeated"] == 5
    engine.dispose()


def test_a_database_that_nobody_tested_is_a_setting_and_no_failure_of_the_message() -> None:
    engine = create_engine("sqlite://")
    engine.dialect.name = "mysql"
    with engine.connect() as connection, pytest.raises(Unavailable, match="K743"):
        once(connection, "p/n/t:s", "o1")


def test_a_database_that_is_gone_is_no_failure_of_the_message(
    own_postgres: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kodo_consumer.dedup._complained", [float("-inf")])
    gone = create_engine(own_postgres.create())
    create_tables(gone)
    order = message(properties={"kodo-id": "o1"})
    with gone.connect() as connection:
        connection.execute(text("select 1"))
        own_postgres.stop()
        with caplog.at_level(logging.WARNING), pytest.raises(Unavailable):
            order.once(connection)
    with pytest.raises(Unavailable):
        in_session(gone, order.once)
    [told] = [record.getMessage() for record in caplog.records if record.name == "kodo.consumer"]
    assert "its messages wait" in told
    own_postgres.start()
    in_session(gone, order.once)
    gone.dispose()


def test_a_locked_file_is_no_failure_of_the_message(tmp_path: Any) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/a.db", connect_args={"timeout": 0.05})
    create_tables(engine)
    with engine.connect() as other:
        other.exec_driver_sql("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable):
            in_session(engine, message().once)
    in_session(engine, message().once)
    engine.dispose()


# ---- a condition on the version


@Ways
@pytest.mark.parametrize("table", [ACCOUNTS, Account])
def test_a_change_made_for_a_version_is_made_once(engine: Engine, transaction: Any, table: Any) -> None:
    transaction(engine, lambda session: session.execute(insert(ACCOUNTS).values(name="a", total=0, version=7)))

    def change(session: Any, version: int = 7) -> None:
        session.execute(insert(EFFECTS).values(number=1))
        advance(session, table, {"name": "a"}, version=version, values={"total": getattr(table, "c", table).total + 5})

    transaction(engine, change)
    with pytest.raises(Repeat, match="at version 8, past 7"):
        transaction(engine, change)
    with pytest.raises(Retry, match="made for version 9 of its accounts, which is at 8"):
        transaction(engine, lambda session: change(session, 9))
    with engine.connect() as connection:
        assert connection.execute(select(ACCOUNTS.c.total, ACCOUNTS.c.version)).one() == (5, 8)
    assert effects(engine) == 1


def test_a_change_of_a_row_that_is_not_there_is_tried_again(engine: Engine) -> None:
    with pytest.raises(Retry, match="its accounts is not there yet"):
        in_session(engine, lambda session: advance(session, ACCOUNTS, {"name": "z"}, version=1, values={"total": 1}))


def test_a_change_whose_turn_comes_while_it_asks_for_the_version_is_made_with_the_next_try(postgres_url: str) -> None:
    """It counted as a repeat: the other one committed between its UPDATE, which found no row, and its SELECT."""
    engine = create_engine(postgres_url)
    own.create_all(engine)
    in_connection(engine, lambda session: session.execute(insert(ACCOUNTS).values(name="a", total=0, version=1)))
    change = partial(advance, table=ACCOUNTS, where={"name": "a"}, values={"total": ACCOUNTS.c.total + 5})
    with engine.connect() as first, engine.connect() as second:

        def commit_first(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if statement.startswith("UPDATE"):
                first.commit()

        change(first, version=1)
        event.listen(second, "after_cursor_execute", commit_first)
        with pytest.raises(Retry, match="made for version 2 of its accounts, which has come to it just now"):
            change(second, version=2)
    in_session(engine, lambda session: change(session, version=2))
    with engine.connect() as connection:
        assert connection.execute(select(ACCOUNTS.c.total, ACCOUNTS.c.version)).one() == (10, 3)
    engine.dispose()


def test_another_column_may_count(engine: Engine) -> None:
    in_session(engine, lambda session: session.execute(insert(ACCOUNTS).values(name="a", total=1, version=0)))
    in_session(engine, lambda s: advance(s, Account, {"name": "a"}, version=1, values={"version": 9}, column="total"))
    with engine.connect() as connection:
        assert connection.execute(select(ACCOUNTS.c.total, ACCOUNTS.c.version)).one() == (2, 9)


# ---- a one-time token


@Ways
def test_a_token_is_taken_once(engine: Engine, transaction: Any) -> None:
    tokens: list[str] = []
    transaction(engine, lambda session: tokens.append(issue_token(session)))
    transaction(engine, lambda session: tokens.append(issue_token(session, "mine" * 100)))
    assert tokens[1] == "mine" * 100

    def use(session: Any, token: str) -> None:
        session.execute(insert(EFFECTS).values(number=1))
        take_token(session, token)

    for token in tokens:
        transaction(engine, lambda session, token=token: use(session, token))
        with pytest.raises(Repeat):
            transaction(engine, lambda session, token=token: use(session, token))
    with pytest.raises(Repeat):
        transaction(engine, lambda session: use(session, "never issued"))
    assert effects(engine) == 2


def test_a_token_issued_twice_is_the_producers_error(engine: Engine) -> None:
    from sqlalchemy.exc import IntegrityError

    in_session(engine, lambda session: issue_token(session, "t"))
    with pytest.raises(IntegrityError):
        in_session(engine, lambda session: issue_token(session, "t"))


# ---- async


@asynccontextmanager
async def _async_engine(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url.replace("sqlite://", "sqlite+aiosqlite://"))
    yield engine
    await engine.dispose()


def test_async_sessions_do_all_three(engine: Engine, database_url: str) -> None:
    async def work() -> None:
        async with _async_engine(database_url) as there:
            async with AsyncSession(there) as session, session.begin():
                await session.execute(insert(ACCOUNTS).values(name="a", total=0, version=1))
                token = await issue_token(session)
            order = message(properties={"kodo-id": "o1"})
            for expected in (False, True):
                for way in (
                    order.once,
                    lambda s: take_token(s, token),
                    lambda s: advance(s, Account, {"name": "a"}, version=1, values={"total": 5}),
                ):
                    assert await _repeats(there, way) is expected
            async with there.begin() as connection:
                await message(properties={"kodo-id": "o2"}).once(connection)

    asyncio.run(work())
    assert effects(engine) == 3


async def _repeats(engine: AsyncEngine, way: Callable[[AsyncSession], Any]) -> bool:
    try:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(insert(EFFECTS).values(number=1))
            await way(session)
    except Repeat:
        return True
    return False


def test_work_that_nobody_awaits_is_no_test(engine: Engine, database_url: str) -> None:
    """Without `await` nothing is remembered: to take that for a yes would repeat effects, for a no would lose them."""
    order = message(properties={"kodo-id": "o1"})

    async def work() -> None:
        async with _async_engine(database_url) as there, AsyncSession(there) as session, session.begin():
            with pytest.raises(TypeError, match="await"):
                bool(waits := order.once(session))
            assert await waits is True
            assert await asyncio.create_task(issue_token(session, "t")) == "t"
            assert await take_token(session, "t") is True
            await session.execute(insert(ACCOUNTS).values(name="a", total=0, version=1))
            assert await advance(session, Account, {"name": "a"}, version=1, values={"total": 5}) is True
            assert await forget(session, timedelta(days=1)) == 0

    asyncio.run(work())


def test_what_is_wrong_with_the_statement_is_raised_as_it_is(engine: Engine) -> None:
    from sqlalchemy.exc import SQLAlchemyError

    with pytest.raises(SQLAlchemyError):
        in_session(
            engine,
            lambda s: advance(s, ACCOUNTS, {"name": "a"}, version=1, values={"total": text("no_such_function(1)")}),
        )
