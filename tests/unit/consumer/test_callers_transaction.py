"""What is written in the caller's transaction vanishes with it, or is refused: each way of writing, each way of committing by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kodo_consumer import Consumer, Message, Unavailable
from kodo_consumer.adapters.stores.callers_transaction import why_not_undone
from kodo_consumer.adapters.stores.sql_tables import DONE, TOKENS, metadata
from kodo_consumer.dedup import advance, create_tables, issue_token, once, take_token
from kodo_consumer.outbox import Outbox
from kodo_consumer.outbox.table import TABLE
from kodo_consumer.testing import Harness
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, event, func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from kodoctl.errors import UsageError
from tests.unit.consumer.topologies import DOUBLE, write

own = MetaData()
ACCOUNTS = Table("accounts", own, Column("name", String(20), primary_key=True), Column("version", Integer))

WAYS: dict[str, Callable[[Any], object]] = {
    "once": lambda session: once(session, "p/n/t:s", "o1"),
    "advance": lambda session: advance(session, ACCOUNTS, {"name": "a"}, version=1, values={}),
    "issue_token": lambda session: issue_token(session, "new"),
    "take_token": lambda session: take_token(session, "old"),
    "outbox": lambda session: Outbox().add(session, topic="orders", payload={}),
}
Ways = pytest.mark.parametrize("way", WAYS)


class RolledBackError(Exception):
    pass


def _begin_by_itself(engine: Engine) -> Engine:
    """As SQLAlchemy's page of SQLite says, so that savepoints are savepoints."""
    event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return engine


def _prepared(engine: Engine) -> Engine:
    create_tables(engine)
    for tables in (own, TABLE.metadata):
        tables.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(ACCOUNTS).values(name="a", version=1))
        connection.execute(insert(TOKENS).values(token="old", at=0))
    return engine


