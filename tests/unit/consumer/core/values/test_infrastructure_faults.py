"""Errors are the message's or the infrastructure': what real databases and the system report, and what becomes of a message."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer import Unavailable
from kodo_consumer.adapters.stores.sql_store import SqlStore
from kodo_consumer.core.values.error_text import ErrorTextReader
from kodo_consumer.core.values.infrastructure_faults import FaultKind, fault_of
from kodo_consumer.core.values.outcomes import DependencyUnavailable, Failed
from kodo_consumer.core.values.policy import ErrorTextPolicy
from kodo_consumer.core.values.store import StoreDownError
from kodo_consumer.dedup import create_tables, once
from kodo_consumer.runtime.handler_errors import ExceptionReporter
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

LACKING, AWAY, BUSY = FaultKind.LACKING, FaultKind.AWAY, FaultKind.BUSY
WEAK_ROLE = "kodo_weak"


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = create_engine(database_url)
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE bills (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL)"))
    yield made
    made.dispose()


def _raised(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(Exception) as found:  # noqa: PT011  # whatever the driver makes of it
        call()
    return found.value


def _said(engine: Engine, statement: str) -> BaseException:
    def execute() -> None:
        with engine.begin() as connection:
            connection.execute(text(statement))

    return _raised(execute)


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("INSERT INTO nowhere VALUES (1)", LACKING),
        ("INSERT INTO bills (id, colour) VALUES (1, 2)", LACKING),
        ("SELECT colour FROM bills", LACKING),
        ("INSERT INTO bills (id) VALUES (1)", None),
        ("INSERT INTO bills VALUES (1, 2), (1, 3)", None),
        ("SELEKT 1", None),
        ("SELECT no_such_function(1)", None),
    ],
)
def test_what_a_database_lacks_is_no_fault_of_the_message(
    engine: Engine, statement: str, kind: FaultKind | None
) -> None:
    problem = _said(engine, statement)
    for one in (problem, getattr(problem, "orig", None)):
        found = fault_of(one) if isinstance(one, BaseException) else None
        assert (found and found.kind) == kind
    expected = Failed if kind is None else DependencyUnavailable
    assert isinstance(ExceptionReporter().outcome(problem), expected)


def test_a_missing_right_is_no_fault_of_the_message(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE bills (id INTEGER)"))
        connection.execute(text(f"CREATE ROLE {WEAK_ROLE}"))
    weak = create_engine(make_url(postgres_url).update_query_dict({"options": f"-c role={WEAK_ROLE}"}))
    try:
        found = fault_of(_said(weak, "INSERT INTO bills VALUES (1)"))
        assert found == (LACKING, "database", "permission denied for table bills")
        create_tables(engine)
        said = r"database \(permission denied for table kodo_done\)"
        with Session(weak) as session, pytest.raises(Unavailable, match=said):
            once(session, "p/n/t:s", "o1")
        store = SqlStore(weak.url, "p/n/t:s", "a")
        with pytest.raises(StoreDownError, match="permission denied for table kodo_"):
            store.create()
        with engine.begin() as connection:
            rights = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO"
            connection.execute(text(f"{rights} {WEAK_ROLE}"))
            connection.execute(text(f"REVOKE INSERT ON kodo_handled FROM {WEAK_ROLE}"))
        with pytest.raises(StoreDownError, match="permission denied for table kodo_handled"):
            store.create()
        with engine.begin() as connection:
            connection.execute(text(f"GRANT INSERT ON kodo_handled TO {WEAK_ROLE}"))
        store.create()
        assert store.count() == (0, 0), "what was tried leaves nothing"
        store.close()
    finally:
        weak.dispose()
        with engine.begin() as connection:
            connection.execute(text(f"DROP OWNED BY {WEAK_ROLE}"))
            connection.execute(text(f"DROP ROLE {WEAK_ROLE}"))
        engine.dispose()


def test_a_full_disk_a_file_that_is_read_only_and_one_that_is_locked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    engine = create_engine(url, connect_args={"timeout": 0.01})
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE bills (text TEXT)"))

    def fill() -> None:
        with engine.begin() as connection:
            connection.execute(text("PRAGMA max_page_count = 3"))
            connection.execute(text("INSERT INTO bills VALUES (:value)"), {"value": "x" * 100_000})

    assert fault_of(_raised(fill)) == (AWAY, "database", "database or disk is full")
    read_only = create_engine(f"sqlite:///file:{tmp_path}/a.db?mode=ro&uri=true")
    assert fault_of(_said(read_only, "INSERT INTO bills VALUES (1)")) == (
        AWAY, "database", "attempt to write a readonly database",
    )  # fmt: skip
    store = SqlStore(read_only.url, "p/n/t:s", "a")
    with pytest.raises(StoreDownError, match="readonly"):
        store.create()
    impatient = create_engine(url, connect_args={"timeout": 0.01})
    with engine.connect() as other:
        other.exec_driver_sql("BEGIN EXCLUSIVE")
        locked = _said(impatient, "INSERT INTO bills VALUES (1)")
    assert (fault_of(locked) or [None])[0] == BUSY
    assert ExceptionReporter().outcome(locked) == Failed("OperationalError"), "it may succeed in a moment"
    store.close()
    for one in (engine, read_only, impatient):
        one.dispose()


def test_a_database_that_cannot_be_reached_or_gives_no_connection(tmp_path: Path) -> None:
    nobody = create_engine("postgresql+psycopg://kodo@127.0.0.1:1/none")
    assert (fault_of(_said(nobody, "SELECT 1")) or [None])[0] == AWAY
    small = create_engine(f"sqlite:///{tmp_path}/a.db", pool_size=1, max_overflow=0, pool_timeout=0.01)
    with small.connect():
        problem = _raised(small.connect)
    small.dispose()
    assert isinstance(problem, SQLAlchemyError)
    assert (fault_of(problem) or [None])[0] == AWAY


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE])
def test_a_machine_without_room_is_no_fault_of_the_message(number: int) -> None:
    problem = OSError(number, os.strerror(number), "/var/lib/shop/anna.pdf")
    assert ExceptionReporter().outcome(problem) == DependencyUnavailable(f"machine ({os.strerror(number)})")


@pytest.mark.parametrize(
    "problem",
    [
        FileNotFoundError(2, "x"),
        PermissionError(13, "x"),
        ConnectionRefusedError(),
        TimeoutError(),
        OSError("odd"),
        KeyError(1),
    ],
)
def test_what_may_be_of_the_message_is_the_messages(problem: Exception) -> None:
    assert ExceptionReporter().outcome(problem) == Failed(type(problem).__name__)


def test_what_is_redacted_is_not_told_as_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    with closing(sqlite3.connect(":memory:")) as database, pytest.raises(sqlite3.OperationalError) as found:
        database.execute("SELECT * FROM anna")
    texts = ErrorTextReader(ErrorTextPolicy(100, 100, (r"anna",)))
    with caplog.at_level(logging.WARNING):
        assert ExceptionReporter(texts).outcome(found.value) == DependencyUnavailable("database")
    assert "anna" not in caplog.text
    assert "its messages wait for: database" in caplog.text
    assert ExceptionReporter().outcome(found.value) == DependencyUnavailable("database (no such table: anna)")
