"""A store that is locked, slow, frozen, corrupt or gone: handlers stand still or go on as configured, and it is said."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kodo_consumer.adapters.stores import sql_store
from kodo_consumer.adapters.stores.sql_store import SqlStore
from kodo_consumer.core.values.lease_protocol import LeaseRequest, RateSpec
from kodo_consumer.core.values.store import Exchange, StoreDownError
from kodo_consumer.message import Message
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from tests.services.databases import Postgres
from tests.unit.consumer.guarding import Bench

Fault = Callable[[], Any]


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_store, "PATIENCE", 0.5)


@contextmanager
def _sqlite_locked(url: str) -> Iterator[None]:
    engine = create_engine(url)
    with engine.connect() as other:
        other.exec_driver_sql("BEGIN EXCLUSIVE")
        yield
    engine.dispose()


@contextmanager
def _sqlite_corrupt(url: str) -> Iterator[None]:
    file = Path(make_url(url).database or "")
    file.write_bytes(os.urandom(8192))
    for beside in ("-wal", "-shm"):
        Path(f"{file}{beside}").unlink(missing_ok=True)
    yield
    file.unlink()  # what a person does: the store makes a new one


@contextmanager
def _table_locked(url: str) -> Iterator[None]:
    engine = create_engine(url)
    with engine.begin() as other:
        other.execute(text("LOCK TABLE kodo_started IN ACCESS EXCLUSIVE MODE"))
        yield
    engine.dispose()


@contextmanager
def _five_seconds_late(url: str) -> Iterator[None]:
    engine = create_engine(url)
    with engine.begin() as other:
        other.execute(
            text(
                "CREATE FUNCTION late() RETURNS trigger AS $$ BEGIN PERFORM pg_sleep(5); RETURN NULL; END $$ LANGUAGE plpgsql"
            )
        )
        other.execute(text("CREATE TRIGGER late BEFORE DELETE ON kodo_started FOR STATEMENT EXECUTE FUNCTION late()"))
        other.execute(text("CREATE TRIGGER late2 BEFORE INSERT ON kodo_started FOR STATEMENT EXECUTE FUNCTION late()"))
    yield
    with engine.begin() as other:
        other.execute(text("DROP FUNCTION late CASCADE"))
    engine.dispose()


FAULTS = {
    "sqlite": [_sqlite_locked, _sqlite_corrupt],
    "postgresql": [_table_locked, _five_seconds_late],
}


@pytest.mark.parametrize("go_on", [False, True])
@pytest.mark.parametrize("number", [0, 1])
def test_a_store_that_cannot_be_asked(
    database_url: str, number: int, go_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def handle(message: Message) -> None:
        seen.append(message.text())

    def new() -> Bench:
        bench = Bench(handle, go_on=go_on)
        bench.store = bench.guard.session._store = SqlStore(make_url(database_url), "p/n/t:s", "a")  # type: ignore[assignment]
        return bench

    bench = new().open()
    bench.send("m1")
    bench.run()
    bench.store.close()  # a corrupt file shows when it is opened
    fault = FAULTS[database_url.partition(":")[0].partition("+")[0]][number]
    with caplog.at_level(logging.ERROR), fault(database_url):
        bench.send("m2", "m3")
        bench.later(2)
        assert sorted(seen) == (["m1", "m2", "m3"] if go_on else ["m1"])
        assert bench.left() == ([] if go_on else [b"m2", b"m3"])
        assert "the store cannot be asked" in caplog.text
    bench.later(4)
    assert sorted(seen) == ["m1", "m2", "m3"]
    assert bench.left() == []
    assert not bench.guard.session.down
    bench.send("m2", "m3")
    bench.run()
    assert sorted(seen) == ["m1", "m2", "m3"], "what was done meanwhile is remembered"
    bench.store.close()


def test_a_frozen_server_is_cut_off(own_postgres: Postgres) -> None:
    store = SqlStore(make_url(own_postgres.create()), "p/n/t:s", "a")
    store.create()
    store.beat()
    servers = own_postgres.pids()
    for pid in servers:
        os.kill(pid, signal.SIGSTOP)
    try:
        ended: list[BaseException] = []

        def ask() -> None:
            try:
                store.exchange(Exchange(starting=["m1"]))
            except StoreDownError as problem:
                ended.append(problem)

        thread = threading.Thread(target=ask)
        thread.start()
        deadline = time.monotonic() + 30
        while thread.is_alive() and time.monotonic() < deadline:
            store.interrupt()
            thread.join(0.1)
        assert len(ended) == 1
    finally:
        for pid in servers:
            os.kill(pid, signal.SIGCONT)
    store.exchange(Exchange(starting=["m1"]))
    store.close()


def test_a_server_that_was_restarted_is_asked_again_at_once(own_postgres: Postgres) -> None:
    store = SqlStore(make_url(own_postgres.create()), "p/n/t:s", "a")
    store.create()
    store.exchange(Exchange(done=["m1"]))
    own_postgres.stop()
    with pytest.raises(StoreDownError):
        store.exchange(Exchange(starting=["m1"]))
    own_postgres.start()
    assert store.exchange(Exchange(starting=["m1"])).done == {"m1"}
    store.close()


@pytest.mark.parametrize(
    "kept",
    [
        "{", "[1]", '["a", "b", 1, 2, 3, 4]', '[0, 0, 0, 0, [["a", "b"]], {"x": [1]}]', "null", "[0, 0, [], 0, [], []]",
        "[" * 100_000,
    ],
    ids=["no JSON", "too short", "texts", "a text for a part", "null", "no holders by name", "too deep"],
)  # fmt: skip
def test_an_account_of_a_limit_that_nobody_can_read_begins_anew(
    database_url: str, kept: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqlStore(make_url(database_url), "p/n/t:s", "a")
    store.create()
    asked = [LeaseRequest("shop", RateSpec(0.1, 3), wanted=2)]
    store.grant(asked)
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE kodo_lent SET account = :kept"), {"kept": kept})
    [granted] = store.grant(asked)
    assert sum(run.count for run in granted.runs) == 2
    assert "limits: shop in kodo_lent is unreadable" in caplog.text
    store.close()
    engine.dispose()