@pytest.fixture
def file(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/a.db"
    _prepared(create_engine(url)).dispose()
    return url


def _state(engine: Engine) -> tuple[Any, ...]:
    with engine.connect() as connection:
        rows = [connection.scalar(select(func.count()).select_from(table)) for table in (DONE, TABLE)]
        version = connection.scalar(select(ACCOUNTS.c.version))
        return (*rows, version, *connection.scalars(select(TOKENS.c.token)))


UNTOUCHED = (0, 0, 1, "old")


def _at_work(session: Any, work: Callable[[Any], object], *, nested: bool = False) -> None:
    """A handler that writes, in a savepoint or not, and fails with what comes after."""
    with session.begin_nested() if nested else nullcontext():
        work(session)
    raise RolledBackError


def _in_session(engine: Engine, work: Callable[[Any], object], *, nested: bool = False) -> None:
    with Session(engine) as session, session.begin():
        _at_work(session, work, nested=nested)


def _in_connection(engine: Engine, work: Callable[[Any], object], *, nested: bool = False) -> None:
    with engine.begin() as connection:
        _at_work(connection, work, nested=nested)


async def _in_async_session(engine: AsyncEngine, work: Callable[[Any], object], *, nested: bool = False) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await session.run_sync(_at_work, work, nested=nested)


@Ways
@pytest.mark.parametrize("nested", [False, True], ids=["plain", "savepoint"])
def test_a_rollback_undoes_what_was_written(database_url: str, way: str, nested: bool) -> None:
    engine = create_engine(database_url)
    _prepared(_begin_by_itself(engine) if engine.dialect.name == "sqlite" else engine)
    for transaction in (_in_session, _in_connection):
        with pytest.raises(RolledBackError):
            transaction(engine, WAYS[way], nested=nested)
    assert _state(engine) == UNTOUCHED
    engine.dispose()


def _refused(engine: Engine, work: Callable[[Any], object], said: str, *, nested: bool = False) -> None:
    for transaction in (_in_session, _in_connection):
        with pytest.raises((Unavailable, UsageError), match=said):
            transaction(engine, work, nested=nested)
    assert _state(engine) == UNTOUCHED
    engine.dispose()


@Ways
@pytest.mark.parametrize("database", ["file", "postgres_url"])
def test_a_connection_that_commits_each_statement_is_refused(
    way: str, database: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(database)
    if database == "postgres_url":
        _prepared(create_engine(url)).dispose()
    _refused(create_engine(url, isolation_level="AUTOCOMMIT"), WAYS[way], "AUTOCOMMIT")


@Ways
def test_a_driver_of_sqlite_that_begins_no_transaction_is_refused(way: str, file: str) -> None:
    engine = create_engine(file, connect_args={"isolation_level": None})
    _refused(engine, WAYS[way], "AUTOCOMMIT")


@Ways
def test_a_savepoint_of_sqlite_that_commits_at_its_end_is_refused(way: str, file: str) -> None:
    """The message counted as done and the row was sent, of a transaction that was rolled back."""
    _refused(create_engine(file), WAYS[way], "SQLite's driver may commit at the end of the savepoint", nested=True)


@Ways
def test_async_sessions_are_asked_as_well(way: str, file: str) -> None:
    url = file.replace("sqlite:", "sqlite+aiosqlite:")

    async def run(*, nested: bool, **options: Any) -> None:
        engine = create_async_engine(url, **options)
        try:
            await _in_async_session(engine, WAYS[way], nested=nested)
        finally:
            await engine.dispose()

    for work in (run(nested=False, isolation_level="AUTOCOMMIT"), run(nested=True)):
        with pytest.raises((Unavailable, UsageError), match="rollback would undo nothing"):
            asyncio.run(work)
    with pytest.raises(RolledBackError):
        asyncio.run(run(nested=False))
    engine = create_engine(file)
    assert _state(engine) == UNTOUCHED
    engine.dispose()


def _as_asyncpg(commits: bool) -> SimpleNamespace:
    """SQLAlchemy's adapter knows the isolation level, the driver's connection does not."""
    return SimpleNamespace(dbapi_connection=SimpleNamespace(autocommit=commits), driver_connection=object())


def _as_pymysql(commits: bool) -> SimpleNamespace:
    driver = SimpleNamespace(autocommit=lambda value: None, get_autocommit=lambda: commits)
    return SimpleNamespace(dbapi_connection=driver, driver_connection=driver)


@pytest.mark.parametrize("driver", [_as_asyncpg, _as_pymysql])
def test_drivers_are_asked_in_their_own_ways_whether_they_commit_each_statement(
    driver: Callable[[bool], SimpleNamespace],
) -> None:
    def why(commits: bool) -> str:
        connection = SimpleNamespace(connection=driver(commits), dialect=SimpleNamespace(name="other"))
        return why_not_undone(SimpleNamespace(connection=lambda **_: connection), DONE)

    assert "AUTOCOMMIT" in why(commits=True)
    assert why(commits=False) == ""


def test_a_message_waits_for_a_connection_that_can_roll_back(tmp_path: Path) -> None:
    """The effect failed, the mark had been committed: the repeat was acknowledged, and the work was lost."""
    engines = [
        create_engine(f"sqlite:///{tmp_path}/a.db", isolation_level="AUTOCOMMIT"),
        create_engine(f"sqlite:///{tmp_path}/a.db"),
    ]
    metadata.create_all(engines[1])
    own.create_all(engines[1])
    consumer = Consumer.load(write(tmp_path, DOUBLE), topic="orders", subscription="billing")
    used, tries = engines[0], []

    @consumer.handler
    def bill(order: Message) -> None:
        with used.begin() as connection:
            order.once(connection)
            tries.append(order)
            if len(tries) == 1:
                raise RolledBackError
            connection.execute(insert(ACCOUNTS).values(name="a", version=1))

    harness = Harness(consumer)
    harness.send({}, properties={"uid": "u"}, id="o1")
    harness.advance("1m")
    assert (harness.dead_letters, tries) == ([], [])
    used = engines[1]
    harness.advance("5m")
    with engines[1].connect() as connection:
        assert connection.scalar(select(ACCOUNTS.c.name)) == "a", "it failed once, and was done at the next try"
    assert (harness.counts.done, len(tries)) == (1, 2)
    for engine in engines:
        engine.dispose()
